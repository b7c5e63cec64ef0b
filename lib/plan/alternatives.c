/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alternatives.c - the table of what the search considered.
 *
 * For people the table is built in three forms, from wide to compact, and the widest that fits is
 * printed. Only some of many alternatives are shown, and the rest is counted. Scripts get all of
 * them with all numbers.
 */
#include "plan/plan_print.h"

#include "base/units.h"
#include "doc/table.h"
#include "plan/memory.h"
#include "plan/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHOW_FITTING = 12, /* rows of those that fit, and of those that do not */
    SHOW_MISSING = 5,
    TEXT = 48,
};

/* From wide to compact. */
enum form { FORM_REASONS, FORM_FULL, FORM_COMPACT, FORM_COUNT };

/* Alternatives in the order in which they are printed. */
struct list {
    const struct mics_alternative **items;
    uint32_t count, shown;
};

static bool is_chosen(const struct mics_alternative *alternative)
{
    return alternative->why[0] == '\0';
}

/* Only a lower bound of the step is known. */
static bool is_bound(const struct mics_alternative *alternative)
{
    return alternative->predicted.tokens_per_s <= 0;
}

/* The chosen one first, then by step. */
static int compare_steps(const void *a, const void *b)
{
    const struct mics_alternative *x = *(const struct mics_alternative *const *)a;
    const struct mics_alternative *y = *(const struct mics_alternative *const *)b;

    if (is_chosen(x) != is_chosen(y))
        return is_chosen(x) ? -1 : 1;
    return (x->predicted.step_s > y->predicted.step_s) -
           (x->predicted.step_s < y->predicted.step_s);
}

static int compare_bytes(const void *a, const void *b)
{
    const struct mics_alternative *x = *(const struct mics_alternative *const *)a;
    const struct mics_alternative *y = *(const struct mics_alternative *const *)b;

    return (x->total_bytes > y->total_bytes) - (x->total_bytes < y->total_bytes);
}

static bool is_first_of_strategy(const struct list *list, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(list->items[i]->choice.strategy, list->items[index]->choice.strategy) == 0)
            return false;
    return true;
}

/* Keep `limit` items, in order: the first of each strategy, and the first of the others. */
static void choose_shown(struct list *list, uint32_t limit)
{
    uint32_t firsts = 0, others = 0, room;

    for (uint32_t i = 0; i < list->count; i++)
        firsts += is_first_of_strategy(list, i);
    room = limit > firsts ? limit - firsts : 0;
    if (list->count <= limit + 1) { /* a line that counts one is no shorter */
        list->shown = list->count;
        return;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const bool first = is_first_of_strategy(list, i);

        if (!first && others >= room)
            continue;
        others += !first;
        /* Items before `shown` are a subset of those before i, with every strategy's first. */
        list->items[list->shown++] = list->items[i];
    }
}

static void list_open(struct list *list, const struct mics_alternative **items,
                      const struct mics_plan *plan, bool fits)
{
    *list = (struct list){.items = items};
    for (uint32_t i = 0; i < plan->alternative_count; i++)
        if (plan->alternatives[i].fits == fits)
            list->items[list->count++] = &plan->alternatives[i];
    qsort(list->items, list->count, sizeof *list->items, fits ? compare_steps : compare_bytes);
    choose_shown(list, fits ? SHOW_FITTING : SHOW_MISSING);
}

char *mics_plan_format_strategy(const struct mics_plan_choice *choice, char *text, size_t size)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];
    const uint32_t n = mics_shape_world_size(shape);
    const uint32_t sizes[] = {shape->p_param, shape->p_grad, shape->p_optim};
    char parts[3][16];

    for (int i = 0; i < 3; i++)
        snprintf(parts[i], sizeof parts[i], sizes[i] == n ? "n" : "%u", sizes[i]);
    if (strcmp(choice->strategy, "mics") == 0)
        snprintf(text, size, "mics:%u", shape->p_param);
    else if (choice->secondary_shards)
        snprintf(text, size, "hpz:%u", shape->p_param);
    else if (strcmp(choice->strategy, "custom") != 0)
        snprintf(text, size, "%s", choice->strategy);
    else
        snprintf(text, size, "%s/%s/%s", parts[0], parts[1], parts[2]);
    if (mics_choice_groups(choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT)
        snprintf(text + strlen(text), size - strlen(text), "+%u",
                 choice->shapes[MICS_UNIT_EXPERT].p_param);
    return text;
}

