/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - what a search found besides the plan: the strategies that lost, and why; or, if
 * nothing fits, the nearest miss and what would make it fit.
 */
#include "base/num.h"
#include "base/units.h"
#include "plan/host_update.h"
#include "plan/memory.h"
#include "plan/memory_ckpt_cost.h"
#include "plan/search/search_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ROWS = 32,
    MISSES = 2 /* strategies of MiCS that do not fit, of which the nearest are listed */
};

/* Steps that are longer than this many times the plan's are not listed, but for the ZeRO family. */
#define LISTED_SLOWDOWN 2.0

/* No plan option of an alternative is faster. */
static double least_seconds(const struct mics_search_alternative *alternative)
{
    return alternative->simulated ? alternative->predicted.step_s : alternative->bound_s;
}

/* Custom strategies with equal parameter groups are one family; every other strategy is its own. */
static bool same_family(const struct mics_search_alternative *a,
                        const struct mics_search_alternative *b)
{
    return a->strategy.shape.p_param == b->strategy.shape.p_param &&
           strcmp(a->strategy.name, "custom") == 0 && strcmp(b->strategy.name, "custom") == 0;
}

/* Which of two alternatives of a family represents it: the one that fits, the faster, the
 * smaller. */
static bool is_better(const struct mics_search *search, const struct mics_search_alternative *a,
                      const struct mics_search_alternative *b)
{
    if (mics_search_fits(search, a) != mics_search_fits(search, b))
        return mics_search_fits(search, a);
    if (!mics_search_fits(search, a))
        return a->least.total_bytes < b->least.total_bytes;
    if (a->simulated != b->simulated)
        return a->simulated;
    return least_seconds(a) < least_seconds(b);
}

static bool represents_family(const struct mics_search *search, uint32_t index,
                              const struct mics_search_alternative *chosen)
{
    const struct mics_search_alternative *alternative = &search->alternatives[index];

    if (alternative == chosen || alternative->excluded)
        return alternative == chosen;
    for (uint32_t i = 0; i < search->count; i++) {
        const struct mics_search_alternative *other = &search->alternatives[i];

        if (i != index && same_family(alternative, other) &&
            (other == chosen || is_better(search, other, alternative) ||
             (i < index && !is_better(search, alternative, other))))
            return false;
    }
    return true;
}

static bool is_zero_family(const struct mics_search_alternative *alternative)
{
    return strcmp(alternative->strategy.name, "mics") != 0 &&
           strcmp(alternative->strategy.name, "custom") != 0;
}

/* Lower is listed first. */
static double rank_of(const struct mics_search *search,
                      const struct mics_search_alternative *alternative,
                      const struct mics_search_alternative *chosen)
{
    if (alternative == chosen || is_zero_family(alternative))
        return 0;
    if (mics_search_fits(search, alternative))
        return alternative->bound_s / chosen->predicted.step_s;
    return 1e6 + (double)alternative->least.total_bytes;
}

struct row {
    double rank;
    uint32_t alternative;
};

static int compare_rows(const void *left, const void *right)
{
    const struct row *a = left, *b = right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->alternative < b->alternative ? -1 : a->alternative > b->alternative;
}

static int compare_alternatives(const void *left, const void *right)
{
    const struct row *a = left, *b = right;

    return a->alternative < b->alternative ? -1 : a->alternative > b->alternative;
}

/* The rows to list, in the order of simplicity; the number of them. */
static uint32_t select_rows(const struct mics_search *search,
                            const struct mics_search_alternative *chosen, struct row *rows)
{
    uint32_t count = 0, kept = 0, misses = 0;

    for (uint32_t i = 0; i < search->count; i++)
        if (represents_family(search, i, chosen))
            rows[count++] = (struct row){rank_of(search, &search->alternatives[i], chosen), i};
    qsort(rows, count, sizeof *rows, compare_rows);
    for (uint32_t i = 0; i < count && kept < MAX_ROWS; i++) {
        const bool miss = rows[i].rank >= 1e6;

        if (!(miss ? misses < MISSES : rows[i].rank <= LISTED_SLOWDOWN))
            continue;
        misses += miss;
        rows[kept++] = rows[i];
    }
    qsort(rows, kept, sizeof *rows, compare_alternatives);
    return kept;
}

/* Why an alternative lost. Alternatives are in the order of simplicity. The bound decides how much
 * slower it is at least; if that is nothing, or all, its simulated step decides. */
