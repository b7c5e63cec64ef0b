/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expert_groups.c - plans whose experts are cut over other groups than dense units, or resident.
 *
 * The bounds of the search are for units that are all cut alike, and gathered. So these are
 * searches of their own, after that one: each strategy is combined with each group of experts,
 * level of recomputation and micro-batch, but with few ways to exchange units. A plan option is
 * not simulated if its computation, and what that waits for tokens that travel, takes as long as
 * the best step; of those that are left, the ones with the least are simulated first, and only so
 * many.
 */
#include "base/units.h"
#include "plan/memory.h"
#include "plan/search/search_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIMULATIONS = 192, MAX_SIZES = 160 };

/* Pairs (see simulate_pairs()) whose first plan option takes no more than so many times the
 * best. */
#define NEAR 1.1

/* A plan option that fits, and the time of its computation. */
struct option {
    struct mics_search_point point;
    struct mics_shape experts;
    double bound_s;
    bool hierarchical, dispatches;
    uint32_t pair; /* of a strategy and groups of experts; from 0 */
    double step_s; /* simulated; INFINITY: not yet */
};

struct list {
    struct option *items;
    size_t count, capacity;
    uint32_t pairs;
};

/* Units ahead. */
static const uint32_t depths[] = {0, 1, 2, 4};
enum { DEPTHS = sizeof depths / sizeof *depths };

bool mics_search_wants_expert_groups(const struct mics_search *search)
{
    const struct mics_search_options *options = &search->options;

    if (search->model->config.n_expert == 0 || options->expert_group == 0)
        return false;
    return options->expert_group != MICS_AUTO || strcmp(options->strategy, "auto") == 0;
}

enum mics_status mics_search_check_expert_group(const struct mics_search *search,
                                                struct mics_err *err)
{
    const struct mics_search_options *options = &search->options;
    const uint32_t group = options->expert_group;
    const struct mics_shape shape = {search->topology->nodes, search->topology->per_node, group,
                                     group, group};

    if (group == MICS_AUTO || group == 0)
        return MICS_OK;
    if (search->model->config.n_expert == 0)
        return mics_err_set(err, MICS_ERR_ARG, "--expert-group: '%s' has no experts",
                            search->model->config.name);
    if (options->outer_steps > 0 || options->sync_interval > 1 || options->sync_auto ||
        options->sync_dtype != MICS_F32 || options->gather_dtype != MICS_F32)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--expert-group: groups of their own need exact exchanges in every "
                            "step, without outer steps");
    const enum mics_status status = mics_shape_check(&shape, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "--expert-group");
    return status;
}

/* Where all exchanges are exact and in every step; elsewhere experts are cut as dense units. */
static bool is_possible(const struct mics_search_options *options)
{
    return options->outer_steps == 0 && options->sync_interval <= 1 && !options->sync_auto &&
           options->sync_dtype == MICS_F32 && options->gather_dtype == MICS_F32;
}

/* The groups of experts: of a number of ranks that divides a node or fills whole ones. */
static uint32_t list_groups(const struct mics_search *search, struct mics_shape *out)
{
    const uint32_t k = search->topology->per_node, n = search->topology->nodes * k;
    const uint32_t wanted = search->options.expert_group;
    uint32_t count = 0;

    for (uint32_t size = 1; size <= n && count < MAX_SIZES; size += size < k ? 1 : k) {
        const struct mics_shape shape = {search->topology->nodes, k, size, size, size};

        if ((wanted == MICS_AUTO || wanted == size) && mics_shape_check(&shape, NULL) == MICS_OK)
            out[count++] = shape;
    }
    return count;
}

static struct mics_plan_choice choice_of(const struct mics_search *search,
                                         const struct option *option)
{
    const struct mics_search_options *options = &search->options;
    struct mics_plan_choice choice = mics_search_choice(search, &option->point);

    choice.shapes[MICS_UNIT_EXPERT] = option->experts;
    choice.hierarchical_gather = choice.hierarchical_reduce = option->hierarchical;
    choice.segments = options->segments ? options->segments : 1;
    choice.coalesce = options->coalesce ? options->coalesce : 1;
    choice.grad_slots = 2 * choice.coalesce;
    choice.dispatches = option->dispatches;
    if (option->dispatches)
        choice.expert_load = mics_search_expert_load(search->model, options, &choice);
    return choice;
}

/* Of units that are gathered and reduced. */
static bool has_hierarchy(const struct mics_plan_choice *choice)
{
    for (enum mics_unit_kind kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        if (mics_choice_expert_ranks(choice, kind) == 0 &&
            (mics_shape_has_hierarchy(&choice->shapes[kind], choice->shapes[kind].p_param) ||
             mics_shape_has_hierarchy(&choice->shapes[kind], choice->shapes[kind].p_grad)))
            return true;
    return false;
}

static enum mics_status append(struct list *list, const struct option *option, struct mics_err *err)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 1024;
        struct option *items = realloc(list->items, capacity * sizeof *items);

        if (!items)
            return mics_err_nomem(err);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *option;
    return MICS_OK;
}

