/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule/schedule.h"

#include "base/units.h"
#include "comm/comm.h"

#include <errno.h>
#include <stdlib.h>

const char *mics_op_kind_name(enum mics_op_kind kind)
{
    static const char *const names[MICS_OP_KIND_COUNT] = {
        "count", "gather", "forward", "backward", "reduce",  "accumulate", "scatter",
        "sync",  "norm",   "total",   "update",   "publish", "read"};

    return names[kind];
}

const char *mics_stream_kind_name(enum mics_stream_kind kind)
{
    static const char *const names[MICS_STREAM_COUNT] = {"compute", "gather_net", "gather_node",
                                                         "reduce_node", "reduce_net"};

    return names[kind];
}

bool mics_op_is_comm(enum mics_op_kind kind)
{
    switch (kind) {
    case MICS_OP_COUNT:
    case MICS_OP_GATHER:
    case MICS_OP_REDUCE:
    case MICS_OP_SCATTER:
    case MICS_OP_SYNC:
    case MICS_OP_TOTAL:
    case MICS_OP_PUBLISH:
        return true;
    default:
        return false;
    }
}

void mics_schedule_free(struct mics_schedule *schedule)
{
    if (!schedule)
        return;
    free(schedule->ops);
    free(schedule->deps);
    free(schedule->layouts);
    free(schedule->param_slot_count);
    free(schedule->param_slot_offset);
    free(schedule->grad_slot_count);
    free(schedule->grad_slot_offset);
    free(schedule);
}

static struct mics_hop hop(const struct mics_shape *shape, enum mics_comm_kind comm, bool gathers,
                           uint32_t divisor)
{
    struct mics_member member;
    enum mics_stream_kind net = gathers ? MICS_STREAM_GATHER_NET : MICS_STREAM_REDUCE_NET;
    enum mics_stream_kind node = gathers ? MICS_STREAM_GATHER_NODE : MICS_STREAM_REDUCE_NODE;

    mics_shape_member(shape, comm, 0, &member);
    return (struct mics_hop){comm, member.nodes > 1 ? net : node, divisor};
}

static struct mics_exchange flat(const struct mics_shape *shape, enum mics_comm_kind comm,
                                 bool gathers, uint32_t divisor)
{
    struct mics_member member;

    mics_shape_member(shape, comm, 0, &member);
    if (member.size == 1)
        return (struct mics_exchange){.hop_count = 0};
    return (struct mics_exchange){{hop(shape, comm, gathers, divisor)}, 1};
}

struct mics_wiring mics_wiring_of(const struct mics_plan_choice *choice)
{
    const struct mics_shape *shape = &choice->shape;
    uint32_t k = shape->per_node;
    struct mics_wiring wiring = {
        .gather = flat(shape, MICS_COMM_GATHER, true, 1),
        .reduce = flat(shape, MICS_COMM_REDUCE, false, 1),
        .scatter = flat(shape, MICS_COMM_SCATTER, false, shape->p_grad),
        .sync = flat(shape, MICS_COMM_REPLICA, false, shape->p_optim),
        .publish = flat(shape, MICS_COMM_PUBLISH, true, shape->p_param),
    };

    if (choice->hierarchical_gather && mics_shape_has_hierarchy(shape, shape->p_param))
        wiring.gather = (struct mics_exchange){
            {hop(shape, MICS_COMM_GATHER_NET, true, k), hop(shape, MICS_COMM_GATHER_NODE, true, 1)},
            2};
    if (choice->hierarchical_reduce && mics_shape_has_hierarchy(shape, shape->p_grad))
        wiring.reduce = (struct mics_exchange){{hop(shape, MICS_COMM_REDUCE_NODE, false, 1),
                                                hop(shape, MICS_COMM_REDUCE_NET, false, k)},
                                               2};
    if (wiring.reduce.hop_count > 0)
        wiring.accumulate = wiring.reduce.hops[wiring.reduce.hop_count - 1].stream;
    return wiring;
}

/* counts.c - what a step exchanges, as the communicators will count it. */

