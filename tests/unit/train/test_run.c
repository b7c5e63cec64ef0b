/* SPDX-License-Identifier: Apache-2.0 */
/* test_run.c - complete training runs on ranks that are threads: resumed, failed, stopped. */
#include "tap.h"

#include "base/file.h"
#include "train/run.h"
#include "train/watch/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_RANKS = 4 };

static char folder[64];
static struct mics_model *model;
static struct mics_data data;

/* The inputs of one rank, and its results. */
struct rank {
    struct mics_comm *comm;
    struct mics_plan plan;
    struct mics_train_settings settings;
    const char *out, *resume; /* in the folder; resume NULL: a new run */
    uint64_t save_every;
    const struct mics_data *data;
    uint64_t fail_at; /* the observer fails at this step; 0: never */
    const struct mics_model *model;
    int32_t poison; /* the embedding of this token is not finite; 0: none */
    uint64_t max_nonfinite, skip_first, skip_last, max_save_failures;
    uint64_t room_at; /* until this step, files cannot grow; 0: always */
    char faults[8][16], notes[8][256];
    int fault_count, note_count;
    double losses[16];
    double val_loss;
    uint64_t last_step;
    enum mics_run_end end;
    bool local_failure;
    enum mics_status status;
    struct mics_err err;
};

/* Files may have so many bytes. */
static void set_room(rlim_t bytes)
{
    struct rlimit limit;

    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static enum mics_status on_step(void *context, const struct mics_step_record *record,
                                struct mics_err *err)
{
    struct rank *rank = context;

    rank->losses[record->step % 16] = record->loss;
    if (rank->room_at && record->step == rank->room_at)
        set_room(RLIM_INFINITY);
    if (record->step == rank->fail_at)
        return mics_err_set(err, MICS_ERR_IO, "the pencil broke");
    return MICS_OK;
}

static enum mics_status on_fault(void *context, json_t *event, struct mics_err *err)
{
    struct rank *rank = context;

    (void)err;
    snprintf(rank->faults[rank->fault_count++ % 8], 16, "%s",
             json_string_value(json_object_get(event, "event")));
    json_decref(event);
    return MICS_OK;
}

static struct rank *noting; /* rank 0 */

static void on_note(const struct mics_device_note *note)
{
    snprintf(noting->notes[noting->note_count++ % 8], 256, "%s", note->text);
}

static enum mics_status on_val(void *context, uint64_t step, const struct mics_eval *eval,
                               struct mics_err *err)
{
    struct rank *rank = context;

    (void)step;
    (void)err;
    rank->val_loss = eval->loss;
    return MICS_OK;
}

static enum mics_status start(struct rank *rank, struct mics_run *run, struct mics_comm *control)
{
    char path[MICS_PATH_MAX];
    json_t *doc = NULL;
    enum mics_status status;

    if (!rank->resume)
        return mics_run_begin(run, &rank->err);
    status = mics_path_format(path, &rank->err, "%s/%s", folder, rank->resume);
    if (status == MICS_OK)
        status = mics_checkpoint_read_manifest(control, path, &doc, &rank->err);
    if (status == MICS_OK)
        status = mics_run_resume(run, path, doc, NULL, false, &rank->err);
    json_decref(doc);
    return status;
}

/* Sequences with this token have no finite loss. On one rank, which holds everything. */
static enum mics_status poison(struct rank *rank, struct mics_engine *engine)
{
    const uint32_t width = rank->model->config.n_embd;
    float *row = malloc(width * sizeof *row);

    for (uint32_t i = 0; i < width; i++)
        row[i] = NAN;
    enum mics_status status = mics_engine_import(
        engine, 0, MICS_STATE_PARAM, (uint64_t)rank->poison * width, width, row, &rank->err);
    free(row);
    return status == MICS_OK ? mics_engine_publish(engine, &rank->err) : status;
}

static enum mics_status train(struct rank *rank, struct mics_world *world,
                              struct mics_comm *control, struct mics_engine *engine)
{
    char out[MICS_PATH_MAX];
    json_t *plan_doc = json_pack("{s:s}", "kind", "mics.plan");
    struct mics_run run = {0};
    enum mics_status status = mics_path_format(out, &rank->err, "%s/%s", folder, rank->out);
    const struct mics_run_options options = {
        .settings = &rank->settings,
        .plan = &rank->plan,
        .plan_doc = plan_doc,
        .world = world,
        .control = control,
        .engine = engine,
        .data = rank->data,
        .out = out,
        .save_every = rank->save_every,
        .max_save_failures = rank->max_save_failures,
        .max_nonfinite = rank->max_nonfinite,
        .skip_first = rank->skip_first,
        .skip_last = rank->skip_last,
        .observer = {
            .step = on_step, .val = on_val, .fault = on_fault, .note = on_note, .context = rank}};

    if (world->rank == 0)
        noting = rank;

    if (status == MICS_OK)
        status = mics_run_init(&run, &options, &rank->err);
    if (status == MICS_OK)
        status = start(rank, &run, control);
    if (status == MICS_OK && rank->poison)
        status = poison(rank, engine);
    if (status == MICS_OK)
        status = mics_run_steps(&run, &rank->end, &rank->err);
    rank->last_step = run.step;
    rank->local_failure = run.local_failure;
    mics_run_fini(&run);
    json_decref(plan_doc);
    return status;
}

static enum mics_status run_with_engine(struct rank *rank, struct mics_world *world,
                                        struct mics_comm *control)
{
    struct mics_device *device = NULL;
    struct mics_engine *engine = NULL;
    enum mics_status status = mics_device_new_host(1, &device, &rank->err);

    if (status != MICS_OK)
        return status;
    const struct mics_engine_options options = {
        .model = rank->model,
        .choice = &rank->plan.choice,
        .world = world,
        .device = device,
        .optimizer = mics_train_settings_optimizer(&rank->settings),
        .documents = rank->data->pack == MICS_PACK_DOCUMENT};
    status = mics_engine_new(&options, &engine, &rank->err);
    if (status == MICS_OK)
        status = train(rank, world, control, engine);
    mics_engine_free(engine);
    device->ops->free(device);
    return status;
}

static void *run_rank(void *context)
{
    struct rank *rank = context;
    struct mics_world *world = NULL;
    struct mics_comm *control = NULL;

    rank->status = mics_world_open_over(rank->comm, mics_choice_per_node(&rank->plan.choice),
                                        &world, &rank->err);
    if (rank->status == MICS_OK)
        rank->status = mics_comm_split(world->comm, 0, world->comm->rank, world->comm->rank,
                                       &control, &rank->err);
    if (rank->status == MICS_OK)
        rank->status = run_with_engine(rank, world, control);
    if (control)
        mics_comm_free(control);
    mics_world_close(world);
    return NULL;
}

static struct rank make_rank(struct mics_shape shape)
{
    struct rank rank = {
        .out = "out", .data = &data, .model = model, .settings = mics_train_settings_default()};
    const uint32_t n = shape.nodes * shape.per_node;

    rank.plan = (struct mics_plan){.model = model,
                                   .choice = {.shapes = MICS_SAME_SHAPE(shape),
                                              .strategy = "custom",
                                              .segments = 1,
                                              .coalesce = 1,
                                              .prefetch = 1,
                                              .grad_slots = 2,
                                              .micro_batch = 1,
                                              .micro_steps = 8 / n,
                                              .seq = 16,
                                              .optimizer = MICS_OPT_ADAMW,
                                              .clip = true}};
    rank.settings.steps = 6;
    rank.settings.val_every = 0;
    CHECK_INT(mics_train_settings_resolve(&rank.settings, &rank.plan.choice, 1, NULL), MICS_OK);
    return rank;
}

/* Run every rank like `like`; all must end alike. */
static struct rank run(struct rank like)
{
    const uint32_t n =
        mics_choice_nodes(&like.plan.choice) * mics_choice_per_node(&like.plan.choice);
    struct mics_comm *comms[MAX_RANKS];
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads((int)n, comms, NULL), MICS_OK);
    for (uint32_t i = 0; i < n; i++) {
        ranks[i] = like;
        ranks[i].comm = comms[i];
        pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 1; i < n; i++) {
        CHECK_INT(ranks[i].status, ranks[0].status);
        CHECK_INT(ranks[i].last_step, ranks[0].last_step);
        CHECK_STR(ranks[i].err.text, ranks[0].err.text);
        CHECK_INT(ranks[i].local_failure, false);
    }
    return ranks[0];
}

