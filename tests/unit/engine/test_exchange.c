/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_exchange.c - exchanges on ranks that are threads, against known results.
 */
#include "device/launch.h"
#include "engine/executor.h"
#include "tap.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 8, ROUNDS = 3 };

struct trial {
    uint32_t nodes, per_node;
    uint32_t segments;
    uint64_t count; /* of one rank */
};

struct rank {
    const struct trial *trial;
    struct mics_comm *world;
    struct mics_device *device;
    struct mics_stream *stream;
    struct mics_executor executor;
    struct mics_exchange_replay *gather, *reduce;
    struct mics_layout layout;
    float *shard, *whole;
    uint64_t wrong;
    uint64_t sent_bytes[MICS_COMM_KIND_COUNT]; /* by one gather and one reduction */
    enum mics_status status;
};

/* What shard `index` holds at its element e; whole numbers, so sums are exact. */
static float value(uint64_t index, uint64_t e, int round)
{
    return (float)((index * 31 + e * 7 + (uint64_t)round) % 97);
}

static uint32_t ranks_of(const struct trial *trial)
{
    return trial->nodes * trial->per_node;
}

/* Place in the gathered array of element e of a shard. */
static uint64_t place(const struct rank *r, uint32_t index, uint64_t e)
{
    const uint64_t piece = r->layout.param_piece;

    return mics_layout_piece_offset(&r->layout, (uint32_t)(e / piece), piece, index) + e % piece;
}

static void run_exchange(struct rank *r, struct mics_exchange_replay *replay, bool in_place)
{
    const struct mics_pieces whole = {r->whole, r->layout.segment_count};
    const struct mics_pieces shard =
        in_place ? mics_pieces_in_slot(r->whole, &r->layout, r->layout.param_piece,
                                       r->executor.groups[MICS_UNIT_DENSE].index.param, MICS_F32)
                 : (struct mics_pieces){r->shard, r->layout.param_piece};
    const struct mics_pieces buffers[MICS_BUFFER_COUNT] = {
        [MICS_BUFFER_PARAM_SHARD] = shard,
        [MICS_BUFFER_PARAM_SLOT] = whole,
        [MICS_BUFFER_GRAD_SLOT] = whole,
        [MICS_BUFFER_REDUCED] = shard,
    };

    mics_exchange_replay_enqueue(replay, r->stream, 0, 1, buffers);
}

static void fill(struct rank *r, int round, bool in_place)
{
    const uint32_t own = r->executor.groups[MICS_UNIT_DENSE].index.param;

    for (uint64_t i = 0; i < ranks_of(r->trial) * r->trial->count; i++)
        r->whole[i] = -1;
    for (uint64_t e = 0; e < r->trial->count; e++) {
        r->shard[e] = in_place ? -1 : value(own, e, round);
        if (in_place)
            r->whole[place(r, own, e)] = value(own, e, round);
    }
}

static void gather(struct rank *r, int round, bool in_place)
{
    fill(r, round, in_place);
    run_exchange(r, r->gather, in_place);
    r->status |= r->device->ops->stream_sync(r->stream, NULL);
    for (uint32_t index = 0; index < ranks_of(r->trial); index++)
        for (uint64_t e = 0; e < r->trial->count; e++)
            r->wrong += r->whole[place(r, index, e)] != value(index, e, round);
}

/* Every rank contributes its index + 1 times the value. */
static void reduce(struct rank *r, int round, bool in_place)
{
    const uint32_t n = ranks_of(r->trial), own = r->executor.groups[MICS_UNIT_DENSE].index.grad;

    for (uint32_t index = 0; index < n; index++)
        for (uint64_t e = 0; e < r->trial->count; e++)
            r->whole[place(r, index, e)] = (float)(own + 1) * value(index, e, round);
    run_exchange(r, r->reduce, in_place);
    r->status |= r->device->ops->stream_sync(r->stream, NULL);
    for (uint64_t e = 0; e < r->trial->count; e++) {
        const float got = in_place ? r->whole[place(r, own, e)] : r->shard[e];

        r->wrong += got != (float)((uint64_t)n * (n + 1) / 2) * value(own, e, round);
    }
}

