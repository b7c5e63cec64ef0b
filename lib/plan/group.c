/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - groups as products of levels.
 *
 * Four levels divide the ranks: the ranks of a parameter group, the parameter groups of a gradient
 * group, the gradient groups of an optimizer group, and the optimizer groups. A level lies inside
 * nodes, between nodes, or both (then it fills the node first). A communicator is the product of
 * some levels, or of their parts inside or between nodes.
 */
#include "plan/group.h"

#include "plan/plan.h"

enum { LEVEL_PARAM, LEVEL_GRAD, LEVEL_OPTIM, LEVEL_REPLICA, LEVEL_COUNT };

/* `parts` groups of the level below side by side in a node, on each of `nodes` nodes. */
struct level {
    uint32_t before; /* ranks in one group of the level below */
    uint32_t parts, nodes;
};

static struct level level_of(const struct mics_shape *shape, int which)
{
    const uint32_t sizes[] = {1, shape->p_param, shape->p_grad, shape->p_optim,
                              mics_shape_world_size(shape)};
    const uint32_t before = sizes[which], after = sizes[which + 1], k = shape->per_node;

    if (after <= k)
        return (struct level){before, after / before, 1};
    if (before >= k)
        return (struct level){before, 1, after / before};
    return (struct level){before, k / before, after / k};
}

static uint32_t digit_of(const struct level *level, uint32_t rank)
{
    const uint32_t i = rank / level->before % (level->parts * level->nodes);

    return i % level->parts * level->nodes + i / level->parts;
}

struct mics_index mics_shape_index(const struct mics_shape *shape, uint32_t rank)
{
    const struct level param = level_of(shape, LEVEL_PARAM), grad = level_of(shape, LEVEL_GRAD);
    const struct level optim = level_of(shape, LEVEL_OPTIM);
    struct mics_index index;

    index.param = digit_of(&param, rank);
    index.grad = index.param * grad.parts * grad.nodes + digit_of(&grad, rank);
    index.optim = index.grad * optim.parts * optim.nodes + digit_of(&optim, rank);
    index.replica = rank / shape->p_optim;
    return index;
}

/* The ranks of levels [first, last] that agree in all other levels. */
static void span_levels(const struct mics_shape *shape, int first, int last,
                        struct mics_group_position *out)
{
    out->nodes = out->per_node = 1;
    for (int i = first; i <= last; i++) {
        const struct level level = level_of(shape, i);

        out->nodes *= level.nodes;
        out->per_node *= level.parts;
    }
}

/* A group of p consecutive ranks: all of it, its stage between nodes, or its stage inside a node.
 * `index` is that of the rank's shard in the group. */
static void set_stage_position(enum mics_comm_kind stage, uint32_t p, uint32_t rank, uint32_t index,
                               struct mics_group_position *out)
{
    const uint32_t nodes = out->nodes, local = out->per_node;

    if (stage == MICS_COMM_GATHER) {
        out->color = rank / p;
        out->block = index;
    } else if (stage == MICS_COMM_GATHER_NET) {
        out->color = rank / p * local + rank % local;
        out->block = index % nodes;
        out->per_node = 1;
    } else {
        out->color = rank / local;
        out->block = index / nodes;
        out->nodes = 1;
    }
}

void mics_shape_position(const struct mics_shape *shape, enum mics_comm_kind kind, uint32_t rank,
                         struct mics_group_position *out)
{
    const struct mics_index index = mics_shape_index(shape, rank);
    const uint32_t optim_group = rank / shape->p_optim;

    if (kind == MICS_COMM_WORLD) {
        span_levels(shape, LEVEL_PARAM, LEVEL_REPLICA, out);
        out->color = 0;
        out->block = rank;
    } else if (kind == MICS_COMM_DISPATCH || kind == MICS_COMM_COMBINE) {
        span_levels(shape, LEVEL_PARAM, LEVEL_PARAM, out);
        set_stage_position(MICS_COMM_GATHER, shape->p_param, rank, index.param, out);
    } else if (kind <= MICS_COMM_GATHER_NODE) {
        span_levels(shape, LEVEL_PARAM, LEVEL_PARAM, out);
        set_stage_position(kind, shape->p_param, rank, index.param, out);
    } else if (kind <= MICS_COMM_REDUCE_NET) {
        span_levels(shape, LEVEL_PARAM, LEVEL_GRAD, out);
        set_stage_position(kind == MICS_COMM_REDUCE        ? MICS_COMM_GATHER
                           : kind == MICS_COMM_REDUCE_NODE ? MICS_COMM_GATHER_NODE
                                                           : MICS_COMM_GATHER_NET,
                           shape->p_grad, rank, index.grad, out);
    } else if (kind == MICS_COMM_SCATTER) {
        span_levels(shape, LEVEL_OPTIM, LEVEL_OPTIM, out);
        out->color = optim_group * shape->p_grad + index.grad;
        out->block = index.optim % (shape->p_optim / shape->p_grad);
    } else if (kind == MICS_COMM_REPLICA) {
        span_levels(shape, LEVEL_REPLICA, LEVEL_REPLICA, out);
        out->color = index.optim;
        out->block = optim_group;
    } else if (kind == MICS_COMM_OPTIM) {
        span_levels(shape, LEVEL_PARAM, LEVEL_OPTIM, out);
        out->color = optim_group;
        out->block = index.optim;
    } else {
        span_levels(shape, LEVEL_GRAD, LEVEL_OPTIM, out);
        out->color = optim_group * shape->p_param + index.param;
        out->block = index.optim % (shape->p_optim / shape->p_param);
    }
    out->key = rank;
    out->size = out->nodes * out->per_node;
    out->sharing = shape->per_node / out->per_node;
}

