/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strategies.c - the strategies to consider, and the settings to run each with.
 *
 * Group sizes are the divisors of n that fill whole nodes or divide one. "auto" has for each size p
 * the group (p, p, p) of MiCS and (p, p, n), which also cuts the optimizer state over all ranks;
 * and the ZeRO family. Settings are micro-batch, recomputation, prefetch depth, exchanges and
 * coalescing. More sequences at once mean fewer micro-steps, so of the micro-batches the largest
 * that fits is taken.
 */
#include "base/units.h"
#include "plan/memory.h"
#include "plan/search/internal.h"

#include <stdio.h>
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
    return mics_shape_world_size(&list->shape);
}

/* Of strategies with the same cut the one that was added first stays. */
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

static int compare_simplicity(const void *left, const void *right)
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
    } strategies[] = {{"auto", add_all},    {"ddp", add_ddp},     {"zero1", add_zero1},
                      {"zero2", add_zero2}, {"zero3", add_zero3}, {"mics", add_mics}};

    if (strncmp(strategy, "mics:", 5) == 0)
        return add_one_group(list, strategy + 5, err);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (strcmp(strategy, strategies[i].name) == 0) {
            strategies[i].add(list);
            return list->failed ? mics_err_nomem(err) : MICS_OK;
        }
    }
    return mics_err_set(err, MICS_ERR_ARG,
                        "'%s': no such strategy; expected auto, ddp, zero1, zero2, zero3, mics or "
                        "mics:P",
                        strategy);
}

enum mics_status mics_search_candidates(const struct mics_topology *topology, const char *strategy,
                                        struct mics_candidate **out, uint32_t *count,
                                        struct mics_err *err)
{
    struct list list = {.shape = {.nodes = topology->nodes, .per_node = topology->per_node}};
    enum mics_status status = collect(&list, strategy, err);

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

static enum mics_status compute_bytes(const struct mics_search *search,
                                      struct mics_setting *setting, struct mics_err *err)
{
    struct mics_memory memory;
    enum mics_status status =
        mics_memory_compute_on(search->topology, search->model, &setting->choice, &memory, err);

    if (status == MICS_OK)
        setting->total_bytes = mics_memory_total(&memory, search->topology);
    return status;
}

/* The largest micro-batch with which the setting fits, halved until it does. *fits false: not even
 * the smallest does. */
static enum mics_status fit_micro_batch(const struct mics_search *search,
                                        struct mics_setting *setting, bool *fits,
                                        struct mics_err *err)
{
    const uint64_t per_rank =
        search->options.global_batch / mics_shape_world_size(&setting->choice.shape);
    const uint64_t least = search->options.micro_batch ? search->options.micro_batch : 1;
    uint64_t batch = search->options.micro_batch;

