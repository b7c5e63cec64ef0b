/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule/build.h"

#include "plan/memory.h"
#include "plan/plan.h"

#include <stdlib.h>

void mics_build_append(struct mics_build *build, const struct mics_op *op)
{
    struct mics_schedule *out = build->out;

    if (build->failed)
        return;
    if (out->op_count == build->capacity) {
        uint32_t capacity = build->capacity ? build->capacity * 2 : 256;
        struct mics_op *ops = NULL;

        if (capacity <= 1u << 26)
            ops = realloc(out->ops, capacity * sizeof *ops);
        if (!ops) {
            build->failed = true;
            return;
        }
        out->ops = ops;
        build->capacity = capacity;
    }
    out->ops[out->op_count++] = *op;
}

static bool same_segments(const struct mics_build *build, const struct mics_op *like,
                          uint32_t count)
{
    const struct mics_layout *layouts = build->out->layouts;

    for (uint32_t i = 1; i < count; i++)
        if (layouts[like[i].unit].segments != layouts[like[0].unit].segments)
            return false;
    return true;
}

/* Gradient shards that travel as another type are converted before and after. */
static bool may_join(const struct mics_op *op)
{
    return op->kind == MICS_OP_GATHER || op->kind == MICS_OP_REDUCE || op->dtype == MICS_F32;
}

static void append_hop(struct mics_build *build, const struct mics_hop *hop, uint32_t segment,
                       enum mics_collective collective, const struct mics_op *like, bool joins)
{
    struct mics_op op = *like;

    op.stream = hop->stream;
    op.comm = hop->comm;
    op.collective = collective;
    op.segment = segment;
    op.joins = joins && may_join(&op);
    op.count = build->out->layouts[op.unit].segment_count / hop->divisor;
    op.bytes = op.count * mics_dtype_bytes(op.dtype);
    mics_build_append(build, &op);
}

/* The units of one hop stand side by side, so that nothing between them waits for the first of them. */
void mics_build_exchange(struct mics_build *build, const struct mics_exchange *exchange,
                         enum mics_collective collective, const struct mics_op *like,
                         uint32_t count)
{
    const uint32_t segments = build->out->layouts[like->unit].segments;

    if (!same_segments(build, like, count)) {
        for (uint32_t i = 0; i < count; i++)
            mics_build_exchange(build, exchange, collective, &like[i], 1);
        return;
    }
    for (uint32_t segment = 0; segment < segments; segment++)
        for (uint32_t h = 0; h < exchange->hop_count; h++)
            for (uint32_t i = 0; i < count; i++)
                append_hop(build, &exchange->hops[h], segment, collective, &like[i], i + 1 < count);
}

/*
 * forward_backward.c - the forward and backward passes of a step, with their gathers and reductions.
 *
 * Each computation is issued as it comes; after it, the gathers whose slot it freed (in the order
 * in which their units will be needed, so that a stream never holds up an earlier need), and the
 * reduction of the unit whose last gradient it made. Where units are joined, both wait until there is a set of them, but never
 * so long that a computation had to wait.
 */

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
    struct mics_stage_work work;

    build->model->family->stage_work(build->model, &batch, at.stage, &work);
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

/*
 * optimizer_tail.c - what ends a step: norm, update, publish, scalars.
 *
 * Nothing of it stands between the computations of the last backward pass, which it would hold up. With
 * clipping the norm is a barrier, and units are updated in the order in which the next step needs
 * them, so that their gathers begin early. Without, they are updated in the order in which their
 * gradients arrive, the first needed last: the optimizer works while gradients still travel.
 */

static struct mics_op plain_op(const struct mics_build *build, enum mics_op_kind kind,
                               enum mics_stream_kind stream)
{
    return (struct mics_op){.kind = kind,
                            .stream = stream,
                            .unit = MICS_NONE,
                            .stage = MICS_NONE,
                            .micro_step = build->course.micro_steps - 1,
                            .param_slot = MICS_NONE,
                            .grad_slot = MICS_NONE};
}

static void norm(struct mics_build *build, uint32_t unit)
{
    struct mics_op op = plain_op(build, MICS_OP_NORM, MICS_STREAM_COMPUTE);
    uint64_t count = mics_layout_optim_shard(&build->out->layouts[unit]);

    op.unit = unit;
    op.flops = 2.0 * (double)count;
    op.memory_bytes = (double)(count * sizeof(float));
    mics_build_append(build, &op);
}

/* Reads parameter, gradient and states; writes all but the gradient, and a copy where there is a master. */
static void update(struct mics_build *build, uint32_t unit)
{
    struct mics_op op = plain_op(build, MICS_OP_UPDATE, MICS_STREAM_COMPUTE);
    uint64_t count = mics_layout_optim_shard(&build->out->layouts[unit]);
    uint32_t states = mics_optimizer_states(build->choice->optimizer);

    op.unit = unit;
    op.flops = (states == 2 ? 12.0 : 5.0) * (double)count;
    op.memory_bytes = (double)(count * sizeof(float)) * (3 + 2 * states);
    if (build->choice->dtype != MICS_F32)
        op.memory_bytes += (double)(count * mics_dtype_bytes(build->choice->dtype));
    mics_build_append(build, &op);
    op = plain_op(build, MICS_OP_PUBLISH, MICS_STREAM_COMPUTE);
    op.unit = unit;
    op.dtype = build->choice->dtype;
    mics_build_exchange(build, &build->wiring.publish, MICS_ALL_GATHER, &op, 1);
}

