/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt.c - checkpoints saved by ranks of one shape and loaded by those of any other. */
#include "ckpt_ranks.h"

#include "base/threads.h"
#include "ckpt/ckpt_reader.h"
#include "ckpt/convert/convert.h"

#include <dlfcn.h>
#include <sys/stat.h>

static atomic_uint threads_started;

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

/* Any legal shape of the ranks of `ranks`. */
static struct mics_shape any_shape_of(struct mics_shape ranks, uint32_t *state)
{
    struct mics_shape shape = ranks;

    do {
        shape.p_param = 1 + pick(state, 8);
        shape.p_grad = 1 + pick(state, 8);
        shape.p_optim = 1 + pick(state, 8);
    } while (mics_shape_check(&shape, NULL) != MICS_OK);
    return shape;
}

static uint32_t files_of_latest(void)
{
    struct mics_ckpt_reader reader;
    struct mics_err err = {""};
    char latest[MICS_PATH_MAX];

    in_folder(latest, "latest");
    CHECK_INT(mics_ckpt_reader_open(latest, NULL, &reader, &err), MICS_OK);
    const uint32_t files = reader.manifest.file_count;
    mics_ckpt_reader_close(&reader);
    return files;
}

static void any_pair_of_shapes_loads_what_any_other_saved(void)
{
    uint32_t state = 19, pairs = 0;

    for (uint64_t step = 1; step <= 40; step++) {
        const struct mics_shape then = any_shape(&state), now = any_shape(&state);
        const struct mics_shape experts = any_shape_of(then, &state);
        const uint32_t most = then.p_optim > experts.p_optim ? then.p_optim : experts.p_optim;
        const uint32_t parts = 1 + pick(&state, then.nodes * then.per_node / most);
        const bool differ = memcmp(&then, &experts, sizeof then) != 0;

        pairs += differ;
        set_experts(experts);
        save_as(then, 1 + pick(&state, 3), parts, 200 + step);
        CHECK_INT(files_of_latest(), (then.p_optim + (differ ? experts.p_optim : 0)) * parts);
        set_experts(any_shape_of(now, &state));
        loads_with(now, 1 + pick(&state, 3), 3, 200 + step, MICS_OK, "");
        set_experts((struct mics_shape){0});
        loads_with(now, 1, 3, 200 + step, MICS_OK, "");
    }
    CHECK(pairs > 20);
}

static void checkpoints_of_two_shapes_are_verified_and_merged(void)
{
    static const struct mics_shape whole = {2, 2, 4, 4, 4}, half = {2, 2, 2, 2, 2};
    char latest[MICS_PATH_MAX], merged[MICS_PATH_MAX];
    struct mics_convert_request request = {.host_ranks = 1, .out = merged, .file_bytes = 1 << 20};
    struct mics_convert_report report;
    struct mics_diagnostics diagnostics = {.report = NULL};
    struct mics_err err = {""};
    json_t *doc = NULL;
    bool same = false;

    in_folder(latest, "latest");
    in_folder(merged, "merged");
    set_experts(half);
    save_as(whole, 2, 1, 300);
    CHECK_INT(files_of_latest(), 6);
    CHECK_INT(mics_comm_new_self(&request.comm, &err), MICS_OK);
    request.diagnostics = &diagnostics;
    CHECK_INT(mics_convert_verify(&request, latest, &report, &err), MICS_OK);
    CHECK_INT(mics_convert_merge(&request, latest, &report, &err), MICS_OK);
    CHECK_STR(err.text, "");
    set_experts((struct mics_shape){0});
    save_as(half, 1, 1, 300);
    CHECK_INT(mics_convert_diff(latest, merged, &diagnostics, &doc, &same, &err), MICS_OK);
    CHECK(same);
    json_decref(doc);
    mics_comm_free(request.comm);
}

static void any_range_is_read_from_any_shape(void)
{
    struct mics_ckpt_reader reader;
    struct mics_err err = {""};
    const struct rank rank = {.step = 150};
    char latest[MICS_PATH_MAX];
    float values[700];
    uint32_t state = 3;
    uint64_t wrong = 0;

    in_folder(latest, "latest");
    save_as((struct mics_shape){2, 3, 3, 3, 3}, 3, 2, rank.step);
    CHECK_INT(mics_ckpt_reader_open(latest, NULL, &reader, &err), MICS_OK);
    reader.max_open = 2; /* of 6 files: so files are closed and opened again */
    for (int i = 0; i < 2000; i++) {
        const uint32_t unit = pick(&state, model->unit_count), kind = pick(&state, 3);
        const uint64_t first = pick(&state, (uint32_t)model->units[unit].count + 900);
        const uint64_t count = pick(&state, 700);

        CHECK_INT(mics_ckpt_reader_read(&reader, unit, kind, first, count, values, &err), MICS_OK);
        for (uint64_t k = 0; k < count; k++) {
            const float expected = value_of(&rank, unit, kind, first + k);

            wrong += memcmp(&values[k], &expected, sizeof expected) != 0;
        }
    }
    CHECK_INT(wrong, 0);
    CHECK(reader.open_count <= reader.max_open);
    CHECK_INT(mics_ckpt_reader_open_files(&reader, &err), MICS_OK);
    CHECK_INT(reader.open_count, reader.manifest.file_count);
    mics_ckpt_reader_close(&reader);
}

