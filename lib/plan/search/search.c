/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.c - the plan with the shortest predicted step that fits: branch and bound.
 *
 * A queue in the order of lower bounds holds cells (a strategy, a level of recomputation and a
 * micro-batch) and plan options (a cell with an exchange option and a prefetch depth). The bound of
 * a cell is the least of its plan options. A cell is replaced by its plan options, a plan option is
 * simulated, until the next bound is not more than MICS_STEP_PRUNE below the best step. Of the
 * steps within MICS_STEP_TIE the simplest strategy wins, and of its plan options the simplest.
 */
#include "plan/search/search.h"

#include "plan/memory.h"
#include "plan/search/search_internal.h"
#include "plan/search/search_queue.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* The largest global batch of n ranks: MICS_MICRO_STEPS_MAX micro-steps. */
static uint64_t unit_limit(const struct mics_search_options *options, uint64_t n)
{
    const uint64_t micro_batch =
        options->micro_batch ? options->micro_batch : (uint64_t)INT32_MAX / options->seq;

    return n * micro_batch * MICS_MICRO_STEPS_MAX;
}

uint64_t mics_search_memory(const struct mics_search_options *options,
                            const struct mics_topology *topology)
{
    const uint64_t bytes = topology->memory_bytes;

    if (options->memory_limit > 0)
        return options->memory_limit;
    return mics_topology_is_host(topology) ? bytes
                                           : bytes - (uint64_t)(options->headroom * (double)bytes);
}

/* What the plan is refused for whatever its shape is, in the terms of the options. */
static enum mics_status check_f16(const struct mics_search_options *options, struct mics_err *err)
{
    if (options->dtype != MICS_F16)
        return options->grad_dtype != MICS_F16
                   ? MICS_OK
                   : mics_err_set(err, MICS_ERR_ARG, "--grad-dtype=fp16 goes with --dtype=fp16");
    if (options->grad_dtype == MICS_BF16)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--grad-dtype=bf16: with --dtype=fp16 it is fp16 "
                            "or f32");
    if (!options->clip)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--no-clip: --dtype=fp16 needs the norm of the gradients, which shows "
                            "overflows (mics-train --clip=1e9 clips nothing)");
    return MICS_OK;
}

enum mics_dtype mics_search_dtype(const struct mics_search_options *options,
                                  const struct mics_topology *topology)
{
    struct mics_search_options f16 = *options;

    if (options->dtype != MICS_AUTO)
        return (enum mics_dtype)options->dtype;
    f16.dtype = MICS_F16;
    if (strcmp(topology->flops_dtype, "bf16") == 0)
        return MICS_BF16;
    return strcmp(topology->flops_dtype, "f16") == 0 && check_f16(&f16, NULL) == MICS_OK ? MICS_F16
                                                                                         : MICS_F32;
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
        options->seq = mics_model_seq_max(search->model);
    status = mics_model_check_seq(search->model, options->seq, err);
    if (status != MICS_OK)
        return status;
    if (options->global_batch == 0)
        options->global_batch = unit;
    if (options->global_batch > unit_limit(options, n)) {
        const uint64_t fits = mics_search_largest_batch(search);

        return mics_err_set(
            err, MICS_ERR_ARG,
            "--global-batch=%" PRIu64 " is too large: at most %" PRIu64 " sequences%s here",
            options->global_batch, fits ? fits : unit_limit(options, n), fits ? " fit" : "");
    }
    if (options->global_batch % unit != 0)
        return refuse_batch(options->global_batch, unit,
                            options->micro_batch ? "ranks times micro-batch" : "the ranks", err);
    options->dtype = mics_search_dtype(options, search->topology);
    if (options->grad_dtype == MICS_AUTO)
        options->grad_dtype = options->dtype;
    options->memory_limit = mics_search_memory(options, search->topology);
    return check_f16(options, err);
}

static bool is_replicated(const struct mics_shape *shape)
{
    return shape->p_optim < mics_shape_world_size(shape);
}

/* DeepSpeed's stages 1 to 3, which all are the same on one rank. */
static bool is_partitioned(const struct mics_shape *shape)
{
    return shape->p_optim > 1 || mics_shape_world_size(shape) == 1;
}

/* Keep the strategies whose shape is allowed. Returns whether there are any. */
static bool keep(struct mics_search *search, struct mics_strategy *strategies,
                 bool (*allows)(const struct mics_shape *shape), bool secondary_shards)
{
    const uint32_t count = search->count;

    search->count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (allows(&strategies[i].shape) && strategies[i].secondary_shards == secondary_shards)
            strategies[search->count++] = strategies[i];
    return search->count > 0;
}