/* "31.2 GiB", or compact "31.2G". */
static void put_size(struct mics_table *table, uint64_t bytes, enum form form)
{
    char text[TEXT], *space;

    mics_format_bytes(bytes, text, sizeof text);
    space = strchr(text, ' ');
    if (form == FORM_COMPACT && space)
        space[space[1] == 'B' ? 0 : 2] = '\0';
    if (form == FORM_COMPACT && space && space[0])
        memmove(space, space + 1, 2);
    mics_table_cell(table, "%s", text);
}

static void put_choice(struct mics_table *table, const struct mics_alternative *alternative,
                       enum form form)
{
    const struct mics_plan_choice *choice = &alternative->choice;
    static const char *const abbreviations[MICS_RECOMPUTE_LEVELS] = {
        [MICS_RECOMPUTE_NONE] = "none",
        [MICS_RECOMPUTE_SELECTIVE] = "sel.",
        [MICS_RECOMPUTE_FULL] = "full",
    };
    char strategy[TEXT];

    mics_table_cell(table, "%s%s", mics_plan_format_strategy(choice, strategy, sizeof strategy),
                    form == FORM_COMPACT && is_chosen(alternative) ? " *" : "");
    mics_table_cell(table, form == FORM_COMPACT ? "%ux%u" : "%u x %u", choice->micro_batch,
                    choice->micro_steps);
    mics_table_cell(table, "%s",
                    form == FORM_COMPACT ? abbreviations[choice->recompute]
                                         : mics_recompute_name(choice->recompute));
    put_size(table, alternative->total_bytes, form);
}

/* "chosen", "equal", "+12 %", "2.14 times", ">= +12 %" */
static void put_comparison(struct mics_table *table, const struct mics_plan *plan,
                           const struct mics_alternative *alternative)
{
    const double ratio = alternative->predicted.step_s / plan->predicted.step_s;
    const char *bound = is_bound(alternative) ? ">= " : "";

    if (is_chosen(alternative))
        mics_table_cell(table, "chosen");
    else if (fabs(ratio - 1) < 0.0005)
        mics_table_cell(table, "%sequal", bound);
    else if (ratio < 2)
        mics_table_cell(table, "%s%+.*f %%", bound, ratio < 1.1 ? 1 : 0, 100 * (ratio - 1));
    else
        mics_table_cell(table, "%s%.3g times", bound, ratio);
}

/* In a row with a bound, cells of what is not known are empty. */
static void put_times(struct mics_table *table, const struct mics_plan *plan,
                      const struct mics_alternative *alternative, enum form form)
{
    const struct mics_prediction *predicted = &alternative->predicted;
    const uint64_t tokens = plan->global_batch * alternative->choice.seq;
    const double tokens_per_s = predicted->step_s > 0 ? (double)tokens / predicted->step_s : 0;
    const char *above = !is_bound(alternative) ? "" : form == FORM_COMPACT ? ">=" : ">= ";
    const char *below = !is_bound(alternative) ? "" : form == FORM_COMPACT ? "<=" : "<= ";
    char text[TEXT];

    mics_table_cell(table, "%s%s", above, mics_format_time(predicted->step_s, text, sizeof text));
    mics_table_cell(table, "%s%s", below, mics_format_count(tokens_per_s, text, sizeof text));
    mics_table_cell(table, form == FORM_COMPACT ? "%s%.1f" : "%s%.1f %%", below,
                    100 * mics_plan_mfu(plan, tokens_per_s));
    if (is_bound(alternative)) {
        mics_table_cell(table, "%s", "");
        mics_table_cell(table, "%s", "");
    } else {
        mics_table_time(table, 0, predicted->exposed_s);
        put_size(table, predicted->net_bytes, form);
    }
}

static struct mics_table *tabulate_fitting(const struct mics_plan *plan, const struct list *list,
                                           enum form form)
{
    static const char *const headers[FORM_COUNT] = {
        [FORM_REASONS] = "<fits|>batch|<recompute|>memory|>step|>tokens/s|>MFU|>exposed|"
                         ">net/node|<against the plan",
        [FORM_FULL] = "<fits|>batch|<recompute|>memory|>step|>tokens/s|>MFU|>exposed|"
                      ">net/node|<vs plan",
        [FORM_COMPACT] = "<fits|>batch|<rec.|>mem.|>step|>tok/s|>MFU %|>exposed|>net",
    };
    struct mics_table *table = mics_table_new(headers[form]);

