/* SPDX-License-Identifier: Apache-2.0 */
/* bench_run.c - the loops: groups, operations, sizes, algorithms, out of place and in place. */
#include "bench/run.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One run of all loops on one rank. */
struct run {
    const struct mics_bench *bench;
    const struct mics_bench_request *request;
    mics_bench_observer *observer;
    void *context;
    struct mics_bench_result *out;
};

/* All of one group's. */
struct scene {
    struct run *run;
    enum mics_bench_group group;
    struct mics_bench_place place, partition, replication; /* the last two for sync */
};

enum mics_status mics_bench_buffer_bytes(const struct mics_bench_request *request,
                                         const struct mics_world *world, uint64_t *bytes,
                                         struct mics_err *err)
{
    const uint64_t least = 16 * (uint64_t)world->size * request->segments;
    const uint64_t array = mics_max_u64(request->max_bytes, least);

    if (array > (uint64_t)1 << 50)
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "an array of %llu bytes is too large",
                            (unsigned long long)array);
    *bytes = mics_round_up(2 * array, 4096);
    return MICS_OK;
}

struct mics_bench_row *mics_bench_result_add(struct mics_bench_result *result)
{
    if (result->count == result->capacity) {
        const size_t capacity = result->capacity ? 2 * result->capacity : 64;
        struct mics_bench_row *rows = realloc(result->rows, capacity * sizeof *rows);

        if (!rows)
            return NULL;
        result->rows = rows;
        result->capacity = capacity;
    }
    result->rows[result->count] = (struct mics_bench_row){0};
    return &result->rows[result->count++];
}

void mics_bench_result_fini(struct mics_bench_result *result)
{
    free(result->rows);
    *result = (struct mics_bench_result){0};
}

static bool is_in(unsigned set, int index)
{
    return set >> index & 1;
}

static bool makes_sense(const struct scene *scene, enum mics_bench_op op, enum mics_bench_algo algo,
                        bool in_place)
{
    if (op == MICS_BENCH_SYNC)
        return !in_place && (algo == MICS_BENCH_TWO_HOP || algo == MICS_BENCH_ONE_HOP);
    if (algo == MICS_BENCH_HIERARCHICAL)
        return scene->place.whole && op != MICS_BENCH_ALL_REDUCE;
    return algo == MICS_BENCH_FLAT || (algo == MICS_BENCH_MPI && scene->place.mpi);
}

/* Every algorithm of a size has the same bytes, whatever the segments of the hierarchical one. */
static struct mics_bench_case case_of(const struct scene *scene, enum mics_bench_op op,
                                      uint64_t bytes)
{
    const struct mics_bench_request *request = scene->run->request;
    const struct mics_bench_seat *seat = &scene->place.seat;
    const uint32_t segments = bytes >= MICS_BENCH_SEGMENT_BYTES ? request->segments : 1;

    return (struct mics_bench_case){
        .bench = scene->run->bench,
        .place = &scene->place,
        .partition = &scene->partition,
        .replication = &scene->replication,
        .op = op,
        .segments = segments,
        .count = mics_bench_count(bytes, seat->nodes * seat->per_node, segments),
        .micro_steps = request->micro_steps,
    };
}

static enum mics_status run_case(const struct scene *scene, const struct mics_bench_case *c,
                                 struct mics_err *err)
{
    const struct run *run = scene->run;
    const struct mics_bench_seat *seat = &scene->place.seat;
    struct mics_bench_row *row = mics_bench_result_add(run->out);
    enum mics_status status;

    if (!row)
        return mics_err_nomem(err);
    row->op = c->op;
    row->algo = c->algo;
    row->group = scene->group;
    row->in_place = c->in_place;
    row->nodes = seat->nodes;
    row->per_node = seat->per_node;
    row->groups = seat->groups;
    row->segments = c->segments;
    row->bytes = mics_bench_case_elements(c) * sizeof(float);
    row->count = c->op < MICS_BENCH_ALL_REDUCE ? c->count : mics_bench_case_elements(c);
    status = mics_bench_measure(c, run->request, row, err);
    if (status == MICS_OK && run->observer)
        run->observer(run->context, row);
    return status;
}

