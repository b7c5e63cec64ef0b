/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.c - the operations of a step, in the order in which they are issued.
 *
 * Forward and backward: after each computation follow the gathers whose slots it freed, in the
 * order in which their units are needed, so that a stream never delays an earlier need; then the
 * reduction of the unit whose last gradient it computed. With coalescing both wait until a set of
 * units is complete, but never so long that a computation would wait for them. The optimizer
 * follows (build_optimizer.c).
 */
#include "plan/schedule/build_ops.h"

#include "base/num.h"
#include "plan/host_update.h"
#include "plan/memory.h"
#include "plan/schedule/launches.h"

#include <stdlib.h>

/* The next `count` fetches, coalesced. */
static void gather(struct build *build, uint32_t count)
{
    struct mics_op like[MICS_COALESCE_MAX];

    for (uint32_t i = 0; i < count; i++) {
        const struct mics_fetch *fetch = &build->residency.fetches[build->next_fetch + i];

        like[i] = build_plain_op(MICS_OP_GATHER, MICS_STREAM_COMPUTE, fetch->unit,
                                 mics_compute_order_at(&build->order, fetch->needed).micro_step);
        like[i].param_slot = fetch->slot;
        like[i].first = !build->gathered[fetch->unit];
        build->gathered[fetch->unit] = true;
    }
    build_exchange(build, MICS_OP_GATHER, like, count);
    build->next_fetch += count;
}

/* How many of the next fetches, at most a set, go into slots whose former content no computation
 * from `now` on reads. */
static uint32_t count_ready_fetches(const struct build *build, uint32_t now)
{
    const struct mics_residency *residency = &build->residency;
    uint32_t ready = 0;

    while (ready < build->choice->coalesce && build->next_fetch + ready < residency->fetch_count) {
        const struct mics_fetch *fetch = &residency->fetches[build->next_fetch + ready];

        if (fetch->former != MICS_NONE && fetch->former >= now)
            break;
        ready++;
    }
    return ready;
}

/* Gather as soon as a set is ready, or when computation `now` needs the first of it. */
static void gather_ahead(struct build *build, uint32_t now)
{
    for (;;) {
        const uint32_t ready = count_ready_fetches(build, now);

        if (ready == 0 || (ready < build->choice->coalesce &&
                           build->residency.fetches[build->next_fetch].needed > now))
            return;
        gather(build, ready);
    }
}

/* The slot of the unit's gradients; a new one at the unit's first gradient. */
static uint32_t take_grad_slot(struct build *build, uint32_t unit)
{
    uint32_t *slot = &build->grad_slot_of_unit[unit];

    const uint32_t own = build->grads.of_unit[unit];

    if (own == MICS_SLOT_NONE)
        return MICS_NONE;
    if (*slot == MICS_NONE)
        *slot = own == MICS_SLOT_ROTATING ? build->next_grad_slot++ % build->grads.rotating : own;
    return *slot;
}

/* The stream that reduces gradients, where there is nothing to reduce, too. */
static enum mics_stream_kind host_grads_stream(const struct build *build,
                                               const struct mics_op *like)
{
    const enum mics_stream_kind stream =
        build_route_of(build, MICS_OP_ACCUMULATE, like)->hops[0].stream;

    return stream == MICS_STREAM_COMPUTE ? MICS_STREAM_REDUCE_NODE : stream;
}

static void load_host_grads(struct build *build, const struct mics_op *like)
{
    if (build_updates_on_host(build))
        build_host_copy(build, MICS_OP_LOAD, MICS_BUFFER_GRAD_SHARD, host_grads_stream(build, like),
                        like, mics_host_grads_loaded(build->choice, like->micro_step));
}

static void store_host_grads(struct build *build, const struct mics_op *like)
{
    if (build_updates_on_host(build))
        build_host_copy(build, MICS_OP_STORE, MICS_BUFFER_GRAD_SHARD,
                        host_grads_stream(build, like), like,
                        mics_host_grads_stored(build->choice, like->micro_step));
}

