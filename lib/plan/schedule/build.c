/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.c - the operations of a step, in the order in which they are issued.
 *
 * Forward and backward: after each computation follow the gathers whose slots it freed, in the
 * order in which their units are needed, so that a stream never delays an earlier need; then the
 * reduction of the unit whose last gradient it computed. With coalescing both wait until a set of
 * units is complete, but never so long that a computation would wait for them.
 *
 * The optimizer: norm, update, publish, scalars. It begins after the last backward, so that it
 * never delays a computation of that pass. With clipping the norm is a barrier, and units are
 * updated in the order in which the next step needs them, so that their gathers begin early.
 * Without clipping they are updated in the order in which their gradients arrive, the first needed
 * last: the optimizer runs while gradients are still communicated. Where the host updates
 * (plan/host_update.h), it begins with all gradients.
 *
 * Outer steps that overlap are three parts: the difference is taken after a unit's update in the
 * step of the meeting; it is summed in the next step, one unit after another along the forwards and
 * backwards; and the outer update stands before the unit's update in that step.
 */
#include "plan/schedule/build.h"

#include "base/num.h"
#include "plan/host_update.h"
#include "plan/memory.h"
#include "plan/schedule/launches.h"

#include <stdlib.h>

/* The exchanges of units by their kind, and of those with an exact second hop. */
struct route_set {
    struct mics_routes all[MICS_UNIT_KIND_COUNT], exact[MICS_UNIT_KIND_COUNT];
};

/* Units that are reduced together. The last of them may be there twice
 * (mics_trainer_exchange_times()). */
enum { REDUCED_MAX = MICS_COALESCE_MAX + 1 };

struct build {
    const struct mics_model *model;
    const struct mics_plan_choice *choice;
    struct route_set routes;
    struct route_set warmup; /* of what only the first steps do */
    struct mics_compute_order order;
    struct mics_slot_set params, grads;
    struct mics_residency residency;
    uint32_t next_fetch; /* fetches before it have their gathers */
    uint32_t next_grad_slot;
    uint32_t next_piece;           /* of states in host memory */
    uint32_t pending[REDUCED_MAX]; /* units whose gradients wait to be reduced together */
    uint32_t pending_count;
    uint32_t *grad_slot_of_unit; /* while it holds the unit's gradients; else MICS_NONE */
    uint32_t *grads_left;        /* stages of the unit whose gradients are not computed yet */
    bool *gathered;              /* units that have been gathered in this step */
    uint32_t *unit_order;        /* units by their first use */
    struct mics_schedule *out;
    uint32_t capacity; /* of out->ops */
    bool failed;       /* out of memory; reported at the end */
};