static void in_folder(char *buf, const char *name)
{
    snprintf(buf, MICS_PATH_MAX, "%s/%s", folder, name);
}

static bool same_file(const char *a, const char *b)
{
    char command[512];

    snprintf(command, sizeof command, "cmp -s %s/%s %s/%s", folder, a, folder, b);
    return system(command) == 0;
}

static const struct mics_shape one = {1, 1, 1, 1, 1}, mics2 = {2, 2, 2, 2, 2},
                               mixed = {2, 2, 1, 2, 4};

static void resumed_equals_uninterrupted_bit_for_bit(void)
{
    static const struct mics_shape *const shapes[] = {&one, &mics2, &mixed};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct rank rank = make_rank(*shapes[i]);

        rank.out = "whole";
        rank.save_every = 3;
        CHECK_INT(run(rank).status, MICS_OK);
        rank.out = "parts";
        rank.resume = "whole/step-000003";
        const struct rank done = run(rank);
        CHECK_INT(done.status, MICS_OK);
        CHECK_INT(done.last_step, 6);
        CHECK_INT(done.end, MICS_RUN_DONE);
        CHECK(same_file("whole/step-000006/shard-00000.safetensors",
                        "parts/step-000006/shard-00000.safetensors"));
        CHECK(!same_file("whole/step-000003/shard-00000.safetensors",
                         "parts/step-000006/shard-00000.safetensors"));
    }
}