    for (uint64_t power = 1; !search->options.micro_batch && power <= per_rank &&
                             per_rank % power == 0 && power * setting->choice.seq <= INT32_MAX;
         power *= 2)
        batch = power;
    for (;; batch /= 2) {
        enum mics_status status;

        setting->choice.micro_batch = (uint32_t)batch;
        setting->choice.micro_steps = (uint32_t)(per_rank / batch);
        status = compute_bytes(search, setting, err);
        if (status != MICS_OK)
            return status;
        *fits = setting->total_bytes <= search->options.memory_limit;
        if (*fits || batch == least)
            return MICS_OK;
    }
}

/* Sorted by bound; equal ones stay in the order in which they were tried, simplest first. */
static void insert(struct mics_search_entry *entry, const struct mics_setting *setting)
{
    uint32_t at = entry->setting_count;

    if (at == MICS_MAX_SETTINGS)
        return;
    for (; at > 0 && setting->bound_s < 0.999 * entry->settings[at - 1].bound_s; at--)
        entry->settings[at] = entry->settings[at - 1];
    entry->settings[at] = *setting;
    entry->setting_count++;
}

static enum mics_status try_setting(const struct mics_search *search,
                                    struct mics_search_entry *entry,
                                    const struct mics_plan_choice *choice, struct mics_err *err)
{
    struct mics_setting setting = {.choice = *choice};
    bool fits = false;
    enum mics_status status = fit_micro_batch(search, &setting, &fits, err);

    if (status != MICS_OK)
        return status;
    if (entry->least.total_bytes == 0 || setting.total_bytes < entry->least.total_bytes)
        entry->least = setting;
    if (!fits)
        return MICS_OK;
    setting.bound_s = mics_step_bound(search->topology, search->model, &setting.choice);
    insert(entry, &setting);
    return MICS_OK;
}

/* Prefetch depths to try, most usual first; with p_param 1 there is nothing to prefetch. */
static uint32_t list_depths(const struct mics_search *search, const struct mics_plan_choice *choice,
                            uint32_t depths[4])
{
    uint32_t units = search->model->unit_count;

    if (search->options.prefetch != MICS_AUTO || choice->shape.p_param == 1) {
        depths[0] = search->options.prefetch != MICS_AUTO ? search->options.prefetch : 0;
        return 1;
    }
    depths[0] = 1;
    depths[1] = 2;
    depths[2] = units > 4 ? units - 2 : 3;
    depths[3] = 0;
    return 4;
}

/* Coalesced units need slots for two sets: one in transfer, one in use. */
static enum mics_status try_coalesced(const struct mics_search *search,
                                      struct mics_search_entry *entry,
                                      const struct mics_plan_choice *choice, struct mics_err *err)
{
    struct mics_plan_choice trial = *choice;
    const uint32_t wanted = search->options.prefetch;

    trial.coalesced = mics_choose_coalesced(search->topology, search->model, choice);
    trial.grad_slots = 2 * (trial.coalesced + 1);
    if (choice->shape.p_param > 1)
        trial.prefetch = wanted == MICS_AUTO ? 2 * trial.coalesced + 1 : wanted;
    if (trial.coalesced == 0 ||
        (choice->shape.p_param > 1 && trial.prefetch < 2 * trial.coalesced + 1))
        return MICS_OK;
    return try_setting(search, entry, &trial, err);
}

enum mics_status mics_search_settings(const struct mics_search *search,
                                      const struct mics_candidate *candidate,
                                      struct mics_search_entry *out, struct mics_err *err)
{
    const uint32_t wanted = search->options.recompute;
    struct mics_plan_choice choice = {
        .shape = candidate->shape,
        .segments = 1,
        .grad_slots = 2,
        .micro_batch = 1,
        .micro_steps = 1,
        .seq = search->options.seq,
        .optimizer = search->options.optimizer,
        .dtype = (enum mics_dtype)search->options.dtype,
        .grad_dtype = (enum mics_dtype)search->options.grad_dtype,
        .clip = search->options.clip,
    };
    uint32_t depths[4], count = list_depths(search, &choice, depths);
    enum mics_status status = MICS_OK;

    snprintf(choice.strategy, sizeof choice.strategy, "%s", candidate->strategy);
    mics_choose_exchanges(search->topology, search->model, &choice);
    for (uint32_t level = 0; level < MICS_RECOMPUTE_LEVELS && status == MICS_OK; level++) {
        /* Keeping more activations may force a smaller micro-batch, with more gathers, so both none
         * and selective are tried. */
        if (wanted != level &&
            (wanted != MICS_AUTO || (level == MICS_RECOMPUTE_FULL && out->setting_count > 0)))
            continue;
        choice.recompute = (enum mics_recompute)level;
        for (uint32_t i = 0; i < count && status == MICS_OK; i++) {
            choice.prefetch = depths[i];
            status = try_setting(search, out, &choice, err);
        }
        if (status == MICS_OK)
            status = try_coalesced(search, out, &choice, err);
    }
    return status;
}