static enum mics_status filter_strategies(struct mics_search *search,
                                          struct mics_strategy *strategies, struct mics_err *err)
{
    const struct mics_search_options *options = &search->options;

    if (options->allows && !keep(search, strategies, options->allows, options->allows_secondary))
        return mics_err_set(err, MICS_ERR_ARG,
                            "strategy %s: the trainer that is planned for cannot cut a model so",
                            options->strategy);
    if (options->offload == MICS_OFFLOAD_OPTIMIZER && options->trainer == MICS_TRAINER_DEEPSPEED &&
        !keep(search, strategies, is_partitioned, options->allows_secondary))
        return mics_err_set(err, MICS_ERR_ARG,
                            "strategy %s: DeepSpeed offloads the optimizer in its stages 1 to 3",
                            options->strategy);
    /* Outer steps are between replicas. */
    if (options->outer_steps > 0 && !keep(search, strategies, is_replicated, false))
        return mics_err_set(err, MICS_ERR_ARG,
                            "outer steps need more than one replica of the training state, but "
                            "with strategy %s it is cut over all %u ranks",
                            options->strategy,
                            search->topology->nodes * search->topology->per_node);
    return MICS_OK;
}

static enum mics_status find_alternatives(struct mics_search *search, struct mics_err *err)
{
    struct mics_strategy *strategies = NULL;
    enum mics_status status = mics_search_strategies(search->topology, search->options.strategy,
                                                     &strategies, &search->count, err);

    if (status == MICS_OK)
        status = filter_strategies(search, strategies, err);
    if (status != MICS_OK) {
        free(strategies);
        return status;
    }
    search->alternatives = calloc(search->count + 1, sizeof *search->alternatives);
    if (!search->alternatives)
        status = mics_err_nomem(err);
    for (uint32_t i = 0; i < search->count && status == MICS_OK; i++) {
        search->alternatives[i].strategy = strategies[i];
        search->alternatives[i].bound_s = INFINITY;
    }
    free(strategies);
    return status;
}

enum mics_status mics_search_init(struct mics_search *search, const struct mics_topology *topology,
                                  const struct mics_model *model,
                                  const struct mics_search_options *options, struct mics_err *err)
{
    enum mics_status status;

    *search = (struct mics_search){.topology = topology, .model = model, .options = *options};
    status = complete_options(search, err);
    if (status == MICS_OK)
        status = mics_search_check_expert_group(search, err);
    if (status == MICS_OK)
        status = mics_op_costs_new(topology, model, &search->costs, err);
    if (status == MICS_OK)
        status = mics_bounds_new(search->costs, model, &search->bounds, err);
    if (status == MICS_OK)
        status = find_alternatives(search, err);
    if (status == MICS_OK)
        status = mics_search_space_init(search, err);
    return status;
}

void mics_search_fini(struct mics_search *search)
{
    mics_search_space_fini(search);
    mics_bounds_free(search->bounds);
    mics_op_costs_free(search->costs);
    free(search->alternatives);
}

struct progress {
    struct mics_search *search;
    struct mics_search_queue queue;
    double best_s; /* of what was simulated */
};

static struct mics_search_point point_of(const struct mics_search_node *node)
{
    return (struct mics_search_point){.alternative = node->alternative,
                                      .option = node->option,
                                      .level = node->level,
                                      .micro_batch = node->micro_batch,
                                      .prefetch = node->prefetch};
}

static enum mics_status bound_choice(struct mics_search *search,
                                     const struct mics_search_node *node,
                                     const struct mics_pass_times *passes, double *out,
                                     struct mics_err *err)
{
    const struct mics_search_point point = point_of(node);
    const struct mics_plan_choice choice = mics_search_choice(search, &point);
    struct mics_search_alternative *alternative = &search->alternatives[node->alternative];

    if (!alternative->times[node->option]) {
        const enum mics_status status =
            mics_bounds_exchanges(search->bounds, &choice, &alternative->times[node->option], err);

        if (status != MICS_OK)
            return status;
    }
    return mics_bounds_step(search->bounds, &choice, passes, alternative->times[node->option], out,
                            err);
}

