/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt.c - checkpoints saved and loaded by ranks that are threads, whole and damaged. */
#include "tap.h"

#include "base/file.h"
#include "base/philox.h"
#include "ckpt/agree.h"
#include "ckpt/checkpoint.h"
#include "ckpt/range.h"
#include "doc/doc.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 4, MAX_RANKS = 8, MAX_UNITS = 8 };

static char folder[64];
static struct mics_model *model;

static void in_folder(char *buf, const char *name)
{
    snprintf(buf, MICS_PATH_MAX, "%s/%s", folder, name);
}

/* One rank: its numbers, and what it is told to fail at. */
struct rank {
    struct mics_comm *comm;
    struct mics_plan_choice choice;
    struct mics_layout layouts[MAX_UNITS];
    struct mics_ckpt_form form;
    uint32_t states, parts;
    uint64_t step;
    bool load, fail_take, spoil;
    uint64_t put, wrong; /* elements that came back, and those that were not as they went */
    enum mics_status status;
    struct mics_err err;
};

/* What element `element` of a unit's flat vector is, whoever holds it: padding is 0. */
static float value_of(const struct rank *rank, uint32_t unit, uint32_t state, uint64_t element)
{
    if (element >= model->units[unit].count)
        return 0;
    return (float)mics_philox_uniform(rank->step, unit * 4 + state, element);
}

/* Where element i of this rank's shard is in the unit's flat vector. */
static uint64_t element_of(const struct rank *rank, uint32_t unit, uint64_t i)
{
    const struct mics_layout *layout = &rank->layouts[unit];
    const uint64_t piece = layout->optim_piece;
    const uint32_t index = mics_shape_index(&rank->choice.shape, (uint32_t)rank->comm->rank).optim;

    return mics_layout_piece_offset(layout, (uint32_t)(i / piece), piece, index) + i % piece;
}

static enum mics_status take(void *context, uint32_t unit, uint32_t state, uint64_t first,
                             uint64_t count, float *dst, struct mics_err *err)
{
    const struct rank *rank = context;

    if (rank->fail_take && unit == 1)
        return mics_err_set(err, MICS_ERR_DEVICE, "the device is gone");
    for (uint64_t i = 0; i < count; i++)
        dst[i] = value_of(rank, unit, state, element_of(rank, unit, first + i));
    if (rank->spoil && unit == 1)
        dst[count / 2] = NAN;
    return MICS_OK;
}

static enum mics_status put(void *context, uint32_t unit, uint32_t state, uint64_t first,
                            uint64_t count, const float *src, struct mics_err *err)
{
    struct rank *rank = context;

    (void)err;
    for (uint64_t i = 0; i < count; i++) {
        const float expected = value_of(rank, unit, state, element_of(rank, unit, first + i));

        rank->wrong += memcmp(&src[i], &expected, sizeof expected) != 0;
    }
    rank->put += count;
    return MICS_OK;
}

static enum mics_status save(struct rank *rank, const struct mics_checkpoint *checkpoint)
{
    struct mics_manifest manifest = {.step = rank->step,
                                     .samples = 10 * rank->step,
                                     .plan = json_pack("{s:s}", "kind", "mics.plan"),
                                     .training = json_object()};
    struct mics_saved saved;
    enum mics_status status =
        mics_checkpoint_save(checkpoint, folder, &manifest, &saved, &rank->err);

    mics_manifest_free(&manifest);
    return status;
}

static enum mics_status load(struct rank *rank, const struct mics_checkpoint *checkpoint)
{
    char latest[MICS_PATH_MAX];
    json_t *doc = NULL;
    enum mics_status status = mics_path_format(latest, &rank->err, "%s/latest", folder);

    if (status == MICS_OK)
        status = mics_checkpoint_read_manifest(rank->comm, latest, &doc, &rank->err);
    if (status == MICS_OK)
        status = mics_checkpoint_load(checkpoint, latest, doc, &rank->err);
    json_decref(doc);
    return status;
}

