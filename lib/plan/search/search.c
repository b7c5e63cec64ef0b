/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.c - the plan of the shortest predicted step that fits.
 *
 * For each strategy the settings that fit are bounded in closed form, and the best two of each level of recomputation
 * are simulated, unless their bound is already behind the best step found: strategies are simulated in the order of
 * their bounds.
 * Among steps within MICS_STEP_TIE the simplest strategy wins.
 */
#include "plan/search/search.h"

#include "plan/search/entry.h"

#include <math.h>
#include <stdlib.h>

enum { SIMULATED_SETTINGS = 2 }; /* of a level */

static enum mics_status simulate(struct mics_search *search, struct mics_contender *contender,
                                 struct mics_err *err)
{
    uint32_t simulated[MICS_RECOMPUTE_LEVELS] = {0};

    for (uint32_t i = 0; i < contender->setting_count; i++) {
        const struct mics_plan_choice *choice = &contender->settings[i].choice;
        struct mics_prediction predicted;
        enum mics_status status;

        if (simulated[choice->recompute]++ >= SIMULATED_SETTINGS)
            continue;
        status = mics_plan_predict(search->topology, search->model, choice, &predicted, err);
        if (status != MICS_OK)
            return status;
        if (contender->simulated && predicted.step_s > 0.99 * contender->predicted.step_s)
            continue;
        contender->predicted = predicted;
        contender->best = i;
        contender->simulated = true;
    }
    return MICS_OK;
}

static struct mics_contender *next_by_bound(struct mics_search *search)
{
    struct mics_contender *best = NULL;

    for (uint32_t i = 0; i < search->count; i++) {
        struct mics_contender *contender = &search->contenders[i];

        if (contender->setting_count > 0 && !contender->simulated &&
            (!best || contender->settings[0].bound_s < best->settings[0].bound_s))
            best = contender;
    }
    return best;
}

/* Simulate until every bound is behind the best step by more than the margin of choose(). */
static enum mics_status race(struct mics_search *search, struct mics_err *err)
{
    double best = INFINITY;

    for (;;) {
        struct mics_contender *contender = next_by_bound(search);
        enum mics_status status;

        if (!contender || contender->settings[0].bound_s > (1 + MICS_STEP_TIE) * best)
            break;
        status = simulate(search, contender, err);
        if (status != MICS_OK)
            return status;
        best = fmin(best, contender->predicted.step_s);
    }
    for (uint32_t i = 0; i < search->count; i++)
        if (!search->contenders[i].simulated && search->contenders[i].setting_count > 0)
            search->contenders[i].predicted.step_s = search->contenders[i].settings[0].bound_s;
    return MICS_OK;
}

/* The simplest of the fastest: contenders are in the order of simplicity. NULL: none fits. */
static struct mics_contender *choose(struct mics_search *search)
{
    double best = INFINITY;

    for (uint32_t i = 0; i < search->count; i++)
        if (search->contenders[i].simulated)
            best = fmin(best, search->contenders[i].predicted.step_s);
    for (uint32_t i = 0; i < search->count; i++)
        if (search->contenders[i].simulated &&
            search->contenders[i].predicted.step_s <= (1 + MICS_STEP_TIE) * best)
            return &search->contenders[i];
    return NULL;
}

static enum mics_status run(struct mics_search *search, struct mics_plan **out,
                            struct mics_err *err)
{
    struct mics_candidate *candidates = NULL;
    enum mics_status status = mics_candidates(search->topology, search->options.strategy,
                                              &candidates, &search->count, err);
    struct mics_contender *chosen;

    if (status != MICS_OK)
        return status;
    search->contenders = calloc(search->count, sizeof *search->contenders);
    if (!search->contenders)
        status = mics_err_nomem(err);
    for (uint32_t i = 0; i < search->count && status == MICS_OK; i++)
        status = mics_search_settings(search, &candidates[i], &search->contenders[i], err);
    free(candidates);
    if (status == MICS_OK)
        status = race(search, err);
    if (status != MICS_OK)
        return status;
    chosen = choose(search);
    return chosen ? mics_search_report(search, chosen, out, err) : mics_search_refuse(search, err);
}

enum mics_status mics_plan_search(struct mics_topology *topology, struct mics_model *model,
                                  const struct mics_search_options *options, struct mics_plan **out,
                                  struct mics_err *err)
{
    struct mics_search search = {.topology = topology, .model = model, .options = *options};
    struct mics_plan *plan = NULL;
    enum mics_status status = mics_search_fill_in(&search, err);

    if (status == MICS_OK)
        status = run(&search, &plan, err);
    free(search.contenders);
    if (status != MICS_OK)
        return status;
    plan->topology = topology;
    plan->model = model;
    *out = plan;
    return MICS_OK;
}
