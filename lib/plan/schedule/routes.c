/* SPDX-License-Identifier: Apache-2.0 */
/*
 * routes.c - the hops of each exchange.
 *
 * Exchanges between nodes use the net streams, those inside a node the node streams, so that the
 * two hops of a hierarchical exchange can overlap, and gathers never queue behind reductions.
 *
 * A conversion runs on the stream of the collective that it belongs to. A staging buffer holds one
 * segment, so no conversion could run beside its collective: another stream would add two waits to
 * each segment and gain nothing. On the compute stream conversions would delay the backward pass,
 * and on a GPU they would queue behind its kernels. The order of the stream is what keeps the
 * operations apart; were a conversion moved, dependencies.c would add the waits, since staging is a
 * resource like any other buffer.
 */
#include "plan/schedule/routes.h"

#include "base/num.h"
#include "plan/trainer_exchanges.h"

/* Where a staging buffer begins, in bytes: arrays of blocks have odd lengths. */
enum { STAGING_ALIGN = 128 };

const char *mics_op_kind_name(enum mics_op_kind kind)
{
    static const char *const names[MICS_OP_KIND_COUNT] = {
        [MICS_OP_TARGET_COUNT] = "target_count",
        [MICS_OP_GATHER] = "gather",
        [MICS_OP_FORWARD] = "forward",
        [MICS_OP_BACKWARD] = "backward",
        [MICS_OP_DISPATCH] = "dispatch",
        [MICS_OP_COMBINE] = "combine",
        [MICS_OP_REDUCE] = "reduce",
        [MICS_OP_ACCUMULATE] = "accumulate",
        [MICS_OP_SCATTER] = "scatter",
        [MICS_OP_SYNC] = "sync",
        [MICS_OP_OUTER_DELTA] = "outer_delta",
        [MICS_OP_OUTER_UPDATE] = "outer_update",
        [MICS_OP_CONVERT] = "convert",
        [MICS_OP_NORM] = "norm",
        [MICS_OP_LOSS_NORM_REDUCE] = "loss_norm_reduce",
        [MICS_OP_LOAD] = "load",
        [MICS_OP_UPDATE] = "update",
        [MICS_OP_STORE] = "store",
        [MICS_OP_REPLICA_REDUCE] = "replica_reduce",
        [MICS_OP_PUBLISH] = "publish",
        [MICS_OP_READ] = "read",
    };

    return names[kind];
}

const char *mics_stream_kind_name(enum mics_stream_kind kind)
{
    static const char *const names[MICS_STREAM_COUNT] = {
        [MICS_STREAM_COMPUTE] = "compute",         [MICS_STREAM_GATHER_NET] = "gather_net",
        [MICS_STREAM_GATHER_NODE] = "gather_node", [MICS_STREAM_REDUCE_NODE] = "reduce_node",
        [MICS_STREAM_REDUCE_NET] = "reduce_net",   [MICS_STREAM_DISPATCH] = "dispatch",
        [MICS_STREAM_COMBINE] = "combine",         [MICS_STREAM_LOAD] = "load",
        [MICS_STREAM_UPDATE] = "update",           [MICS_STREAM_STORE] = "store",
    };

    return names[kind];
}

bool mics_op_is_comm(enum mics_op_kind kind)
{
    switch (kind) {
    case MICS_OP_TARGET_COUNT:
    case MICS_OP_GATHER:
    case MICS_OP_DISPATCH:
    case MICS_OP_COMBINE:
    case MICS_OP_REDUCE:
    case MICS_OP_SCATTER:
    case MICS_OP_SYNC:
    case MICS_OP_LOSS_NORM_REDUCE:
    case MICS_OP_REPLICA_REDUCE:
    case MICS_OP_PUBLISH:
        return true;
    default:
        return false;
    }
}