static void *run_rank(void *context)
{
    struct rank *rank = context;
    const struct mics_checkpoint checkpoint = {
        .comm = rank->comm,
        .form = &rank->form,
        .source = {.take = take, .put = put, .context = rank}};

    rank->status = rank->load ? load(rank, &checkpoint) : save(rank, &checkpoint);
    return NULL;
}

static void make_rank(struct rank *rank, struct mics_shape shape, uint32_t segments)
{
    rank->choice = (struct mics_plan_choice){.shape = shape};
    for (uint32_t u = 0; u < model->unit_count; u++)
        rank->layouts[u] = mics_layout_make(&shape, model->units[u].count, segments);
    rank->form = (struct mics_ckpt_form){.model = model,
                                         .choice = &rank->choice,
                                         .layouts = rank->layouts,
                                         .states = rank->states ? rank->states : 3,
                                         .parts = rank->parts ? rank->parts : 1};
}

/* Run all ranks of the shape; ranks[] holds what differs from a plain save of step 1. */
static void run(struct rank *ranks, struct mics_shape shape, uint32_t segments)
{
    const uint32_t count = shape.nodes * shape.per_node;
    struct mics_comm *comms[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads((int)count, comms, NULL), MICS_OK);
    for (uint32_t i = 0; i < count; i++) {
        ranks[i].comm = comms[i];
        make_rank(&ranks[i], shape, segments);
        pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < count; i++)
        comms[i]->ops->free(comms[i]);
}

static const struct mics_shape mics2 = {2, 2, 2, 2, 2};

static void plain_save(uint64_t step)
{
    struct rank ranks[RANKS] = {{.step = step}, {.step = step}, {.step = step}, {.step = step}};

    run(ranks, mics2, 1);
    for (int i = 0; i < RANKS; i++)
        CHECK_INT(ranks[i].status, MICS_OK);
    if (ranks[0].status != MICS_OK)
        printf("# %s\n", ranks[0].err.text);
}

/* Load `step` by this shape: all ranks say the same, and it begins and has what is expected. */
static void loads_with(struct mics_shape shape, uint32_t segments, uint32_t states, uint64_t step,
                       enum mics_status status, const char *words)
{
    const uint32_t count = shape.nodes * shape.per_node;
    struct rank ranks[MAX_RANKS] = {{0}};

    for (uint32_t i = 0; i < count; i++)
        ranks[i] = (struct rank){.step = step, .load = true, .states = states};
    run(ranks, shape, segments);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_INT(ranks[i].status, status);
        CHECK(strstr(ranks[i].err.text, words) != NULL);
        CHECK_INT(ranks[i].wrong, 0);
        CHECK((ranks[i].put > 0) == (status == MICS_OK));
    }
    if (!strstr(ranks[0].err.text, words))
        printf("# said: %s\n", ranks[0].err.text);
}

/* Entries of the folder whose name holds `part`. */
static int entries(const char *part)
{
    char command[256];
    FILE *pipe;
    int count = -1;

    snprintf(command, sizeof command, "ls -a %s | grep -c -- '%s'", folder, part);
    pipe = popen(command, "r");
    if (fscanf(pipe, "%d", &count) != 1)
        count = -1;
    pclose(pipe);
    return count;
}

static void what_was_saved_is_loaded_bit_for_bit(void)
{
    static const struct mics_shape shapes[] = {
        {2, 2, 2, 2, 2}, {2, 2, 1, 1, 1}, {2, 2, 4, 4, 4}, {2, 2, 1, 2, 4}, {1, 4, 2, 2, 4}};

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (uint32_t segments = 1; segments <= 3; segments += 2) {
            struct rank ranks[RANKS] = {{.step = 1}, {.step = 1}, {.step = 1}, {.step = 1}};

            run(ranks, shapes[s], segments);
            CHECK_INT(ranks[3].status, MICS_OK);
            loads_with(shapes[s], segments, 3, 1, MICS_OK, "");
        }
    CHECK_INT(entries(".tmp."), 0);
}

/* Numbers for choices, the same in every run. */
static uint32_t pick(uint32_t *state, uint32_t count)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % count;
}

