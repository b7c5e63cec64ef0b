/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.c - the plan of the shortest predicted step that fits.
 *
 * For each strategy the settings that fit are bounded in closed form, and its best two are simulated, unless
 * their bound is already behind the best step found: strategies are simulated in the order of their bounds.
 * Among steps within one in a hundred the simplest strategy wins.
 */
#include "plan/search.h"

#include "base/num.h"
#include "base/units.h"
#include "plan/candidate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SETTINGS = 8, SIMULATED_SETTINGS = 2 };

/* One way to run a strategy. */
struct setting {
    struct mics_plan_choice choice;
    uint64_t total_bytes;
    double bound_s;
};

/* A strategy with its settings that fit, best bound first; if none does, the one that needs least. */
struct contender {
    struct setting settings[MAX_SETTINGS];
    uint32_t setting_count; /* that fit */
    struct setting least;
    struct mics_prediction predicted; /* of settings[best]; step_s is the bound if not simulated */
    uint32_t best;
    bool simulated;
};

struct search {
    const struct mics_topology *topology;
    const struct mics_model *model;
    struct mics_search_options options; /* with defaults filled in */
    struct contender *contenders;
    uint32_t count;
};

static uint64_t world_size(const struct mics_topology *topology)
{
    return (uint64_t)topology->nodes * topology->per_node;
}

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

static enum mics_status fill_in(struct search *search, struct mics_err *err)
{
    struct mics_search_options *options = &search->options;
    uint64_t n = world_size(search->topology);
    uint32_t positions = search->model->config.n_positions;

    if (!options->strategy)
        options->strategy = "auto";
    if (options->seq == 0)
        options->seq = positions;
    if (options->seq > positions)
        return mics_err_set(err, MICS_ERR_ARG, "sequence of %u: the model has %u positions",
                            options->seq, positions);
    if (options->global_batch == 0)
        options->global_batch = n * (options->micro_batch ? options->micro_batch : 1);
    if (options->global_batch % n != 0)
        return refuse_batch(options->global_batch, n, "the ranks", err);
    if (options->micro_batch && options->global_batch % (n * options->micro_batch) != 0)
        return refuse_batch(options->global_batch, n * options->micro_batch,
                            "ranks times micro-batch", err);
    if (options->memory_limit == 0)
        options->memory_limit = search->topology->memory_bytes;
    return MICS_OK;
}

static enum mics_status measure(struct search *search, struct setting *setting,
                                struct mics_err *err)
{
    struct mics_memory memory;
    enum mics_status status = mics_memory_compute(search->model, &setting->choice, &memory, err);

    if (status == MICS_OK)
        setting->total_bytes = memory.arena_bytes + memory.workspace_bytes;
    return status;
}