/* One run of six steps, and one that is resumed after the second and the fourth, each time on
 * another number of ranks; an epoch has more than 48 sequences. */
static void check_resumed_twice(const struct mics_data *of)
{
    struct rank rank = make_rank(one);

    rank.data = of;
    rank.out = "whole";
    const struct rank whole = run(rank);

    rank.out = "often";
    rank.save_every = 2;
    CHECK_INT(run(rank).status, MICS_OK);
    rank = make_rank(mics2);
    rank.data = of;
    rank.save_every = 2;
    rank.out = "parts";
    rank.resume = "often/step-000002";
    CHECK_INT(run(rank).status, MICS_OK);
    rank = make_rank((struct mics_shape){1, 2, 2, 2, 2});
    rank.data = of;
    rank.out = "whole";
    rank.resume = "parts/step-000004";
    const struct rank twice = run(rank);

    CHECK_INT(whole.status, MICS_OK);
    CHECK_STR(twice.err.text, "");
    CHECK_INT(twice.last_step, 6);
    CHECK_NEAR(twice.losses[5], whole.losses[5], 1e-4);
    CHECK_NEAR(twice.losses[6], whole.losses[6], 1e-4);
}

static struct mics_data open_other(enum mics_pack pack, bool mask, const char *pattern)
{
    const struct mics_data_options options = {.patterns = &pattern,
                                              .pattern_count = 1,
                                              .seq = 16,
                                              .vocab_size = 257,
                                              .seed = 1,
                                              .pack = pack,
                                              .mask_prompt = mask};
    struct mics_data other;
    struct mics_err err = {""};

    CHECK_INT(mics_data_open(&options, &other, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return other;
}

static void resumed_twice_in_one_epoch_on_other_numbers_of_ranks_sees_the_same_samples(void)
{
    char pattern[256];

    check_resumed_twice(&data);
    snprintf(pattern, sizeof pattern, "0.8:%s/text 0.2:%s/lines.jsonl", folder, folder);
    struct mics_data blend = open_other(MICS_PACK_CONCAT, false, pattern);

    check_resumed_twice(&blend);
    mics_data_close(&blend);
    snprintf(pattern, sizeof pattern, "%s/lines.jsonl", folder);
    for (int mask = 0; mask < 2; mask++) {
        struct mics_data documents = open_other(MICS_PACK_DOCUMENT, mask, pattern);

        check_resumed_twice(&documents);
        mics_data_close(&documents);
    }
}

/* Each checkpoint is written while the next step is computed. */
static void saving_after_every_step_does_not_change_training(void)
{
    static const struct mics_shape *const shapes[] = {&one, &mics2, &mixed};
    char path[64];

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct rank rank = make_rank(*shapes[i]);

        rank.out = "whole";
        CHECK_INT(run(rank).status, MICS_OK);
        rank.save_every = 1;
        rank.out = "often";
        CHECK_INT(run(rank).status, MICS_OK);
        CHECK(same_file("whole/step-000006/shard-00000.safetensors",
                        "often/step-000006/shard-00000.safetensors"));
        rank.out = "parts";
        rank.save_every = 0;
        rank.resume = path;
        for (uint64_t step = 1; step < 6; step++) {
            snprintf(path, sizeof path, "often/step-%06llu", (unsigned long long)step);
            CHECK_INT(run(rank).status, MICS_OK);
            CHECK(same_file("whole/step-000006/shard-00000.safetensors",
                            "parts/step-000006/shard-00000.safetensors"));
        }
    }
}

/* The files cannot grow: the threads that write them fail, and the ranks learn of it at the end of
 * a step. */
static void a_save_that_fails_in_the_background_ends_the_run_on_all_ranks(void)
{
    struct rlimit old, small;
    struct rank rank = make_rank(mics2);
    char path[MICS_PATH_MAX], found[MICS_PATH_MAX];
    bool is_found = true;

    rank.out = "full";
    rank.save_every = 2;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 6000, .rlim_max = old.rlim_max};
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    rank = run(rank);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &old), 0);
    CHECK_INT(rank.status, MICS_ERR_IO);
    CHECK(strstr(rank.err.text, "File too large") != NULL);
    CHECK(rank.last_step >= 2 && rank.last_step < 6);
    in_folder(path, "full");
    CHECK_INT(mics_checkpoint_find(path, true, found, &is_found, NULL), MICS_OK);
    CHECK(!is_found);
    CHECK_INT(rmdir(path), 0); /* it is empty */
}