/* Over the optimizer groups and the replicas; those of the same turn are coalesced. */
static void append_second_hop(struct build *build, const struct mics_op *like, uint32_t count)
{
    bool appended[REDUCED_MAX] = {false};

    for (uint32_t first = 0; first < count; first++) {
        struct mics_op set[REDUCED_MAX];
        uint32_t size = 0;

        for (uint32_t i = first; i < count; i++)
            if (!appended[i] && like[i].turn == like[first].turn) {
                appended[i] = true;
                set[size++] = like[i];
            }
        if (size == 0)
            continue;
        build_exchange(build, MICS_OP_SCATTER, set, size);
        for (uint32_t i = 0; i < size && build->choice->outer_steps > 0; i++)
            set[i].turn = MICS_TURN_WARMUP;
        if (build->choice->outer_steps == 0 || build->choice->sync_warmup > 0)
            build_exchange(build, MICS_OP_SYNC, set, size);
    }
}

/* Reduce the pending units into their shards, coalesced; in the last micro-step also over the
 * optimizer groups and the replicas. Whole gradients are reduced in the last micro-step only: until
 * then they are added up outside the slots, which costs no time here. */
static void reduce_pending(struct build *build, uint32_t micro_step)
{
    const uint32_t count = build->pending_count;
    struct mics_op like[REDUCED_MAX];

    build->pending_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t unit = build->pending[i];

        like[i] = build_plain_op(MICS_OP_REDUCE, MICS_STREAM_COMPUTE, unit, micro_step);
        like[i].grad_slot = build->grad_slot_of_unit[unit];
    }
    if (count == 0)
        return;
    if (build->choice->whole_grads && micro_step + 1 < build->choice->micro_steps) {
        for (uint32_t i = 0; i < count; i++)
            build->grad_slot_of_unit[like[i].unit] = MICS_NONE;
        return;
    }
    build_exchange(build, MICS_OP_REDUCE, like, count);
    const bool scatters = build_route_of(build, MICS_OP_SCATTER, &like[0])->hop_count > 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!scatters)
            load_host_grads(build, &like[i]);
        if (like[i].grad_slot != MICS_NONE) {
            build_accumulate(build, &like[i]);
            build->grad_slot_of_unit[like[i].unit] = MICS_NONE;
        }
        if (!scatters)
            store_host_grads(build, &like[i]);
    }
    if (micro_step + 1 < build->choice->micro_steps)
        return;
    for (uint32_t i = 0; i < count; i++)
        like[i] = build_turn_op(build, MICS_OP_SYNC, like[i].unit, micro_step);
    append_second_hop(build, like, count);
    for (uint32_t i = 0; i < count && scatters; i++) {
        load_host_grads(build, &like[i]);
        store_host_grads(build, &like[i]);
    }
}

/* Units that are reduced together: at most as many as there are slots for their gradients. */
static uint32_t reduction_set_size(const struct build *build)
{
    const uint32_t most = build->choice->coalesce;

    if (build->grads.total == 0 || build->grads.rotating >= most)
        return most;
    return build->grads.rotating ? build->grads.rotating : 1;
}

static uint32_t count_stages(const struct mics_model *model, uint32_t unit)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < model->stage_count; i++)
        count += model->stages[i].unit == unit;
    return count;
}

/* Where the gradients of a computation go, and whether that buffer is zeroed before. */
static void place_grads(struct build *build, struct mics_op *op)
{
    uint32_t *left = &build->grads_left[op->unit];
    const bool first_of_unit = *left == 0;

    if (first_of_unit)
        *left = count_stages(build->model, op->unit);
    --*left;
    op->grad_slot = take_grad_slot(build, op->unit);
    op->first = first_of_unit && (op->grad_slot != MICS_NONE || op->micro_step == 0);
}