/* Any legal shape of at most 8 ranks. */
static struct mics_shape any_shape(uint32_t *state)
{
    struct mics_shape shape;

    do
        shape = (struct mics_shape){1 + pick(state, 4), 1 + pick(state, 4), 1 + pick(state, 8),
                                    1 + pick(state, 8), 1 + pick(state, 8)};
    while (shape.nodes * shape.per_node > MAX_RANKS || mics_shape_check(&shape, NULL) != MICS_OK);
    return shape;
}

static void save_as(struct mics_shape shape, uint32_t segments, uint32_t parts, uint64_t step)
{
    struct rank ranks[MAX_RANKS] = {{0}};

    for (int i = 0; i < MAX_RANKS; i++)
        ranks[i] = (struct rank){.step = step, .parts = parts};
    run(ranks, shape, segments);
    CHECK_INT(ranks[0].status, MICS_OK);
}

static void any_shape_loads_what_any_other_saved(void)
{
    uint32_t state = 7;

    for (uint64_t step = 1; step <= 40; step++) {
        const struct mics_shape then = any_shape(&state), now = any_shape(&state);
        const uint32_t replicas = then.nodes * then.per_node / then.p_optim;

        save_as(then, 1 + pick(&state, 3), 1 + pick(&state, replicas), 100 + step);
        loads_with(now, 1 + pick(&state, 3), 3, 100 + step, MICS_OK, "");
    }
}

static void any_range_is_read_from_any_shape(void)
{
    struct mics_ckpt_reader *reader = NULL;
    struct mics_err err = {""};
    const struct rank rank = {.step = 150};
    char latest[MICS_PATH_MAX];
    float values[700];
    uint32_t state = 3;
    uint64_t wrong = 0;

    in_folder(latest, "latest");
    save_as((struct mics_shape){2, 3, 3, 3, 3}, 3, 2, rank.step);
    CHECK_INT(mics_ckpt_reader_open(latest, NULL, &reader, &err), MICS_OK);
    for (int i = 0; i < 2000; i++) {
        const uint32_t unit = pick(&state, model->unit_count), kind = pick(&state, 3);
        const uint64_t first = pick(&state, (uint32_t)model->units[unit].count + 900);
        const uint64_t count = pick(&state, 700);

        CHECK_INT(mics_ckpt_reader_read(reader, unit, kind, first, count, values, &err), MICS_OK);
        for (uint64_t k = 0; k < count; k++) {
            const float expected = value_of(&rank, unit, kind, first + k);

            wrong += memcmp(&values[k], &expected, sizeof expected) != 0;
        }
    }
    CHECK_INT(wrong, 0);
    mics_ckpt_reader_close(reader);
}

static void places_agree_with_a_walk_over_every_element(void)
{
    uint32_t state = 11;

    for (int i = 0; i < 200; i++) {
        const struct mics_shape shape = any_shape(&state);
        const uint32_t parts = 1 + pick(&state, 5);
        const struct mics_layout layout =
            mics_layout_make(&shape, 1 + pick(&state, 3000), 1 + pick(&state, 4));
        const uint64_t shard = mics_layout_optim_shard(&layout);
        uint64_t wrong = 0;

        for (uint64_t e = 0; e < layout.padded; e++) {
            const struct mics_ckpt_place place = mics_ckpt_locate(&layout, parts, e);
            const uint64_t rest = e % layout.segment_count;
            const uint64_t at =
                e / layout.segment_count * layout.optim_piece + rest % layout.optim_piece;
            const uint64_t begin = mics_ckpt_part_begin(shard, parts, place.file % parts);

            wrong +=
                place.file / parts != rest / layout.optim_piece || begin + place.offset != at ||
                at >= mics_ckpt_part_begin(shard, parts, place.file % parts + 1) || place.run == 0;
        }
        CHECK_INT(wrong, 0);
    }
}

static void another_optimizer_is_refused(void)
{
    plain_save(2);
    loads_with(mics2, 1, 2, 2, MICS_ERR_FORMAT, "it is of AdamW");
    loads_with(mics2, 1, 3, 2, MICS_OK, "");
}