/* Computation of all micro-steps, and what it waits for tokens that travel. */
static double passes_seconds(const struct mics_search *search,
                             const struct mics_plan_choice *choice)
{
    return choice->micro_steps * (mics_op_costs_micro_step(search->costs, choice) +
                                  mics_op_costs_dispatch(search->costs, choice));
}

/* The least of these, whatever the level and the micro-batch. */
static double least_passes(const struct mics_search *search, struct option option)
{
    double least = INFINITY;

    for (option.point.level = 0; option.point.level < search->space.level_count;
         option.point.level++)
        for (option.point.micro_batch = 0;
             option.point.micro_batch < search->space.micro_batch_count;
             option.point.micro_batch++) {
            const struct mics_plan_choice choice = choice_of(search, &option);

            least = fmin(least, passes_seconds(search, &choice));
        }
    return least;
}

/* The plan options of a level and a micro-batch that fit and may be faster than `best_s`.
 * updates_s: what is computed once in a step. */
static enum mics_status list_options(struct mics_search *search, struct option option,
                                     double updates_s, double best_s, struct list *list,
                                     struct mics_err *err)
{
    const struct mics_search_options *options = &search->options;
    const uint32_t wanted = options->prefetch;
    const struct mics_plan_choice first = choice_of(search, &option);
    const bool hierarchy = has_hierarchy(&first),
               gathers = first.shapes[MICS_UNIT_DENSE].p_param > 1 ||
                         (option.experts.p_param > 1 && !option.dispatches);
    const uint32_t least = 2 * (first.coalesce - 1);
    uint64_t bytes;

    option.bound_s = passes_seconds(search, &first) + updates_s;
    if (option.bound_s >= best_s)
        return MICS_OK;
    for (uint32_t i = 0; i < (wanted == MICS_AUTO && gathers ? DEPTHS : 1); i++) {
        option.point.prefetch = wanted == MICS_AUTO ? depths[i] + least : wanted;
        bool fits = false;

        for (int h = options->hierarchical == MICS_HIERARCHY_ON && hierarchy;
             h <= (hierarchy && options->hierarchical != MICS_HIERARCHY_OFF); h++) {
            option.hierarchical = h;
            const struct mics_plan_choice choice = choice_of(search, &option);
            enum mics_status status = mics_search_bytes(search, &choice, &bytes, err);

            if (status == MICS_OK && bytes <= options->memory_limit) {
                fits = true;
                status = append(list, &option, err);
            }
            if (status != MICS_OK)
                return status;
        }
        if (!fits) /* nor does a greater depth */
            break;
    }
    return MICS_OK;
}