enum mics_piece mics_buffer_piece(enum mics_buffer buffer)
{
    static const enum mics_piece pieces[MICS_BUFFER_COUNT] = {
        [MICS_BUFFER_PARAM_SHARD] = MICS_PIECE_PARAM,
        [MICS_BUFFER_PARAM_SLOT] = MICS_PIECE_SEGMENT,
        [MICS_BUFFER_GRAD_SLOT] = MICS_PIECE_SEGMENT,
        [MICS_BUFFER_REDUCED] = MICS_PIECE_GRAD,
        [MICS_BUFFER_GRAD_SHARD] = MICS_PIECE_GRAD,
        [MICS_BUFFER_OUTER_DELTA] = MICS_PIECE_OPTIM,
        [MICS_BUFFER_SCATTER_STAGING] = MICS_PIECE_GRAD,
        [MICS_BUFFER_SCATTER_RECEIVED] = MICS_PIECE_GRAD,
        [MICS_BUFFER_SYNC_STAGING] = MICS_PIECE_OPTIM,
        [MICS_BUFFER_SYNC_RECEIVED] = MICS_PIECE_REPLICAS,
        [MICS_BUFFER_GATHER_STAGING] = MICS_PIECE_RUN,
    };

    return pieces[buffer];
}

uint64_t mics_hop_count(const struct mics_hop *hop, const struct mics_layout *layout)
{
    return mics_max_u64(mics_layout_piece_count(layout, hop->from.piece),
                        mics_layout_piece_count(layout, hop->to.piece));
}

uint64_t mics_convert_count(const struct mics_layout *layout, const struct mics_operand *from,
                            const struct mics_operand *to, uint32_t replica)
{
    const uint64_t count = mics_min_u64(mics_layout_piece_count(layout, from->piece),
                                        mics_layout_piece_count(layout, to->piece));
    const uint64_t before = replica * layout->sync_piece;

    if (to->piece != MICS_PIECE_SYNC)
        return count;
    return before < layout->optim_piece ? mics_min_u64(count, layout->optim_piece - before) : 0;
}

bool mics_exchange_has_staging(const struct mics_exchange *exchange)
{
    for (uint32_t h = 0; h < exchange->hop_count; h++)
        if (exchange->hops[h].to.buffer >= MICS_BUFFER_FIRST_STAGING)
            return true;
    return false;
}

static struct mics_hop make_hop(const struct mics_shape *shape, enum mics_op_kind kind,
                                enum mics_comm_kind comm, struct mics_operand from,
                                struct mics_operand to)
{
    const bool gathers = kind == MICS_OP_GATHER || kind == MICS_OP_PUBLISH;
    const enum mics_stream_kind net = gathers ? MICS_STREAM_GATHER_NET : MICS_STREAM_REDUCE_NET;
    const enum mics_stream_kind node = gathers ? MICS_STREAM_GATHER_NODE : MICS_STREAM_REDUCE_NODE;
    struct mics_group_position position;

    mics_shape_position(shape, comm, 0, &position);
    return (struct mics_hop){
        .kind = kind,
        .collective = gathers                ? MICS_ALL_GATHER
                      : kind == MICS_OP_SYNC ? MICS_ALL_REDUCE
                                             : MICS_REDUCE_SCATTER,
        .comm = comm,
        .stream = position.nodes > 1 ? net : node,
        .from = from,
        .to = to,
    };
}

static void append_hop(struct mics_exchange *exchange, struct mics_hop hop)
{
    exchange->hops[exchange->hop_count++] = hop;
}

/* A collective that would read and write a buffer directly, but whose numbers go over the links as
 * `wire`: it runs in a staging buffer, between two conversions. */
static void append_converted(struct mics_exchange *exchange, struct mics_hop hop,
                             enum mics_buffer staging, enum mics_dtype wire)
{
    struct mics_hop before = hop, after = hop;

    if (wire == hop.from.dtype) {
        append_hop(exchange, hop);
        return;
    }
    hop.from = (struct mics_operand){staging, hop.from.piece, wire};
    hop.to = (struct mics_operand){staging, hop.to.piece, wire};
    before.kind = after.kind = MICS_OP_CONVERT;
    before.to = hop.from;
    after.from = hop.to;
    append_hop(exchange, before);
    append_hop(exchange, hop);
    append_hop(exchange, after);
}

static struct mics_operand operand(enum mics_buffer buffer, enum mics_piece piece,
                                   enum mics_dtype dtype)
{
    return (struct mics_operand){buffer, piece, dtype};
}

/* A conversion on the stream of a collective, which adds `parts` arrays. */
static struct mics_hop make_conversion(const struct mics_hop *like, struct mics_operand from,
                                       struct mics_operand to, uint32_t parts)
{
    struct mics_hop hop = *like;