static void losses_do_not_depend_on_the_number_of_ranks(void)
{
    static const struct mics_shape *const shapes[] = {&mics2, &mixed};
    struct rank rank = make_rank(one);

    rank.settings.val_every = 3;
    const struct rank single = run(rank);
    CHECK_INT(single.status, MICS_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct rank other = make_rank(*shapes[i]);

        other.settings.val_every = 3;
        other = run(other);
        CHECK_NEAR(other.losses[1], single.losses[1], 1e-5);
        CHECK_NEAR(other.losses[6], single.losses[6], 1e-3);
        CHECK_NEAR(other.val_loss, single.val_loss, 1e-3);
    }
    CHECK(single.val_loss > 1 && single.val_loss < 6);
}

static void a_failure_on_rank_0_ends_the_run_on_all_ranks(void)
{
    struct rank rank = make_rank(mics2);

    rank.out = "failed";
    rank.fail_at = 2;
    rank = run(rank);
    CHECK_INT(rank.status, MICS_ERR_IO);
    CHECK_STR(rank.err.text, "the pencil broke");
    CHECK(rank.last_step >= 2 && rank.last_step <= 3);
}

static void a_loss_that_is_not_finite_ends_the_run_on_all_ranks(void)
{
    struct rank rank = make_rank(mics2);

    rank.settings.lr = 1e30;
    rank.settings.warmup = 0;
    rank = run(rank);
    CHECK_INT(rank.status, MICS_ERR_DEVICE);
    CHECK(strstr(rank.err.text, "diverged") != NULL);
}

/* A model whose embedding is not the head's: only sequences with the token are not finite. */
static struct rank make_poisoned(struct mics_shape shape, struct mics_data *with,
                                 struct mics_model **untied)
{
    struct rank rank = make_rank(shape);
    char pattern[256];
    FILE *out;

    CHECK_INT(mics_model_open("llama-nano", untied, NULL), MICS_OK);
    snprintf(pattern, sizeof pattern, "%s/poison", folder);
    out = fopen(pattern, "w");
    for (int i = 0; i < 120; i++)
        fprintf(out, "line %d%c of the text\n", i, i == 20 ? '~' : ' ');
    fclose(out);
    *with = open_other(MICS_PACK_CONCAT, false, pattern);
    rank.data = with;
    rank.model = rank.plan.model = *untied;
    rank.poison = '~';
    rank.settings.steps = 14; /* an epoch */
    rank.settings.warmup = 1;
    return rank;
}

static uint64_t skipped_sample(const struct rank *rank)
{
    unsigned long long first = 0;
    const char *samples = strstr(rank->notes[0], "samples ");

    return samples && sscanf(samples, "samples %llu", &first) == 1 ? first : 0;
}

