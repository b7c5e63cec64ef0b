/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - how a strategy can be run: micro-batch, recomputation, prefetch depth, exchanges, joined units.
 *
 * More sequences at once mean fewer micro-steps, so of the micro-batches the largest that fits is taken.
 */
#include "plan/search/entry.h"
#include "plan/memory.h"

#include <stdio.h>

static uint64_t world_size(const struct mics_search *search)
{
    return (uint64_t)search->topology->nodes * search->topology->per_node;
}

static enum mics_status measure(const struct mics_search *search, struct mics_setting *setting,
                                struct mics_err *err)
{
    struct mics_memory memory;
    enum mics_status status =
        mics_memory_on(search->topology, search->model, &setting->choice, &memory, err);

    if (status == MICS_OK)
        setting->total_bytes = mics_memory_total(&memory, search->topology);
    return status;
}

/* Largest micro-batch with which the setting fits, by powers of two downwards; false: not even the least. */
static enum mics_status fit_micro_batch(const struct mics_search *search,
                                        struct mics_setting *setting, bool *fits,
                                        struct mics_err *err)
{
    uint64_t per_rank = search->options.global_batch / world_size(search);
    uint64_t least = search->options.micro_batch ? search->options.micro_batch : 1;
    uint64_t batch = search->options.micro_batch;

    for (uint64_t power = 1; !search->options.micro_batch && power <= per_rank &&
                             per_rank % power == 0 && power * setting->choice.seq <= INT32_MAX;
         power *= 2)
        batch = power;
    for (;; batch /= 2) {
        enum mics_status status;

        setting->choice.micro_batch = (uint32_t)batch;
        setting->choice.micro_steps = (uint32_t)(per_rank / batch);
        status = measure(search, setting, err);
        if (status != MICS_OK)
            return status;
        *fits = setting->total_bytes <= search->options.memory_limit;
        if (*fits || batch == least)
            return MICS_OK;
    }
}

/* Sorted by bound; equal ones stay in the order in which they were tried, simplest first. */
static void insert(struct mics_contender *contender, const struct mics_setting *setting)
{
    uint32_t at = contender->setting_count;

    if (at == MICS_MAX_SETTINGS)
        return;
    for (; at > 0 && setting->bound_s < 0.999 * contender->settings[at - 1].bound_s; at--)
        contender->settings[at] = contender->settings[at - 1];
    contender->settings[at] = *setting;
    contender->setting_count++;
}

static enum mics_status try_setting(const struct mics_search *search,
                                    struct mics_contender *contender,
                                    const struct mics_plan_choice *choice, struct mics_err *err)
{
    struct mics_setting setting = {.choice = *choice};
    bool fits = false;
    enum mics_status status = fit_micro_batch(search, &setting, &fits, err);

    if (status != MICS_OK)
        return status;
    if (contender->least.total_bytes == 0 || setting.total_bytes < contender->least.total_bytes)
        contender->least = setting;
    if (!fits)
        return MICS_OK;
    setting.bound_s = mics_step_bound(search->topology, search->model, &setting.choice);
    insert(contender, &setting);
    return MICS_OK;
}

/* Prefetch depths to try, from the most usual on; with parameters in place there is nothing to prefetch. */
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

/* Units that travel together need room for two sets of them: one on its way, one in use. */
static enum mics_status try_joined(const struct mics_search *search,
                                   struct mics_contender *contender,
                                   const struct mics_plan_choice *choice, struct mics_err *err)
{
    struct mics_plan_choice joined = *choice;
    const uint32_t wanted = search->options.prefetch;

    joined.joined = mics_choose_joined(search->topology, search->model, choice);
    joined.grad_slots = 2 * (joined.joined + 1);
    if (choice->shape.p_param > 1)
        joined.prefetch = wanted == MICS_AUTO ? 2 * joined.joined + 1 : wanted;
    if (joined.joined == 0 ||
        (choice->shape.p_param > 1 && joined.prefetch < 2 * joined.joined + 1))
        return MICS_OK;
    return try_setting(search, contender, &joined, err);
}

enum mics_status mics_search_settings(const struct mics_search *search,
                                      const struct mics_candidate *candidate,
                                      struct mics_contender *out, struct mics_err *err)
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
        /* Keeping more may cost a smaller micro-batch, with more gathers: none and selective compete. */
        if (wanted != level &&
            (wanted != MICS_AUTO || (level == MICS_RECOMPUTE_FULL && out->setting_count > 0)))
            continue;
        choice.recompute = (enum mics_recompute)level;
        for (uint32_t i = 0; i < count && status == MICS_OK; i++) {
            choice.prefetch = depths[i];
            status = try_setting(search, out, &choice, err);
        }
        if (status == MICS_OK)
            status = try_joined(search, out, &choice, err);
    }
    return status;
}