    hop.kind = MICS_OP_CONVERT;
    hop.from = from;
    hop.to = to;
    hop.parts = parts;
    return hop;
}

static struct mics_hop as_collective(struct mics_hop hop, enum mics_collective collective,
                                     struct mics_operand from, struct mics_operand to)
{
    hop.collective = collective;
    hop.from = from;
    hop.to = to;
    return hop;
}

/* An all-reduce that rounds each gradient once and each sum once, whatever the number of replicas.
 * Each replica adds one piece. It takes its own sums, too, from the blocks that it sends, so that
 * all replicas have the same bits. */
static void append_block_all_reduce(struct mics_exchange *exchange, struct mics_hop hop,
                                    enum mics_dtype up, enum mics_dtype down, uint32_t replicas)
{
    const enum mics_buffer staging = MICS_BUFFER_SYNC_STAGING, received = MICS_BUFFER_SYNC_RECEIVED;
    const struct mics_operand shard = hop.to, mine = operand(staging, MICS_PIECE_SYNC_ALL, up),
                              others = operand(received, MICS_PIECE_SYNC_ALL, up),
                              sum = operand(staging, MICS_PIECE_SYNC, down),
                              sums = operand(staging, MICS_PIECE_SYNC_ALL, down);

    append_hop(exchange, make_conversion(&hop, shard, mine, 1));
    append_hop(exchange, as_collective(hop, MICS_ALL_TO_ALL, mine, others));
    append_hop(exchange, make_conversion(&hop, others, sum, replicas));
    append_hop(exchange, as_collective(hop, MICS_ALL_GATHER, sum, sums));
    append_hop(exchange, make_conversion(&hop, sums, shard, 1));
}

/* The same with one rounding, and more bytes for more than two replicas. */
static void append_block_gather(struct mics_exchange *exchange, struct mics_hop hop,
                                enum mics_dtype wire, uint32_t replicas)
{
    const enum mics_buffer received = MICS_BUFFER_SYNC_RECEIVED;
    const struct mics_operand shard = hop.to, mine = operand(received, MICS_PIECE_OPTIM, wire),
                              all = operand(received, MICS_PIECE_REPLICAS, wire);

    append_hop(exchange, make_conversion(&hop, shard, mine, 1));
    append_hop(exchange, as_collective(hop, MICS_ALL_GATHER, mine, all));
    append_hop(exchange, make_conversion(&hop, all, shard, replicas));
}

static void append_block_scatter(struct mics_exchange *exchange, struct mics_hop hop,
                                 enum mics_dtype wire, uint32_t ranks)
{
    const struct mics_operand from = hop.from, to = hop.to,
                              mine = operand(MICS_BUFFER_SCATTER_STAGING, MICS_PIECE_GRAD, wire),
                              others = operand(MICS_BUFFER_SCATTER_RECEIVED, MICS_PIECE_GRAD, wire);

    append_hop(exchange, make_conversion(&hop, from, mine, 1));
    append_hop(exchange, as_collective(hop, MICS_ALL_TO_ALL, mine, others));
    append_hop(exchange, make_conversion(&hop, others, to, ranks));
}

/* A group of one rank exchanges nothing. */
static bool is_alone(const struct mics_shape *shape, enum mics_comm_kind comm)
{
    struct mics_group_position position;

    mics_shape_position(shape, comm, 0, &position);
    return position.size == 1;
}

static struct mics_exchange gather_route(const struct mics_plan_choice *choice,
                                         enum mics_unit_kind groups)
{
    const struct mics_shape *shape = &choice->shapes[groups];
    const struct mics_operand piece = {MICS_BUFFER_PARAM_SHARD, MICS_PIECE_PARAM, choice->dtype},
                              run = {MICS_BUFFER_PARAM_SLOT, MICS_PIECE_RUN, choice->dtype},
                              whole = {MICS_BUFFER_PARAM_SLOT, MICS_PIECE_SEGMENT, choice->dtype};
    struct mics_exchange route = {.hop_count = 0};