/* Largest micro-batch with which the setting fits, by powers of two downwards; false: not even the least. */
static enum mics_status fit_micro_batch(struct search *search, struct setting *setting, bool *fits,
                                        struct mics_err *err)
{
    uint64_t per_rank = search->options.global_batch / world_size(search->topology);
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
static void insert(struct contender *contender, const struct setting *setting)
{
    uint32_t at = contender->setting_count;

    if (at == MAX_SETTINGS)
        return;
    for (; at > 0 && setting->bound_s < 0.999 * contender->settings[at - 1].bound_s; at--)
        contender->settings[at] = contender->settings[at - 1];
    contender->settings[at] = *setting;
    contender->setting_count++;
}

static enum mics_status try_setting(struct search *search, struct contender *contender,
                                    const struct mics_plan_choice *choice, struct mics_err *err)
{
    struct setting setting = {.choice = *choice};
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
static uint32_t list_depths(const struct search *search, const struct mics_plan_choice *choice,
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

static enum mics_status contend(struct search *search, const struct mics_candidate *candidate,
                                struct contender *out, struct mics_err *err)
{
    enum mics_recompute recompute = search->options.recompute;
    struct mics_plan_choice choice = {
        .shape = candidate->shape,
        .segments = 1,
        .grad_slots = 2,
        .micro_batch = 1,
        .micro_steps = 1,
        .seq = search->options.seq,
        .optimizer = search->options.optimizer,
        .clip = search->options.clip,
    };
    uint32_t depths[4], count = list_depths(search, &choice, depths);
    enum mics_status status = MICS_OK;

    snprintf(choice.strategy, sizeof choice.strategy, "%s", candidate->strategy);
    mics_choose_exchanges(search->topology, search->model, &choice);
    for (int full = 0; full < 2 && status == MICS_OK; full++) {
        bool found = out->setting_count > 0;

        if (full ? recompute == MICS_RECOMPUTE_NONE : recompute == MICS_RECOMPUTE_FULL)
            continue;
        if (full && found && recompute == MICS_RECOMPUTE_AUTO)
            continue;
        choice.recompute = full;
        for (uint32_t i = 0; i < count && status == MICS_OK; i++) {
            choice.prefetch = depths[i];
            status = try_setting(search, out, &choice, err);
        }
    }
    return status;
}

static enum mics_status simulate(struct search *search, struct contender *contender,
                                 struct mics_err *err)
{
    for (uint32_t i = 0; i < contender->setting_count && i < SIMULATED_SETTINGS; i++) {
        struct mics_prediction predicted;
        enum mics_status status = mics_plan_predict(
            search->topology, search->model, &contender->settings[i].choice, &predicted, err);

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

static struct contender *next_by_bound(struct search *search)
{
    struct contender *best = NULL;

    for (uint32_t i = 0; i < search->count; i++) {
        struct contender *contender = &search->contenders[i];

        if (contender->setting_count > 0 && !contender->simulated &&
            (!best || contender->settings[0].bound_s < best->settings[0].bound_s))
            best = contender;
    }
    return best;
}

/* Simulate until every bound is behind the best step by more than the margin of choose(). */
static enum mics_status race(struct search *search, struct mics_err *err)
{
    double best = INFINITY;

    for (;;) {
        struct contender *contender = next_by_bound(search);
        enum mics_status status;

        if (!contender || contender->settings[0].bound_s > 1.01 * best)
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
static struct contender *choose(struct search *search)
{
    double best = INFINITY;

    for (uint32_t i = 0; i < search->count; i++)
        if (search->contenders[i].simulated)
            best = fmin(best, search->contenders[i].predicted.step_s);
    for (uint32_t i = 0; i < search->count; i++)
        if (search->contenders[i].simulated &&
            search->contenders[i].predicted.step_s <= 1.01 * best)
            return &search->contenders[i];
    return NULL;
}

static enum mics_status refuse_all(const struct search *search, struct mics_err *err)
{
    const struct setting *least = &search->contenders[0].least;
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

static void explain(const struct search *search, const struct contender *contender,
                    const struct contender *chosen, struct mics_alternative *out)
{
    double slower = contender->predicted.step_s / chosen->predicted.step_s - 1;
    char more[32];

    if (contender == chosen)
        return;
    if (!out->fits) {
        mics_format_bytes(out->total_bytes - search->options.memory_limit, more, sizeof more);
        snprintf(out->why, sizeof out->why, "needs %s more", more);
    } else if (slower < 0.01) {
        snprintf(out->why, sizeof out->why, "as fast within 1 %%, but a larger group");
    } else if (slower < 1) {
        snprintf(out->why, sizeof out->why, "%s%.0f %% slower",
                 contender->simulated ? "" : "at least ", 100 * slower);
    } else {
        snprintf(out->why, sizeof out->why, "%s%.1f times the step",
                 contender->simulated ? "" : "at least ", 1 + slower);
    }
}

static void report(const struct search *search, const struct contender *contender,
                   const struct contender *chosen, struct mics_alternative *out)
{
    const struct setting *setting = &contender->least;

    *out = (struct mics_alternative){.fits = contender->setting_count > 0};
    if (out->fits) {
        setting = &contender->settings[contender->best];
        out->predicted = contender->predicted;
    }
    out->choice = setting->choice;
    out->total_bytes = setting->total_bytes;
    explain(search, contender, chosen, out);
}

static enum mics_status make_plan(const struct search *search, const struct contender *chosen,
                                  struct mics_plan **out, struct mics_err *err)
{
    const struct setting *setting = &chosen->settings[chosen->best];
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
    status = plan->alternatives
                 ? mics_memory_compute(search->model, &plan->choice, &plan->memory, err)
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

static enum mics_status run(struct search *search, struct mics_plan **out, struct mics_err *err)
{
    struct mics_candidate *candidates = NULL;
    enum mics_status status = mics_candidates(search->topology, search->options.strategy,
                                              &candidates, &search->count, err);
    struct contender *chosen;

    if (status != MICS_OK)
        return status;
    search->contenders = calloc(search->count, sizeof *search->contenders);
    if (!search->contenders)
        status = mics_err_nomem(err);
    for (uint32_t i = 0; i < search->count && status == MICS_OK; i++)
        status = contend(search, &candidates[i], &search->contenders[i], err);
    free(candidates);
    if (status == MICS_OK)
        status = race(search, err);
    if (status != MICS_OK)
        return status;
    chosen = choose(search);
    return chosen ? make_plan(search, chosen, out, err) : refuse_all(search, err);
}

enum mics_status mics_plan_search(struct mics_topology *topology, struct mics_model *model,
                                  const struct mics_search_options *options, struct mics_plan **out,
                                  struct mics_err *err)
{
    struct search search = {.topology = topology, .model = model, .options = *options};
    struct mics_plan *plan = NULL;
    enum mics_status status = fill_in(&search, err);

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
