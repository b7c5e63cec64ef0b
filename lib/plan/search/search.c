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

#include "base/units.h"
#include "plan/memory.h"
#include "plan/search/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* search_options.c - the options of a search, with defaults filled in, checked against model and cluster. */

/* "not a multiple of 6 (...); 12 and 18 are" */
static enum mics_status refuse_batch(uint64_t batch, uint64_t unit, const char *what,
                                     struct mics_err *err)
{
    uint64_t below = batch / unit * unit;

    if (below == 0)
        return mics_err_set(
            err, MICS_ERR_ARG, "global batch %llu: not a multiple of %s, %llu; the least is %llu",
            (unsigned long long)batch, what, (unsigned long long)unit, (unsigned long long)unit);
    return mics_err_set(err, MICS_ERR_ARG,
                        "global batch %llu: not a multiple of %s, %llu; %llu and %llu are",
                        (unsigned long long)batch, what, (unsigned long long)unit,
                        (unsigned long long)below, (unsigned long long)(below + unit));
}

enum mics_status mics_search_fill_in(struct mics_search *search, struct mics_err *err)
{
    struct mics_search_options *options = &search->options;
    uint64_t n = (uint64_t)search->topology->nodes * search->topology->per_node;
    uint64_t unit = n * (options->micro_batch ? options->micro_batch : 1);
    uint32_t positions = search->model->config.n_positions;

    if (!options->strategy)
        options->strategy = "auto";
    if (options->seq == 0)
        options->seq = positions;
    if (options->seq > positions)
        return mics_err_set(err, MICS_ERR_ARG, "sequence of %u: the model has %u positions",
                            options->seq, positions);
    if (options->global_batch == 0)
        options->global_batch = unit;
    if (options->global_batch % unit != 0)
        return refuse_batch(options->global_batch, unit,
                            options->micro_batch ? "ranks times micro-batch" : "the ranks", err);
    if (options->dtype == MICS_AUTO)
        options->dtype = strcmp(search->topology->flops_dtype, "bf16") == 0 ? MICS_BF16 : MICS_F32;
    if (options->grad_dtype == MICS_AUTO)
        options->grad_dtype = options->dtype;
    if (options->memory_limit == 0)
        options->memory_limit = search->topology->memory_bytes;
    return MICS_OK;
}

/* verdict.c - what a search has to say: the plan, why each alternative lost, or why there is no plan. */

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