static enum mics_status passes_of(struct mics_search *search, const struct mics_search_node *node,
                                  const struct mics_pass_times **out, struct mics_err *err)
{
    const struct mics_search_point point = point_of(node);
    const struct mics_plan_choice choice = mics_search_choice(search, &point);

    return mics_bounds_passes(search->bounds, &choice, out, err);
}

/* The least bound of a cell: with all the prefetch that fits each option. */
static enum mics_status push_cell(struct progress *progress, struct mics_search_node node,
                                  struct mics_err *err)
{
    struct mics_search *search = progress->search;
    struct mics_search_alternative *alternative = &search->alternatives[node.alternative];
    const struct mics_pass_times *passes = NULL;
    double least_bound = INFINITY;

    for (uint32_t i = 0; i < alternative->option_count; i++) {
        struct mics_search_point point;
        uint32_t least, most;
        double bound;
        enum mics_status status = MICS_OK;

        node.option = (uint8_t)i;
        point = point_of(&node);
        if (!mics_search_prefetch_range(search, &point, &least, &most))
            continue;
        node.prefetch = most;
        if (!passes)
            status = passes_of(search, &node, &passes, err);
        if (status == MICS_OK)
            status = bound_choice(search, &node, passes, &bound, err);
        if (status != MICS_OK)
            return status;
        if (bound < alternative->bound_s) {
            alternative->bound_s = bound;
            alternative->fastest = point;
            alternative->fastest.prefetch = most;
        }
        least_bound = fmin(least_bound, bound);
    }
    if (isinf(least_bound))
        return MICS_OK;
    node.bound = (float)least_bound;
    node.option = 0;
    node.prefetch = 0;
    return mics_search_push(&progress->queue, &node, err);
}

static bool is_pruned(const struct progress *progress, double bound)
{
    return bound >= (1 - MICS_STEP_PRUNE) * progress->best_s;
}

static enum mics_status push_plan_option(struct progress *progress, struct mics_search_node node,
                                         const struct mics_pass_times *passes, struct mics_err *err)
{
    double bound;
    enum mics_status status = bound_choice(progress->search, &node, passes, &bound, err);

    if (status != MICS_OK || is_pruned(progress, bound))
        return status;
    node.is_plan_option = true;
    node.bound = (float)bound;
    return mics_search_push(&progress->queue, &node, err);
}

static bool is_listed(const struct mics_search_space *space, uint32_t prefetch)
{
    for (uint32_t i = 0; i < space->prefetch_count; i++)
        if (space->prefetches[i] == prefetch)
            return true;
    return false;
}

static enum mics_status expand(struct progress *progress, const struct mics_search_node *cell,
                               struct mics_err *err)
{
    struct mics_search *search = progress->search;
    const struct mics_search_space *space = &search->space;
    const struct mics_pass_times *passes;
    enum mics_status status = passes_of(search, cell, &passes, err);
    struct mics_search_node node = *cell;

    for (uint32_t i = 0; i < search->alternatives[cell->alternative].option_count; i++) {
        struct mics_search_point point;
        uint32_t least, most;

        node.option = (uint8_t)i;
        point = point_of(&node);
        if (!mics_search_prefetch_range(search, &point, &least, &most))
            continue;
        for (uint32_t d = 0; d < space->prefetch_count && status == MICS_OK; d++) {
            node.prefetch = space->prefetches[d];
            if (node.prefetch >= least && node.prefetch <= most)
                status = push_plan_option(progress, node, passes, err);
        }
        /* The most that fits, which rounding may reduce by one. */
        for (node.prefetch = most; status == MICS_OK && most > least && node.prefetch + 2 > most;
             node.prefetch--)
            if (!is_listed(space, node.prefetch))
                status = push_plan_option(progress, node, passes, err);
        if (status != MICS_OK)
            return status;
    }
    return status;
}

/* Simulate a plan option with this bound, and keep the better of those of its strategy. */
static enum mics_status simulate(struct progress *progress, uint32_t index,
                                 const struct mics_plan_option *plan_option, double bound_s,
                                 struct mics_err *err)
{
    struct mics_search *search = progress->search;
    struct mics_search_alternative *alternative = &search->alternatives[index];
    struct mics_prediction predicted;
    enum mics_status status = mics_plan_predict_above(
        search->costs, search->model, &plan_option->choice, bound_s, &predicted, err);

    if (status != MICS_OK)
        return status;
    search->simulations++;
    progress->best_s = fmin(progress->best_s, predicted.step_s);
    if (!alternative->simulated || predicted.step_s < alternative->predicted.step_s) {
        alternative->best = *plan_option;
        alternative->predicted = predicted;
        alternative->simulated = true;
    }
    return MICS_OK;
}

