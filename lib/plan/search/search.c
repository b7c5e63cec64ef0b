/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.c - the plan with the shortest predicted step that fits, and why each alternative lost.
 *
 * For each strategy the settings that fit are bounded in closed form. The best two of each level of
 * recomputation are simulated, strategy by strategy in the order of their bounds, until the next
 * bound exceeds the best step found. Of the steps within MICS_STEP_TIE the simplest strategy wins.
 */
#include "plan/search/search.h"

#include "base/units.h"
#include "plan/memory.h"
#include "plan/search/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIMULATED_SETTINGS = 2 }; /* of a level of recomputation */

/* "not a multiple of the ranks, 8; 8 and 16 are" */
static enum mics_status refuse_batch(uint64_t batch, uint64_t unit, const char *what,
                                     struct mics_err *err)
{
    const uint64_t below = batch / unit * unit;

    if (below == 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "global batch %" PRIu64 ": not a multiple of %s, %" PRIu64
                            "; the least is %" PRIu64,
                            batch, what, unit, unit);
    return mics_err_set(err, MICS_ERR_ARG,
                        "global batch %" PRIu64 ": not a multiple of %s, %" PRIu64 "; %" PRIu64
                        " and %" PRIu64 " are",
                        batch, what, unit, below, below + unit);
}

/* Fill in defaults, and refuse what is invalid for this model and cluster. */
static enum mics_status complete_options(struct mics_search *search, struct mics_err *err)
{
    struct mics_search_options *options = &search->options;
    const uint64_t n = (uint64_t)search->topology->nodes * search->topology->per_node;
    const uint64_t unit = n * (options->micro_batch ? options->micro_batch : 1);
    enum mics_status status;

    if (!options->strategy)
        options->strategy = "auto";
    if (options->seq == 0)
        options->seq = mics_model_max_seq(search->model);
    status = mics_model_check_seq(search->model, options->seq, err);
    if (status != MICS_OK)
        return status;
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

static enum mics_status find_entries(struct mics_search *search, struct mics_err *err)
{
    struct mics_candidate *candidates = NULL;
    enum mics_status status = mics_search_candidates(search->topology, search->options.strategy,
                                                     &candidates, &search->count, err);

    if (status != MICS_OK)
        return status;
    search->entries = calloc(search->count, sizeof *search->entries);
    if (!search->entries)
        status = mics_err_nomem(err);
    for (uint32_t i = 0; i < search->count && status == MICS_OK; i++)
        status = mics_search_settings(search, &candidates[i], &search->entries[i], err);
    free(candidates);
    return status;
}

static enum mics_status simulate_entry(const struct mics_search *search,
                                       struct mics_search_entry *entry, struct mics_err *err)
{
    uint32_t simulated[MICS_RECOMPUTE_LEVELS] = {0};

    for (uint32_t i = 0; i < entry->setting_count; i++) {
        const struct mics_plan_choice *choice = &entry->settings[i].choice;
        struct mics_prediction predicted;
        enum mics_status status;

        if (simulated[choice->recompute]++ >= SIMULATED_SETTINGS)
            continue;
        status = mics_plan_predict(search->topology, search->model, choice, &predicted, err);
        if (status != MICS_OK)
            return status;
        if (entry->simulated && predicted.step_s > 0.99 * entry->predicted.step_s)
            continue;
        entry->predicted = predicted;
        entry->best = i;
        entry->simulated = true;
    }
    return MICS_OK;
}

/* The entry with the lowest bound of those that are not simulated; NULL: all are. */
static struct mics_search_entry *next_by_bound(struct mics_search *search)
{
    struct mics_search_entry *best = NULL;

    for (uint32_t i = 0; i < search->count; i++) {
        struct mics_search_entry *entry = &search->entries[i];

        if (entry->setting_count > 0 && !entry->simulated &&
            (!best || entry->settings[0].bound_s < best->settings[0].bound_s))
            best = entry;
    }
    return best;
}

/* Simulate until every remaining bound exceeds the best step by more than a tie. */
static enum mics_status simulate_entries(struct mics_search *search, struct mics_err *err)
{
    double best = INFINITY;

    for (;;) {
        struct mics_search_entry *entry = next_by_bound(search);
        enum mics_status status;

        if (!entry || entry->settings[0].bound_s > (1 + MICS_STEP_TIE) * best)
            break;
        status = simulate_entry(search, entry, err);
        if (status != MICS_OK)
            return status;
        best = fmin(best, entry->predicted.step_s);
    }
    for (uint32_t i = 0; i < search->count; i++)
        if (!search->entries[i].simulated && search->entries[i].setting_count > 0)
            search->entries[i].predicted.step_s = search->entries[i].settings[0].bound_s;
    return MICS_OK;
}

/* The simplest of the fastest. NULL: none fits. */
static const struct mics_search_entry *choose_entry(const struct mics_search *search)
{
    double best = INFINITY;

    for (uint32_t i = 0; i < search->count; i++)
        if (search->entries[i].simulated)
            best = fmin(best, search->entries[i].predicted.step_s);
    for (uint32_t i = 0; i < search->count; i++)
        if (search->entries[i].simulated &&
            search->entries[i].predicted.step_s <= (1 + MICS_STEP_TIE) * best)
            return &search->entries[i];
    return NULL;
}

/* Nothing fits: by how much the setting that needs the least memory exceeds the limit. */
static enum mics_status report_infeasible(const struct mics_search *search, struct mics_err *err)
{
    const struct mics_setting *least = &search->entries[0].least;
    char need[32], limit[32], more[32], cut[48];