/* What ranks exchange after a phase of a stage: of `like`, that phase. */
static void append_phase_exchange(struct build *build, const struct mics_op *like)
{
    const bool to_experts = like->phase != MICS_PHASE_EXPERTS;
    const enum mics_unit_kind kind = build->model->units[like->unit].kind;
    struct mics_pass_exchange exchanges[MICS_PASS_EXCHANGES_MAX];
    const uint32_t count =
        mics_phase_exchanges(build->model, build->choice, build->order.train, like, exchanges);
    struct mics_group_position at;
    struct mics_op op = *like;

    op.kind = to_experts ? MICS_OP_DISPATCH : MICS_OP_COMBINE;
    op.stream = to_experts ? MICS_STREAM_DISPATCH : MICS_STREAM_COMBINE;
    op.comm = to_experts ? MICS_COMM_DISPATCH : MICS_COMM_COMBINE;
    op.groups = mics_choice_groups(build->choice, kind);
    mics_shape_position(&build->choice->shapes[op.groups], op.comm, 0, &at);
    op.from.dtype = op.to.dtype = MICS_U8;
    op.param_slot = op.grad_slot = MICS_NONE;
    op.needs_params = op.first = false;
    op.between_nodes = at.nodes > 1;
    for (op.array = 0; op.array < count; op.array++) {
        op.collective = exchanges[op.array].gathers ? MICS_ALL_GATHER : MICS_ALL_TO_ALL;
        op.count = op.bytes = exchanges[op.array].bytes * at.size;
        op.coalesce_next = op.array + 1 < count;
        build_append(build, &op);
    }
}

/* `needed`: rounds at the expected load, 1 or more. */
static void append_phase(struct build *build, const struct mics_op *stage, enum mics_phase phase,
                         uint32_t round, uint32_t needed)
{
    const bool experts = phase == MICS_PHASE_EXPERTS;
    struct mics_op op = *stage;

    op.phase = phase;
    op.round = round;
    op.needs_params = stage->needs_params && experts;
    op.first = stage->first && experts && round == 0;
    op.surplus = round >= needed;
    build_append(build, &op);
    if (phase == MICS_PHASE_COUNT || phase == MICS_PHASE_SEND || experts)
        append_phase_exchange(build, &op);
}

/* A stage to whose experts tokens travel. */
static void append_phases(struct build *build, const struct mics_op *stage)
{
    struct mics_batch batch =
        mics_choice_batch(build->choice, build->model->units[stage->unit].kind, build->order.train);

    batch.expert_load = (float)mics_choice_expert_load(build->choice);
    const struct mics_dispatch dispatch = mics_model_dispatch(build->model, &batch);
    const uint32_t needed = (uint32_t)mics_ceil_div(dispatch.rows, dispatch.slots);

    if (!stage->backward)
        append_phase(build, stage, MICS_PHASE_COUNT, 0, needed);
    for (uint32_t round = 0; round < dispatch.rounds; round++) {
        append_phase(build, stage, MICS_PHASE_SEND, round, needed);
        append_phase(build, stage, MICS_PHASE_EXPERTS, round, needed);
        append_phase(build, stage, MICS_PHASE_RECEIVE, round, needed);
    }
    append_phase(build, stage, MICS_PHASE_SUM, 0, needed);
}

static bool dispatches(const struct build *build, uint32_t unit)
{
    return mics_choice_expert_ranks(build->choice, mics_unit_kind_of(build->model, unit)) > 0;
}

static void compute(struct build *build, uint32_t index)
{
    const struct mics_computation at = mics_compute_order_at(&build->order, index);
    const bool head = at.stage + 1 == build->model->stage_count;
    const uint32_t unit = build->model->stages[at.stage].unit;
    const bool makes_grads = build->order.train && unit != MICS_NO_UNIT && (at.backward || head);
    struct mics_op op = build_plain_op(at.backward ? MICS_OP_BACKWARD : MICS_OP_FORWARD,
                                       MICS_STREAM_COMPUTE, unit, at.micro_step);

    op.stage = at.stage;
    op.needs_params = mics_compute_order_needs_params(&build->order, build->model, index);
    op.param_slot = build->residency.slots[index];
    op.backward = at.backward && dispatches(build, unit);
    if (makes_grads)
        place_grads(build, &op);
    if (dispatches(build, unit))
        append_phases(build, &op);
    else
        build_append(build, &op);
    if (makes_grads && build->grads_left[op.unit] == 0)
        for (uint32_t times =
                 mics_trainer_exchange_times(build->order.exchanges, build->model, unit);
             times > 0; times--)
            build->pending[build->pending_count++] = unit;
    if (build->pending_count >= reduction_set_size(build) ||
        mics_compute_order_ends_micro_step(&build->order, index))
        reduce_pending(build, at.micro_step);
}