static enum mics_status try_plan_option(struct progress *progress,
                                        const struct mics_search_node *node, struct mics_err *err)
{
    struct mics_search *search = progress->search;
    const struct mics_search_point point = point_of(node);
    struct mics_plan_option plan_option = {.choice = mics_search_choice(search, &point)};
    const struct mics_pass_times *passes;
    double bound_s;
    enum mics_status status =
        mics_search_bytes(search, &plan_option.choice, &plan_option.total_bytes, err);

    if (status != MICS_OK || plan_option.total_bytes > search->options.memory_limit)
        return status;
    status = passes_of(search, node, &passes, err);
    if (status == MICS_OK)
        status = bound_choice(search, node, passes, &bound_s, err);
    if (status == MICS_OK)
        status = simulate(progress, node->alternative, &plan_option, bound_s, err);
    return status;
}

/* Cells of strategies that fit. */
static enum mics_status push_cells(struct progress *progress, struct mics_err *err)
{
    const struct mics_search *search = progress->search;
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < search->count && status == MICS_OK; i++) {
        struct mics_search_alternative *alternative = &search->alternatives[i];
        struct mics_search_node node = {.alternative = i};

        if (!mics_search_fits(search, alternative))
            continue;
        alternative->times =
            calloc(alternative->option_count, sizeof(struct mics_exchange_times *));
        if (!alternative->times)
            return mics_err_nomem(err);
        for (uint32_t level = 0; level < search->space.level_count; level++)
            for (uint32_t b = 0; b < search->space.micro_batch_count && status == MICS_OK; b++) {
                node.level = (uint8_t)level;
                node.micro_batch = (uint16_t)b;
                status = push_cell(progress, node, err);
            }
    }
    return status;
}

static enum mics_status simulate_by_bound(struct progress *progress, struct mics_err *err)
{
    enum mics_status status = push_cells(progress, err);

    while (status == MICS_OK && progress->queue.count > 0) {
        const struct mics_search_node node = mics_search_pop(&progress->queue);

        if (is_pruned(progress, node.bound))
            continue; /* of nearly equal bounds, a smaller one may follow */
        status = node.is_plan_option ? try_plan_option(progress, &node, err)
                                     : expand(progress, &node, err);
    }
    return status;
}

/* The simplest of the fastest that were simulated. NULL: none fits. */
static struct mics_search_alternative *choose_alternative(const struct progress *progress)
{
    const struct mics_search *search = progress->search;

    for (uint32_t i = 0; i < search->count; i++)
        if (search->alternatives[i].simulated &&
            search->alternatives[i].predicted.step_s <= (1 + MICS_STEP_TIE) * progress->best_s)
            return &search->alternatives[i];
    return NULL;
}

/* Take the plan option if it fits and its step is as fast as the best, within a tie. */
static enum mics_status accept_if_equal(struct progress *progress,
                                        struct mics_search_alternative *alternative,
                                        const struct mics_plan_choice *choice, bool *accepted,
                                        struct mics_err *err)
{
    const struct mics_search *search = progress->search;
    struct mics_plan_option plan_option = {.choice = *choice};
    struct mics_prediction predicted;
    enum mics_status status = mics_search_bytes(search, choice, &plan_option.total_bytes, err);

    *accepted = false;
    if (status != MICS_OK || plan_option.total_bytes > search->options.memory_limit)
        return status;
    status = mics_plan_predict(search->costs, search->model, choice, &predicted, err);
    if (status != MICS_OK || predicted.step_s > (1 + MICS_STEP_TIE) * progress->best_s)
        return status;
    alternative->best = plan_option;
    alternative->predicted = predicted;
    alternative->simulated = true;
    *accepted = true;
    return MICS_OK;
}

/* A simpler strategy with the same plan option, whose bound does not exceed a tie. */
static enum mics_status try_simpler_alternatives(struct progress *progress,
                                                 struct mics_search_alternative **chosen,
                                                 struct mics_err *err)
{
    enum { TRIED = 8 };
    struct mics_search *search = progress->search;
    uint32_t tried = 0;