static void places_agree_with_a_walk_over_every_element(void)
{
    uint32_t state = 11;

    for (int i = 0; i < 200; i++) {
        const struct mics_shape shape = any_shape(&state);
        const uint32_t parts = 1 + pick(&state, 5);
        const struct mics_layout layout = mics_layout_make(&shape, 1 + pick(&state, 3000),
                                                           1 + pick(&state, 4), MICS_TENSOR_ALIGN);
        const struct mics_ckpt_unit unit = {.layout = layout};
        const uint64_t shard = mics_layout_optim_shard(&layout);
        uint64_t wrong = 0;

        for (uint64_t e = 0; e < layout.padded; e++) {
            const struct mics_ckpt_place place = mics_ckpt_locate(&unit, parts, e);
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
    set_experts((struct mics_shape){2, 2, 2, 2, 2});
    run(ranks, zero3, 2);
    before = bytes_read();
    loads_with(zero3, 2, 3, 6, MICS_OK, "");
    once = bytes_read() - before; /* two ranks have the same shard of experts */
    CHECK(once >= bytes && once < 2 * bytes);
    set_experts((struct mics_shape){0});
    for (int i = 0; i < RANKS; i++) /* four replicas write a part each, and each reads all four */
        ranks[i] = (struct rank){.step = 6, .parts = RANKS};
    run(ranks, ddp, 1);
    loads_with(ddp, 1, 3, 6, MICS_OK, "");
}

/* Count the threads that this process starts. The sanitizers replace pthread_create()
 * themselves. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define COUNTS_THREADS false
#else
#define COUNTS_THREADS true
int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*start)(void *), void *restrict context)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *const symbol = dlsym(RTLD_NEXT, "pthread_create");

    memcpy(&next, &symbol, sizeof next);
    atomic_fetch_add(&threads_started, 1);
    return next(thread, attributes, start, context);
}
#endif

/* Threads that start while the checkpoint is loaded in another shape than it was saved in, by ranks
 * of which `host_ranks` share a machine. */
static unsigned threads_of_load(uint32_t host_ranks)
{
    static const struct mics_shape zero3 = {2, 2, 4, 4, 4};
    struct rank ranks[RANKS];
    const unsigned before = atomic_load(&threads_started);

    for (int i = 0; i < RANKS; i++)
        ranks[i] = (struct rank){.step = 8, .load = true, .host_ranks = host_ranks};
    run(ranks, zero3, 1);
    for (int i = 0; i < RANKS; i++) {
        CHECK_INT(ranks[i].status, MICS_OK);
        CHECK_INT(ranks[i].wrong, 0);
    }
    return atomic_load(&threads_started) - before;
}

/* A rank verifies its files in its share of the cores of its machine, whose ranks need not be all
 * ranks. One of the threads is the rank's own. */
static void sums_are_verified_by_as_many_threads_as_a_rank_has_cores(void)
{
    if (!COUNTS_THREADS)
        TAP_SKIP("a sanitizer owns pthread_create");
    plain_save(8);
    const unsigned all = threads_of_load(1), half = threads_of_load(2),
                   none = threads_of_load(1000);

    CHECK_INT(all - none, RANKS * (mics_workers_max(1) - 1));
    CHECK_INT(half - none, RANKS * (mics_workers_max(2) - 1));
}

int main(void)
{
    begin_ckpt();
    TAP_RUN(what_was_saved_is_loaded_bit_for_bit);
    TAP_RUN(any_shape_loads_what_any_other_saved);
    TAP_RUN(any_pair_of_shapes_loads_what_any_other_saved);
    TAP_RUN(checkpoints_of_two_shapes_are_verified_and_merged);
    TAP_RUN(any_range_is_read_from_any_shape);
    TAP_RUN(places_agree_with_a_walk_over_every_element);
    TAP_RUN(a_checkpoint_that_is_cut_alike_is_read_once);
    TAP_RUN(sums_are_verified_by_as_many_threads_as_a_rank_has_cores);
    return end_ckpt();
}