static void explain(const struct mics_search *search,
                    const struct mics_search_alternative *alternative,
                    const struct mics_search_alternative *chosen, struct mics_alternative *out)
{
    const double step_s = chosen->predicted.step_s;
    const bool by_bound = alternative->bound_s > (1 + MICS_STEP_TIE) * step_s &&
                          alternative->bound_s < 0.99 * alternative->predicted.step_s;
    const double slower =
        (by_bound ? alternative->bound_s : alternative->predicted.step_s) / step_s - 1;
    const char *bound = by_bound ? "at least " : "";
    char more[32];

    if (alternative == chosen)
        return;
    if (alternative->lacks_host > 0 && out->total_bytes <= search->options.memory_limit) {
        mics_format_bytes(alternative->lacks_host, more, sizeof more);
        snprintf(out->why, sizeof out->why, "needs %s more in hosts", more);
    } else if (!out->fits) {
        mics_format_bytes(out->total_bytes - search->options.memory_limit, more, sizeof more);
        snprintf(out->why, sizeof out->why, "needs %s more", more);
    } else if (slower < MICS_STEP_TIE && alternative > chosen) {
        snprintf(out->why, sizeof out->why, "as fast within %.1f %%, but cut further",
                 100 * MICS_STEP_TIE);
    } else if (slower < 0.095) {
        snprintf(out->why, sizeof out->why, "%s%.1f %% slower", bound, 100 * fmax(0, slower));
    } else if (slower < 1) {
        snprintf(out->why, sizeof out->why, "%s%.0f %% slower", bound, 100 * slower);
    } else {
        snprintf(out->why, sizeof out->why, "%s%.1f times the step", bound, 1 + slower);
    }
}

static void report_alternative(const struct mics_search *search,
                               const struct mics_search_alternative *alternative,
                               const struct mics_search_alternative *chosen,
                               struct mics_alternative *out)
{
    const struct mics_plan_option *plan_option =
        alternative->simulated ? &alternative->best : &alternative->least;

    *out = (struct mics_alternative){.fits = mics_search_fits(search, alternative)};
    if (alternative->simulated)
        out->predicted = alternative->predicted;
    out->choice = plan_option->choice;
    out->total_bytes = plan_option->total_bytes;
    explain(search, alternative, chosen, out);
}

bool mics_search_is_listed(const struct mics_search *search,
                           const struct mics_search_alternative *alternative,
                           const struct mics_search_alternative *chosen)
{
    return represents_family(search, (uint32_t)(alternative - search->alternatives), chosen) &&
           rank_of(search, alternative, chosen) <= LISTED_SLOWDOWN;
}

enum mics_status mics_search_report(const struct mics_search *search,
                                    const struct mics_search_alternative *chosen,
                                    struct mics_plan *plan, struct mics_err *err)
{
    struct row *rows = calloc(search->count, sizeof *rows);
    uint32_t count;

    if (!rows)
        return mics_err_nomem(err);
    count = select_rows(search, chosen, rows);
    plan->alternatives = calloc(count, sizeof *plan->alternatives);
    if (!plan->alternatives) {
        free(rows);
        return mics_err_nomem(err);
    }
    plan->alternative_count = count;
    for (uint32_t i = 0; i < count; i++)
        report_alternative(search, &search->alternatives[rows[i].alternative], chosen,
                           &plan->alternatives[i]);
    free(rows);
    return MICS_OK;
}

/* Of the alternatives that the options allow, that which needs the least memory of those that fit
 * hosts, if there are any. */
static enum mics_status find_least(const struct mics_search *search,
                                   struct mics_search_alternative *out, struct mics_err *err)
{
    const uint32_t group = search->options.expert_group;

    if (group != 0 && group != MICS_AUTO)
        return mics_search_least_expert_group(search, out, err);
    *out = search->alternatives[0];
    for (uint32_t i = 1; i < search->count; i++) {
        const struct mics_search_alternative *other = &search->alternatives[i];

        if ((other->lacks_host > 0) != (out->lacks_host > 0)
                ? other->lacks_host == 0
                : other->least.total_bytes < out->least.total_bytes)
            *out = *other;
    }
    return MICS_OK;
}

/* Ways out, each of which was checked to fit. */
struct remedies {
    const struct mics_search *search;
    char text[1024];
};