uint32_t mics_shape_levels(const struct mics_shape *shape, enum mics_comm_kind kind)
{
    static const uint32_t spanned[MICS_COMM_KIND_COUNT] = {
        [MICS_COMM_WORLD] = 0xf,       [MICS_COMM_GATHER] = 0x1,  [MICS_COMM_GATHER_NET] = 0x1,
        [MICS_COMM_GATHER_NODE] = 0x1, [MICS_COMM_REDUCE] = 0x3,  [MICS_COMM_REDUCE_NODE] = 0x3,
        [MICS_COMM_REDUCE_NET] = 0x3,  [MICS_COMM_SCATTER] = 0x4, [MICS_COMM_REPLICA] = 0x8,
        [MICS_COMM_PUBLISH] = 0x6,     [MICS_COMM_OPTIM] = 0x7,   [MICS_COMM_DISPATCH] = 0x1,
        [MICS_COMM_COMBINE] = 0x1,
    };
    uint32_t levels = 0;

    for (int i = 0; i < LEVEL_COUNT; i++) {
        const struct level level = level_of(shape, i);

        if (level.parts * level.nodes > 1)
            levels |= 1u << i;
    }
    return levels & spanned[kind];
}

bool mics_shape_has_hierarchy(const struct mics_shape *shape, uint32_t p)
{
    return p > shape->per_node && shape->per_node > 1;
}

static enum mics_status check_size(const struct mics_shape *shape, const char *name, uint32_t p,
                                   uint32_t inner, struct mics_err *err)
{
    const uint32_t k = shape->per_node, n = mics_shape_world_size(shape);

    if (p == 0 || n % p != 0)
        return mics_err_set(err, MICS_ERR_ARG, "%s %u: does not divide the %u ranks", name, p, n);
    if (p % inner != 0)
        return mics_err_set(err, MICS_ERR_ARG, "%s %u: not a multiple of the group of %u inside it",
                            name, p, inner);
    if (k % p != 0 && p % k != 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "%s %u: straddles nodes of %u ranks unevenly; it must divide or be a "
                            "multiple of %u",
                            name, p, k, k);
    return MICS_OK;
}

enum mics_status mics_shape_check(const struct mics_shape *shape, struct mics_err *err)
{
    enum mics_status status;

    if (shape->nodes == 0 || shape->per_node == 0 || shape->nodes > UINT32_MAX / shape->per_node)
        return mics_err_set(err, MICS_ERR_ARG, "%u nodes of %u ranks: out of range", shape->nodes,
                            shape->per_node);
    status = check_size(shape, "parameter group", shape->p_param, 1, err);
    if (status == MICS_OK)
        status = check_size(shape, "gradient group", shape->p_grad, shape->p_param, err);
    if (status == MICS_OK)
        status = check_size(shape, "optimizer group", shape->p_optim, shape->p_grad, err);
    return status;
}

static bool is_same_shape(const struct mics_shape *a, const struct mics_shape *b)
{
    return a->nodes == b->nodes && a->per_node == b->per_node && a->p_param == b->p_param &&
           a->p_grad == b->p_grad && a->p_optim == b->p_optim;
}

enum mics_unit_kind mics_choice_groups(const struct mics_plan_choice *choice,
                                       enum mics_unit_kind kind)
{
    int first = MICS_UNIT_DENSE;

    while (!is_same_shape(&choice->shapes[first], &choice->shapes[kind]))
        first++;
    return (enum mics_unit_kind)first;
}

const char *mics_comm_kind_name(enum mics_comm_kind kind)
{
    static const char *const names[MICS_COMM_KIND_COUNT] = {
        [MICS_COMM_WORLD] = "world",           [MICS_COMM_GATHER] = "gather",
        [MICS_COMM_GATHER_NET] = "gather_net", [MICS_COMM_GATHER_NODE] = "gather_node",
        [MICS_COMM_REDUCE] = "reduce",         [MICS_COMM_REDUCE_NODE] = "reduce_node",
        [MICS_COMM_REDUCE_NET] = "reduce_net", [MICS_COMM_SCATTER] = "scatter",
        [MICS_COMM_REPLICA] = "replica",       [MICS_COMM_PUBLISH] = "publish",
        [MICS_COMM_OPTIM] = "optim",           [MICS_COMM_DISPATCH] = "dispatch",
        [MICS_COMM_COMBINE] = "combine",
    };

    return names[kind];
}