    for (struct mics_search_alternative *alternative = search->alternatives;
         alternative < *chosen && tried < TRIED; alternative++) {
        struct mics_plan_choice choice = (*chosen)->best.choice;
        bool accepted;
        enum mics_status status;

        if (alternative->bound_s > (1 + MICS_STEP_TIE) * progress->best_s)
            continue;
        mics_choice_set_shape(&choice, alternative->strategy.shape);
        memcpy(choice.strategy, alternative->least.choice.strategy, sizeof choice.strategy);
        choice.hierarchical_gather &= mics_shape_has_hierarchy(
            &choice.shapes[MICS_UNIT_DENSE], choice.shapes[MICS_UNIT_DENSE].p_param);
        choice.hierarchical_reduce &= mics_shape_has_hierarchy(
            &choice.shapes[MICS_UNIT_DENSE], choice.shapes[MICS_UNIT_DENSE].p_grad);
        if (choice.shapes[MICS_UNIT_DENSE].p_param == 1 && search->options.prefetch == MICS_AUTO)
            choice.prefetch = 0;
        mics_search_set_formats(search, alternative, &choice);
        tried++;
        status = accept_if_equal(progress, alternative, &choice, &accepted, err);
        if (status != MICS_OK)
            return status;
        if (accepted) {
            *chosen = alternative;
            return MICS_OK;
        }
    }
    return MICS_OK;
}

/* Settings with less of one thing, each in turn, on top of what was accepted. */
static enum mics_status simplify(struct progress *progress,
                                 struct mics_search_alternative *alternative, struct mics_err *err)
{
    const struct mics_search_options *options = &progress->search->options;
    enum { COALESCING, SEGMENTS, FLAT, PREFETCH_1, PREFETCH_2, PREFETCH_3, COUNT };
    enum mics_status status = MICS_OK;

    for (int i = 0; i < COUNT && status == MICS_OK; i++) {
        struct mics_plan_choice choice = alternative->best.choice;
        const uint32_t depth = (uint32_t)(i - PREFETCH_1 + 1);
        bool accepted;

        if (i == COALESCING && options->coalesce == 0) {
            choice.coalesce = 1;
            choice.grad_slots = 2;
        } else if (i == SEGMENTS && options->segments == 0 &&
                   progress->search->topology->algorithm_timing_count == 0) {
            choice.segments = 1;
        } else if (i == FLAT && options->hierarchical == MICS_HIERARCHY_AUTO &&
                   progress->search->topology->algorithm_timing_count == 0) {
            choice.hierarchical_gather = choice.hierarchical_reduce = false;
            mics_search_set_formats(progress->search, alternative, &choice);
        } else if (i >= PREFETCH_1 && options->prefetch == MICS_AUTO && depth < choice.prefetch &&
                   2 * (choice.coalesce - 1) < depth) {
            choice.prefetch = depth;
        }
        if (memcmp(&choice, &alternative->best.choice, sizeof choice) == 0)
            continue;
        status = accept_if_equal(progress, alternative, &choice, &accepted, err);
        if (accepted && i >= PREFETCH_1)
            break;
    }
    return status;
}

/* Simulate the plan option with the least bound of each strategy that fits and will be listed. */
static enum mics_status simulate_listed(struct progress *progress,
                                        const struct mics_search_alternative *chosen,
                                        struct mics_err *err)
{
    struct mics_search *search = progress->search;
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < search->count && status == MICS_OK; i++) {
        struct mics_search_alternative *alternative = &search->alternatives[i];
        struct mics_search_point point = alternative->fastest;
        struct mics_plan_option plan_option = alternative->least;
        double bound_s;

        if (alternative->simulated || isinf(alternative->bound_s) ||
            !mics_search_is_listed(search, alternative, chosen))
            continue;
        for (bool fits = false; !fits; point.prefetch--) {
            struct mics_plan_option trial = {.choice = mics_search_choice(search, &point)};

            status = mics_search_bytes(search, &trial.choice, &trial.total_bytes, err);
            if (status != MICS_OK)
                return status;
            fits = trial.total_bytes <= search->options.memory_limit;
            if (fits)
                plan_option = trial;
            else if (point.prefetch <= search->space.prefetches[0])
                break;
        }
        status = mics_step_bound(search->costs, search->model, &plan_option.choice, &bound_s, err);
        if (status == MICS_OK)
            status = simulate(progress, i, &plan_option, bound_s, err);
    }
    return status;
}

enum mics_status mics_search_make_plan(const struct mics_search *search,
                                       const struct mics_search_alternative *chosen,
                                       struct mics_plan **out, struct mics_err *err)
{
    struct mics_plan *plan = calloc(1, sizeof *plan);
    enum mics_status status;