/* The unit that is updated as the `index`-th. */
static uint32_t updated_unit(const struct build *build, uint32_t index)
{
    const uint32_t last = build->out->unit_count - 1;

    return build->unit_order[build->choice->clip ? index : last - index];
}

/* Before computation `now`: what was taken in the step before is summed over the replicas, in the
 * order in which that was, an equal part of the units at each computation. */
static void sum_outer_deltas(struct build *build, uint32_t now)
{
    const uint64_t length = mics_compute_order_length(&build->order);
    const uint64_t units = build->out->unit_count;

    if (!build->order.train || !build->choice->outer_overlap)
        return;
    for (uint64_t i = now * units / length; i < (now + 1) * units / length; i++) {
        struct mics_op like =
            build_plain_op(MICS_OP_SYNC, MICS_STREAM_COMPUTE, updated_unit(build, (uint32_t)i), 0);

        like.turn = 1;
        build_exchange(build, MICS_OP_SYNC, &like, 1);
    }
}

static void build_forward_backward(struct build *build)
{
    const uint32_t length = mics_compute_order_length(&build->order);

    gather_ahead(build, 0);
    for (uint32_t i = 0; i < length && !build->failed; i++) {
        sum_outer_deltas(build, i);
        compute(build, i);
        gather_ahead(build, i + 1);
    }
}

/* Uses grads_left to mark the units that were seen, and leaves it zero. */
static void order_units(struct build *build)
{
    uint32_t units = 0;

    for (uint32_t i = 0; i < build->model->stage_count; i++) {
        const uint32_t unit = build->model->stages[i].unit;

        if (unit != MICS_NO_UNIT && build->grads_left[unit]++ == 0)
            build->unit_order[units++] = unit;
    }
    for (uint32_t u = 0; u < units; u++)
        build->grads_left[u] = 0;
}

static enum mics_status prepare(struct build *build, struct mics_err *err)
{
    const struct mics_model *model = build->model;
    const uint32_t units = model->unit_count;
    enum mics_status status;

    build->out = calloc(1, sizeof *build->out);
    build->grad_slot_of_unit = malloc(units * sizeof *build->grad_slot_of_unit);
    build->grads_left = calloc(units, sizeof *build->grads_left);
    build->unit_order = calloc(units, sizeof *build->unit_order);
    build->gathered = calloc(units, sizeof *build->gathered);
    if (build->out) {
        build->out->layouts = calloc(units, sizeof *build->out->layouts);
        build->out->turns = calloc(units, sizeof *build->out->turns);
    }
    if (!build->grad_slot_of_unit || !build->grads_left || !build->unit_order || !build->gathered ||
        !build->out || !build->out->layouts || !build->out->turns)
        return mics_err_nomem(err);
    order_units(build);
    build->out->unit_count = units;
    build->out->interval = build->choice->outer_steps > 0 ? build->choice->outer_steps
                                                          : mics_choice_interval(build->choice);
    mics_choice_turns(model, build->choice, build->out->turns);
    build->out->train = build->order.train;
    for (uint32_t u = 0; u < units; u++) {
        build->out->layouts[u] = mics_choice_layout(model, build->choice, u);
        build->grad_slot_of_unit[u] = MICS_NONE;
    }
    status = mics_slots_init_params(model, build->choice, &build->params, err);
    if (status == MICS_OK)
        status = mics_slots_init_grads(model, build->choice, &build->grads, err);
    if (status == MICS_OK)
        status = mics_residency_init(model, &build->order, &build->params, &build->residency, err);
    return status;
}