    for (uint32_t i = 0; i < list->shown; i++) {
        put_choice(table, list->items[i], form);
        put_times(table, plan, list->items[i], form);
        if (form == FORM_REASONS)
            mics_table_cell(table, "%s",
                            is_chosen(list->items[i]) ? "chosen" : list->items[i]->why);
        else if (form == FORM_FULL)
            put_comparison(table, plan, list->items[i]);
    }
    return table;
}

static struct mics_table *tabulate_missing(const struct mics_plan *plan, const struct list *list)
{
    struct mics_table *table =
        mics_table_new("<does not fit|>batch|<recompute|>memory|>too much by");

    for (uint32_t i = 0; i < list->shown; i++) {
        put_choice(table, list->items[i], FORM_FULL);
        if (list->items[i]->total_bytes > plan->memory_limit)
            put_size(table, list->items[i]->total_bytes - plan->memory_limit, FORM_FULL);
        else
            mics_table_cell(table, "host memory");
    }
    return table;
}

/* What the table does not say itself. */
static void print_legend(FILE *out, const struct mics_plan *plan, const struct list *fitting,
                         enum form form)
{
    const struct mics_peak_flops peak = mics_plan_peak_flops(plan);
    bool has_bounds = false, has_custom = false, has_faster = false;
    char flops[TEXT];

    for (uint32_t i = 0; i < fitting->shown; i++) {
        has_bounds |= is_bound(fitting->items[i]);
        has_custom |= strcmp(fitting->items[i]->choice.strategy, "custom") == 0;
        has_faster |= fitting->items[i]->predicted.step_s < plan->predicted.step_s;
    }
    fprintf(out, "MFU: 6N + 6LCT FLOPs per token, of %sFLOP/s per rank,\n",
            mics_format_count(peak.flops, flops, sizeof flops));
    if (peak.is_vendor)
        fprintf(out, "     the vendor's peak in %s\n", peak.type);
    else
        fprintf(out, "     sustained in %s (the topology has no vendor's peak)\n", peak.type);
    if (form == FORM_COMPACT)
        fprintf(out, "*: the plan\n");
    if (has_custom)
        fprintf(out,
                "a/b/c: shards of parameters, gradients and optimizer state; n: all %u ranks\n",
                mics_choice_world_size(&plan->choice));
    if (has_faster)
        fprintf(out,
                "steps within %g %% count as equal; of these the plan has the smallest groups\n",
                100 * MICS_STEP_TIE);
    if (has_bounds)
        fprintf(out,
                ">=, <=: not simulated: the busiest resource alone takes longer than the plan\n");
}

static enum mics_status print_fitting(FILE *out, const struct mics_plan *plan,
                                      const struct list *list, unsigned width, struct mics_err *err)
{
    struct mics_table *table = tabulate_fitting(plan, list, FORM_REASONS);
    enum form form = FORM_REASONS;
    enum mics_status status;

    while (form < FORM_COMPACT && mics_table_width(table) > width) {
        form++;
        mics_table_free(table);
        table = tabulate_fitting(plan, list, form);
    }
    status = mics_table_finish(table, out, 0, err);
    if (status != MICS_OK)
        return status;
    if (list->shown < list->count)
        fprintf(out, "and %u more that fit; --tsv prints all\n", list->count - list->shown);
    print_legend(out, plan, list, form);
    return MICS_OK;
}

static enum mics_status print_missing(FILE *out, const struct mics_plan *plan,
                                      const struct list *list, struct mics_err *err)
{
    enum mics_status status;

    fputc('\n', out);
    status = mics_table_finish(tabulate_missing(plan, list), out, 0, err);
    if (status == MICS_OK && list->shown < list->count)
        fprintf(out, "and %u more that do not fit; --tsv prints all\n", list->count - list->shown);
    return status;
}

/* What takes the memory of a rank, in the order of the columns. */
static enum mics_status put_memory(struct mics_table *table, const struct mics_plan *plan,
                                   const struct mics_alternative *alternative, struct mics_err *err)
{
    struct mics_memory memory;
    const struct mics_region *regions = memory.regions;
    enum mics_status status =
        mics_memory_compute_on(plan->topology, plan->model, &alternative->choice, &memory, err);

    if (status != MICS_OK)
        return status;
    mics_table_bytes(table, 1, regions[MICS_REGION_PARAM].bytes);
    mics_table_bytes(table, 1, regions[MICS_REGION_GRAD].bytes);
    mics_table_bytes(table, 1, regions[MICS_REGION_OPTIM].bytes);
    mics_table_bytes(table, 1,
                     regions[MICS_REGION_PARAM_SLOT].bytes + regions[MICS_REGION_GRAD_SLOT].bytes);
    mics_table_bytes(table, 1,
                     regions[MICS_REGION_SAVED].bytes + regions[MICS_REGION_SCRATCH].bytes +
                         regions[MICS_REGION_BATCH].bytes);
    mics_table_bytes(table, 1,
                     memory.workspace_bytes + memory.context_bytes + memory.communicator_bytes);
    mics_table_bytes(table, 1, mics_topology_is_host(plan->topology) ? memory.snapshot_bytes : 0);
    return MICS_OK;
}