/* Load step 2 into a model of this configuration. */
static void another_model(const struct mics_model_config *config, const char *words)
{
    struct mics_model *old = model;

    CHECK_INT(mics_model_new(config, &model, NULL), MICS_OK);
    loads_with(mics2, 1, 3, 2, MICS_ERR_FORMAT, words);
    mics_model_free(model);
    model = old;
}

static void another_model_is_refused_with_all_tensors_that_differ(void)
{
    struct mics_model_config config = model->config;

    plain_save(2);
    config.n_head = 1;
    another_model(&config, "n_head 2, the plan's 1");
    config = model->config;
    config.n_inner = 60;
    another_model(&config, "n_inner 80, the plan's 60");
    another_model(&config, "h.*.mlp.c_fc.weight is [20, 80], not [20, 60] (2)");
    another_model(&config, "h.*.mlp.c_fc.bias is [80], not [60] (2)");
    another_model(&config, "h.*.mlp.c_proj.weight is [80, 20], not [60, 20] (2)");
    config = model->config;
    config.n_layer = 3;
    another_model(&config, "h.2.ln_1.weight is missing");
    config.n_layer = 1;
    another_model(&config, "h.1.mlp.c_proj.bias is not in the model");
}

static void a_rank_that_fails_fails_all_and_leaves_what_was_there(void)
{
    struct rank ranks[RANKS] = {
        {.step = 4}, {.step = 4, .fail_take = true}, {.step = 4}, {.step = 4}};

    plain_save(3);
    run(ranks, mics2, 1);
    for (int i = 0; i < RANKS; i++) {
        CHECK_INT(ranks[i].status, MICS_ERR_DEVICE);
        CHECK_STR(ranks[i].err.text, "rank 1: the device is gone");
    }
    CHECK_INT(entries(".tmp."), 0);
    CHECK_INT(entries("step-000004"), 0);
    loads_with(mics2, 1, 3, 3, MICS_OK, "");
}

static void numbers_that_are_not_finite_are_not_saved(void)
{
    struct rank ranks[RANKS] = {{.step = 5, .spoil = true}, {.step = 5}, {.step = 5}, {.step = 5}};

    run(ranks, mics2, 1);
    CHECK_INT(ranks[2].status, MICS_ERR_DEVICE);
    CHECK_STR(ranks[2].err.text, "h.0.param holds numbers that are not finite");
    CHECK_INT(entries("step-000005"), 0);
}

static void a_checkpoint_of_the_same_step_is_replaced(void)
{
    plain_save(6);
    plain_save(6);
    loads_with(mics2, 1, 3, 6, MICS_OK, "");
    CHECK_INT(entries("step-000006"), 1);
}

/* Bytes that this process has read so far, from wherever. */
static uint64_t bytes_read(void)
{
    FILE *io = fopen("/proc/self/io", "r");
    unsigned long long bytes = 0;

    CHECK(io && fscanf(io, "rchar: %llu", &bytes) == 1);
    if (io)
        fclose(io);
    return bytes;
}

static uint64_t bytes_of_latest(void)
{
    struct stat info;
    char path[MICS_PATH_MAX], name[64];
    uint64_t bytes = 0;

    for (uint32_t i = 0;; i++) {
        mics_ckpt_file_name(i, name, sizeof name);
        in_folder(path, "latest/");
        strcat(path, name);
        if (stat(path, &info) != 0)
            return bytes;
        bytes += (uint64_t)info.st_size;
    }
}

