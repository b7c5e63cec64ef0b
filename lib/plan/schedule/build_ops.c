/* SPDX-License-Identifier: Apache-2.0 */
/* build_ops.c - single operations, and exchanges with their segments and hops. */
#include "plan/schedule/build_ops.h"

#include "plan/host_update.h"

#include <stdlib.h>

void build_append(struct build *build, const struct mics_op *op)
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

struct mics_op build_plain_op(enum mics_op_kind kind, enum mics_stream_kind stream, uint32_t unit,
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

struct mics_op build_turn_op(const struct build *build, enum mics_op_kind kind, uint32_t unit,
                             uint32_t micro_step)
{
    struct mics_op op = build_plain_op(kind, MICS_STREAM_COMPUTE, unit, micro_step);

    op.turn = build->choice->outer_steps > 0 ? MICS_NONE : build->out->turns[unit];
    return op;
}

void build_reduce_scalars(struct build *build, enum mics_op_kind kind, enum mics_comm_kind comm,
                          uint32_t micro_step, uint32_t count)
{
    struct mics_op op = build_plain_op(kind, MICS_STREAM_REDUCE_NET, MICS_NONE, micro_step);

    /* The second hop uses the communicator of the replicas as well: on the same stream, so that all
     * ranks use it in the same order. */
    if (comm == MICS_COMM_REPLICA)
        op.stream = build->routes.all[MICS_UNIT_DENSE].of[MICS_OP_SYNC].hops[0].stream;
    op.comm = comm;
    op.collective = MICS_ALL_REDUCE;
    op.from.dtype = op.to.dtype = MICS_F64;
    op.count = count;
    op.bytes = mics_wire_bytes(MICS_F64, count);
    build_append(build, &op);
}

enum mics_comm_kind build_summing_ranks(const struct build *build)
{
    return build->order.train && build->choice->outer_steps > 0 ? MICS_COMM_OPTIM : MICS_COMM_WORLD;
}

void build_set_routes(struct route_set *set, const struct mics_plan_choice *choice)
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
const struct mics_exchange *build_route_of(const struct build *build, enum mics_op_kind exchange,
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

void build_exchange(struct build *build, enum mics_op_kind kind, const struct mics_op *like,
                    uint32_t count)
{
    /* cppcheck-suppress uninitvar ; count is 1 or more */
    const struct mics_exchange *exchange = build_route_of(build, kind, like);
    const uint32_t segments = build->out->layouts[like->unit].segments;
    const uint32_t together = mics_exchange_has_staging(exchange) ? 1 : count;

    for (uint32_t i = 1; i < count; i++)
        if (!are_exchanged_alike(build, &like[0], &like[i])) {
            for (uint32_t each = 0; each < count; each++)
                build_exchange(build, kind, &like[each], 1);
            return;
        }
    for (uint32_t segment = 0; segment < segments; segment++)
        for (uint32_t first = 0; first < count; first += together)
            for (uint32_t h = 0; h < exchange->hop_count; h++)
                for (uint32_t i = first; i < first + together; i++) {
                    struct mics_op op = hop_op(build, &exchange->hops[h], &like[i]);

                    op.segment = segment;
                    op.coalesce_next = i + 1 < first + together && mics_op_is_comm(op.kind);
                    build_append(build, &op);
                }
}

void build_accumulate(struct build *build, const struct mics_op *like)
{
    struct mics_op op =
        hop_op(build, &build_route_of(build, MICS_OP_ACCUMULATE, like)->hops[0], like);

    op.first = op.micro_step == 0;
    build_append(build, &op);
}

void build_host_copy(struct build *build, enum mics_op_kind kind, enum mics_buffer buffer,
                     enum mics_stream_kind stream, const struct mics_op *like, uint32_t width)
{
    struct mics_op op = build_plain_op(kind, stream, like->unit, like->micro_step);

    if (width == 0)
        return;
    (kind == MICS_OP_LOAD ? &op.to : &op.from)->buffer = buffer;
    op.turn = like->turn;
    op.piece = like->unit;
    op.count = mics_layout_optim_shard(&build->out->layouts[op.unit]);
    op.bytes = op.count * width;
    build_append(build, &op);
}

bool build_updates_on_host(const struct build *build)
{
    return build->order.train && mics_choice_updates_on_host(build->choice);
}