static void add_remedy(struct remedies *remedies, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_remedy(struct remedies *remedies, const char *format, ...)
{
    const size_t used = strlen(remedies->text), left = sizeof remedies->text - used;
    va_list args;
    int written = snprintf(remedies->text + used, left, "%s", used ? ", or " : "");

    va_start(args, format);
    vsnprintf(remedies->text + used + written, left - (size_t)written, format, args);
    va_end(args);
}

static bool would_fit(const struct remedies *remedies, const struct mics_topology *topology,
                      const struct mics_search_options *options)
{
    struct mics_search_alternative least;
    struct mics_search other;
    const bool fits =
        mics_search_init(&other, topology, remedies->search->model, options, NULL) == MICS_OK &&
        find_least(&other, &least, NULL) == MICS_OK && mics_search_fits(&other, &least);

    mics_search_fini(&other);
    return fits;
}

/* Other groups of experts: the usual ones, or the smallest with which the strategy fits. If none
 * does, the nearest miss of all replaces `miss`. */
static void suggest_expert_group(struct remedies *remedies, struct mics_search_alternative *miss)
{
    const struct mics_search *search = remedies->search;
    struct mics_search_options options = search->options;
    const bool is_auto = strcmp(options.strategy, "auto") == 0;
    const bool is_given = options.expert_group != 0 && options.expert_group != MICS_AUTO;
    struct mics_search_alternative least;
    struct mics_search other;

    if (search->model->config.n_expert == 0 || options.trainer != MICS_TRAINER_MICS)
        return;
    options.expert_group = is_auto ? MICS_AUTO : 0;
    if (is_given && would_fit(remedies, search->topology, &options)) {
        add_remedy(remedies, "--expert-group=%s", is_auto ? "auto" : "same");
        return;
    }
    if (is_auto)
        return;
    options.expert_group = MICS_AUTO;
    if (mics_search_init(&other, search->topology, search->model, &options, NULL) == MICS_OK &&
        mics_search_least_expert_group(&other, &least, NULL) == MICS_OK) {
        if (mics_search_fits(&other, &least))
            add_remedy(remedies, "--expert-group=%u",
                       least.least.choice.shapes[MICS_UNIT_EXPERT].p_param);
        else if (least.lacks_host == 0 && least.least.total_bytes < miss->least.total_bytes)
            *miss = least;
    }
    mics_search_fini(&other);
}

/* Resident experts, where they were not tried. */
static void suggest_resident(struct remedies *remedies)
{
    const struct mics_search *search = remedies->search;
    struct mics_search other;

    if (search->model->config.n_expert == 0 || search->options.experts != MICS_EXPERTS_GATHERED ||
        search->options.trainer != MICS_TRAINER_MICS)
        return;
    if (mics_search_init(&other, search->topology, search->model, &search->options, NULL) ==
            MICS_OK &&
        mics_search_resident_fits(&other))
        add_remedy(remedies, "--experts=resident");
    mics_search_fini(&other);
}

/* The longest sequence that fits, in steps of 64 tokens. */
static void suggest_sequence(struct remedies *remedies)
{
    struct mics_search_options options = remedies->search->options;
    uint32_t fits = 0, too_long = (options.seq - 1) / 64 + 1;

    while (fits + 1 < too_long) {
        const uint32_t middle = (fits + too_long) / 2;

        options.seq = 64 * middle;
        if (would_fit(remedies, remedies->search->topology, &options))
            fits = middle;
        else
            too_long = middle;
    }
    if (fits > 0)
        add_remedy(remedies, "--seq=%u", 64 * fits);
}

/* The least number of such nodes, with as many sequences of `seq` tokens per rank; 0: none. */
static uint32_t find_nodes(const struct remedies *remedies, uint32_t seq)
{
    const struct mics_search *search = remedies->search;
    struct mics_topology topology = *search->topology;
    struct mics_search_options options = search->options;
    const uint64_t per_node = search->options.global_batch / topology.nodes;
    uint32_t too_few = topology.nodes, enough = 0;

    options.seq = seq;
    options.strategy = "zero3";
    for (uint32_t step = too_few; step > 0;) {
        topology.nodes = enough == 0 ? 2 * too_few : too_few + step;
        if (topology.nodes > MICS_MAX_NODES)
            return 0;
        options.global_batch = topology.nodes * per_node;
        if (would_fit(remedies, &topology, &options))
            enough = topology.nodes;
        else
            too_few = topology.nodes;
        step = enough == 0 ? too_few : (enough - too_few) / 2;
    }
    return enough;
}

static void suggest_nodes(struct remedies *remedies)
{
    const uint32_t seq = remedies->search->options.seq;
    uint32_t nodes = find_nodes(remedies, seq);

    if (nodes > 0)
        add_remedy(remedies, "%u such nodes", nodes);
    if (remedies->text[0])
        return;
    for (uint32_t shorter = seq / 2; nodes == 0 && shorter >= 64; shorter /= 2) {
        nodes = find_nodes(remedies, shorter);
        if (nodes > 0)
            add_remedy(remedies, "%u such nodes with --seq=%u", nodes, shorter);
    }
}

/* The largest multiple of `unit`, up to `most` times, that fits as a global batch. */
static uint64_t largest_multiple(const struct remedies *remedies,
                                 const struct mics_search_options *given, uint64_t unit,
                                 uint64_t most)
{
    struct mics_search_options options = *given;
    uint64_t enough = 0, too_many = most + 1;

    while (enough + 1 < too_many) {
        const uint64_t middle = (enough + too_many) / 2;

        options.global_batch = unit * middle;
        if (would_fit(remedies, remedies->search->topology, &options))
            enough = middle;
        else
            too_many = middle;
    }
    return unit * enough;
}

uint64_t mics_search_largest_batch(const struct mics_search *search)
{
    const struct mics_topology *topology = search->topology;
    const struct remedies remedies = {.search = search};
    const uint64_t n = (uint64_t)topology->nodes * topology->per_node;
    struct mics_search_options options = search->options;
    const uint64_t most = options.global_batch / n / MICS_MICRO_STEPS_MAX;

    if (most == 0 || options.micro_batch)
        return 0;
    options.memory_limit = mics_search_memory(&options, topology);
    const uint64_t batch = largest_multiple(&remedies, &options, n * MICS_MICRO_STEPS_MAX,
                                            mics_min_u64(most, INT32_MAX / options.seq));

    return batch ? batch : largest_multiple(&remedies, &options, n, MICS_MICRO_STEPS_MAX);
}

/* The largest global batch that fits: the smallest one, doubled as often as possible. */
static void suggest_batch(struct remedies *remedies)
{
    const struct mics_topology *topology = remedies->search->topology;
    const uint64_t given = remedies->search->options.global_batch;
    struct mics_search_options options = remedies->search->options;
    uint64_t fits = 0;

    options.global_batch = (uint64_t)topology->nodes * topology->per_node *
                           (options.micro_batch ? options.micro_batch : 1);
    while (options.global_batch < given && would_fit(remedies, topology, &options)) {
        fits = options.global_batch;
        options.global_batch *= 2;
    }
    if (fits > 0)
        add_remedy(remedies, "--global-batch=%" PRIu64, fits);
}

/* Options that were fixed and could be left out, one at a time. */
static void suggest_options(struct remedies *remedies)
{
    const struct mics_search_options given = remedies->search->options;
    const struct mics_topology *topology = remedies->search->topology;
    struct mics_search_options options = given;

    options.recompute = MICS_RECOMPUTE_FULL;
    if (given.recompute != MICS_AUTO && given.recompute != MICS_RECOMPUTE_FULL &&
        would_fit(remedies, topology, &options))
        add_remedy(remedies, "--recompute=full");
    options = given;
    options.micro_batch = 1;
    if (given.micro_batch > 1 && would_fit(remedies, topology, &options))
        add_remedy(remedies, "--micro-batch=1");
    suggest_batch(remedies);
    options = given;
    options.prefetch = 0;
    if (given.prefetch != MICS_AUTO && given.prefetch > 0 &&
        would_fit(remedies, topology, &options))
        add_remedy(remedies, "--prefetch=0");
    options = given;
    options.coalesce = 1;
    if (given.coalesce > 1 && would_fit(remedies, topology, &options))
        add_remedy(remedies, "--coalesce=1");
    options = given;
    options.memory_limit = 0;
    if (mics_search_memory(&options, topology) == given.memory_limit && given.headroom > 0) {
        options.memory_limit = topology->memory_bytes;
        if (would_fit(remedies, topology, &options))
            add_remedy(remedies, "--headroom=0");
    }
    options = given;
    options.strategy = "auto";
    if (strcmp(given.strategy, "auto") != 0 && would_fit(remedies, topology, &options))
        add_remedy(remedies, "--strategy=auto");
    options = given;
    options.dtype = options.grad_dtype = MICS_BF16;
    if (given.dtype == MICS_F32 && strcmp(topology->flops_dtype, "f16") != 0 &&
        would_fit(remedies, topology, &options))
        add_remedy(remedies, "--dtype=bf16");
    options = given;
    options.offload = MICS_OFFLOAD_OPTIMIZER;
    if (given.offload == MICS_OFFLOAD_NONE && given.outer_steps == 0 &&
        (given.trainer == MICS_TRAINER_MICS ||
         (given.trainer == MICS_TRAINER_DEEPSPEED && mics_host_updates(given.optimizer))) &&
        !mics_topology_is_host(topology) && !topology->integrated &&
        would_fit(remedies, topology, &options))
        add_remedy(remedies, "--offload=optimizer");
    options = given;
    options.optimizer = MICS_OPT_LION;
    if (mics_optimizer_states(given.optimizer) > mics_optimizer_states(MICS_OPT_LION) &&
        would_fit(remedies, topology, &options))
        add_remedy(remedies, "--optimizer=lion");
}

/* Of the alternatives that fit their devices, if there are any, that which lacks the least host
 * memory: a search that finds nothing names it. */
static enum mics_status check_hosts(const struct mics_search *search,
                                    const struct mics_search_alternative *miss,
                                    struct mics_err *err)
{
    const uint32_t group = search->options.expert_group;
    const struct mics_search_alternative *least =
        miss->least.total_bytes <= search->options.memory_limit ? miss : NULL;
    struct mics_memory memory;

    for (uint32_t i = 0; (group == 0 || group == MICS_AUTO) && i < search->count; i++) {
        const struct mics_search_alternative *alternative = &search->alternatives[i];

        if (alternative->least.total_bytes <= search->options.memory_limit &&
            (!least || alternative->lacks_host < least->lacks_host))
            least = alternative;
    }
    if (!least)
        return MICS_OK;
    enum mics_status status =
        mics_memory_compute_on(search->topology, search->model, &least->least.choice, &memory, err);
    if (status == MICS_OK)
        status = mics_memory_check_host(&memory, search->topology, err);
    if (status == MICS_OK && least->lacks_host > 0)
        status =
            mics_memory_ckpt_check(mics_search_memory_ckpt(search, &least->least.choice), &memory,
                                   search->topology, search->options.memory_limit, err);
    return status;
}

/* " and --expert-group=4" where experts have groups of their own; else "". */
static void describe_expert_group(const struct mics_plan_choice *choice, char *out, size_t size)
{
    out[0] = '\0';
    if (mics_choice_groups(choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT)
        snprintf(out, size, " and --expert-group=%u", choice->shapes[MICS_UNIT_EXPERT].p_param);
}

enum mics_status mics_search_report_infeasible(const struct mics_search *search,
                                               struct mics_err *err)
{
    struct remedies remedies = {.search = search};
    const uint64_t limit_bytes = search->options.memory_limit;
    const bool has_network = search->topology->net_link.bandwidth_bytes > 0;
    struct mics_search_alternative miss;
    char need[32], limit[32], more[32], experts[40];

    const uint64_t batch = mics_search_largest_batch(search);
    enum mics_status status = find_least(search, &miss, err);

    if (status == MICS_OK)
        status = check_hosts(search, &miss, err);
    if (status != MICS_OK)
        return status;
    if (batch > 0)
        return mics_err_set(err, MICS_ERR_INFEASIBLE,
                            "--global-batch=%" PRIu64 " is too large: at most %" PRIu64
                            " sequences fit here",
                            search->options.global_batch, batch);
    suggest_expert_group(&remedies, &miss);
    suggest_options(&remedies);
    suggest_resident(&remedies);
    suggest_sequence(&remedies);
    if (has_network)
        suggest_nodes(&remedies);
    const struct mics_plan_choice *choice = &miss.least.choice;
    mics_format_bytes(miss.least.total_bytes, need, sizeof need);
    mics_format_bytes(limit_bytes, limit, sizeof limit);
    mics_format_bytes(miss.least.total_bytes - limit_bytes, more, sizeof more);
    describe_expert_group(choice, experts, sizeof experts);
    return mics_err_set(
        err, MICS_ERR_INFEASIBLE,
        "no plan fits %s per rank: %s (%u, %u, %u)%s with micro-batch %u and recompute %s%s needs "
        "%s, %s more; %s%s",
        limit, choice->strategy, choice->shapes[MICS_UNIT_DENSE].p_param,
        choice->shapes[MICS_UNIT_DENSE].p_grad, choice->shapes[MICS_UNIT_DENSE].p_optim, experts,
        choice->micro_batch, mics_recompute_name(choice->recompute),
        choice->offload_piece > 0 ? ", the optimizer's states in host memory," : "", need, more,
        remedies.text[0] ? "it fits with "
        : has_network    ? "no shorter sequence and no number of such nodes is enough"
                         : "no shorter sequence is enough",
        remedies.text);
}