static void a_checkpoint_that_is_cut_alike_is_read_once(void)
{
    static const struct mics_shape zero3 = {2, 2, 4, 4, 4}, ddp = {2, 2, 1, 1, 1};
    struct rank ranks[RANKS] = {{.step = 6}, {.step = 6}, {.step = 6}, {.step = 6}};
    uint64_t before, once, bytes;

    run(ranks, zero3, 2);
    bytes = bytes_of_latest();
    before = bytes_read();
    loads_with(zero3, 2, 3, 6, MICS_OK, "");
    once = bytes_read() - before;
    CHECK(once >= bytes && once < bytes + bytes / 2);
    before = bytes_read();
    loads_with(zero3, 1, 3, 6, MICS_OK, "");
    CHECK(bytes_read() - before >= 2 * bytes);
    for (int i = 0; i < RANKS; i++) /* four replicas write a part each, and each reads all four */
        ranks[i] = (struct rank){.step = 6, .parts = RANKS};
    run(ranks, ddp, 1);
    loads_with(ddp, 1, 3, 6, MICS_OK, "");
}

static void damage_is_found_before_anything_is_loaded_by_another_shape(void)
{
    char path[MICS_PATH_MAX];
    FILE *file;

    plain_save(7);
    in_folder(path, "latest/shard-00001.safetensors");
    file = fopen(path, "r+");
    fseek(file, -1, SEEK_END);
    fputc(1, file);
    fclose(file);
    struct rank ranks[RANKS] = {{.step = 7, .load = true},
                                {.step = 7, .load = true},
                                {.step = 7, .load = true},
                                {.step = 7, .load = true}};
    for (uint32_t segments = 2; segments >= 1; segments--) {
        run(ranks, mics2, segments);
        for (int i = 0; i < RANKS; i++) {
            CHECK_INT(ranks[i].status, MICS_ERR_FORMAT);
            CHECK(strstr(ranks[i].err.text, "shard-00001.safetensors: is damaged") != NULL);
        }
        CHECK((ranks[1].put == 0) == (segments == 2));
    }
    CHECK_INT(truncate(path, 4096), 0);
    run(ranks, mics2, 1);
    CHECK(strstr(ranks[0].err.text, "has 4096 bytes, the manifest says") != NULL);
    unlink(path);
    run(ranks, mics2, 1);
    CHECK(strstr(ranks[0].err.text, "cannot open") != NULL);
    in_folder(path, "latest/manifest.mp");
    CHECK_INT(truncate(path, 100), 0);
    loads_with(mics2, 1, 3, 7, MICS_ERR_FORMAT, "manifest.mp");
    unlink(path);
    loads_with(mics2, 1, 3, 7, MICS_ERR_IO, "manifest.mp");
}

static void a_manifest_with_wrong_members_is_refused_with_their_path(void)
{
    static const struct {
        const char *json, *words;
    } bad[] = {
        {"{\"kind\":\"mics.plan\",\"v\":1}", "mics.checkpoint"},
        {"{\"kind\":\"mics.checkpoint\",\"v\":2}", "newer"},
        {"{\"kind\":\"mics.checkpoint\",\"v\":1,\"step\":-1}", "step"},
        {"{\"kind\":\"mics.checkpoint\",\"v\":1,\"step\":1,\"samples\":1,\"plan\":{},\"training\":{"
         "},"
         "\"files\":[]}",
         "files"},
        {"{\"kind\":\"mics.checkpoint\",\"v\":1,\"step\":1,\"samples\":1,\"plan\":{},\"training\":{"
         "},"
         "\"files\":[{\"name\":\"../x\",\"bytes\":1,\"xxh64\":\"0123456789abcdef\"}]}",
         "files[0].name"},
        {"{\"kind\":\"mics.checkpoint\",\"v\":1,\"step\":1,\"samples\":1,\"plan\":{},\"training\":{"
         "},"
         "\"files\":[{\"name\":\"shard-00000.safetensors\",\"bytes\":1,\"xxh64\":\"123\"}]}",
         "files[0].xxh64"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *doc = json_loads(bad[i].json, 0, NULL);
        struct mics_manifest manifest;
        struct mics_err err = {""};

        CHECK_INT(mics_manifest_from_doc(doc, &manifest, &err), MICS_ERR_FORMAT);
        CHECK(strstr(err.text, bad[i].words) != NULL);
        if (!strstr(err.text, bad[i].words))
            printf("# said: %s\n", err.text);
        json_decref(doc);
    }
}

static void leftovers_go_and_old_checkpoints_are_pruned(void)
{
    char path[MICS_PATH_MAX];
    struct mics_err err = {""};
    int lock = -1, second = -1;

    in_folder(path, "step-000009.tmp.17/x");
    CHECK_INT(mics_file_make_folders(path, &err), MICS_OK);
    CHECK_INT(mics_run_folder_open(folder, &lock, &err), MICS_OK);
    CHECK_INT(entries(".tmp."), 0);
    CHECK(mics_run_folder_has_checkpoints(folder));
    CHECK_INT(mics_run_folder_open(folder, &second, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "another run") != NULL);
    close(lock);
    plain_save(8);
    plain_save(10);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){0, 3}, 10, &err), MICS_OK);
    CHECK_INT(entries("step-000008"), 1);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){2, 3}, 10, &err), MICS_OK);
    CHECK_INT(entries("step-000008"), 1);
    CHECK_INT(entries("step-000006"), 1);
    CHECK_INT(entries("step-000007"), 0);
    CHECK_INT(entries("step-000010"), 1);
    CHECK_INT(mics_checkpoint_prune(folder, &(struct mics_keep){1, 0}, 10, &err), MICS_OK);
    CHECK_INT(entries("step-"), 1);
    loads_with(mics2, 1, 3, 10, MICS_OK, "");
}

