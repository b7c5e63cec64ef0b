/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strategies.c - the strategies to consider.
 *
 * Group sizes are the divisors of n that fill whole nodes or divide one. "auto" has all that nest:
 * the ZeRO family, the groups (p, p, p) of MiCS, and every other (p_param, p_grad, p_optim), which
 * is called "custom". "hpz" has the groups (p, n, n) of ZeRO++, with secondary shards.
 */
#include "base/units.h"
#include "plan/search/search_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Divisors: 65536 nodes have at most 128, nodes of 1024 ranks at most 32. */
enum { MAX_SIZES = 160 };

struct list {
    struct mics_strategy *items;
    uint32_t count, capacity;
    struct mics_shape shape; /* nodes and ranks per node */
    bool failed;
};

static uint32_t world_size(const struct list *list)
{
    return mics_shape_world_size(&list->shape);
}

/* Among strategies with the same cut, the one that was added first stays. */
static void add(struct list *list, const char *name, uint32_t p_param, uint32_t p_grad,
                uint32_t p_optim)
{
    struct mics_strategy *items = list->items, added = {.shape = list->shape, .name = name};

    added.shape.p_param = p_param;
    added.shape.p_grad = p_grad;
    added.shape.p_optim = p_optim;
    if (mics_shape_check(&added.shape, NULL) != MICS_OK)
        return;
    /* At most the ZeRO family and MiCS, which are first, have another name for it. */
    for (uint32_t i = 0; i < list->count && strcmp(items[i].name, "custom") != 0; i++)
        if (memcmp(&items[i].shape, &added.shape, sizeof added.shape) == 0)
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
    list->items[list->count++] = added;
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

/* The group sizes up to n, increasing, in out[]; at most `most`. Returns their number. */
static uint32_t list_sizes(const struct list *list, uint32_t *out, uint32_t most)
{
    const uint32_t k = list->shape.per_node;
    uint32_t count = 0;

    for (uint32_t p = 1; p <= k && count < most; p++)
        if (k % p == 0)
            out[count++] = p;
    for (uint32_t nodes = 2; nodes <= list->shape.nodes && count < most; nodes++)
        if (list->shape.nodes % nodes == 0)
            out[count++] = nodes * k;
    return count;
}

static void add_mics(struct list *list)
{
    uint32_t sizes[MAX_SIZES];
    const uint32_t count = list_sizes(list, sizes, MAX_SIZES);

    for (uint32_t i = 0; i < count; i++)
        add(list, "mics", sizes[i], sizes[i], sizes[i]);
}

/* A group of one rank has all parameters, and one of all ranks needs no second shard. */
static void add_secondary(struct list *list, uint32_t p)
{
    const uint32_t n = world_size(list), before = list->count;

    if (p == 1 || p == n)
        return;
    add(list, "hpz", p, n, n);
    if (list->count > before)
        list->items[before].secondary_shards = true;
}

static void add_hpz(struct list *list)
{
    uint32_t sizes[MAX_SIZES];
    const uint32_t count = list_sizes(list, sizes, MAX_SIZES);

    for (uint32_t i = 0; i < count; i++)
        add_secondary(list, sizes[i]);
}

static void add_all(struct list *list)
{
    uint32_t sizes[MAX_SIZES];
    const uint32_t count = list_sizes(list, sizes, MAX_SIZES);

    add_ddp(list);
    add_zero1(list);
    add_zero2(list);
    add_zero3(list);
    add_mics(list);
    for (uint32_t o = 0; o < count; o++)
        for (uint32_t g = 0; g <= o; g++)
            for (uint32_t p = 0; p <= g; p++)
                add(list, "custom", sizes[p], sizes[g], sizes[o]);
}

/* "mics:P", "hpz:P" */
static enum mics_status add_one_group(struct list *list, const char *text, bool secondary,
                                      struct mics_err *err)
{
    const uint32_t n = world_size(list);
    struct mics_shape shape = list->shape;
    uint64_t p = 0;
    enum mics_status status = mics_parse_u64(text, 1, n, &p, err);

    if (status != MICS_OK)
        return status;
    if (secondary && (p == 1 || p == n))
        return mics_err_set(err, MICS_ERR_ARG, "hpz:%llu: a group of %s has no secondary shards",
                            (unsigned long long)p, p == 1 ? "one rank" : "all ranks");
    shape.p_param = (uint32_t)p;
    shape.p_grad = shape.p_optim = secondary ? n : (uint32_t)p;
    status = mics_shape_check(&shape, err);
    if (status == MICS_OK && secondary)
        add_secondary(list, shape.p_param);
    else if (status == MICS_OK)
        add(list, "mics", shape.p_param, shape.p_grad, shape.p_optim);
    return status;
}

static const char *name_of(const struct list *list, const uint32_t cut[3])
{
    const uint32_t n = world_size(list);

    if (cut[2] == 1)
        return "ddp";
    if (cut[0] == 1 && cut[2] == n && (cut[1] == 1 || cut[1] == n))
        return cut[1] == 1 ? "zero1" : "zero2";
    if (cut[0] == cut[2])
        return cut[0] == n ? "zero3" : "mics";
    return "custom";
}

/* "P,G,O": called by its name if it has one. */
static enum mics_status add_triple(struct list *list, const char *text, struct mics_err *err)
{
    const uint32_t n = world_size(list);
    uint32_t cut[3] = {0, 0, 0};
    enum mics_status status = MICS_OK;

    for (int i = 0; i < 3 && status == MICS_OK; i++) {
        const size_t length = strcspn(text, ",");
        char word[16];
        uint64_t size = 0;

        if ((i < 2) != (text[length] == ',') || length >= sizeof word)
            return mics_err_set(err, MICS_ERR_ARG,
                                "expected three group sizes, of parameters, gradients and "
                                "optimizer state, such as 8,8,%u",
                                n);
        memcpy(word, text, length);
        word[length] = '\0';
        status = mics_parse_u64(word, 1, n, &size, err);
        cut[i] = (uint32_t)size;
        text += length + (i < 2);
    }
    if (status == MICS_OK) {
        struct mics_shape shape = list->shape;

        shape.p_param = cut[0];
        shape.p_grad = cut[1];
        shape.p_optim = cut[2];
        status = mics_shape_check(&shape, err);
    }
    if (status == MICS_OK)
        add(list, name_of(list, cut), cut[0], cut[1], cut[2]);
    return status;
}

static int compare_simplicity(const void *left, const void *right)
{
    const struct mics_shape *a = &((const struct mics_strategy *)left)->shape;
    const struct mics_shape *b = &((const struct mics_strategy *)right)->shape;
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
    } strategies[] = {{"auto", add_all},    {"ddp", add_ddp},     {"zero1", add_zero1},
                      {"zero2", add_zero2}, {"zero3", add_zero3}, {"mics", add_mics},
                      {"hpz", add_hpz}};

    if (strncmp(strategy, "mics:", 5) == 0)
        return add_one_group(list, strategy + 5, false, err);
    if (strncmp(strategy, "hpz:", 4) == 0)
        return add_one_group(list, strategy + 4, true, err);
    if (strchr(strategy, ','))
        return add_triple(list, strategy, err);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (strcmp(strategy, strategies[i].name) == 0) {
            strategies[i].add(list);
            return list->failed ? mics_err_nomem(err) : MICS_OK;
        }
    }
    return mics_err_set(err, MICS_ERR_ARG,
                        "'%s': no such strategy; expected auto, ddp, zero1, zero2, zero3, mics, "
                        "mics:P, hpz, hpz:P, or three group sizes P,G,O",
                        strategy);
}

enum mics_status mics_search_strategies(const struct mics_topology *topology, const char *strategy,
                                        struct mics_strategy **out, uint32_t *count,
                                        struct mics_err *err)
{
    struct list list = {.shape = {.nodes = topology->nodes, .per_node = topology->per_node}};
    enum mics_status status = collect(&list, strategy, err);

    if (status == MICS_OK && list.count == 0)
        status = mics_err_set(err, MICS_ERR_ARG,
                              "%s: no group is larger than one rank and smaller than all %u",
                              strategy, world_size(&list));
    if (status != MICS_OK) {
        mics_err_prefix(err, "strategy");
        free(list.items);
        return status;
    }
    qsort(list.items, list.count, sizeof *list.items, compare_simplicity);
    *out = list.items;
    *count = list.count;
    return MICS_OK;
}
