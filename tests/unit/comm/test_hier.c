/* SPDX-License-Identifier: Apache-2.0 */
/* test_hier.c - hierarchical collectives over ranks that are threads, against what must come out. */
#include "bench/hierarchical.h"
#include "device/launch.h"
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_RANKS = 8, ROUNDS = 3 };

struct trial {
    int nodes, per_node;
    uint32_t segments;
    uint64_t count; /* of one rank */
};

struct rank {
    const struct trial *trial;
    struct mics_comm *world, *net, *node;
    struct mics_device *device;
    struct mics_stream *stream;
    struct mics_hier *hier;
    float *shard, *whole;
    uint64_t wrong;
    uint64_t net_bytes, node_bytes; /* sent by one gather and one reduction */
    enum mics_status status;
};

/* What rank-block `block` holds at its element e; whole numbers, so sums are exact. */
static float value(uint64_t block, uint64_t e, int round)
{
    return (float)((block * 31 + e * 7 + (uint64_t)round) % 97);
}

static uint64_t ranks_of(const struct trial *trial)
{
    return (uint64_t)trial->nodes * (uint64_t)trial->per_node;
}

/* Place in the gathered buffer of element e of a block's shard. */
static uint64_t place(const struct trial *trial, uint64_t block, uint64_t e)
{
    const uint64_t piece = trial->count / trial->segments, segment = e / piece;

    return segment * ranks_of(trial) * piece + block * piece + e % piece;
}

static void fill(struct rank *r, int round, bool in_place)
{
    const uint64_t block = mics_hier_block(r->hier), n = ranks_of(r->trial);

    for (uint64_t i = 0; i < n * r->trial->count; i++)
        r->whole[i] = -1;
    for (uint64_t e = 0; e < r->trial->count; e++) {
        r->shard[e] = in_place ? -1 : value(block, e, round);
        if (in_place)
            r->whole[place(r->trial, block, e)] = value(block, e, round);
    }
}

static void gather(struct rank *r, int round, bool in_place)
{
    const uint64_t n = ranks_of(r->trial);

    fill(r, round, in_place);
    mics_hier_all_gather(r->hier, r->stream, in_place ? NULL : r->shard, r->whole, r->trial->count,
                         MICS_F32);
    r->status |= r->device->ops->stream_sync(r->stream, NULL);
    for (uint64_t block = 0; block < n; block++)
        for (uint64_t e = 0; e < r->trial->count; e++)
            r->wrong += r->whole[place(r->trial, block, e)] != value(block, e, round);
}

/* Every rank contributes its block times the value. */
static void reduce(struct rank *r, int round, bool in_place)
{
    const uint64_t n = ranks_of(r->trial), own = mics_hier_block(r->hier);

    for (uint64_t block = 0; block < n; block++)
        for (uint64_t e = 0; e < r->trial->count; e++)
            r->whole[place(r->trial, block, e)] = (float)(own + 1) * value(block, e, round);
    mics_hier_reduce_scatter(r->hier, r->stream, r->whole, in_place ? NULL : r->shard,
                             r->trial->count, MICS_F32);
    r->status |= r->device->ops->stream_sync(r->stream, NULL);
    for (uint64_t e = 0; e < r->trial->count; e++) {
        const float got = in_place ? r->whole[place(r->trial, own, e)] : r->shard[e];

        r->wrong += got != (float)(n * (n + 1) / 2) * value(own, e, round);
    }
}

/* Two gathers one after another, without waiting in between: the second must not overtake the first. */
static void gather_twice(struct rank *r)
{
    const uint64_t n = ranks_of(r->trial);

    fill(r, 7, false);
    mics_hier_all_gather(r->hier, r->stream, r->shard, r->whole, r->trial->count, MICS_F32);
    mics_launch_copy(r->stream, &(struct mics_op_copy){
                                    r->shard, r->whole + place(r->trial, n - 1, 0), sizeof(float)});
    mics_hier_all_gather(r->hier, r->stream, r->shard, r->whole, r->trial->count, MICS_F32);
    r->status |= r->device->ops->stream_sync(r->stream, NULL);
    for (uint64_t block = 0; block < n; block++)
        r->wrong += r->whole[place(r->trial, block, 0)] != value(n - 1, 0, 7);
}

static void open_rank(struct rank *r)
{
    const struct trial *trial = r->trial;
    struct mics_comm *world = r->world;
    const int i = world->rank / trial->per_node, j = world->rank % trial->per_node;

    r->status |= mics_device_new_host(1, &r->device, NULL);
    r->status |= r->device->ops->stream_open(r->device, "test", 0, &r->stream, NULL);
    r->status |= world->ops->split(world, j, i, i, &r->net, NULL);
    r->status |= world->ops->split(world, i, j, j, &r->node, NULL);
    r->status |= mics_hier_open(r->device, r->net, r->node, trial->segments, &r->hier, NULL);
    r->shard = calloc(trial->count, sizeof *r->shard);
    r->whole = calloc(trial->count * ranks_of(trial), sizeof *r->whole);
}

static void *run_rank(void *context)
{
    struct rank *r = context;

    open_rank(r);
    gather(r, 0, false);
    reduce(r, 0, false);
    r->net_bytes = r->net->counts.sent_bytes;
    r->node_bytes = r->node->counts.sent_bytes;
    for (int round = 1; round < ROUNDS; round++) {
        gather(r, round, round % 2);
        reduce(r, round, round % 2);
    }
    gather_twice(r);
    mics_hier_close(r->hier);
    r->device->ops->stream_close(r->stream);
    r->device->ops->free(r->device);
    r->net->ops->free(r->net);
    r->node->ops->free(r->node);
    r->world->ops->free(r->world);
    free(r->shard);
    free(r->whole);
    return NULL;
}

static void try(int nodes, int per_node, uint32_t segments, uint64_t count)
{
    const struct trial trial = {nodes, per_node, segments, count};
    const uint64_t q = (uint64_t)nodes, k = (uint64_t)per_node;
    struct mics_comm *comms[MAX_RANKS];
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads(nodes * per_node, comms, NULL), MICS_OK);
    for (int i = 0; i < nodes * per_node; i++) {
        ranks[i] = (struct rank){.trial = &trial, .world = comms[i]};
        pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (int i = 0; i < nodes * per_node; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(ranks[i].status, MICS_OK);
        CHECK_INT(ranks[i].wrong, 0);
        CHECK_INT(ranks[i].net_bytes, 2 * (q - 1) * count * sizeof(float));
        CHECK_INT(ranks[i].node_bytes, 2 * (k - 1) * q * count * sizeof(float));
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

static void one_stage_alone(void)
{
    try(1, 4, 2, 10);
    try(4, 1, 2, 10);
    try(1, 1, 1, 3);
}

static void large_segments_travel_in_several_messages(void)
{
    try(2, 2, 4, 4 * 50000);
}

static void a_wrong_number_of_segments_is_refused(void)
{
    struct mics_hier *hier;
    struct mics_err err;

    CHECK_INT(mics_hier_open(NULL, NULL, NULL, 0, &hier, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "0 segments: expected 1 to 64");
    CHECK_INT(mics_hier_open(NULL, NULL, NULL, 65, &hier, &err), MICS_ERR_ARG);
}

int main(void)
{
    TAP_RUN(two_nodes_of_two);
    TAP_RUN(more_nodes_than_ranks_on_each_and_the_reverse);
    TAP_RUN(one_stage_alone);
    TAP_RUN(large_segments_travel_in_several_messages);
    TAP_RUN(a_wrong_number_of_segments_is_refused);
    return tap_done();
}
