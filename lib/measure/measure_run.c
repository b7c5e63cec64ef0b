/* SPDX-License-Identifier: Apache-2.0 */
/* measure_run.c - the loops: groups, operations, sizes, algorithms, out of place and in place. */
#include "measure/measure_run.h"
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

/* One group in a run. */
struct group_run {
    struct run *run;
    enum mics_bench_group group;
    struct mics_bench_comms comms;
    struct mics_executor partition; /* of sync: the world cut into partition groups */
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

static bool is_in(unsigned set, int index)
{
    return set >> index & 1;
}

static bool makes_sense(const struct group_run *group, enum mics_bench_op op,
                        enum mics_bench_algo algo, bool in_place)
{
    if (op == MICS_BENCH_SYNC)
        return !in_place && (algo == MICS_BENCH_TWO_HOP || algo == MICS_BENCH_ONE_HOP);
    if (op == MICS_BENCH_ALL_TO_ALL && in_place)
        return false;
    if (algo == MICS_BENCH_HIERARCHICAL)
        return mics_bench_comms_have_hierarchy(&group->comms) && op < MICS_BENCH_ALL_REDUCE;
    return algo == MICS_BENCH_FLAT || (algo == MICS_BENCH_MPI && group->comms.native);
}

static enum mics_status measure_case(const struct group_run *group, const struct mics_bench_case *c,
                                     struct mics_err *err)
{
    const struct run *run = group->run;
    struct mics_bench_row *row = mics_bench_result_add(run->out);
    enum mics_status status;

    if (!row)
        return mics_err_nomem(err);
    row->op = c->op;
    row->algo = c->algo;
    row->group = group->group;
    row->in_place = c->in_place;
    row->nodes = group->comms.nodes;
    row->per_node = group->comms.per_node;
    row->groups = group->comms.groups;
    row->segments = c->segments;
    row->bytes = mics_bench_case_elements(c) * sizeof(float);
    row->count = c->op < MICS_BENCH_ALL_REDUCE || c->op == MICS_BENCH_ALL_TO_ALL
                     ? c->count
                     : mics_bench_case_elements(c);
    status = mics_bench_measure(c, run->request, row, err);
    if (status == MICS_OK && run->observer)
        run->observer(run->context, row);
    return status;
}

static enum mics_status run_case(struct group_run *group, struct mics_bench_case *c,
                                 struct mics_err *err)
{
    enum mics_status status = mics_bench_case_open(c, err);

    if (status == MICS_OK)
        status = measure_case(group, c, err);
    mics_bench_case_close(c);
    return status;
}

static enum mics_status run_size(struct group_run *group, enum mics_bench_op op, uint64_t bytes,
                                 struct mics_err *err)
{
    const struct mics_bench_request *request = group->run->request;
    const uint32_t segments = bytes >= MICS_BENCH_SEGMENT_BYTES ? request->segments : 1;
    struct mics_bench_case c = {
        .bench = group->run->bench,
        .comms = &group->comms,
        .partition = &group->partition,
        .op = op,
        .count = mics_bench_count(bytes, group->comms.size, segments),
        .micro_steps = request->micro_steps,
    };
    enum mics_status status = MICS_OK;

    for (int algo = 0; algo < MICS_BENCH_ALGO_COUNT; algo++) {
        for (int in_place = 0; in_place < 2 && status == MICS_OK; in_place++) {
            if (!is_in(request->algos, algo) ||
                !makes_sense(group, op, (enum mics_bench_algo)algo, in_place))
                continue;
            c.algo = (enum mics_bench_algo)algo;
            c.in_place = in_place;
            c.segments = algo == MICS_BENCH_HIERARCHICAL ? segments : 1;
            status = run_case(group, &c, err);
        }
    }
    return status;
}

static enum mics_status run_op(struct group_run *group, enum mics_bench_op op, struct mics_err *err)
{
    const struct mics_bench_request *request = group->run->request;
    enum mics_status status = MICS_OK;

    for (uint64_t bytes = request->min_bytes; bytes > 0 && status == MICS_OK;
         bytes = mics_bench_next_size(request, bytes))
        status = run_size(group, op, bytes, err);
    return status;
}

static enum mics_status run_ops(struct group_run *group, struct mics_err *err)
{
    const struct mics_bench *bench = group->run->bench;
    const struct mics_bench_request *request = group->run->request;
    const uint32_t p = request->partition;
    const struct mics_shape shapes[] =
        MICS_SAME_SHAPE({bench->world->node_count, bench->world->local_size, p, p, p});
    const bool has_sync = group->group == MICS_BENCH_WORLD && p > 0;
    enum mics_status status = MICS_OK;

    if (has_sync)
        mics_executor_init(&group->partition, bench->device, bench->comm, shapes);
    for (int op = 0; op < MICS_BENCH_OP_COUNT && status == MICS_OK; op++)
        if (is_in(request->ops, op) && (op != MICS_BENCH_SYNC || has_sync))
            status = run_op(group, (enum mics_bench_op)op, err);
    mics_executor_fini(&group->partition);
    return status;
}

static enum mics_status run_group(struct run *run, enum mics_bench_group group,
                                  struct mics_err *err)
{
    const struct mics_bench_grouping grouping =
        mics_bench_grouping_of(run->bench->world, group, run->request->partition);
    struct group_run group_run = {.run = run, .group = group};
    struct mics_group_position member;
    enum mics_status status;

    mics_shape_position(&grouping.shape, grouping.kind, 0, &member);
    if (member.size == 1)
        return MICS_OK;
    status = mics_bench_comms_open(run->bench, &grouping, true, &group_run.comms, err);
    if (status == MICS_OK)
        status = run_ops(&group_run, err);
    mics_bench_comms_close(&group_run.comms);
    return status;
}

static int first_of(unsigned set)
{
    int index = 0;

    while (set && !is_in(set, index))
        index++;
    return index;
}

/* Why no case applies. */
static enum mics_status explain_nothing(const struct mics_bench_request *request, uint32_t ranks,
                                        struct mics_err *err)
{
    const unsigned hops = 1u << MICS_BENCH_TWO_HOP | 1u << MICS_BENCH_ONE_HOP;
    const int op = first_of(request->ops), algo = first_of(request->algos);

    if (ranks > 1 && !is_in(request->ops, MICS_BENCH_SYNC) && !(request->algos & ~hops))
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "%s belongs to --op=sync, not to %s",
                            mics_bench_algo_name((enum mics_bench_algo)algo),
                            mics_bench_op_name((enum mics_bench_op)op));
    return mics_err_set(err, MICS_ERR_INFEASIBLE,
                        "none of these operations, algorithms and groups applies to %u rank%s",
                        ranks, ranks == 1 ? "" : "s");
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
        status = explain_nothing(request, bench->world->size, err);
    if (status != MICS_OK)
        mics_bench_result_fini(out);
    return status;
}