static void a_step_that_is_not_finite_is_skipped_if_asked_for(void)
{
    struct mics_data with;
    struct mics_model *untied = NULL;

    if (TAP_TSAN)
        TAP_SKIP("a single rank, which ThreadSanitizer makes slow");
    struct rank rank = make_poisoned(one, &with, &untied);

    CHECK(untied->config.untied);
    rank.out = "failed";
    const struct rank stopped = run(rank);
    CHECK_INT(stopped.status, MICS_ERR_DEVICE);
    CHECK(strstr(stopped.err.text, "--skip-samples=") != NULL);
    rank.max_nonfinite = 1;
    rank.settings.steps = stopped.last_step + 1; /* the parameters cannot be saved */
    const struct rank skipped = run(rank);
    CHECK(strstr(skipped.err.text, "are not finite") != NULL);
    CHECK_INT(skipped.last_step, stopped.last_step + 1);
    CHECK(!isfinite(skipped.losses[stopped.last_step % 16]));
    CHECK(isfinite(skipped.losses[(stopped.last_step + 1) % 16]));
    CHECK_INT(skipped.fault_count, 1);
    CHECK_STR(skipped.faults[0], "skipped");
    printf("# %s\n", skipped.notes[0]);
    const uint64_t first = skipped_sample(&skipped);
    CHECK_INT(first, (stopped.last_step - 1) * 8 + 1);
    /* Without its samples the step is finite. */
    rank.max_nonfinite = 0;
    rank.skip_first = first;
    rank.skip_last = first + 7;
    const struct rank without = run(rank);
    CHECK_INT(without.last_step, stopped.last_step + 1);
    CHECK_INT(without.fault_count, 0);
    CHECK_NEAR(without.losses[stopped.last_step % 16], 0, 0);
    mics_data_close(&with);
    mics_model_free(untied);
}

/* The sample is one replica's alone. */
static void a_replica_that_is_not_finite_is_reported_by_all_if_the_second_hop_is_in_blocks(void)
{
    static const struct mics_shape replicas = {2, 1, 1, 1, 1};
    struct mics_data with;
    struct mics_model *untied = NULL;

    if (TAP_TSAN)
        TAP_SKIP("large matrices, which ThreadSanitizer makes slow");
    struct rank rank = make_poisoned(replicas, &with, &untied);

    rank.out = "blocks";
    rank.plan.choice.sync_dtype = rank.plan.choice.sync_down_dtype = MICS_INT8;
    const struct rank stopped = run(rank);
    CHECK_INT(stopped.status, MICS_ERR_DEVICE);
    CHECK(strstr(stopped.err.text, "--skip-samples=") != NULL);
    rank.max_nonfinite = 1;
    rank.settings.steps = stopped.last_step + 1;
    const struct rank skipped = run(rank);
    CHECK_INT(skipped.last_step, stopped.last_step + 1);
    CHECK(!isfinite(skipped.losses[stopped.last_step % 16]));
    CHECK(isfinite(skipped.losses[(stopped.last_step + 1) % 16]));
    CHECK_INT(skipped.fault_count, 1);
    CHECK_STR(skipped.faults[0], "skipped");
    mics_data_close(&with);
    mics_model_free(untied);
}

static void only_so_many_steps_in_a_row_are_skipped(void)
{
    struct rank rank = make_rank(mics2);

    rank.settings.lr = 1e30;
    rank.settings.warmup = 0;
    rank.settings.steps = 12;
    rank.max_nonfinite = 3;
    rank = run(rank);
    CHECK_INT(rank.status, MICS_ERR_DEVICE);
    CHECK(strstr(rank.err.text, "once too often") != NULL);
    CHECK_INT(rank.fault_count, 3);
}

static void a_failed_save_is_tried_again_while_training_goes_on(void)
{
    struct rank rank = make_rank(mics2);
    char path[MICS_PATH_MAX];

    signal(SIGXFSZ, SIG_IGN);
    in_folder(path, "full");
    CHECK_INT(mics_file_make_folders(path, NULL), MICS_OK);
    rank.out = "full";
    rank.save_every = 2;
    rank.max_save_failures = 4;
    rank.settings.steps = 12;
    rank.room_at = 5;
    set_room(6000);
    rank = run(rank);
    set_room(RLIM_INFINITY);
    CHECK_INT(rank.status, MICS_OK);
    CHECK_INT(rank.last_step, 12);
    CHECK(rank.fault_count >= 1);
    CHECK_STR(rank.faults[0], "save_failed");
    printf("# %s\n", rank.notes[0]);
    CHECK(strstr(rank.notes[0], "File too large") != NULL);
    CHECK(same_file("full/step-000012/manifest.mp", "full/latest/manifest.mp"));
    CHECK(!same_file("full/step-000002/manifest.mp", "full/latest/manifest.mp"));

    rank = make_rank(mics2);
    rank.out = "failed";
    rank.save_every = 2;
    rank.max_save_failures = 2;
    rank.settings.steps = 12;
    set_room(6000);
    rank = run(rank);
    set_room(RLIM_INFINITY);
    CHECK_INT(rank.status, MICS_ERR_IO);
    CHECK(rank.last_step >= 4 && rank.last_step < 10);
    CHECK_INT(rank.fault_count, 1);
}

