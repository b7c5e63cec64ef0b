/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward_backward.c - the forward and backward passes of a step, with their gathers and reductions.
 *
 * Each computation is issued as it comes; after it, the gathers whose slot it freed (in the order
 * in which their units will be needed, so that a stream never holds up an earlier need), and the
 * reduction of the unit whose last gradient it made. Where units are joined, both wait until there is a set of them, but never
 * so long that a computation had to wait.
 */
#include "plan/schedule/build.h"

#include "plan/memory.h"
#include "plan/types.h"

static struct mics_op gather_of(const struct mics_build *build, const struct mics_fetch *fetch)
{
    return (struct mics_op){
        .kind = MICS_OP_GATHER,
        .unit = fetch->unit,
        .stage = MICS_NONE,
        .micro_step = mics_course_turn(&build->course, fetch->needed).micro_step,
        .param_slot = fetch->slot,
        .grad_slot = MICS_NONE,
        .dtype = build->choice->dtype,
    };
}

/* The next `count` gathers, together. */
static void gather(struct mics_build *build, uint32_t count)
{
    struct mics_op like[MICS_JOINED_MAX + 1];

    for (uint32_t i = 0; i < count; i++)
        like[i] = gather_of(build, &build->residency.fetches[build->next_fetch + i]);
    mics_build_exchange(build, &build->wiring.gather, MICS_ALL_GATHER, like, count);
    build->next_fetch += count;
}

/* Gathers, one after another, into slots that no turn from `now` on still reads under their former content; at most as
 * many as travel together. */
static uint32_t count_ready(const struct mics_build *build, uint32_t now)
{
    const struct mics_residency *residency = &build->residency;
    uint32_t ready = 0;

    while (ready <= build->choice->joined && build->next_fetch + ready < residency->fetch_count) {
        const struct mics_fetch *fetch = &residency->fetches[build->next_fetch + ready];

        if (fetch->former != MICS_NONE && fetch->former >= now)
            break;
        ready++;
    }
    return ready;
}

/* As soon as a set of them is ready, or when the first is needed now. */
static void gather_ahead(struct mics_build *build, uint32_t now)
{
    for (;;) {
        const uint32_t ready = count_ready(build, now);

        if (ready == 0 || (ready <= build->choice->joined &&
                           build->residency.fetches[build->next_fetch].needed > now))
            return;
        gather(build, ready);
    }
}

/* The slot that the unit's gradients go to; a new one at the unit's first gradient. */
static uint32_t take_grad_slot(struct mics_build *build, uint32_t unit)
{
    uint32_t *slot = &build->grad_slot_of_unit[unit];

    if (build->grads.total == 0)
        return MICS_NONE;
    if (*slot == MICS_NONE && build->model->units[unit].resident)
        *slot = mics_slots_of_resident(build->model, &build->grads, unit);
    else if (*slot == MICS_NONE)
        *slot = build->next_grad_slot++ % build->grads.rotating;
    return *slot;
}

static uint32_t count_stages(const struct mics_model *model, uint32_t unit)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < model->stage_count; i++)
        count += model->stages[i].unit == unit;
    return count;
}

static void accumulate(struct mics_build *build, const struct mics_op *reduce)
{
    uint64_t shard = mics_layout_grad_shard(&build->out->layouts[reduce->unit]);
    struct mics_op op = *reduce;

    op.kind = MICS_OP_ACCUMULATE;
    op.stream = build->wiring.accumulate;
    op.first = op.micro_step == 0;
    op.memory_bytes =
        (double)(shard * (mics_dtype_bytes(op.dtype) + sizeof(float) * (op.first ? 1 : 2)));
    op.flops = op.first ? 0 : (double)shard;
    mics_build_append(build, &op);
    build->grad_slot_of_unit[op.unit] = MICS_NONE;
}