/* Does that fit which a rank has on the device whatever the level and the micro-batch? */
static bool states_fit(const struct mics_search *search, const struct mics_plan_choice *choice)
{
    uint64_t bytes = 0;

    if (choice->offload_piece > 0) /* optimizer states are in host memory */
        return true;
    for (enum mics_unit_kind kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        bytes += mics_choice_state_bytes(search->model, choice, kind);
    return bytes <= search->options.memory_limit;
}

/* Custom strategies are left out where others are allowed: they are too many to combine. */
static bool is_combined(const struct mics_search *search, uint32_t alternative)
{
    return strcmp(search->options.strategy, "auto") != 0 ||
           strcmp(search->alternatives[alternative].strategy.name, "custom") != 0;
}

static enum mics_status list_pair(struct mics_search *search, uint32_t alternative,
                                  const struct mics_shape *experts, bool dispatches, double best_s,
                                  struct list *list, struct mics_err *err)
{
    struct option option = {.point.alternative = alternative,
                            .experts = *experts,
                            .dispatches = dispatches,
                            .pair = list->pairs++,
                            .step_s = INFINITY};
    const struct mics_plan_choice any = choice_of(search, &option);
    uint64_t lacks;
    enum mics_status status;

    if (least_passes(search, option) >= best_s || !states_fit(search, &any) ||
        (dispatches && mics_choice_check(search->model, &any, NULL) != MICS_OK))
        return MICS_OK;
    status = mics_search_lacks_host(search, &any, &lacks, err);
    if (status != MICS_OK || lacks > 0)
        return status;
    const double updates_s = mics_op_costs_updates(search->costs, &any);
    for (option.point.level = 0; option.point.level < search->space.level_count;
         option.point.level++)
        for (option.point.micro_batch = 0;
             option.point.micro_batch < search->space.micro_batch_count && status == MICS_OK;
             option.point.micro_batch++)
            status = list_options(search, option, updates_s, best_s, list, err);
    return status;
}

static int compare_options(const void *left, const void *right)
{
    const struct option *a = left, *b = right;

    if (a->bound_s != b->bound_s)
        return a->bound_s < b->bound_s ? -1 : 1;
    if (a->point.prefetch != b->point.prefetch) /* more hides more */
        return a->point.prefetch > b->point.prefetch ? -1 : 1;
    return a->experts.p_param < b->experts.p_param ? -1 : a->experts.p_param > b->experts.p_param;
}

/* In the order of the list, at least, and at most, so many. */
static enum mics_status simulate_list(struct mics_search *search, struct list *list, size_t least,
                                      size_t most, double best_s,
                                      struct mics_search_alternative *out, struct mics_err *err)
{
    size_t done = 0;

    for (size_t i = 0; i < list->count && done < most; i++) {
        struct option *option = &list->items[i];
        struct mics_plan_option plan_option = {.choice = choice_of(search, option)};
        struct mics_prediction predicted;
        enum mics_status status;

        if (done >= least && option->bound_s >= (1 - MICS_STEP_PRUNE) * best_s)
            continue;
        status = mics_search_bytes(search, &plan_option.choice, &plan_option.total_bytes, err);
        if (status == MICS_OK)
            status = mics_plan_predict_above(search->costs, search->model, &plan_option.choice,
                                             option->bound_s, &predicted, err);
        if (status != MICS_OK)
            return status;
        done++;
        search->simulations++;
        option->step_s = predicted.step_s;
        best_s = fmin(best_s, predicted.step_s);
        if (out->simulated && predicted.step_s >= out->predicted.step_s)
            continue;
        out->strategy = search->alternatives[option->point.alternative].strategy;
        out->best = out->least = plan_option;
        out->predicted = predicted;
        out->bound_s = predicted.step_s;
        out->simulated = true;
    }
    return MICS_OK;
}

static void sort_list(const struct list *list)
{
    if (list->count > 0)
        qsort(list->items, list->count, sizeof *list->items, compare_options);
}

/* Of each pair the plan option that is first in the list. */
static enum mics_status first_of_pairs(const struct list *list, struct list *out,
                                       struct mics_err *err)
{
    bool *seen = calloc((size_t)list->pairs + 1, sizeof *seen);
    enum mics_status status = seen ? MICS_OK : mics_err_nomem(err);

    for (size_t i = 0; i < list->count && status == MICS_OK; i++) {
        if (seen[list->items[i].pair])
            continue;
        seen[list->items[i].pair] = true;
        status = append(out, &list->items[i], err);
    }
    free(seen);
    return status;
}

/* One plan option of each pair, since the bounds of pairs with equal groups of experts hardly
 * differ; then the others of the pairs that come near the fastest. */
static enum mics_status simulate_pairs(struct mics_search *search, const struct list *list,
                                       bool any, double best_s, struct mics_search_alternative *out,
                                       struct mics_err *err)
{
    struct list firsts = {0}, others = {0};
    enum mics_status status = first_of_pairs(list, &firsts, err);

    if (status == MICS_OK)
        status = simulate_list(search, &firsts, any, SIMULATIONS, best_s, out, err);
    for (size_t f = 0; f < firsts.count && status == MICS_OK; f++)
        for (size_t i = 0; i < list->count && status == MICS_OK; i++)
            if (list->items[i].pair == firsts.items[f].pair && out->simulated &&
                firsts.items[f].step_s <= NEAR * out->predicted.step_s)
                status = append(&others, &list->items[i], err);
    sort_list(&others);
    if (status == MICS_OK && out->simulated)
        status = simulate_list(search, &others, 0, SIMULATIONS, fmin(best_s, out->predicted.step_s),
                               out, err);
    free(firsts.items);
    free(others.items);
    return status;
}

enum mics_status mics_search_expert_groups(struct mics_search *search, double best_s,
                                           struct mics_search_alternative *out,
                                           struct mics_err *err)
{
    struct mics_shape groups[MAX_SIZES];
    const uint32_t count = list_groups(search, groups);
    struct list list = {0};
    enum mics_status status = MICS_OK;

    *out = (struct mics_search_alternative){.bound_s = INFINITY};
    for (uint32_t i = 0; is_possible(&search->options) && i < search->count; i++)
        for (uint32_t g = 0; g < count && status == MICS_OK; g++)
            if (is_combined(search, i) &&
                (search->options.expert_group != MICS_AUTO ||
                 memcmp(&search->alternatives[i].strategy.shape, &groups[g], sizeof *groups) != 0))
                status = list_pair(search, i, &groups[g], false, best_s, &list, err);
    sort_list(&list);
    if (status == MICS_OK)
        status = simulate_list(search, &list, 0, SIMULATIONS, best_s, out, err);
    free(list.items);
    return status;
}

/* Necessary for resident experts; mics_choice_check() knows the rest. */
static bool can_be_resident(const struct mics_search *search, const struct mics_shape *experts)
{
    return experts->p_param > 1 && experts->p_grad == experts->p_param &&
           search->model->config.n_expert % experts->p_param == 0;
}

/* Resident experts of a strategy, cut as all else, or where groups of their own are allowed, with
 * parameters and gradients in each group, and the optimizer's states in each that is not
 * smaller. */
static enum mics_status list_resident(struct mics_search *search, uint32_t alternative,
                                      const struct mics_shape *groups, uint32_t count,
                                      double best_s, struct list *list, struct mics_err *err)
{
    const struct mics_shape *dense = &search->alternatives[alternative].strategy.shape;
    const uint32_t wanted =
        mics_search_wants_expert_groups(search) ? search->options.expert_group : 0;
    enum mics_status status = MICS_OK;

    if ((wanted == 0 || wanted == MICS_AUTO) && can_be_resident(search, dense))
        status = list_pair(search, alternative, dense, true, best_s, list, err);
    if (wanted == 0 || !is_combined(search, alternative))
        return status;
    for (uint32_t p = 0; p < count; p++)
        for (uint32_t o = p; o < count && status == MICS_OK; o++) {
            struct mics_shape experts = groups[p];

            experts.p_optim = groups[o].p_optim;
            if ((wanted == MICS_AUTO && memcmp(&experts, dense, sizeof experts) == 0) ||
                !can_be_resident(search, &experts))
                continue;
            status = list_pair(search, alternative, &experts, true, best_s, list, err);
        }
    return status;
}

/* Those that fit and may be faster than best_s. The caller frees list->items, also on failure. */
static enum mics_status list_all_resident(struct mics_search *search, double best_s,
                                          struct list *list, struct mics_err *err)
{
    struct mics_shape groups[MAX_SIZES];
    const uint32_t count = list_groups(search, groups);
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; is_possible(&search->options) && i < search->count && status == MICS_OK;
         i++)
        if (!search->alternatives[i].strategy.secondary_shards)
            status = list_resident(search, i, groups, count, best_s, list, err);
    return status;
}