static void a_request_to_stop_is_agreed_on_and_saved(void)
{
    struct rank rank = make_rank(mics2);

    CHECK_INT(mics_signals_install("test", false, NULL), MICS_OK);
    raise(SIGTERM);
    rank.out = "stopped";
    rank = run(rank);
    CHECK_INT(rank.status, MICS_OK);
    CHECK_INT(rank.end, MICS_RUN_STOPPED);
    CHECK_INT(rank.last_step, 1);
    CHECK(same_file("stopped/step-000001/manifest.mp", "stopped/latest/manifest.mp"));
}

static void write_text(char path[128])
{
    FILE *out;

    snprintf(path, 128, "%s/text", folder);
    out = fopen(path, "w");
    for (int i = 0; i < 400; i++)
        fprintf(out, "line %d has the square %d\n", i, i * i);
    fclose(out);
    snprintf(path, 128, "%s/lines.jsonl", folder);
    out = fopen(path, "w");
    for (int i = 0; i < 200; i++)
        fprintf(out, "{\"prompt\": \"%d\", \"answer\": \"%d\"}\n", i, i * i);
    fclose(out);
    snprintf(path, 128, "%s/text", folder);
}

int main(void)
{
    const struct mics_model_config config = {.family = "gpt2",
                                             .name = "tiny",
                                             .n_layer = 2,
                                             .n_embd = 16,
                                             .n_head = 2,
                                             .n_positions = 16,
                                             .vocab_size = 257,
                                             .n_inner = 64,
                                             .layer_norm_epsilon = 1e-5};
    char path[128];
    const char *patterns[] = {path};
    const struct mics_data_options options = {.patterns = patterns,
                                              .pattern_count = 1,
                                              .val_fraction = 0.05,
                                              .seq = 16,
                                              .vocab_size = 257,
                                              .seed = 1};
    struct mics_err err = {""};

    strcpy(folder, "/tmp/mics-run-XXXXXX");
    if (!mkdtemp(folder) || mics_model_new(&config, &model, &err) != MICS_OK)
        return 1;
    write_text(path);
    if (mics_data_open(&options, &data, &err) != MICS_OK)
        return 1;
    for (int i = 0; i < 7; i++) {
        static const char *const names[] = {"out",     "whole", "parts", "failed",
                                            "stopped", "often", "full"};

        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        CHECK_INT(mics_file_make_folders(path, &err), MICS_OK);
    }
    TAP_RUN(resumed_equals_uninterrupted_bit_for_bit);
    TAP_RUN(resumed_twice_in_one_epoch_on_other_numbers_of_ranks_sees_the_same_samples);
    TAP_RUN(saving_after_every_step_does_not_change_training);
    TAP_RUN(a_save_that_fails_in_the_background_ends_the_run_on_all_ranks);
    TAP_RUN(losses_do_not_depend_on_the_number_of_ranks);
    TAP_RUN(a_failure_on_rank_0_ends_the_run_on_all_ranks);
    TAP_RUN(a_loss_that_is_not_finite_ends_the_run_on_all_ranks);
    TAP_RUN(a_step_that_is_not_finite_is_skipped_if_asked_for);
    TAP_RUN(a_replica_that_is_not_finite_is_reported_by_all_if_the_second_hop_is_in_blocks);
    TAP_RUN(only_so_many_steps_in_a_row_are_skipped);
    TAP_RUN(a_failed_save_is_tried_again_while_training_goes_on);
    TAP_RUN(a_request_to_stop_is_agreed_on_and_saved);
    mics_file_remove_tree(folder, NULL);
    mics_data_close(&data);
    mics_model_free(model);
    return tap_done();
}