    if (is_alone(shape, MICS_COMM_GATHER))
        return route;
    if (choice->hierarchical_gather && mics_shape_has_hierarchy(shape, shape->p_param)) {
        append_converted(&route, make_hop(shape, MICS_OP_GATHER, MICS_COMM_GATHER_NET, piece, run),
                         MICS_BUFFER_GATHER_STAGING,
                         mics_dtype_is_blocks(choice->gather_dtype) ? choice->gather_dtype
                                                                    : choice->dtype);
        append_hop(&route, make_hop(shape, MICS_OP_GATHER, MICS_COMM_GATHER_NODE, run, whole));
    } else {
        append_hop(&route, make_hop(shape, MICS_OP_GATHER, MICS_COMM_GATHER, piece, whole));
    }
    return route;
}

/* From the optimizer shards, which alone are up to date. The parameter shard follows from it. */
static struct mics_exchange first_gather_route(const struct mics_plan_choice *choice,
                                               const struct mics_shape *shape)
{
    const enum mics_dtype dtype = choice->dtype;
    const struct mics_operand updated = operand(MICS_BUFFER_PARAM_SHARD, MICS_PIECE_OPTIM, dtype),
                              whole = operand(MICS_BUFFER_PARAM_SLOT, MICS_PIECE_SEGMENT, dtype),
                              piece = operand(MICS_BUFFER_PARAM_SLOT, MICS_PIECE_PARAM, dtype),
                              shard = operand(MICS_BUFFER_PARAM_SHARD, MICS_PIECE_PARAM, dtype);
    const struct mics_hop hop = make_hop(shape, MICS_OP_GATHER, MICS_COMM_OPTIM, updated, whole);
    struct mics_exchange route = {.hop_count = 0};

    append_hop(&route, hop);
    append_hop(&route, make_conversion(&hop, piece, shard, 1));
    return route;
}

static bool has_secondary_shards(const struct mics_plan_choice *choice,
                                 const struct mics_shape *shape)
{
    return choice->secondary_shards && shape->p_param > 1 && shape->p_param < shape->p_optim;
}

/* The gather in reverse. */
static struct mics_exchange reduce_route(const struct mics_plan_choice *choice,
                                         enum mics_unit_kind groups)
{
    const struct mics_shape *shape = &choice->shapes[groups];
    const struct mics_operand piece = {MICS_BUFFER_REDUCED, MICS_PIECE_GRAD, choice->grad_dtype},
                              run = {MICS_BUFFER_GRAD_SLOT, MICS_PIECE_RUN, choice->grad_dtype},
                              whole = {MICS_BUFFER_GRAD_SLOT, MICS_PIECE_SEGMENT,
                                       choice->grad_dtype};
    struct mics_exchange route = {.hop_count = 0};

    if (is_alone(shape, MICS_COMM_REDUCE))
        return route;
    if (choice->hierarchical_reduce && mics_shape_has_hierarchy(shape, shape->p_grad)) {
        append_hop(&route, make_hop(shape, MICS_OP_REDUCE, MICS_COMM_REDUCE_NODE, whole, run));
        append_hop(&route, make_hop(shape, MICS_OP_REDUCE, MICS_COMM_REDUCE_NET, run, piece));
    } else {
        append_hop(&route, make_hop(shape, MICS_OP_REDUCE, MICS_COMM_REDUCE, whole, piece));
    }
    return route;
}

static const struct mics_operand grad_shard = {MICS_BUFFER_GRAD_SHARD, MICS_PIECE_GRAD, MICS_F32};

/* On the stream of the last hop of the reduction, which it follows. */
static struct mics_exchange accumulate_route(const struct mics_exchange *reduce,
                                             enum mics_dtype dtype)
{
    struct mics_hop hop = {.kind = MICS_OP_ACCUMULATE,
                           .from = {MICS_BUFFER_REDUCED, MICS_PIECE_GRAD, dtype},
                           .to = grad_shard};

    if (reduce->hop_count > 0)
        hop.stream = reduce->hops[reduce->hop_count - 1].stream;
    return (struct mics_exchange){{hop}, 1};
}

static const struct mics_operand optim_shard = {MICS_BUFFER_GRAD_SHARD, MICS_PIECE_OPTIM, MICS_F32};

/* What the second hop sums. */
static struct mics_operand summed_shard(const struct mics_plan_choice *choice)
{
    return choice->outer_overlap ? operand(MICS_BUFFER_OUTER_DELTA, MICS_PIECE_OPTIM, MICS_F32)
                                 : optim_shard;
}