/* The units that wait, together: into their shards, and in the last micro-step over the replicas. */
static void reduce_pending(struct mics_build *build, uint32_t micro_step)
{
    const uint32_t count = build->pending_count;
    struct mics_op like[MICS_JOINED_MAX + 1];

    build->pending_count = 0;
    for (uint32_t i = 0; i < count; i++)
        like[i] = (struct mics_op){.kind = MICS_OP_REDUCE,
                                   .unit = build->pending[i],
                                   .stage = MICS_NONE,
                                   .micro_step = micro_step,
                                   .param_slot = MICS_NONE,
                                   .grad_slot = build->grad_slot_of_unit[build->pending[i]],
                                   .dtype = build->choice->grad_dtype};
    if (count > 0 && build->grads.total > 0) {
        mics_build_exchange(build, &build->wiring.reduce, MICS_REDUCE_SCATTER, like, count);
        for (uint32_t i = 0; i < count; i++)
            accumulate(build, &like[i]);
    }
    if (count == 0 || micro_step + 1 < build->choice->micro_steps)
        return;
    for (uint32_t i = 0; i < count; i++) {
        like[i].kind = MICS_OP_SCATTER;
        like[i].grad_slot = MICS_NONE;
    }
    mics_build_exchange(build, &build->wiring.scatter, MICS_REDUCE_SCATTER, like, count);
    for (uint32_t i = 0; i < count; i++)
        like[i].kind = MICS_OP_SYNC;
    mics_build_exchange(build, &build->wiring.sync, MICS_ALL_REDUCE, like, count);
}

/* Units that are reduced together: no more than there are slots for their gradients. */
static uint32_t reduced_at_once(const struct mics_build *build)
{
    const uint32_t most = build->choice->joined + 1;

    return build->grads.total > 0 && build->grads.rotating < most
               ? (build->grads.rotating ? build->grads.rotating : 1)
               : most;
}

/* Where the gradients go, and what zeroing that buffer costs. */
static void place_grads(struct mics_build *build, struct mics_op *op)
{
    uint32_t *left = &build->grads_left[op->unit];
    bool first_here = *left == 0;

    if (first_here)
        *left = count_stages(build->model, op->unit);
    --*left;
    op->grad_slot = take_grad_slot(build, op->unit);
    op->first = first_here && (op->grad_slot != MICS_NONE || op->micro_step == 0);
    if (op->first)
        op->memory_bytes += (double)(build->out->layouts[op->unit].padded *
                                     mics_dtype_bytes(mics_choice_written_grads(build->choice)));
}

static void compute(struct mics_build *build, uint32_t turn)
{
    struct mics_turn at = mics_course_turn(&build->course, turn);
    struct mics_batch batch = mics_choice_batch(build->choice, build->course.train);
    bool head = at.stage + 1 == build->model->stage_count;
    bool makes_grads = build->course.train && (at.backward || head);
    struct mics_op op = {.kind = at.backward ? MICS_OP_BACKWARD : MICS_OP_FORWARD,
                         .stream = MICS_STREAM_COMPUTE,
                         .unit = build->model->stages[at.stage].unit,
                         .stage = at.stage,
                         .micro_step = at.micro_step,
                         .param_slot = build->residency.slot_of_turn[turn],
                         .blind = mics_course_is_blind(&build->course, build->model, turn),
                         .grad_slot = MICS_NONE};
    struct mics_stage_cost work;

    build->model->ops->stage_cost(build->model, &batch, at.stage, &work);
    op.flops = at.backward ? work.backward_flops : work.forward_flops;
    op.memory_bytes = at.backward ? work.backward_bytes : work.forward_bytes;
    if (head && makes_grads) {
        op.flops += work.backward_flops;
        op.memory_bytes += work.backward_bytes;
    }
    if (makes_grads)
        place_grads(build, &op);
    mics_build_append(build, &op);
    if (makes_grads && build->grads_left[op.unit] == 0)
        build->pending[build->pending_count++] = op.unit;
    if (build->pending_count == reduced_at_once(build) ||
        mics_course_ends_pass(&build->course, turn))
        reduce_pending(build, at.micro_step);
}

void mics_build_passes(struct mics_build *build)
{
    uint32_t turns = mics_course_length(&build->course);

    gather_ahead(build, 0);
    for (uint32_t turn = 0; turn < turns && !build->failed; turn++) {
        compute(build, turn);
        gather_ahead(build, turn + 1);
    }
}