    if (!plan)
        return mics_err_nomem(err);
    plan->choice = chosen->best.choice;
    plan->memory_limit = search->options.memory_limit;
    plan->memory_every = search->options.memory_every;
    plan->memory_copies = (uint32_t)search->options.memory_copies;
    plan->global_batch = search->options.global_batch;
    plan->predicted = chosen->predicted;
    status =
        mics_memory_compute_on(search->topology, search->model, &plan->choice, &plan->memory, err);
    if (status == MICS_OK)
        status = mics_plan_predict_classes(search->costs, search->model, &plan->choice,
                                           &plan->classes, err);
    if (status == MICS_OK)
        status = mics_search_report(search, chosen, plan, err);
    if (status != MICS_OK) {
        mics_plan_free(plan);
        return status;
    }
    *out = plan;
    return MICS_OK;
}

/* Let as many of the last units as possible have an exact second hop. */
static enum mics_status spare_units(struct progress *progress,
                                    struct mics_search_alternative *alternative,
                                    struct mics_err *err)
{
    const uint32_t units = progress->search->model->unit_count;
    uint32_t possible = 0, impossible = units;

    if (!progress->search->options.sync_auto ||
        !mics_choice_compresses_sync(&alternative->best.choice))
        return MICS_OK;
    while (possible + 1 < impossible) {
        struct mics_plan_choice choice = alternative->best.choice;
        bool accepted;
        enum mics_status status;

        choice.sync_exact_units = possible + (impossible - possible) / 2;
        status = accept_if_equal(progress, alternative, &choice, &accepted, err);
        if (status != MICS_OK)
            return status;
        if (accepted)
            possible = choice.sync_exact_units;
        else
            impossible = choice.sync_exact_units;
    }
    return MICS_OK;
}

/* Groups of experts of their own: one more alternative, which is chosen if it is asked for, or
 * faster than what is chosen by more than a tie. */
static enum mics_status add_expert_groups(struct progress *progress,
                                          struct mics_search_alternative **chosen,
                                          struct mics_err *err)
{
    struct mics_search *search = progress->search;
    struct mics_search_alternative *added = &search->alternatives[search->count];
    const bool asked = search->options.expert_group != MICS_AUTO;
    enum mics_status status;

    status = mics_search_expert_groups(search, asked ? INFINITY : progress->best_s, added, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; asked && i < search->count; i++)
        search->alternatives[i].excluded = true;
    search->count += added->simulated;
    if (asked && !added->simulated)
        *chosen = NULL;
    if (added->simulated &&
        (asked || !*chosen ||
         added->predicted.step_s < (1 - MICS_STEP_TIE) * (*chosen)->predicted.step_s)) {
        *chosen = added;
        progress->best_s = added->predicted.step_s;
        status = simplify(progress, added, err);
    }
    return status;
}

static enum mics_status search_plan(struct mics_search *search, struct mics_plan **out,
                                    struct mics_err *err)
{
    struct progress progress = {.search = search, .best_s = INFINITY};
    enum mics_status status = simulate_by_bound(&progress, err);

    if (status == MICS_OK) {
        struct mics_search_alternative *chosen = choose_alternative(&progress);

        if (chosen)
            status = try_simpler_alternatives(&progress, &chosen, err);
        if (status == MICS_OK && chosen)
            status = simplify(&progress, chosen, err);
        if (status == MICS_OK && chosen)
            status = spare_units(&progress, chosen, err);
        if (status == MICS_OK && mics_search_wants_expert_groups(search))
            status = add_expert_groups(&progress, &chosen, err);
        if (status == MICS_OK && !chosen)
            status = mics_search_report_infeasible(search, err);
        if (status == MICS_OK)
            status = simulate_listed(&progress, chosen, err);
        if (status == MICS_OK)
            status = mics_search_make_plan(search, chosen, out, err);
    }
    mics_search_queue_fini(&progress.queue);
    return status;
}

enum mics_status mics_search_once(const struct mics_topology *topology,
                                  const struct mics_model *model,
                                  const struct mics_search_options *options, uint32_t interval,
                                  struct mics_plan **out, struct mics_err *err)
{
    struct mics_search_options with = *options;
    struct mics_search search;

    with.sync_interval = interval;
    enum mics_status status = mics_search_init(&search, topology, model, &with, err);

    if (status == MICS_OK)
        status = search_plan(&search, out, err);
    mics_search_fini(&search);
    return status;
}