enum mics_status mics_search_resident(struct mics_search *search, double best_s, bool any,
                                      struct mics_search_alternative *out, struct mics_err *err)
{
    struct list list = {0};
    enum mics_status status = list_all_resident(search, any ? INFINITY : best_s, &list, err);

    *out = (struct mics_search_alternative){.bound_s = INFINITY};
    sort_list(&list);
    if (status == MICS_OK)
        status = simulate_pairs(search, &list, any, best_s, out, err);
    free(list.items);
    return status;
}

bool mics_search_resident_fits(struct mics_search *search)
{
    struct list list = {0};
    const bool fits = list_all_resident(search, INFINITY, &list, NULL) == MICS_OK && list.count > 0;

    free(list.items);
    return fits;
}

/* Of the levels and exchanges of a pair of groups, keep what needs the least memory. */
static enum mics_status keep_least(const struct mics_search *search, struct option option,
                                   struct mics_search_alternative *least, struct mics_err *err)
{
    const struct mics_search_options *options = &search->options;
    enum mics_status status = MICS_OK;

    for (option.point.level = 0;
         option.point.level < search->space.level_count && status == MICS_OK;
         option.point.level++) {
        struct mics_plan_option tried = {.choice = choice_of(search, &option)};

        option.hierarchical =
            options->hierarchical == MICS_HIERARCHY_ON && has_hierarchy(&tried.choice);
        tried.choice = choice_of(search, &option);
        status = mics_search_bytes(search, &tried.choice, &tried.total_bytes, err);
        if (status != MICS_OK || tried.total_bytes >= least->least.total_bytes)
            continue;
        least->least = tried;
        status = mics_search_lacks_host(search, &tried.choice, &least->lacks_host, err);
    }
    return status;
}

enum mics_status mics_search_least_expert_group(const struct mics_search *search,
                                                struct mics_search_alternative *out,
                                                struct mics_err *err)
{
    struct mics_shape groups[MAX_SIZES];
    const uint32_t count = list_groups(search, groups), prefetch = search->options.prefetch;
    enum mics_status status = MICS_OK;

    *out = (struct mics_search_alternative){.least.total_bytes = UINT64_MAX};
    for (uint32_t g = 0; is_possible(&search->options) && g < count; g++) {
        for (uint32_t i = 0; i < search->count && status == MICS_OK; i++) {
            struct option option = {.point.alternative = i, .experts = groups[g]};

            option.point.prefetch =
                prefetch == MICS_AUTO ? 2 * (choice_of(search, &option).coalesce - 1) : prefetch;
            if (is_combined(search, i))
                status = keep_least(search, option, out, err);
        }
        if (status != MICS_OK || mics_search_fits(search, out))
            break;
    }
    return status;
}