/* The slots' arrays move from the build to the schedule. */
static void move_slots(struct build *build)
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
    build->params.count = build->params.offset = NULL;
    build->grads.count = build->grads.offset = NULL;
}

static enum mics_status finish(struct build *build, struct mics_err *err)
{
    if (build->failed)
        return mics_err_nomem(err);
    move_slots(build);
    mics_schedule_set_work(build->out, build->model, build->choice);
    return mics_schedule_add_dependencies(build->out, build->choice, err);
}

static enum mics_status assemble_step(struct build *build, struct mics_err *err)
{
    build_reduce_scalars(build, MICS_OP_TARGET_COUNT, build_summing_ranks(build), 0, 1);
    if (build->order.train && build->choice->outer_steps > 0 && build->choice->sync_warmup > 0) {
        build_reduce_scalars(build, MICS_OP_TARGET_COUNT, MICS_COMM_REPLICA, 0, 1);
        if (!build->failed)
            build->out->ops[build->out->op_count - 1].turn = MICS_TURN_WARMUP;
    }
    build_forward_backward(build);
    build_optimizer_tail(build);
    return finish(build, err);
}

static enum mics_status assemble_drain(struct build *build, struct mics_err *err)
{
    build_reduce_scalars(build, MICS_OP_TARGET_COUNT, build_summing_ranks(build), 0, 1);
    for (uint32_t i = build->out->unit_count; i-- > 0;) {
        const struct mics_op like =
            build_turn_op(build, MICS_OP_SYNC, build->unit_order[i], build->order.micro_steps - 1);

        append_second_hop(build, &like, 1);
    }
    build_optimizer_tail(build);
    return finish(build, err);
}

/* Moves the schedule to *out, or frees it. */
static enum mics_status
build_schedule(struct build *build, enum mics_status (*assemble)(struct build *, struct mics_err *),
               struct mics_schedule **out, struct mics_err *err)
{
    enum mics_status status = prepare(build, err);

    if (status == MICS_OK)
        status = assemble(build, err);
    if (status == MICS_OK)
        *out = build->out;
    else
        mics_schedule_free(build->out);
    mics_slots_fini(&build->params);
    mics_slots_fini(&build->grads);
    mics_residency_fini(&build->residency);
    free(build->grad_slot_of_unit);
    free(build->grads_left);
    free(build->unit_order);
    free(build->gathered);
    return status;
}

enum mics_status mics_schedule_new(const struct mics_model *model,
                                   const struct mics_plan_choice *choice, bool train,
                                   struct mics_schedule **out, struct mics_err *err)
{
    struct build build = {.model = model, .choice = choice};
    const enum mics_status status = mics_choice_check(model, choice, err);

    if (status != MICS_OK)
        return status;
    const struct mics_plan_choice warmup = mics_choice_warmup(choice);

    build_set_routes(&build.routes, choice);
    build_set_routes(&build.warmup, &warmup);
    build.order = (struct mics_compute_order){model->stage_count, train ? choice->micro_steps : 1,
                                              train, mics_trainer_exchanges(choice->trainer)};
    return build_schedule(&build, assemble_step, out, err);
}

enum mics_status mics_schedule_new_drain(const struct mics_model *model,
                                         const struct mics_plan_choice *choice,
                                         struct mics_schedule **out, struct mics_err *err)
{
    struct build build = {.model = model, .choice = choice};
    const enum mics_status status = mics_choice_check(model, choice, err);

    if (status != MICS_OK)
        return status;
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        build.routes.all[kind] = build.routes.exact[kind] =
            mics_choice_drain_routes(choice, (enum mics_unit_kind)kind);
    build.order = (struct mics_compute_order){model->stage_count, choice->micro_steps, true,
                                              mics_trainer_exchanges(choice->trainer)};
    return build_schedule(&build, assemble_drain, out, err);
}