static enum mics_status run_size(const struct scene *scene, enum mics_bench_op op, uint64_t bytes,
                                 struct mics_err *err)
{
    struct mics_bench_case c = case_of(scene, op, bytes);
    const uint32_t segments = c.segments;
    enum mics_status status = MICS_OK;

    for (int algo = 0; algo < MICS_BENCH_ALGO_COUNT; algo++) {
        for (int in_place = 0; in_place < 2 && status == MICS_OK; in_place++) {
            if (!is_in(scene->run->request->algos, algo) ||
                !makes_sense(scene, op, (enum mics_bench_algo)algo, in_place))
                continue;
            c.algo = (enum mics_bench_algo)algo;
            c.in_place = in_place;
            c.segments = algo == MICS_BENCH_HIERARCHICAL ? segments : 1;
            status = run_case(scene, &c, err);
        }
    }
    return status;
}

static enum mics_status run_op(const struct scene *scene, enum mics_bench_op op,
                               struct mics_err *err)
{
    const struct mics_bench_request *request = scene->run->request;
    enum mics_status status = MICS_OK;

    for (uint64_t bytes = request->min_bytes; bytes > 0 && status == MICS_OK;
         bytes = mics_bench_next_size(request, bytes))
        status = run_size(scene, op, bytes, err);
    return status;
}

/* Is there a partition, and more than one, whose gradients are synchronised? */
static bool has_sync(const struct scene *scene)
{
    const struct run *run = scene->run;

    return is_in(run->request->ops, MICS_BENCH_SYNC) && scene->group == MICS_BENCH_WORLD &&
           run->request->partition > 0;
}

static enum mics_status open_places(struct scene *scene, struct mics_err *err)
{
    const struct mics_bench *bench = scene->run->bench;
    const struct mics_bench_request *request = scene->run->request;
    struct mics_bench_seat seat =
        mics_bench_seat_of(bench->world, scene->group, request->partition);
    enum mics_status status =
        mics_bench_place_open(bench, &seat, request->segments, &scene->place, err);

    if (status != MICS_OK || !has_sync(scene))
        return status;
    seat = mics_bench_seat_of(bench->world, MICS_BENCH_PARTITION, request->partition);
    status = mics_bench_place_open(bench, &seat, request->segments, &scene->partition, err);
    if (status != MICS_OK)
        return status;
    seat = mics_bench_seat_of(bench->world, MICS_BENCH_REPLICATION, request->partition);
    return mics_bench_place_open(bench, &seat, request->segments, &scene->replication, err);
}

static enum mics_status run_group(struct run *run, enum mics_bench_group group,
                                  struct mics_err *err)
{
    struct scene scene = {.run = run, .group = group};
    const struct mics_bench_seat seat =
        mics_bench_seat_of(run->bench->world, group, run->request->partition);
    enum mics_status status;

    if (seat.nodes * seat.per_node == 1)
        return MICS_OK;
    status = open_places(&scene, err);
    for (int op = 0; op < MICS_BENCH_OP_COUNT && status == MICS_OK; op++)
        if (is_in(run->request->ops, op) && (op != MICS_BENCH_SYNC || has_sync(&scene)))
            status = run_op(&scene, (enum mics_bench_op)op, err);
    mics_bench_place_close(&scene.replication);
    mics_bench_place_close(&scene.partition);
    mics_bench_place_close(&scene.place);
    return status;
}

enum mics_status mics_bench_run(const struct mics_bench *bench,
                                const struct mics_bench_request *request,
                                mics_bench_observer *observer, void *context,
                                struct mics_bench_result *out, struct mics_err *err)
{
    struct run run = {bench, request, observer, context, out};
    enum mics_status status = MICS_OK;

    *out = (struct mics_bench_result){0};
    snprintf(out->device, sizeof out->device, "%s", mics_bench_device_name(bench));
    snprintf(out->transport, sizeof out->transport, "%s", bench->comm->backend);
    for (int group = 0; group < MICS_BENCH_GROUP_COUNT && status == MICS_OK; group++)
        if (is_in(request->groups, group))
            status = run_group(&run, (enum mics_bench_group)group, err);
    if (status == MICS_OK && out->count == 0)
        status = mics_err_set(err, MICS_ERR_INFEASIBLE,
                              "no such operation, algorithm and group on these %u ranks",
                              bench->world->size);
    if (status != MICS_OK)
        mics_bench_result_fini(out);
    return status;
}
