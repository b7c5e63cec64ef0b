/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_exchange.c - gathers and reductions on ranks that are threads, against known results.
 */
#include "device/launch.h"
#include "engine/executor.h"
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>

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

int main(void)
{
    TAP_RUN(two_nodes_of_two);
    TAP_RUN(more_nodes_than_ranks_on_each_and_the_reverse);
    TAP_RUN(groups_with_one_stage_are_flat);
    TAP_RUN(large_segments_travel_in_several_messages);
    TAP_RUN(a_unit_that_does_not_divide_is_refused);
    return tap_done();
}