static void append(struct build *build, const struct mics_op *op)
{
    struct mics_schedule *out = build->out;

    if (build->failed)
        return;
    if (out->op_count == build->capacity) {
        const uint32_t capacity = build->capacity ? build->capacity * 2 : 256;
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

static struct mics_op plain_op(enum mics_op_kind kind, enum mics_stream_kind stream, uint32_t unit,
                               uint32_t micro_step)
{
    return (struct mics_op){.kind = kind,
                            .stream = stream,
                            .unit = unit,
                            .stage = MICS_NONE,
                            .micro_step = micro_step,
                            .param_slot = MICS_NONE,
                            .grad_slot = MICS_NONE,
                            .turn = MICS_NONE};
}

/* One that is for the unit's turn. */
static struct mics_op turn_op(const struct build *build, enum mics_op_kind kind, uint32_t unit,
                              uint32_t micro_step)
{
    struct mics_op op = plain_op(kind, MICS_STREAM_COMPUTE, unit, micro_step);

    op.turn = build->choice->outer_steps > 0 ? MICS_NONE : build->out->turns[unit];
    return op;
}

/* All-reduce `count` doubles. */
static void reduce_scalars(struct build *build, enum mics_op_kind kind, enum mics_comm_kind comm,
                           uint32_t micro_step, uint32_t count)
{
    struct mics_op op = plain_op(kind, MICS_STREAM_REDUCE_NET, MICS_NONE, micro_step);

    /* The second hop uses the communicator of the replicas as well: on the same stream, so that all
     * ranks use it in the same order. */
    if (comm == MICS_COMM_REPLICA)
        op.stream = build->routes.all[MICS_UNIT_DENSE].of[MICS_OP_SYNC].hops[0].stream;
    op.comm = comm;
    op.collective = MICS_ALL_REDUCE;
    op.from.dtype = op.to.dtype = MICS_F64;
    op.count = count;
    op.bytes = mics_wire_bytes(MICS_F64, count);
    append(build, &op);
}

/* The ranks whose gradients are summed: all, or with outer steps those of one replica. */
static enum mics_comm_kind summing_ranks(const struct build *build)
{
    return build->order.train && build->choice->outer_steps > 0 ? MICS_COMM_OPTIM : MICS_COMM_WORLD;
}

static void set_routes(struct route_set *set, const struct mics_plan_choice *choice)
{
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        set->all[kind] = mics_choice_routes(choice, (enum mics_unit_kind)kind);
        set->exact[kind] = mics_choice_exact_routes(choice, (enum mics_unit_kind)kind);
    }
}

static bool is_exact(const struct build *build, uint32_t unit)
{
    return unit + build->choice->sync_exact_units >= build->out->unit_count;
}

/* The unit of a schedule of one exchange alone has no model, and is dense. */
static const struct mics_exchange *route_of(const struct build *build, enum mics_op_kind exchange,
                                            const struct mics_op *like)
{
    const enum mics_unit_kind kind =
        build->model ? mics_unit_kind_of(build->model, like->unit) : MICS_UNIT_DENSE;
    const struct route_set *set = like->turn == MICS_TURN_WARMUP ? &build->warmup : &build->routes;

    if (exchange == MICS_OP_GATHER && like->first && set->all[kind].first_gather.hop_count > 0)
        return &set->all[kind].first_gather;
    return is_exact(build, like->unit) ? &set->exact[kind].of[exchange]
                                       : &set->all[kind].of[exchange];
}

/* Equal segments, the same groups, and the same formats. */
static bool are_exchanged_alike(const struct build *build, const struct mics_op *a,
                                const struct mics_op *b)
{
    const struct mics_layout *layouts = build->out->layouts;

    const struct mics_unit *units = build->model->units;

    return layouts[a->unit].segments == layouts[b->unit].segments && a->first == b->first &&
           is_exact(build, a->unit) == is_exact(build, b->unit) &&
           mics_choice_expert_ranks(build->choice, units[a->unit].kind) ==
               mics_choice_expert_ranks(build->choice, units[b->unit].kind) &&
           mics_choice_groups(build->choice, units[a->unit].kind) ==
               mics_choice_groups(build->choice, units[b->unit].kind);
}

/* A hop of the unit and of what else `like` says. */
static struct mics_op hop_op(const struct build *build, const struct mics_hop *hop,
                             const struct mics_op *like)
{
    struct mics_op op = *like;

    op.kind = hop->kind;
    op.stream = hop->stream;
    op.groups = hop->groups;
    op.comm = hop->comm;
    op.collective = hop->collective;
    op.from = hop->from;
    op.to = hop->to;
    op.parts = hop->parts;
    op.count = mics_hop_count(hop, &build->out->layouts[op.unit]);
    op.bytes = mics_wire_bytes(op.from.dtype, op.count);
    return op;
}

/* Append every segment and hop of an exchange of `count` units, coalesced if they have equally
 * many segments, the same groups and formats, and need no staging, which has room for one of
 * them. `like`
 * gives unit, micro-step and slots of each. The units of one hop are consecutive, so that nothing
 * between them waits for the first of them. */
static void append_exchange(struct build *build, enum mics_op_kind kind, const struct mics_op *like,
                            uint32_t count)
{
    /* cppcheck-suppress uninitvar ; count is 1 or more */
    const struct mics_exchange *exchange = route_of(build, kind, like);
    const uint32_t segments = build->out->layouts[like->unit].segments;
    const uint32_t together = mics_exchange_has_staging(exchange) ? 1 : count;

    for (uint32_t i = 1; i < count; i++)
        if (!are_exchanged_alike(build, &like[0], &like[i])) {
            for (uint32_t each = 0; each < count; each++)
                append_exchange(build, kind, &like[each], 1);
            return;
        }
    for (uint32_t segment = 0; segment < segments; segment++)
        for (uint32_t first = 0; first < count; first += together)
            for (uint32_t h = 0; h < exchange->hop_count; h++)
                for (uint32_t i = first; i < first + together; i++) {
                    struct mics_op op = hop_op(build, &exchange->hops[h], &like[i]);

                    op.segment = segment;
                    op.coalesce_next = i + 1 < first + together && mics_op_is_comm(op.kind);
                    append(build, &op);
                }
}

/* The next `count` fetches, coalesced. */
static void gather(struct build *build, uint32_t count)
{
    struct mics_op like[MICS_COALESCE_MAX];

    for (uint32_t i = 0; i < count; i++) {
        const struct mics_fetch *fetch = &build->residency.fetches[build->next_fetch + i];

        like[i] = plain_op(MICS_OP_GATHER, MICS_STREAM_COMPUTE, fetch->unit,
                           mics_compute_order_at(&build->order, fetch->needed).micro_step);
        like[i].param_slot = fetch->slot;
        like[i].first = !build->gathered[fetch->unit];
        build->gathered[fetch->unit] = true;
    }
    append_exchange(build, MICS_OP_GATHER, like, count);
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

/* All segments of a unit at once. */
static void append_accumulate(struct build *build, const struct mics_op *like)
{
    struct mics_op op = hop_op(build, &route_of(build, MICS_OP_ACCUMULATE, like)->hops[0], like);

    op.first = op.micro_step == 0;
    append(build, &op);
}

/* A copy of the unit's optimizer shard: its gradients to host memory and back, or its updated
 * parameters from there. */
static void append_host_copy(struct build *build, enum mics_op_kind kind, enum mics_buffer buffer,
                             enum mics_stream_kind stream, const struct mics_op *like,
                             uint32_t width)
{
    struct mics_op op = plain_op(kind, stream, like->unit, like->micro_step);

    if (width == 0)
        return;
    (kind == MICS_OP_LOAD ? &op.to : &op.from)->buffer = buffer;
    op.turn = like->turn;
    op.piece = like->unit;
    op.count = mics_layout_optim_shard(&build->out->layouts[op.unit]);
    op.bytes = op.count * width;
    append(build, &op);
}

static bool updates_on_host(const struct build *build)
{
    return build->order.train && mics_choice_updates_on_host(build->choice);
}

/* The stream that reduces gradients, where there is nothing to reduce, too. */
static enum mics_stream_kind host_grads_stream(const struct build *build,
                                               const struct mics_op *like)
{
    const enum mics_stream_kind stream = route_of(build, MICS_OP_ACCUMULATE, like)->hops[0].stream;

    return stream == MICS_STREAM_COMPUTE ? MICS_STREAM_REDUCE_NODE : stream;
}

static void load_host_grads(struct build *build, const struct mics_op *like)
{
    if (updates_on_host(build))
        append_host_copy(build, MICS_OP_LOAD, MICS_BUFFER_GRAD_SHARD,
                         host_grads_stream(build, like), like,
                         mics_host_grads_loaded(build->choice, like->micro_step));
}

static void store_host_grads(struct build *build, const struct mics_op *like)
{
    if (updates_on_host(build))
        append_host_copy(build, MICS_OP_STORE, MICS_BUFFER_GRAD_SHARD,
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
        append_exchange(build, MICS_OP_SCATTER, set, size);
        for (uint32_t i = 0; i < size && build->choice->outer_steps > 0; i++)
            set[i].turn = MICS_TURN_WARMUP;
        if (build->choice->outer_steps == 0 || build->choice->sync_warmup > 0)
            append_exchange(build, MICS_OP_SYNC, set, size);
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

        like[i] = plain_op(MICS_OP_REDUCE, MICS_STREAM_COMPUTE, unit, micro_step);
        like[i].grad_slot = build->grad_slot_of_unit[unit];
    }
    if (count == 0)
        return;
    if (build->choice->whole_grads && micro_step + 1 < build->choice->micro_steps) {
        for (uint32_t i = 0; i < count; i++)
            build->grad_slot_of_unit[like[i].unit] = MICS_NONE;
        return;
    }
    append_exchange(build, MICS_OP_REDUCE, like, count);
    const bool scatters = route_of(build, MICS_OP_SCATTER, &like[0])->hop_count > 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!scatters)
            load_host_grads(build, &like[i]);
        if (like[i].grad_slot != MICS_NONE) {
            append_accumulate(build, &like[i]);
            build->grad_slot_of_unit[like[i].unit] = MICS_NONE;
        }
        if (!scatters)
            store_host_grads(build, &like[i]);
    }
    if (micro_step + 1 < build->choice->micro_steps)
        return;
    for (uint32_t i = 0; i < count; i++)
        like[i] = turn_op(build, MICS_OP_SYNC, like[i].unit, micro_step);
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
        append(build, &op);
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
    append(build, &op);
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
    struct mics_op op = plain_op(at.backward ? MICS_OP_BACKWARD : MICS_OP_FORWARD,
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
        append(build, &op);
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
            plain_op(MICS_OP_SYNC, MICS_STREAM_COMPUTE, updated_unit(build, (uint32_t)i), 0);

        like.turn = 1;
        append_exchange(build, MICS_OP_SYNC, &like, 1);
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

/* In fp16 also of units that wait for their turn: whether their gradients have overflowed. */
static void append_norm(struct build *build, uint32_t unit, uint32_t micro_step)
{
    struct mics_op op = turn_op(build, MICS_OP_NORM, unit, micro_step);

    if (mics_choice_checks_carried(build->choice))
        op.turn = MICS_NONE;
    append(build, &op);
}

/* A part of an outer step of a unit, in steps of this turn. */
static void append_outer(struct build *build, enum mics_op_kind exchange,
                         const struct mics_op *update, uint32_t turn)
{
    struct mics_op like = *update;

    like.turn = turn;
    append_exchange(build, exchange, &like, 1);
}

/* A piece comes to the device, is updated, and goes back, each on a stream of its own. */
static void append_piece(struct build *build, const struct mics_op *piece)
{
    static const struct {
        enum mics_op_kind kind;
        enum mics_stream_kind stream;
    } parts[] = {{MICS_OP_LOAD, MICS_STREAM_LOAD},
                 {MICS_OP_UPDATE, MICS_STREAM_UPDATE},
                 {MICS_OP_STORE, MICS_STREAM_STORE}};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct mics_op op = *piece;

        op.kind = parts[i].kind;
        op.stream = parts[i].stream;
        append(build, &op);
    }
}

/* Pieces do not cross segments. */
static void append_pieces(struct build *build, const struct mics_op *update)
{
    const struct mics_layout *layout = &build->out->layouts[update->unit];
    struct mics_op piece = *update;

    for (uint32_t segment = 0; segment < layout->segments; segment++)
        for (uint64_t at = 0; at < layout->optim_piece; at += piece.count) {
            piece.segment = segment;
            piece.piece = build->next_piece++;
            piece.begin = at;
            piece.count = mics_min_u64(build->choice->offload_piece, layout->optim_piece - at);
            piece.bytes = piece.count * sizeof(float) * mics_choice_offload_values(build->choice);
            append_piece(build, &piece);
        }
}

static void append_update(struct build *build, uint32_t unit, uint32_t micro_step)
{
    const struct mics_op op = turn_op(build, MICS_OP_UPDATE, unit, micro_step);

    if (build->choice->outer_overlap)
        append_outer(build, MICS_OP_OUTER_UPDATE, &op, 1);
    if (build->choice->offload_piece > 0)
        append_pieces(build, &op);
    else
        append(build, &op);
    /* An outer step is in steps that are a multiple of outer_steps. It follows the unit's update on
     * the streams of the second hop, so that other units need not wait for it. */
    if (build->choice->outer_steps > 0)
        append_outer(build, build->choice->outer_overlap ? MICS_OP_OUTER_DELTA : MICS_OP_SYNC, &op,
                     0);
    append_exchange(build, MICS_OP_PUBLISH, &op, 1);
}

/* The host updates all units, then all parameters go back, and are gathered. The stream of the
 * computations waits for it. */
static void append_host_updates(struct build *build, uint32_t micro_step)
{
    const uint32_t units = build->model->unit_count;

    for (uint32_t i = 0; i < units; i++) {
        struct mics_op op = turn_op(build, MICS_OP_UPDATE, build->unit_order[i], micro_step);

        op.piece = op.unit;
        append(build, &op);
    }
    for (uint32_t i = 0; i < units; i++) {
        const struct mics_op like =
            turn_op(build, MICS_OP_UPDATE, build->unit_order[i], micro_step);

        append_host_copy(build, MICS_OP_LOAD, MICS_BUFFER_PARAM_SHARD, MICS_STREAM_COMPUTE, &like,
                         (uint32_t)mics_dtype_bytes(build->choice->dtype));
    }
    for (uint32_t i = 0; i < units; i++) {
        const struct mics_op like =
            turn_op(build, MICS_OP_UPDATE, build->unit_order[i], micro_step);

        append_exchange(build, MICS_OP_PUBLISH, &like, 1);
    }
}

static void build_optimizer_tail(struct build *build)
{
    const uint32_t units = build->model->unit_count, last = build->order.micro_steps - 1;
    const uint32_t stats = build->order.train ? build->model->stat_count : 0;
    const bool on_host = updates_on_host(build), clip = build->choice->clip;
    const struct mics_op read = plain_op(MICS_OP_READ, MICS_STREAM_REDUCE_NET, MICS_NONE, last);

    for (uint32_t i = units; i-- > 0 && build->order.train;) {
        append_norm(build, build->unit_order[i], last);
        if (!clip && !on_host)
            append_update(build, build->unit_order[i], last);
    }
    /* With an interval also the targets of the step, for its mean loss; behind these are the stats
     * of a model with experts. */
    reduce_scalars(build, MICS_OP_LOSS_NORM_REDUCE, summing_ranks(build), last,
                   stats || mics_choice_interval(build->choice) > 1 ? 3 + stats : 2);
    for (uint32_t i = 0; i < units && build->order.train && clip && !on_host; i++)
        append_update(build, build->unit_order[i], last);
    if (on_host)
        append_host_updates(build, last);
    /* In fp16 also how many replicas have skipped the step. */
    if (summing_ranks(build) != MICS_COMM_WORLD)
        reduce_scalars(build, MICS_OP_REPLICA_REDUCE, MICS_COMM_REPLICA, last,
                       stats || build->choice->dtype == MICS_F16 ? 4 + stats : 3);
    append(build, &read);
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
    reduce_scalars(build, MICS_OP_TARGET_COUNT, summing_ranks(build), 0, 1);
    if (build->order.train && build->choice->outer_steps > 0 && build->choice->sync_warmup > 0) {
        reduce_scalars(build, MICS_OP_TARGET_COUNT, MICS_COMM_REPLICA, 0, 1);
        if (!build->failed)
            build->out->ops[build->out->op_count - 1].turn = MICS_TURN_WARMUP;
    }
    build_forward_backward(build);
    build_optimizer_tail(build);
    return finish(build, err);
}

static enum mics_status assemble_drain(struct build *build, struct mics_err *err)
{
    reduce_scalars(build, MICS_OP_TARGET_COUNT, summing_ranks(build), 0, 1);
    for (uint32_t i = build->out->unit_count; i-- > 0;) {
        const struct mics_op like =
            turn_op(build, MICS_OP_SYNC, build->unit_order[i], build->order.micro_steps - 1);

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

    set_routes(&build.routes, choice);
    set_routes(&build.warmup, &warmup);
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

/*
 * A schedule of one exchange alone: one unit, and no computation but the accumulation. Benchmarks
 * run it, so that they measure what a training step does: the same collectives on the same
 * communicators, with the same segments, streams and waits.
 */
static struct mics_op lone_op(enum mics_op_kind kind, uint32_t micro_step)
{
    struct mics_op op = plain_op(kind, MICS_STREAM_COMPUTE, 0, micro_step);

    op.param_slot = kind == MICS_OP_GATHER ? 0 : MICS_NONE;
    op.grad_slot = kind == MICS_OP_REDUCE ? 0 : MICS_NONE;
    return op;
}

static void append_lone_exchange(struct build *build, enum mics_op_kind kind, uint32_t micro_step)
{
    const struct mics_op op = lone_op(kind, micro_step);

    append_exchange(build, kind, &op, 1);
}

/* The gradients of one unit in a step: reduced and accumulated in each micro-step, then summed over
 * the replicas. */
static void append_gradients(struct build *build)
{
    for (uint32_t i = 0; i < build->choice->micro_steps; i++) {
        const struct mics_op op = lone_op(MICS_OP_REDUCE, i);

        append_exchange(build, MICS_OP_REDUCE, &op, 1);
        append_accumulate(build, &op);
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
        set_routes(&build.routes, choice);
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
