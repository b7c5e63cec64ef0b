/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.c - a schedule of one exchange alone: one unit, and no computation but the accumulation.
 *
 * Benchmarks run it, so that they measure what a training step does: the same collectives on the
 * same communicators, with the same segments, streams and waits.
 */
#include "plan/schedule/build.h"

#include <stdlib.h>

static struct mics_op op_of(const struct mics_build *build, enum mics_op_kind kind,
                            uint32_t micro_step)
{
    const bool gathers = kind == MICS_OP_GATHER;

    return (struct mics_op){
        .kind = kind,
        .stage = MICS_NONE,
        .micro_step = micro_step,
        .param_slot = gathers ? 0 : MICS_NONE,
        .grad_slot = kind == MICS_OP_REDUCE || kind == MICS_OP_ACCUMULATE ? 0 : MICS_NONE,
        .dtype = gathers ? build->choice->dtype : build->choice->grad_dtype,
    };
}

static void append_exchange(struct mics_build *build, const struct mics_exchange *exchange,
                            enum mics_op_kind kind, uint32_t micro_step)
{
    static const enum mics_collective collectives[MICS_OP_KIND_COUNT] = {
        [MICS_OP_GATHER] = MICS_ALL_GATHER,
        [MICS_OP_REDUCE] = MICS_REDUCE_SCATTER,
        [MICS_OP_SYNC] = MICS_ALL_REDUCE,
    };
    const struct mics_op op = op_of(build, kind, micro_step);

    mics_build_exchange(build, exchange, collectives[kind], &op, 1);
}

/* The gradients of one unit in a step: reduced and accumulated in each micro-step, then summed over
 * the replicas. */
static void append_gradients(struct mics_build *build)
{
    for (uint32_t i = 0; i < build->choice->micro_steps; i++) {
        struct mics_op accumulate = op_of(build, MICS_OP_ACCUMULATE, i);

        append_exchange(build, &build->wiring.reduce, MICS_OP_REDUCE, i);
        accumulate.stream = build->wiring.accumulate;
        accumulate.first = i == 0;
        mics_build_append(build, &accumulate);
    }
    append_exchange(build, &build->wiring.sync, MICS_OP_SYNC, build->choice->micro_steps - 1);
}

static void append_all(struct mics_build *build, enum mics_exchange_kind kind)
{
    switch (kind) {
    case MICS_EXCHANGE_GATHER:
        append_exchange(build, &build->wiring.gather, MICS_OP_GATHER, 0);
        break;
    case MICS_EXCHANGE_REDUCE:
        append_exchange(build, &build->wiring.reduce, MICS_OP_REDUCE, 0);
        break;
    case MICS_EXCHANGE_SYNC:
        append_exchange(build, &build->wiring.sync, MICS_OP_SYNC, 0);
        break;
    case MICS_EXCHANGE_GRADIENTS:
        append_gradients(build);
        break;
    }
}

/* One slot of each kind, of the whole unit. */
static bool allocate(struct mics_schedule *out)
{
    out->layouts = calloc(1, sizeof *out->layouts);
    out->param_slot_count = calloc(1, sizeof *out->param_slot_count);
    out->param_slot_offset = calloc(1, sizeof *out->param_slot_offset);
    out->grad_slot_count = calloc(1, sizeof *out->grad_slot_count);
    out->grad_slot_offset = calloc(1, sizeof *out->grad_slot_offset);
    return out->layouts && out->param_slot_count && out->param_slot_offset &&
           out->grad_slot_count && out->grad_slot_offset;
}

enum mics_status mics_schedule_new_exchange(const struct mics_plan_choice *choice,
                                            enum mics_exchange_kind kind, uint64_t count,
                                            struct mics_schedule **out, struct mics_err *err)
{
    struct mics_build build = {.choice = choice, .wiring = mics_wiring_of(choice)};
    struct mics_schedule *schedule = calloc(1, sizeof *schedule);
    enum mics_status status = schedule && allocate(schedule) ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK && count % ((uint64_t)choice->segments * choice->shape.p_optim) != 0)
        status = mics_err_set(err, MICS_ERR_ARG,
                              "%llu elements do not divide into %u segments "
                              "for %u ranks",
                              (unsigned long long)count, choice->segments, choice->shape.p_optim);
    if (status == MICS_OK) {
        schedule->unit_count = 1;
        schedule->layouts[0] = mics_layout_cut(&choice->shape, count, choice->segments);
        schedule->param_slots = schedule->param_slot_total = 1;
        schedule->grad_slots = schedule->grad_slot_total = 1;
        schedule->param_slot_count[0] = schedule->grad_slot_count[0] = count;
        schedule->train = kind != MICS_EXCHANGE_GATHER;
        build.out = schedule;
        append_all(&build, kind);
        status = build.failed ? mics_err_nomem(err) : mics_build_deps(schedule, choice, err);
    }
    if (status == MICS_OK)
        *out = schedule;
    else
        mics_schedule_free(schedule);
    return status;
}