/* Two gathers one after another, without waiting in between: the second must not overtake the
 * first. */
static void gather_twice(struct rank *r)
{
    const uint32_t last = ranks_of(r->trial) - 1;

    fill(r, 7, false);
    run_exchange(r, r->gather, false);
    mics_launch_copy(
        r->stream, &(struct mics_args_copy){r->shard, r->whole + place(r, last, 0), sizeof(float)});
    run_exchange(r, r->gather, false);
    r->status |= r->device->ops->stream_sync(r->stream, NULL);
    for (uint32_t index = 0; index <= last; index++)
        r->wrong += r->whole[place(r, index, 0)] != value(last, 0, 7);
}

static void open_rank(struct rank *r)
{
    const struct trial *trial = r->trial;
    const uint32_t n = ranks_of(trial);
    const struct mics_plan_choice choice = {
        .shapes = MICS_SAME_SHAPE({trial->nodes, trial->per_node, n, n, n}),
        .hierarchical_gather = true,
        .hierarchical_reduce = true,
        .segments = trial->segments,
        .coalesce = 1,
        .micro_steps = 1,
        .dtype = MICS_F32,
        .grad_dtype = MICS_F32,
    };

    r->status |= mics_device_new_host(1, &r->device, NULL);
    r->status |= r->device->ops->stream_open(r->device, "test", 0, &r->stream, NULL);
    mics_executor_init(&r->executor, r->device, r->world, choice.shapes);
    r->layout = mics_layout_cut(&choice.shapes[MICS_UNIT_DENSE], n * trial->count, trial->segments);
    r->status |= mics_exchange_replay_new(&r->executor, &choice, MICS_EXCHANGE_GATHER,
                                          n * trial->count, &r->gather, NULL);
    r->status |= mics_exchange_replay_new(&r->executor, &choice, MICS_EXCHANGE_REDUCE,
                                          n * trial->count, &r->reduce, NULL);
    r->shard = calloc(trial->count, sizeof *r->shard);
    r->whole = calloc(trial->count * n, sizeof *r->whole);
}

static void close_rank(struct rank *r)
{
    mics_exchange_replay_free(r->gather);
    mics_exchange_replay_free(r->reduce);
    mics_executor_fini(&r->executor);
    r->device->ops->stream_close(r->stream);
    r->device->ops->free(r->device);
    mics_comm_free(r->world);
    free(r->shard);
    free(r->whole);
}

static void *run_rank(void *context)
{
    struct rank *r = context;

    open_rank(r);
    gather(r, 0, false);
    reduce(r, 0, false);
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
        if (r->executor.groups[MICS_UNIT_DENSE].comms[kind])
            r->sent_bytes[kind] =
                r->executor.groups[MICS_UNIT_DENSE].comms[kind]->counts.sent_bytes;
    for (int round = 1; round < ROUNDS; round++) {
        gather(r, round, round % 2);
        reduce(r, round, round % 2);
    }
    gather_twice(r);
    close_rank(r);
    return NULL;
}

static void check_sent(const struct rank *r)
{
    const uint64_t q = r->trial->nodes, k = r->trial->per_node;
    const uint64_t bytes = r->trial->count * sizeof(float);

    if (q > 1 && k > 1) {
        CHECK_INT(r->sent_bytes[MICS_COMM_GATHER_NET], (q - 1) * bytes);
        CHECK_INT(r->sent_bytes[MICS_COMM_GATHER_NODE], (k - 1) * q * bytes);
        CHECK_INT(r->sent_bytes[MICS_COMM_REDUCE_NODE], (k - 1) * q * bytes);
        CHECK_INT(r->sent_bytes[MICS_COMM_REDUCE_NET], (q - 1) * bytes);
    } else {
        CHECK_INT(r->sent_bytes[MICS_COMM_GATHER], (q * k - 1) * bytes);
        CHECK_INT(r->sent_bytes[MICS_COMM_REDUCE], (q * k - 1) * bytes);
    }
}

