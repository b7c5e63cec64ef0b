/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - what a search has to say: the plan, why each alternative lost, or why there is no plan. */
#include "base/units.h"
#include "plan/search/entry.h"
#include "plan/memory.h"

#include <stdio.h>
#include <stdlib.h>

enum mics_status mics_search_refuse(const struct mics_search *search, struct mics_err *err)
{
    const struct mics_setting *least = &search->contenders[0].least;
    char need[32], limit[32], more[32], cut[48];

    for (uint32_t i = 1; i < search->count; i++)
        if (search->contenders[i].least.total_bytes < least->total_bytes)
            least = &search->contenders[i].least;
    mics_format_bytes(least->total_bytes, need, sizeof need);
    mics_format_bytes(search->options.memory_limit, limit, sizeof limit);
    mics_format_bytes(least->total_bytes - search->options.memory_limit, more, sizeof more);
    snprintf(cut, sizeof cut, "%s (%u, %u, %u)", least->choice.strategy,
             least->choice.shape.p_param, least->choice.shape.p_grad, least->choice.shape.p_optim);
    return mics_err_set(err, MICS_ERR_INFEASIBLE,
                        "no plan fits %s per rank: %s with micro-batch %u needs %s, %s more", limit,
                        cut, least->choice.micro_batch, need, more);
}

static void explain(const struct mics_search *search, const struct mics_contender *contender,
                    const struct mics_contender *chosen, struct mics_alternative *out)
{
    double slower = contender->predicted.step_s / chosen->predicted.step_s - 1;
    char more[32];

    if (contender == chosen)
        return;
    if (!out->fits) {
        mics_format_bytes(out->total_bytes - search->options.memory_limit, more, sizeof more);
        snprintf(out->why, sizeof out->why, "needs %s more", more);
    } else if (slower < MICS_STEP_TIE && contender > chosen) { /* in the order of simplicity */
        snprintf(out->why, sizeof out->why, "as fast within %.0f %%, but cut further",
                 100 * MICS_STEP_TIE);
    } else if (slower < MICS_STEP_TIE) {
        snprintf(out->why, sizeof out->why, "%.1f %% slower", 100 * slower);
    } else if (slower < 1) {
        snprintf(out->why, sizeof out->why, "%s%.0f %% slower",
                 contender->simulated ? "" : "at least ", 100 * slower);
    } else {
        snprintf(out->why, sizeof out->why, "%s%.1f times the step",
                 contender->simulated ? "" : "at least ", 1 + slower);
    }
}

static void report(const struct mics_search *search, const struct mics_contender *contender,
                   const struct mics_contender *chosen, struct mics_alternative *out)
{
    const struct mics_setting *setting = &contender->least;

    *out = (struct mics_alternative){.fits = contender->setting_count > 0};
    if (out->fits) {
        setting = &contender->settings[contender->best];
        out->predicted = contender->predicted;
    }
    out->choice = setting->choice;
    out->total_bytes = setting->total_bytes;
    explain(search, contender, chosen, out);
}

enum mics_status mics_search_report(const struct mics_search *search,
                                    const struct mics_contender *chosen, struct mics_plan **out,
                                    struct mics_err *err)
{
    const struct mics_setting *setting = &chosen->settings[chosen->best];
    struct mics_plan *plan = calloc(1, sizeof *plan);
    enum mics_status status;

    if (!plan)
        return mics_err_nomem(err);
    plan->choice = setting->choice;
    plan->memory_limit = search->options.memory_limit;
    plan->global_batch = search->options.global_batch;
    plan->predicted = chosen->predicted;
    plan->alternative_count = search->count;
    plan->alternatives = calloc(search->count, sizeof *plan->alternatives);
    status = plan->alternatives ? mics_memory_on(search->topology, search->model, &plan->choice,
                                                 &plan->memory, err)
                                : mics_err_nomem(err);
    if (status != MICS_OK) {
        mics_plan_free(plan);
        return status;
    }
    for (uint32_t i = 0; i < search->count; i++)
        report(search, &search->contenders[i], chosen, &plan->alternatives[i]);
    *out = plan;
    return MICS_OK;
}