    for (uint32_t i = 1; i < search->count; i++)
        if (search->entries[i].least.total_bytes < least->total_bytes)
            least = &search->entries[i].least;
    mics_format_bytes(least->total_bytes, need, sizeof need);
    mics_format_bytes(search->options.memory_limit, limit, sizeof limit);
    mics_format_bytes(least->total_bytes - search->options.memory_limit, more, sizeof more);
    snprintf(cut, sizeof cut, "%s (%u, %u, %u)", least->choice.strategy,
             least->choice.shape.p_param, least->choice.shape.p_grad, least->choice.shape.p_optim);
    return mics_err_set(err, MICS_ERR_INFEASIBLE,
                        "no plan fits %s per rank: %s with micro-batch %u needs %s, %s more", limit,
                        cut, least->choice.micro_batch, need, more);
}

/* Why an entry lost. Entries are in the order of simplicity. */
static void explain(const struct mics_search *search, const struct mics_search_entry *entry,
                    const struct mics_search_entry *chosen, struct mics_alternative *out)
{
    const double slower = entry->predicted.step_s / chosen->predicted.step_s - 1;
    const char *bound = entry->simulated ? "" : "at least ";
    char more[32];

    if (entry == chosen)
        return;
    if (!out->fits) {
        mics_format_bytes(out->total_bytes - search->options.memory_limit, more, sizeof more);
        snprintf(out->why, sizeof out->why, "needs %s more", more);
    } else if (slower < MICS_STEP_TIE && entry > chosen) {
        snprintf(out->why, sizeof out->why, "as fast within %.0f %%, but cut further",
                 100 * MICS_STEP_TIE);
    } else if (slower < MICS_STEP_TIE) {
        snprintf(out->why, sizeof out->why, "%.1f %% slower", 100 * slower);
    } else if (slower < 1) {
        snprintf(out->why, sizeof out->why, "%s%.0f %% slower", bound, 100 * slower);
    } else {
        snprintf(out->why, sizeof out->why, "%s%.1f times the step", bound, 1 + slower);
    }
}

static void report_alternative(const struct mics_search *search,
                               const struct mics_search_entry *entry,
                               const struct mics_search_entry *chosen, struct mics_alternative *out)
{
    const struct mics_setting *setting = &entry->least;

    *out = (struct mics_alternative){.fits = entry->setting_count > 0};
    if (out->fits) {
        setting = &entry->settings[entry->best];
        out->predicted = entry->predicted;
    }
    out->choice = setting->choice;
    out->total_bytes = setting->total_bytes;
    explain(search, entry, chosen, out);
}

/* The plan of the chosen entry, without topology and model. */
static enum mics_status make_plan(const struct mics_search *search,
                                  const struct mics_search_entry *chosen, struct mics_plan **out,
                                  struct mics_err *err)
{
    struct mics_plan *plan = calloc(1, sizeof *plan);
    enum mics_status status;

    if (!plan)
        return mics_err_nomem(err);
    plan->choice = chosen->settings[chosen->best].choice;
    plan->memory_limit = search->options.memory_limit;
    plan->global_batch = search->options.global_batch;
    plan->predicted = chosen->predicted;
    plan->alternative_count = search->count;
    plan->alternatives = calloc(search->count, sizeof *plan->alternatives);
    status = plan->alternatives ? mics_memory_compute_on(search->topology, search->model,
                                                         &plan->choice, &plan->memory, err)
                                : mics_err_nomem(err);
    if (status != MICS_OK) {
        mics_plan_free(plan);
        return status;
    }
    for (uint32_t i = 0; i < search->count; i++)
        report_alternative(search, &search->entries[i], chosen, &plan->alternatives[i]);
    *out = plan;
    return MICS_OK;
}

enum mics_status mics_plan_search(struct mics_topology *topology, struct mics_model *model,
                                  const struct mics_search_options *options, struct mics_plan **out,
                                  struct mics_err *err)
{
    struct mics_search search = {.topology = topology, .model = model, .options = *options};
    const struct mics_search_entry *chosen = NULL;
    enum mics_status status = complete_options(&search, err);

    if (status == MICS_OK)
        status = find_entries(&search, err);
    if (status == MICS_OK)
        status = simulate_entries(&search, err);
    if (status == MICS_OK) {
        chosen = choose_entry(&search);
        status = chosen ? make_plan(&search, chosen, out, err) : report_infeasible(&search, err);
    }
    free(search.entries);
    if (status != MICS_OK)
        return status;
    (*out)->topology = topology;
    (*out)->model = model;
    return MICS_OK;
}