static void append_scatter(struct mics_exchange *route, const struct mics_plan_choice *choice,
                           const struct mics_shape *shape)
{
    const struct mics_hop hop =
        make_hop(shape, MICS_OP_SCATTER, MICS_COMM_SCATTER, grad_shard, optim_shard);

    if (mics_choice_compresses_sync(choice))
        append_block_scatter(route, hop, choice->sync_dtype, shape->p_optim / shape->p_grad);
    else
        append_converted(route, hop, MICS_BUFFER_SCATTER_STAGING, choice->grad_dtype);
}

static void append_sync(struct mics_exchange *route, const struct mics_plan_choice *choice,
                        const struct mics_shape *shape)
{
    const struct mics_operand summed = summed_shard(choice);
    const struct mics_hop hop = make_hop(shape, MICS_OP_SYNC, MICS_COMM_REPLICA, summed, summed);
    const uint32_t replicas = mics_shape_world_size(shape) / shape->p_optim;

    if (!mics_choice_compresses_sync(choice))
        append_converted(route, hop, MICS_BUFFER_SYNC_STAGING, choice->grad_dtype);
    else if (choice->sync_gathers)
        append_block_gather(route, hop, choice->sync_dtype, replicas);
    else
        append_block_all_reduce(route, hop, choice->sync_dtype, choice->sync_down_dtype, replicas);
}

/* What replicas sum when they meet is not their gradients, but how far their parameters have moved;
 * the route is the same. The gradient shard, which is free after the update, holds it, unless the
 * next step needs that meanwhile. Then what is summed is taken after the update of one step, summed
 * during the next, and the parameters follow before the update of that. */
static void add_outer_routes(struct mics_exchange of[MICS_OP_KIND_COUNT],
                             const struct mics_plan_choice *choice,
                             const struct mics_operand updated)
{
    const struct mics_exchange sync = of[MICS_OP_SYNC];
    struct mics_hop delta, update;

    if (sync.hop_count == 0)
        return;
    delta = sync.hops[0];
    delta.kind = MICS_OP_OUTER_DELTA;
    delta.from = updated;
    delta.to = summed_shard(choice);
    update = sync.hops[sync.hop_count - 1];
    update.kind = MICS_OP_OUTER_UPDATE;
    update.from = summed_shard(choice);
    update.to = updated;
    if (choice->outer_overlap) {
        update.stream = MICS_STREAM_COMPUTE;
        append_hop(&of[MICS_OP_OUTER_DELTA], delta);
        append_hop(&of[MICS_OP_OUTER_UPDATE], update);
        return;
    }
    of[MICS_OP_SYNC].hop_count = 0;
    append_hop(&of[MICS_OP_SYNC], delta);
    for (uint32_t h = 0; h < sync.hop_count; h++)
        append_hop(&of[MICS_OP_SYNC], sync.hops[h]);
    append_hop(&of[MICS_OP_SYNC], update);
}

struct mics_plan_choice mics_choice_warmup(const struct mics_plan_choice *choice)
{
    struct mics_plan_choice warmup = *choice;

    warmup.outer_steps = warmup.sync_warmup = 0;
    warmup.sync_interval = 1;
    warmup.outer_overlap = false;
    return warmup;
}

static void all_reduce_instead(struct mics_exchange *route)
{
    for (uint32_t h = 0; h < route->hop_count; h++)
        if (route->hops[h].kind != MICS_OP_CONVERT)
            route->hops[h].collective = MICS_ALL_REDUCE;
}

struct mics_routes mics_choice_routes(const struct mics_plan_choice *choice,
                                      enum mics_unit_kind kind)
{
    const enum mics_unit_kind groups = mics_choice_groups(choice, kind);
    const struct mics_shape *shape = &choice->shapes[groups];
    const struct mics_operand updated = {MICS_BUFFER_PARAM_SHARD, MICS_PIECE_OPTIM, choice->dtype},
                              param = {MICS_BUFFER_PARAM_SHARD, MICS_PIECE_PARAM, choice->dtype};
    struct mics_routes routes = {.first_gather = {.hop_count = 0}};
    struct mics_exchange *of = routes.of;