static void a_checkpoint_without_room_is_refused_with_both_sizes(void)
{
    struct mics_err err = {""};

    CHECK_INT(mics_check_space(folder, 1, &err), MICS_OK);
    CHECK_INT(mics_check_space(folder, (uint64_t)1 << 60, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "it needs 1") != NULL && strstr(err.text, "are free") != NULL);
}

static void a_full_device_is_an_error_of_the_file(void)
{
    struct rank rank = {.step = 1};
    struct mics_file_sum sum;
    struct mics_err err = {""};

    make_rank(&rank, mics2, 1);
    float *values = calloc(mics_shard_part_count(&rank.form, 0), sizeof *values);
    CHECK_INT(mics_shard_part_write("/dev/full", &rank.form, 0, values, &sum, &err), MICS_ERR_IO);
    free(values);
    CHECK_STR(err.text, "/dev/full: No space left on device");
}

int main(void)
{
    const struct mics_model_config config = {.family = "gpt2",
                                             .name = "tiny",
                                             .n_layer = 2,
                                             .n_embd = 20,
                                             .n_head = 2,
                                             .n_positions = 16,
                                             .vocab_size = 33,
                                             .n_inner = 80,
                                             .layer_norm_epsilon = 1e-5};
    struct mics_err err = {""};

    strcpy(folder, "/tmp/mics-ckpt-XXXXXX");
    if (!mkdtemp(folder) || mics_model_new(&config, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    TAP_RUN(what_was_saved_is_loaded_bit_for_bit);
    TAP_RUN(any_shape_loads_what_any_other_saved);
    TAP_RUN(any_range_is_read_from_any_shape);
    TAP_RUN(places_agree_with_a_walk_over_every_element);
    TAP_RUN(another_optimizer_is_refused);
    TAP_RUN(another_model_is_refused_with_all_tensors_that_differ);
    TAP_RUN(a_rank_that_fails_fails_all_and_leaves_what_was_there);
    TAP_RUN(numbers_that_are_not_finite_are_not_saved);
    TAP_RUN(a_checkpoint_of_the_same_step_is_replaced);
    TAP_RUN(a_checkpoint_that_is_cut_alike_is_read_once);
    TAP_RUN(damage_is_found_before_anything_is_loaded_by_another_shape);
    TAP_RUN(a_manifest_with_wrong_members_is_refused_with_their_path);
    TAP_RUN(leftovers_go_and_old_checkpoints_are_pruned);
    TAP_RUN(a_checkpoint_without_room_is_refused_with_both_sizes);
    TAP_RUN(a_full_device_is_an_error_of_the_file);
    mics_file_remove_tree(folder, NULL);
    mics_model_free(model);
    return tap_done();
}
