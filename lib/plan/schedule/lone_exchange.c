/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lone_exchange.c - a schedule of one exchange alone: one unit, and no computation but the
 * accumulation. Benchmarks run it, so that they measure what a training step does: the same
 * collectives on the same communicators, with the same segments, streams and waits.
 */
#include "plan/schedule/build_ops.h"

#include <stdlib.h>

static struct mics_op lone_op(enum mics_op_kind kind, uint32_t micro_step)
{
    struct mics_op op = build_plain_op(kind, MICS_STREAM_COMPUTE, 0, micro_step);

    op.param_slot = kind == MICS_OP_GATHER ? 0 : MICS_NONE;
    op.grad_slot = kind == MICS_OP_REDUCE ? 0 : MICS_NONE;
    return op;
}

static void append_lone_exchange(struct build *build, enum mics_op_kind kind, uint32_t micro_step)
{
    const struct mics_op op = lone_op(kind, micro_step);

    build_exchange(build, kind, &op, 1);
}

/* The gradients of one unit in a step: reduced and accumulated in each micro-step, then summed over
 * the replicas. */
static void append_gradients(struct build *build)
{
    for (uint32_t i = 0; i < build->choice->micro_steps; i++) {
        const struct mics_op op = lone_op(MICS_OP_REDUCE, i);

        build_exchange(build, MICS_OP_REDUCE, &op, 1);
        build_accumulate(build, &op);
    }
    append_lone_exchange(build, MICS_OP_SYNC, build->choice->micro_steps - 1);
}

static void append_exchange_kind(struct build *build, enum mics_exchange_kind kind)
{
    switch (kind) {
    case MICS_EXCHANGE_GATHER:
        append_lone_exchange(build, MICS_OP_GATHER, 0);
        break;
    case MICS_EXCHANGE_REDUCE:
        append_lone_exchange(build, MICS_OP_REDUCE, 0);
        break;
    case MICS_EXCHANGE_SYNC:
        append_lone_exchange(build, MICS_OP_SYNC, 0);
        break;
    case MICS_EXCHANGE_GRADIENTS:
        append_gradients(build);
        break;
    }
}

/* One slot of each kind, of the whole unit. */
static bool allocate_lone_unit(struct mics_schedule *out)
{
    out->layouts = calloc(1, sizeof *out->layouts);
    out->turns = calloc(1, sizeof *out->turns);
    out->param_slot_count = calloc(1, sizeof *out->param_slot_count);
    out->param_slot_offset = calloc(1, sizeof *out->param_slot_offset);
    out->grad_slot_count = calloc(1, sizeof *out->grad_slot_count);
    out->grad_slot_offset = calloc(1, sizeof *out->grad_slot_offset);
    return out->layouts && out->turns && out->param_slot_count && out->param_slot_offset &&
           out->grad_slot_count && out->grad_slot_offset;
}

enum mics_status mics_schedule_new_exchange(const struct mics_plan_choice *choice,
                                            enum mics_exchange_kind kind, uint64_t count,
                                            struct mics_schedule **out, struct mics_err *err)
{
    struct build build = {.choice = choice};
    struct mics_schedule *schedule = calloc(1, sizeof *schedule);
    enum mics_status status =
        schedule && allocate_lone_unit(schedule) ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK &&
        (choice->segments == 0 ||
         count % ((uint64_t)choice->segments * choice->shapes[MICS_UNIT_DENSE].p_optim) != 0))
        status = mics_err_set(
            err, MICS_ERR_ARG, "%llu elements cannot be divided into %u segments for %u ranks",
            (unsigned long long)count, choice->segments, choice->shapes[MICS_UNIT_DENSE].p_optim);
    if (status == MICS_OK) {
        build_set_routes(&build.routes, choice);
        schedule->unit_count = 1;
        schedule->interval = 1;
        schedule->layouts[0] =
            mics_layout_cut(&choice->shapes[MICS_UNIT_DENSE], count, choice->segments);
        schedule->param_slots = schedule->param_slot_total = 1;
        schedule->grad_slots = schedule->grad_slot_total = 1;
        schedule->param_slot_count[0] = schedule->grad_slot_count[0] = count;
        schedule->train = kind != MICS_EXCHANGE_GATHER;
        build.out = schedule;
        append_exchange_kind(&build, kind);
        status = build.failed ? mics_err_nomem(err)
                              : mics_schedule_add_dependencies(schedule, choice, err);
    }
    if (status == MICS_OK)
        *out = schedule;
    else
        mics_schedule_free(schedule);
    return status;
}