    if (mics_choice_expert_ranks(choice, kind) == 0) {
        of[MICS_OP_GATHER] = gather_route(choice, groups);
        of[MICS_OP_REDUCE] = reduce_route(choice, groups);
    }
    of[MICS_OP_ACCUMULATE] = accumulate_route(&of[MICS_OP_REDUCE], choice->grad_dtype);
    if (!is_alone(shape, MICS_COMM_SCATTER))
        append_scatter(&of[MICS_OP_SCATTER], choice, shape);
    if (shape->p_param == 1 && mics_trainer_exchanges(choice->trainer)->all_reduces) {
        all_reduce_instead(&of[MICS_OP_REDUCE]);
        all_reduce_instead(&of[MICS_OP_SCATTER]);
    }
    if (!is_alone(shape, MICS_COMM_REPLICA))
        append_sync(&of[MICS_OP_SYNC], choice, shape);
    if (choice->outer_steps > 0)
        add_outer_routes(of, choice, updated);
    if (has_secondary_shards(choice, shape))
        routes.first_gather = first_gather_route(choice, shape);
    else if (!is_alone(shape, MICS_COMM_PUBLISH))
        append_hop(&of[MICS_OP_PUBLISH],
                   make_hop(shape, MICS_OP_PUBLISH, MICS_COMM_PUBLISH, updated, param));
    for (int i = 0; i < MICS_OP_KIND_COUNT; i++)
        for (uint32_t h = 0; h < of[i].hop_count; h++)
            of[i].hops[h].groups = groups;
    for (uint32_t h = 0; h < routes.first_gather.hop_count; h++)
        routes.first_gather.hops[h].groups = groups;
    return routes;
}

struct mics_routes mics_choice_exact_routes(const struct mics_plan_choice *choice,
                                            enum mics_unit_kind kind)
{
    struct mics_plan_choice exact = mics_choice_exact(choice);

    exact.gather_dtype = choice->gather_dtype;
    return mics_choice_routes(&exact, kind);
}

struct mics_routes mics_choice_drain_routes(const struct mics_plan_choice *choice,
                                            enum mics_unit_kind kind)
{
    struct mics_plan_choice exact = mics_choice_exact(choice);

    exact.grad_dtype = MICS_F32;
    return mics_choice_routes(&exact, kind);
}

bool mics_choice_has_drain(const struct mics_plan_choice *choice)
{
    return mics_choice_interval(choice) > 1 && mics_choice_compresses_sync(choice);
}

/* Bytes of an operand of the largest unit of a kind. */
static uint64_t largest_operand(const struct mics_model *model,
                                const struct mics_plan_choice *choice,
                                const struct mics_operand *operand, int unit_kind)
{
    uint64_t bytes = 0;

    for (uint32_t u = 0; u < model->unit_count; u++) {
        const struct mics_layout layout = mics_choice_layout(model, choice, u);

        if ((int)model->units[u].kind == unit_kind)
            bytes = mics_max_u64(
                bytes,
                mics_wire_bytes(operand->dtype, mics_layout_piece_count(&layout, operand->piece)));
    }
    return bytes;
}

static uint64_t staging_bytes(const struct mics_model *model, const struct mics_plan_choice *choice,
                              const struct mics_routes *routes, int unit_kind,
                              enum mics_buffer buffer)
{
    uint64_t bytes = 0;

    for (int i = 0; i < MICS_OP_KIND_COUNT; i++)
        for (uint32_t h = 0; h < routes->of[i].hop_count; h++) {
            const struct mics_operand *to = &routes->of[i].hops[h].to;

            if (to->buffer == buffer)
                bytes = mics_max_u64(bytes, largest_operand(model, choice, to, unit_kind));
        }
    return bytes;
}

uint64_t mics_staging_bytes(const struct mics_model *model, const struct mics_plan_choice *choice,
                            enum mics_buffer buffer)
{
    uint64_t bytes = 0;

    for (int i = 0; i < MICS_UNIT_KIND_COUNT; i++) {
        const enum mics_unit_kind kind = (enum mics_unit_kind)i;
        const struct mics_routes routes = mics_choice_routes(choice, kind);
        const struct mics_routes exact = mics_choice_exact_routes(choice, kind);

        bytes = mics_max_u64(bytes, staging_bytes(model, choice, &routes, i, buffer));
        if (choice->sync_exact_units)
            bytes = mics_max_u64(bytes, staging_bytes(model, choice, &exact, i, buffer));
    }
    return mics_round_up(bytes, STAGING_ALIGN);
}
