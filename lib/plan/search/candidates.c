/* SPDX-License-Identifier: Apache-2.0 */
/*
 * candidates.c - which strategies to consider.
 *
 * Group sizes are the divisors of n that fill whole nodes or divide one. With "auto", for each size p the group
 * (p, p, p) of MiCS, and (p, p, n), which also cuts the optimizer state over everybody; and the
 * ZeRO family.
 */
#include "base/units.h"
#include "plan/search/candidate.h"

#include <stdlib.h>
#include <string.h>

struct list {
    struct mics_candidate *items;
    uint32_t count, capacity;
    struct mics_shape shape; /* nodes and ranks per node */
    bool failed;
};

static uint32_t world_size(const struct list *list)
{
    return list->shape.nodes * list->shape.per_node;
}

/* Strategies that are the same cut have the name that was added first. */
static void add(struct list *list, const char *strategy, uint32_t p_param, uint32_t p_grad,
                uint32_t p_optim)
{
    struct mics_candidate *items = list->items, candidate = {list->shape, strategy};

    candidate.shape.p_param = p_param;
    candidate.shape.p_grad = p_grad;
    candidate.shape.p_optim = p_optim;
    if (mics_shape_check(&candidate.shape, NULL) != MICS_OK)
        return;
    for (uint32_t i = 0; i < list->count; i++)
        if (memcmp(&items[i].shape, &candidate.shape, sizeof candidate.shape) == 0)
            return;
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        items = realloc(items, list->capacity * sizeof *items);
        if (!items) {
            list->failed = true;
            return;
        }
        list->items = items;
    }
    list->items[list->count++] = candidate;
}

static void add_ddp(struct list *list)
{
    add(list, "ddp", 1, 1, 1);
}

static void add_zero1(struct list *list)
{
    add(list, "zero1", 1, 1, world_size(list));
}

static void add_zero2(struct list *list)
{
    add(list, "zero2", 1, world_size(list), world_size(list));
}

static void add_zero3(struct list *list)
{
    add(list, "zero3", world_size(list), world_size(list), world_size(list));
}

/* Every group size up to n, divisors of a node first. */
static void add_groups(struct list *list, const char *strategy, bool optim_over_all)
{
    uint32_t k = list->shape.per_node, n = world_size(list);

    for (uint32_t p = 1; p <= k; p++)
        if (k % p == 0)
            add(list, strategy, p, p, optim_over_all ? n : p);
    for (uint32_t nodes = 2; nodes <= list->shape.nodes; nodes++)
        if (list->shape.nodes % nodes == 0)
            add(list, strategy, nodes * k, nodes * k, optim_over_all ? n : nodes * k);
}

static void add_mics(struct list *list)
{
    add_groups(list, "mics", false);
}

static void add_all(struct list *list)
{
    add_ddp(list);
    add_zero1(list);
    add_zero2(list);
    add_zero3(list);
    add_mics(list);
    add_groups(list, "custom", true);
}

/* "mics:P" */
static enum mics_status add_one_group(struct list *list, const char *text, struct mics_err *err)
{
    struct mics_shape shape = list->shape;
    uint64_t p = 0;
    enum mics_status status = mics_parse_u64(text, 1, world_size(list), &p, err);

    if (status != MICS_OK)
        return status;
    shape.p_param = shape.p_grad = shape.p_optim = (uint32_t)p;
    status = mics_shape_check(&shape, err);
    if (status == MICS_OK)
        add(list, "mics", shape.p_param, shape.p_grad, shape.p_optim);
    return status;
}

static int by_simplicity(const void *left, const void *right)
{
    const struct mics_shape *a = &((const struct mics_candidate *)left)->shape;
    const struct mics_shape *b = &((const struct mics_candidate *)right)->shape;
    const uint32_t x[] = {a->p_optim, a->p_grad, a->p_param};
    const uint32_t y[] = {b->p_optim, b->p_grad, b->p_param};

    for (int i = 0; i < 3; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

static enum mics_status collect(struct list *list, const char *strategy, struct mics_err *err)
{
    static const struct {
        const char *name;
        void (*add)(struct list *list);
    } known[] = {{"auto", add_all},    {"ddp", add_ddp},     {"zero1", add_zero1},
                 {"zero2", add_zero2}, {"zero3", add_zero3}, {"mics", add_mics}};

    if (strncmp(strategy, "mics:", 5) == 0)
        return add_one_group(list, strategy + 5, err);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(strategy, known[i].name) == 0) {
            known[i].add(list);
            return list->failed ? mics_err_nomem(err) : MICS_OK;
        }
    }
    return mics_err_set(err, MICS_ERR_ARG,
                        "'%s': no such strategy; expected auto, ddp, zero1, zero2, zero3, mics or "
                        "mics:P",
                        strategy);
}

enum mics_status mics_candidates(const struct mics_topology *topology, const char *strategy,
                                 struct mics_candidate **out, uint32_t *count, struct mics_err *err)
{
    struct list list = {.shape = {.nodes = topology->nodes, .per_node = topology->per_node}};
    enum mics_status status = collect(&list, strategy, err);

    if (status != MICS_OK) {
        mics_err_prefix(err, "strategy");
        free(list.items);
        return status;
    }
    qsort(list.items, list.count, sizeof *list.items, by_simplicity);
    *out = list.items;
    *count = list.count;
    return MICS_OK;
}