static enum mics_status put_tsv(struct mics_table *table, const struct mics_plan *plan,
                                const struct mics_alternative *alternative, struct mics_err *err)
{
    const struct mics_plan_choice *choice = &alternative->choice;
    const struct mics_prediction *predicted = &alternative->predicted;
    const uint64_t limit = plan->memory_limit;

    mics_table_cell(table, "%s", choice->strategy);
    mics_table_cell(table, "%u", choice->shapes[MICS_UNIT_DENSE].p_param);
    mics_table_cell(table, "%u", choice->shapes[MICS_UNIT_DENSE].p_grad);
    mics_table_cell(table, "%u", choice->shapes[MICS_UNIT_DENSE].p_optim);
    mics_table_cell(table, "%u", choice->micro_batch);
    mics_table_cell(table, "%u", choice->micro_steps);
    mics_table_cell(table, "%s", mics_recompute_name(choice->recompute));
    mics_table_cell(table, "%u", choice->prefetch);
    mics_table_cell(table, "%u", choice->segments);
    mics_table_cell(table, "%u", choice->coalesce - 1);
    mics_table_cell(table, "%d", choice->hierarchical_gather);
    mics_table_cell(table, "%d", choice->hierarchical_reduce);
    mics_table_bytes(table, 1, alternative->total_bytes);
    mics_table_cell(table, "%d", alternative->fits);
    mics_table_bytes(table, 1,
                     alternative->total_bytes > limit ? alternative->total_bytes - limit : 0);
    if (predicted->step_s > 0)
        mics_table_time(table, 1, predicted->step_s);
    else
        mics_table_cell(table, "-");
    if (predicted->tokens_per_s > 0) {
        mics_table_cell(table, "%.12g", predicted->tokens_per_s);
        mics_table_share(table, 1, mics_plan_mfu(plan, predicted->tokens_per_s));
        mics_table_time(table, 1, predicted->exposed_s);
        mics_table_bytes(table, 1, predicted->net_bytes);
    } else {
        for (int i = 0; i < 4; i++)
            mics_table_cell(table, "-");
    }
    const enum mics_status status = put_memory(table, plan, alternative, err);
    mics_table_cell(table, "%s", is_chosen(alternative) ? "chosen" : alternative->why);
    return status;
}

static enum mics_status print_tsv(FILE *out, const struct mics_plan *plan, struct mics_err *err)
{
    struct mics_table *table = mics_table_new(
        "strategy|p_param|p_grad|p_optim|micro_batch|micro_steps|recompute|prefetch|segments|"
        "joined|hierarchical_gather|hierarchical_reduce|bytes|fits|missing_bytes|step_s|"
        "tokens_per_s|mfu|exposed_s|net_bytes|param_bytes|grad_bytes|optim_bytes|gathered_bytes|"
        "activation_bytes|library_bytes|snapshot_bytes|why");
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < plan->alternative_count && status == MICS_OK; i++)
        status = put_tsv(table, plan, &plan->alternatives[i], err);
    if (status == MICS_OK)
        status = mics_table_print(table, out, 1, err);
    mics_table_free(table);
    return status;
}

enum mics_status mics_plan_print_alternatives(FILE *out, const struct mics_plan *plan,
                                              unsigned width, struct mics_err *err)
{
    const struct mics_alternative **items;
    struct list fitting, missing;
    enum mics_status status = MICS_OK;

    if (width == 0)
        return print_tsv(out, plan, err);
    items = calloc(2 * (size_t)plan->alternative_count + 1, sizeof *items);
    if (!items)
        return mics_err_nomem(err);
    list_open(&fitting, items, plan, true);
    list_open(&missing, items + plan->alternative_count, plan, false);
    if (fitting.count > 0)
        status = print_fitting(out, plan, &fitting, width, err);
    if (status == MICS_OK && missing.count > 0)
        status = print_missing(out, plan, &missing, err);
    free(items);
    return status;
}