static void start_ranks(const struct trial *trial, struct rank *ranks, pthread_t *threads,
                        void *(*run)(void *))
{
    struct mics_comm *comms[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads((int)ranks_of(trial), comms, NULL), MICS_OK);
    for (uint32_t i = 0; i < ranks_of(trial); i++) {
        ranks[i] = (struct rank){.trial = trial, .world = comms[i]};
        pthread_create(&threads[i], NULL, run, &ranks[i]);
    }
}

static void try(uint32_t nodes, uint32_t per_node, uint32_t segments, uint64_t count)
{
    const struct trial trial = {nodes, per_node, segments, count};
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    start_ranks(&trial, ranks, threads, run_rank);
    for (uint32_t i = 0; i < nodes * per_node; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(ranks[i].status, MICS_OK);
        CHECK_INT(ranks[i].wrong, 0);
        check_sent(&ranks[i]);
    }
}

static void two_nodes_of_two(void)
{
    try(2, 2, 1, 5);
    try(2, 2, 4, 64);
}

static void more_nodes_than_ranks_on_each_and_the_reverse(void)
{
    try(4, 2, 2, 6);
    try(2, 4, 3, 12);
    try(3, 2, 1, 1);
}

static void groups_with_one_stage_are_flat(void)
{
    try(1, 4, 2, 10);
    try(4, 1, 2, 10);
    try(1, 2, 1, 3);
}

static void large_segments_travel_in_several_messages(void)
{
    try(2, 2, 4, 4 * 50000);
}

static void a_unit_that_does_not_divide_is_refused(void)
{
    const struct mics_plan_choice choice = {
        .shapes = MICS_SAME_SHAPE({2, 2, 4, 4, 4}), .segments = 2, .coalesce = 1};
    struct mics_schedule *schedule;
    struct mics_err err;

    CHECK_INT(mics_schedule_new_exchange(&choice, MICS_EXCHANGE_GATHER, 12, &schedule, &err),
              MICS_ERR_ARG);
    CHECK_STR(err.text, "12 elements cannot be divided into 2 segments for 4 ranks");
}

/* The second hop in blocks: ranks that hold the same shard, or with a scatter the same piece. */
struct hop_trial {
    struct mics_shape shape;
    struct mics_plan_choice choice;
    uint64_t count; /* of the shard */
    uint64_t bad;   /* this element of rank 1 is not finite; UINT64_MAX: none */
    float bad_value;
    bool keeps_sums; /* a deliberate bug: rank 0 takes its own sums before they are rounded */
};

struct hop_rank {
    const struct hop_trial *trial;
    struct mics_comm *world;
    float *shard;
    uint64_t sent_bytes, calls;
    enum mics_status status;
};

static struct hop_trial hop_trial(uint32_t replicas, enum mics_dtype up, enum mics_dtype down,
                                  bool gathers, uint64_t count)
{
    const struct mics_shape shape = {1, replicas, 1, 1, 1};

    return (struct hop_trial){
        .shape = shape,
        .choice = {.shapes = MICS_SAME_SHAPE(shape),
                   .segments = 1,
                   .coalesce = 1,
                   .micro_steps = 1,
                   .sync_dtype = up,
                   .sync_down_dtype = down,
                   .sync_gathers = gathers},
        .count = count,
        .bad = UINT64_MAX,
    };
}

/* A number of steps of one size, of which each block of 32 has the largest, so that all blocks are
 * exact: also those of sums, since all ranks have multiples of the same numbers. */
static float on_grid(const struct hop_trial *trial, uint32_t rank, uint64_t e)
{
    const int most = trial->choice.sync_dtype == MICS_INT8 ? 127 : 7;
    const int k = e % 32 == 0 ? most : (int)((e * 2654435761u >> 7) % (2 * most + 1)) - most;

    return (float)((int)(rank + 1) * k);
}

static float off_grid(const struct hop_trial *trial, uint32_t rank, uint64_t e)
{
    (void)trial;
    return (float)((double)((e * 2654435761u + rank * 40503u) % 100003) / 100003 - 0.4) *
           (e / 256 % 2 ? 1e-3F : 1);
}

static float (*hop_value)(const struct hop_trial *trial, uint32_t rank, uint64_t e);