/* Norm and loss: two doubles. */
static void total(struct mics_build *build)
{
    struct mics_op op = plain_op(build, MICS_OP_TOTAL, MICS_STREAM_REDUCE_NET);

    op.comm = MICS_COMM_WORLD;
    op.collective = MICS_ALL_REDUCE;
    op.count = 2;
    op.dtype = MICS_F64;
    op.bytes = op.count * sizeof(double);
    mics_build_append(build, &op);
}

void mics_build_finish(struct mics_build *build)
{
    uint32_t units = build->model->unit_count;
    bool clip = build->choice->clip;
    struct mics_op read = plain_op(build, MICS_OP_READ, MICS_STREAM_REDUCE_NET);

    for (uint32_t i = units; i-- > 0 && build->course.train;) {
        norm(build, build->unit_order[i]);
        if (!clip)
            update(build, build->unit_order[i]);
    }
    total(build);
    for (uint32_t i = 0; i < units && build->course.train && clip; i++)
        update(build, build->unit_order[i]);
    read.memory_bytes = 2.0 * sizeof(struct mics_op_scalars);
    mics_build_append(build, &read);
}

/* The number of targets of the whole step: known first, needed by the updates. */
static void count_targets(struct mics_build *build)
{
    struct mics_op op = {.kind = MICS_OP_COUNT,
                         .stream = MICS_STREAM_REDUCE_NET,
                         .comm = MICS_COMM_WORLD,
                         .collective = MICS_ALL_REDUCE,
                         .unit = MICS_NONE,
                         .stage = MICS_NONE,
                         .param_slot = MICS_NONE,
                         .grad_slot = MICS_NONE,
                         .count = 1,
                         .bytes = sizeof(double),
                         .dtype = MICS_F64};

    mics_build_append(build, &op);
}

static void order_units(struct mics_build *build)
{
    uint32_t units = 0;

    for (uint32_t i = 0; i < build->model->stage_count; i++) {
        uint32_t unit = build->model->stages[i].unit;

        if (build->grads_left[unit]++ == 0)
            build->unit_order[units++] = unit;
    }
    for (uint32_t u = 0; u < units; u++)
        build->grads_left[u] = 0;
}

static enum mics_status prepare(struct mics_build *build, struct mics_err *err)
{
    const struct mics_model *model = build->model;
    uint32_t units = model->unit_count;
    enum mics_status status;

    build->out = calloc(1, sizeof *build->out);
    build->grad_slot_of_unit = malloc(units * sizeof *build->grad_slot_of_unit);
    build->grads_left = calloc(units, sizeof *build->grads_left);
    build->unit_order = calloc(units, sizeof *build->unit_order);
    if (build->out)
        build->out->layouts = calloc(units, sizeof *build->out->layouts);
    if (!build->grad_slot_of_unit || !build->grads_left || !build->unit_order || !build->out ||
        !build->out->layouts)
        return mics_err_nomem(err);
    order_units(build);
    build->out->unit_count = units;
    build->out->train = build->course.train;
    for (uint32_t u = 0; u < units; u++) {
        build->out->layouts[u] = mics_choice_layout(model, build->choice, u);
        build->grad_slot_of_unit[u] = MICS_NONE;
    }
    status = mics_slots_init_params(model, build->choice, &build->params, err);
    if (status == MICS_OK)
        status = mics_slots_init_grads(model, build->choice, &build->grads, err);
    if (status == MICS_OK)
        status = mics_residency_new(model, &build->course, &build->params, &build->residency, err);
    return status;
}

/* The slots' arrays move from the build to the schedule. */
static void hand_over_slots(struct mics_build *build)
{
    struct mics_schedule *out = build->out;

    out->param_slots = build->params.rotating;
    out->param_slot_total = build->params.total;
    out->param_slot_count = build->params.count;
    out->param_slot_offset = build->params.offset;
    out->grad_slots = build->grads.rotating;
    out->grad_slot_total = build->grads.total;
    out->grad_slot_count = build->grads.count;
    out->grad_slot_offset = build->grads.offset;
    build->params = build->grads = (struct mics_slot_set){0};
}

static enum mics_status assemble(struct mics_build *build, struct mics_err *err)
{
    count_targets(build);
    mics_build_passes(build);
    mics_build_finish(build);
    if (build->failed)
        return mics_err_nomem(err);
    hand_over_slots(build);
    return mics_build_deps(build->out, build->choice, err);
}

enum mics_status mics_schedule_new(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, bool train,
                                   struct mics_schedule **out, struct mics_err *err)
{
    struct mics_build build = {.model = model, .choice = choice};
    enum mics_status status = mics_choice_check(model, choice, err);

    if (status != MICS_OK)
        return status;
    build.wiring = mics_wiring_of(choice);
    build.course = (struct mics_course){model->stage_count, train ? choice->micro_steps : 1, train};
    status = prepare(&build, err);
    if (status == MICS_OK)
        status = assemble(&build, err);
    if (status == MICS_OK)
        *out = build.out;
    else
        mics_schedule_free(build.out);
    mics_slots_fini(&build.params);
    mics_slots_fini(&build.grads);
    mics_residency_fini(&build.residency);
    free(build.grad_slot_of_unit);
    free(build.grads_left);
    free(build.unit_order);
    return status;
}