/* The rank's place in a communicator that sums: each optimizer group has one rank in a replication group. */
static uint32_t place_in(const struct mics_shape *shape, enum mics_comm_kind kind, uint32_t rank)
{
    return kind == MICS_COMM_REPLICA ? rank / shape->p_optim : rank;
}

/* Gathers and scatters have equal pieces, and a ring sends all but one of them. */
static uint64_t sent_by(const struct mics_op *op, uint32_t size, uint32_t rank)
{
    if (op->collective == MICS_ALL_REDUCE)
        return mics_comm_all_reduce_sent((int)size, (int)rank, op->count, op->dtype);
    return op->bytes / size * (size - 1);
}

void mics_schedule_counts(const struct mics_schedule *schedule, const struct mics_shape *shape,
                          uint32_t rank, uint64_t calls[MICS_COMM_KIND_COUNT],
                          uint64_t sent_bytes[MICS_COMM_KIND_COUNT])
{
    struct mics_member members[MICS_COMM_KIND_COUNT];

    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
        mics_shape_member(shape, (enum mics_comm_kind)kind, rank, &members[kind]);
        calls[kind] = sent_bytes[kind] = 0;
    }
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (!mics_op_is_comm(op->kind) || members[op->comm].size == 1)
            continue;
        calls[op->comm]++;
        sent_bytes[op->comm] +=
            sent_by(op, members[op->comm].size, place_in(shape, op->comm, rank));
    }
}

/* schedule_print.c - executor "print": a schedule as a table for people and scripts. */

/* "3 17-" : waits for operation 3 of this step and operation 17 of the step before. */
static void print_deps(const struct mics_schedule *schedule, uint32_t index, FILE *out)
{
    const struct mics_op *op = &schedule->ops[index];

    for (uint32_t i = 0; i < op->dep_count; i++) {
        uint32_t dep = schedule->deps[op->dep_begin + i];

        fprintf(out, "%s%u%s", i ? " " : "", dep, dep >= index ? "-" : "");
    }
    fputc('\n', out);
}

static void print_slot(char letter, uint32_t slot, FILE *out)
{
    if (slot == MICS_NONE)
        fputs("  - ", out);
    else
        fprintf(out, " %c%-2u", letter, slot);
}

static void print_op(const struct mics_schedule *schedule, const struct mics_model *model,
                     uint32_t index, FILE *out)
{
    const struct mics_op *op = &schedule->ops[index];
    const char *unit = op->unit == MICS_NONE ? "-" : model->units[op->unit].name;
    const char *comm = mics_op_is_comm(op->kind) ? mics_comm_kind_name(op->comm) : "-";
    char amount[32];

    if (mics_op_is_comm(op->kind))
        mics_format_bytes(op->bytes, amount, sizeof amount);
    else
        mics_format_count(op->flops, amount, sizeof amount);
    fprintf(out, "%5u  %-11s %-11s %-11s %-8s %4u %3u", index, mics_op_kind_name(op->kind),
            mics_stream_kind_name(op->stream), comm, unit, op->micro_step, op->segment);
    print_slot('p', op->param_slot, out);
    print_slot('g', op->grad_slot, out);
    fprintf(out, " %10s%s  ", amount, op->joins ? "+" : mics_op_is_comm(op->kind) ? " " : "*");
    print_deps(schedule, index, out);
}

enum mics_status mics_schedule_print(const struct mics_schedule *schedule,
                                     const struct mics_model *model, FILE *out,
                                     struct mics_err *err)
{
    fprintf(out, "%5s  %-11s %-11s %-11s %-8s %4s %3s %-8s %10s   %s\n", "op", "does", "stream",
            "comm", "unit", "step", "seg", " slots", "size/flop*",
            "waits for (-: step before); +: together with the next");
    for (uint32_t i = 0; i < schedule->op_count; i++)
        print_op(schedule, model, i, out);
    if (ferror(out))
        return mics_err_set_errno(err, "writing the schedule");
    return MICS_OK;
}