/* What rank 0 added, in fp32. */
static void keep_sums(const struct hop_trial *trial, struct mics_stream *stream,
                      const struct mics_pieces *received, float *shard)
{
    const struct mics_layout layout = mics_layout_cut(&trial->shape, trial->count, 1);

    mics_launch_sum_blocks(
        stream, &(struct mics_args_sum_blocks){
                    .dst = shard,
                    .src = received->first,
                    .count = layout.sync_piece < trial->count ? layout.sync_piece : trial->count,
                    .stride = mics_wire_bytes(trial->choice.sync_dtype, layout.sync_piece),
                    .parts = trial->shape.per_node,
                    .dst_dtype = MICS_F32,
                    .src_dtype = trial->choice.sync_dtype});
}

static void *run_hop(void *context)
{
    struct hop_rank *r = context;
    const struct hop_trial *trial = r->trial;
    struct mics_device *device = NULL;
    struct mics_stream *stream = NULL;
    struct mics_executor executor;
    struct mics_exchange_replay *replay = NULL;
    const uint32_t rank = (uint32_t)r->world->rank;
    const uint64_t room = mics_wire_bytes(MICS_INT8, trial->count + 256) * trial->shape.per_node;
    struct mics_pieces buffers[MICS_BUFFER_COUNT] = {{NULL, 0}};

    r->status |= mics_device_new_host(1, &device, NULL);
    r->status |= device->ops->stream_open(device, "test", 0, &stream, NULL);
    mics_executor_init(&executor, device, r->world, trial->choice.shapes);
    r->status |= mics_exchange_replay_new(&executor, &trial->choice, MICS_EXCHANGE_SYNC,
                                          trial->count, &replay, NULL);
    buffers[MICS_BUFFER_GRAD_SHARD].first = r->shard;
    for (int b = MICS_BUFFER_FIRST_STAGING; b < MICS_BUFFER_COUNT; b++) {
        buffers[b].first = malloc(room);
        memset(buffers[b].first, 0x7f, room); /* NaN, if it were read */
    }
    for (uint64_t e = 0; e < trial->count; e++)
        r->shard[e] = rank == 1 && e == trial->bad ? trial->bad_value : hop_value(trial, rank, e);
    if (replay)
        mics_exchange_replay_enqueue(replay, stream, 0, 1, buffers);
    if (trial->keeps_sums && rank == 0)
        keep_sums(trial, stream, &buffers[MICS_BUFFER_SYNC_RECEIVED], r->shard);
    r->status |= device->ops->stream_sync(stream, NULL);
    const struct mics_comm *comm = executor.groups[MICS_UNIT_DENSE].comms[MICS_COMM_REPLICA];
    r->sent_bytes = comm ? comm->counts.sent_bytes : 0;
    r->calls = comm ? comm->counts.calls : 0;
    mics_exchange_replay_free(replay);
    mics_executor_fini(&executor);
    for (int b = MICS_BUFFER_FIRST_STAGING; b < MICS_BUFFER_COUNT; b++)
        free(buffers[b].first);
    device->ops->stream_close(stream);
    device->ops->free(device);
    mics_comm_free(r->world);
    return NULL;
}

/* Do all replicas have the same bits? */
static bool are_equal(const struct hop_trial *trial, const struct hop_rank *ranks)
{
    bool equal = true;

    for (uint32_t i = 1; i < trial->shape.per_node; i++)
        equal &= memcmp(ranks[i].shard, ranks[0].shard, trial->count * sizeof(float)) == 0;
    return equal;
}

/* Sets ranks[replicas], whose shards free_ranks() frees. */
static void hop(const struct hop_trial *trial, struct hop_rank *ranks)
{
    const uint32_t n = trial->shape.per_node;
    struct mics_comm *comms[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads((int)n, comms, NULL), MICS_OK);
    for (uint32_t i = 0; i < n; i++) {
        ranks[i] = (struct hop_rank){
            .trial = trial, .world = comms[i], .shard = calloc(trial->count, sizeof(float))};
        pthread_create(&threads[i], NULL, run_hop, &ranks[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(ranks[i].status, MICS_OK);
    }
    CHECK(are_equal(trial, ranks) == !trial->keeps_sums);
}

static void free_ranks(const struct hop_trial *trial, struct hop_rank *ranks)
{
    for (uint32_t i = 0; i < trial->shape.per_node; i++)
        free(ranks[i].shard);
}

static const struct {
    enum mics_dtype up, down;
    bool gathers;
} hop_routes[] = {{MICS_INT8, MICS_INT8, false},
                  {MICS_INT8, MICS_INT8, true},
                  {MICS_INT4, MICS_INT8, false},
                  {MICS_INT4, MICS_INT4, false},
                  {MICS_INT4, MICS_INT8, true}};
enum { HOP_ROUTES = sizeof hop_routes / sizeof *hop_routes };

static const uint64_t hop_counts[] = {1, 255, 257, 1000, 5000};
static const uint32_t hop_replicas[] = {2, 3, 8};

/* Call `check` for each route, number of replicas and elements. */
static void each_hop(void (*check)(struct hop_trial *trial))
{
    for (int i = 0; i < HOP_ROUTES; i++)
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 5; c++) {
                struct hop_trial trial =
                    hop_trial(hop_replicas[r], hop_routes[i].up, hop_routes[i].down,
                              hop_routes[i].gathers, hop_counts[c]);
                const int bad_before = tap_bad;

                if (tap_leaves_out(4))
                    continue;
                check(&trial);
                if (tap_bad != bad_before)
                    printf("# route %d, %u replicas, %llu elements\n", i, hop_replicas[r],
                           (unsigned long long)hop_counts[c]);
            }
}

static void check_exact(struct hop_trial *trial)
{
    const uint32_t r = trial->shape.per_node;
    struct hop_rank ranks[MAX_RANKS];
    uint64_t wrong = 0;

    /* Sums of steps of int4 are steps of int8 where the factor 127 / 7 does not matter. */
    if (trial->choice.sync_dtype == MICS_INT4 && trial->choice.sync_down_dtype == MICS_INT8 &&
        !trial->choice.sync_gathers)
        return;
    hop_value = on_grid;
    hop(trial, ranks);
    for (uint64_t e = 0; e < trial->count; e++)
        wrong += ranks[0].shard[e] != on_grid(trial, 0, e) * (float)(r * (r + 1) / 2);
    CHECK_INT(wrong, 0);
    free_ranks(trial, ranks);
}

static void gradients_on_the_grid_of_blocks_are_summed_exactly(void)
{
    each_hop(check_exact);
}

/* The largest of the block of `size` elements around e, of the values of one rank or their sum. */
static double largest(const struct hop_trial *trial, uint64_t e, uint64_t size, int rank)
{
    double most = 0;

    for (uint64_t i = e / size * size; i < (e / size + 1) * size && i < trial->count; i++) {
        double sum = 0;

        for (uint32_t j = 0; j < trial->shape.per_node; j++)
            if (rank < 0 || rank == (int)j)
                sum += off_grid(trial, j, i);
        most = fmax(most, fabs(sum));
    }
    return most;
}

/* Half a step of this format for a largest value; the scale may be rounded up. */
static double half_step(enum mics_dtype dtype, double most)
{
    return dtype == MICS_INT8 ? most / 254 * 1.001 : most / 14 * 1.02;
}

/* Each rank's number is rounded once, and the sum once more unless blocks are gathered. The sum of
 * rounded numbers may be larger, and so may its step. */
static void check_error(struct hop_trial *trial)
{
    const enum mics_dtype up = trial->choice.sync_dtype, down = trial->choice.sync_down_dtype;
    struct hop_rank ranks[MAX_RANKS];
    uint64_t wrong = 0, rounded = 0;

    hop_value = off_grid;
    hop(trial, ranks);
    for (uint64_t e = 0; e < trial->count; e++) {
        double exact = 0, allowed = 0;

        for (uint32_t j = 0; j < trial->shape.per_node; j++) {
            exact += off_grid(trial, j, e);
            allowed += half_step(up, largest(trial, e, up == MICS_INT8 ? 256 : 32, (int)j));
        }
        if (!trial->choice.sync_gathers)
            allowed +=
                half_step(down, largest(trial, e, down == MICS_INT8 ? 256 : 32, -1) + 2 * allowed);
        wrong += !(fabs(ranks[0].shard[e] - exact) <= allowed + 1e-6);
        rounded += ranks[0].shard[e] != (float)exact;
    }
    CHECK_INT(wrong, 0);
    CHECK(trial->count < 32 || rounded > trial->count / 2);
    free_ranks(trial, ranks);
}

static void blocks_are_off_by_half_a_step_of_each_rounding(void)
{
    each_hop(check_error);
}

/* One bad element of one replica: all see a NaN in its block, and no other block changes. */
static void check_bad(struct hop_trial *trial)
{
    static const float values[] = {INFINITY, -INFINITY, NAN};
    struct hop_rank good[MAX_RANKS], ranks[MAX_RANKS];

    trial->bad = trial->count / 2;
    hop_value = off_grid;
    for (int i = 0; i < 3; i++) {
        struct hop_trial clean = *trial;
        uint64_t wrong = 0;

        clean.bad = UINT64_MAX;
        trial->bad_value = values[i];
        hop(&clean, good);
        hop(trial, ranks);
        CHECK(isnan(ranks[0].shard[trial->bad]));
        for (uint64_t e = 0; e < trial->count; e++)
            wrong += e / 256 != trial->bad / 256 && ranks[0].shard[e] != good[0].shard[e];
        CHECK_INT(wrong, 0);
        free_ranks(trial, good);
        free_ranks(trial, ranks);
    }
}

static void a_gradient_that_is_not_finite_reaches_all_replicas(void)
{
    each_hop(check_bad);
}

static void an_owner_that_keeps_its_fp32_sums_is_detected(void)
{
    struct hop_trial trial = hop_trial(3, MICS_INT8, MICS_INT8, false, 1000);
    struct hop_rank ranks[MAX_RANKS];

    hop_value = off_grid;
    trial.keeps_sums = true;
    hop(&trial, ranks);
    free_ranks(&trial, ranks);
}

/* Bytes of a large shard on the wire, of those of fp32. */
static double part_of_fp32(enum mics_dtype up, enum mics_dtype down, bool gathers,
                           uint32_t replicas)
{
    struct hop_trial trial = hop_trial(replicas, up, down, gathers, 1 << 17);
    struct hop_rank ranks[MAX_RANKS];
    double sent = 0, exact = 0;

    hop_value = off_grid;
    for (int i = 0; i < 2; i++) {
        hop(&trial, ranks);
        for (uint32_t j = 0; j < replicas; j++)
            *(i ? &exact : &sent) += (double)ranks[j].sent_bytes;
        CHECK_INT(ranks[0].calls, i || gathers ? 1 : 2);
        free_ranks(&trial, ranks);
        trial.choice.sync_dtype = trial.choice.sync_down_dtype = MICS_F32;
        trial.choice.sync_gathers = false;
    }
    return sent / exact;
}

static void blocks_send_a_quarter_to_a_seventh_of_the_bytes(void)
{
    CHECK(part_of_fp32(MICS_INT8, MICS_INT8, false, 4) <= 0.26);
    CHECK(part_of_fp32(MICS_INT4, MICS_INT8, false, 4) <= 0.20);
    CHECK(part_of_fp32(MICS_INT4, MICS_INT4, false, 4) <= 0.15);
    CHECK(part_of_fp32(MICS_INT8, MICS_INT8, true, 2) <= 0.26);
    CHECK(part_of_fp32(MICS_INT8, MICS_INT8, false, 8) <= 0.26);
}

int main(void)
{
    TAP_RUN(two_nodes_of_two);
    TAP_RUN(more_nodes_than_ranks_on_each_and_the_reverse);
    TAP_RUN(groups_with_one_stage_are_flat);
    TAP_RUN(large_segments_travel_in_several_messages);
    TAP_RUN(a_unit_that_does_not_divide_is_refused);
    TAP_RUN(gradients_on_the_grid_of_blocks_are_summed_exactly);
    TAP_RUN(blocks_are_off_by_half_a_step_of_each_rounding);
    TAP_RUN(a_gradient_that_is_not_finite_reaches_all_replicas);
    TAP_RUN(an_owner_that_keeps_its_fp32_sums_is_detected);
    TAP_RUN(blocks_send_a_quarter_to_a_seventh_of_the_bytes);
    return tap_done();
}
