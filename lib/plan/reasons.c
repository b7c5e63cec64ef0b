/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reasons.c - two or three sentences on a plan, computed from its figures.
 *
 * The first is about the shards: the alternatives that shard the parameters less decide it. If none
 * of them fits, the plan has the fewest ranks that hold one copy; otherwise the fastest of them is
 * slower, or as fast in larger groups. The second is about time: the exchange that costs most, and
 * how much of it runs behind computation. Others are about the interval and the formats of the
 * second hop, and the last about experts.
 */
#include "plan/plan_print.h"

#include "base/units.h"
#include "plan/host_update.h"
#include "plan/memory.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { NUMBER = 32 };

/* Text that grows at its end, and is cut at its size. */
struct text {
    char *at;
    size_t size, used;
};

MICS_PRINTF(2, 3)
static void append(struct text *text, const char *fmt, ...)
{
    va_list args;
    int length;

    va_start(args, fmt);
    length = vsnprintf(text->at + text->used, text->size - text->used, fmt, args);
    va_end(args);
    if (length > 0)
        text->used +=
            (size_t)length < text->size - text->used ? (size_t)length : text->size - text->used - 1;
}

/* The shards of parameters, then of gradients, then of optimizer state decide which of two shapes
 * holds less on a rank. */
static bool is_cut_less(const struct mics_shape *a, const struct mics_shape *b)
{
    if (a->p_param != b->p_param)
        return a->p_param < b->p_param;
    if (a->p_grad != b->p_grad)
        return a->p_grad < b->p_grad;
    return a->p_optim < b->p_optim;
}

/* Alternatives that are cut less than the plan; where the plan shards parameters, only those that
 * shard parameters less. */
struct fewer_shards {
    const struct mics_alternative *fastest; /* of those that fit; NULL: none fits */
    const struct mics_alternative *nearest; /* the miss that lacks least; NULL: all fit */
};

/* Does a group of p_param ranks hold a copy of the whole state? */
static bool holds_whole_state(const struct mics_shape *shape)
{
    return shape->p_optim == shape->p_param;
}

static struct fewer_shards find_among(const struct mics_plan *plan, bool whole_state_only)
{
    const struct mics_shape *shape = &plan->choice.shapes[MICS_UNIT_DENSE];
    struct fewer_shards found = {NULL, NULL};

    for (uint32_t i = 0; i < plan->alternative_count; i++) {
        const struct mics_alternative *each = &plan->alternatives[i];
        const struct mics_shape *other = &each->choice.shapes[MICS_UNIT_DENSE];

        if (shape->p_param > 1 ? other->p_param >= shape->p_param : !is_cut_less(other, shape))
            continue;
        if (whole_state_only && !holds_whole_state(other))
            continue;
        if (!each->fits && (!found.nearest || each->total_bytes < found.nearest->total_bytes))
            found.nearest = each;
        if (each->fits &&
            (!found.fastest || each->predicted.step_s < found.fastest->predicted.step_s))
            found.fastest = each;
    }
    return found;
}

/* Groups that hold the whole state are compared with such groups, if there are any. */
static struct fewer_shards find_fewer_shards(const struct mics_plan *plan)
{
    struct fewer_shards found = {NULL, NULL};

    if (holds_whole_state(&plan->choice.shapes[MICS_UNIT_DENSE]))
        found = find_among(plan, true);
    return found.fastest || found.nearest ? found : find_among(plan, false);
}

/* "take 12 % longer", "take at least 2.14 times as long" */
static void append_slower(struct text *text, const struct mics_plan *plan,
                          const struct mics_alternative *other)
{
    /* Alternatives have gathered experts. */
    const double own_s =
        plan->choice.dispatches ? plan->experts.gathered_step_s : plan->predicted.step_s;
    const double ratio = own_s > 0 ? other->predicted.step_s / own_s : 1;
    const char *bound = other->predicted.tokens_per_s > 0 ? "" : "at least ";

    if (ratio < 0.995)
        append(text, "take %.0f %% less, which is within the error of prediction",
               100 * (1 - ratio));
    else if (ratio < 1.005)
        append(text, "take as long");
    else if (ratio < 2)
        append(text, "take %s%.*f %% longer", bound, ratio < 1.1 ? 1 : 0, 100 * (ratio - 1));
    else
        append(text, "take %s%.3g times as long", bound, ratio);
}

static void append_ranks(struct text *text, uint32_t ranks)
{
    if (ranks == 1)
        append(text, "one rank");
    else
        append(text, "%u ranks", ranks);
}

/* A smaller group holds the parameters, too. */
static void append_slower_group(struct text *text, const struct mics_plan *plan,
                                const struct mics_alternative *other)
{
    const struct mics_shape *shape = &plan->choice.shapes[MICS_UNIT_DENSE],
                            *fewer = &other->choice.shapes[MICS_UNIT_DENSE];

    append(text, "One copy of the %s also fits on ",
           holds_whole_state(shape) && holds_whole_state(fewer) ? "state" : "parameters");
    append_ranks(text, fewer->p_param);
    append(text, " instead of %u", shape->p_param);
    if (!holds_whole_state(fewer))
        append(text, ", with the optimizer state on %u", fewer->p_optim);
    append(text, ", but a step would ");
    append_slower(text, plan, other);
    append(text, fewer->p_optim > shape->p_optim ? " and use larger groups." : ".");
}

/* What an alternative that does not fit lacks, on a device or else on a host. */
static const char *missing(const struct mics_plan *plan, const struct mics_alternative *other,
                           char *out, size_t size)
{
    if (other->total_bytes <= plan->memory_limit) {
        snprintf(out, size, "more host memory");
        return out;
    }
    mics_format_bytes(other->total_bytes - plan->memory_limit, out, size);
    return out;
}

/* Parameters are sharded. */
static void append_group_reason(struct text *text, const struct mics_plan *plan,
                                const struct fewer_shards *fewer)
{
    const uint32_t p = plan->choice.shapes[MICS_UNIT_DENSE].p_param;
    char more[NUMBER];

    if (fewer->fastest) {
        append_slower_group(text, plan, fewer->fastest);
    } else if (fewer->nearest) {
        const bool on_host = fewer->nearest->total_bytes <= plan->memory_limit;

        missing(plan, fewer->nearest, more, sizeof more);
        append(text, "%u ranks are the fewest that hold one copy of the %s: ", p,
               holds_whole_state(&plan->choice.shapes[MICS_UNIT_DENSE]) ? "state" : "parameters");
        append_ranks(text, fewer->nearest->choice.shapes[MICS_UNIT_DENSE].p_param);
        append(text, " would need %s%s%s.", more, on_host ? "" : " more",
               fewer->nearest->choice.shapes[MICS_UNIT_DENSE].p_param == 1 ? "" : " each");
    }
}

/* Every rank has all parameters. */
static void append_whole_reason(struct text *text, const struct mics_plan *plan,
                                const struct fewer_shards *fewer)
{
    const struct mics_shape *shape = &plan->choice.shapes[MICS_UNIT_DENSE];
    const char *cut =
        shape->p_grad > 1 ? "gradients and optimizer state are" : "optimizer state is";
    char more[NUMBER];

    append(text, "Every rank holds all parameters, and %s sharded over %u: ", cut, shape->p_optim);
    if (fewer->fastest) {
        append(text, "with fewer shards a step would ");
        append_slower(text, plan, fewer->fastest);
        append(text, ".");
    } else {
        missing(plan, fewer->nearest, more, sizeof more);
        append(text, "with fewer shards, %s would be missing.", more);
    }
}

static void append_shards(struct text *text, const struct mics_plan *plan)
{
    const struct mics_shape *shape = &plan->choice.shapes[MICS_UNIT_DENSE];
    const struct fewer_shards fewer = find_fewer_shards(plan);
    char total[NUMBER], limit[NUMBER];

    if (shape->p_optim > 1 && (fewer.fastest || fewer.nearest)) {
        if (shape->p_param > 1)
            append_group_reason(text, plan, &fewer);
        else
            append_whole_reason(text, plan, &fewer);
        return;
    }
    mics_format_bytes(mics_memory_total(&plan->memory, plan->topology), total, sizeof total);
    mics_format_bytes(plan->memory_limit, limit, sizeof limit);
    if (shape->p_optim == 1)
        append(text,
               plan->choice.offload_piece > 0
                   ? "What the optimizer's states leave on the device fits on every rank: %s of %s."
                   : "The whole state fits on every rank: %s of %s.",
               total, limit);
    else
        append(text, "No strategy with fewer shards was allowed; this one takes %s of %s.", total,
               limit);
}

/* What an exchange is called in a sentence; verbs follow in the plural. */
static const struct {
    enum mics_op_class op_class;
    const char *words;
} exchanges[] = {
    {MICS_CLASS_GATHER_NET, "Gathers over the network"},
    {MICS_CLASS_GATHER_NODE, "Gathers inside nodes"},
    {MICS_CLASS_REDUCE_NET, "Reductions over the network"},
    {MICS_CLASS_REDUCE_NODE, "Reductions inside nodes"},
    {MICS_CLASS_SYNC_NET, "Sums of gradients between groups over the network"},
    {MICS_CLASS_SYNC_NODE, "Sums of gradients between groups inside nodes"},
    {MICS_CLASS_PUBLISH_NET, "Gathers of updated parameters over the network"},
    {MICS_CLASS_PUBLISH_NODE, "Gathers of updated parameters inside nodes"},
    {MICS_CLASS_DISPATCH_NET, "Exchanges of tokens with experts over the network"},
    {MICS_CLASS_DISPATCH_NODE, "Exchanges of tokens with experts inside nodes"},
};
enum { EXCHANGES = sizeof exchanges / sizeof *exchanges };

/* The exchange with the most exposed time; where hardly any is exposed, the longest. */
static int find_costliest(const struct mics_plan *plan)
{
    const struct mics_class_times *times = &plan->classes;
    int exposed = -1, longest = -1;

    for (int i = 0; i < EXCHANGES; i++) {
        const enum mics_op_class c = exchanges[i].op_class;

        if (times->busy_s[c] <= 0)
            continue;
        if (longest < 0 || times->busy_s[c] > times->busy_s[exchanges[longest].op_class])
            longest = i;
        if (exposed < 0 || times->exposed_s[c] > times->exposed_s[exchanges[exposed].op_class])
            exposed = i;
    }
    if (exposed >= 0 &&
        times->exposed_s[exchanges[exposed].op_class] < 0.01 * plan->predicted.step_s)
        return longest;
    return exposed;
}

static void append_exchange(struct text *text, const char *what, double busy_s, double exposed_s,
                            double step_s)
{
    char busy[NUMBER], hidden[NUMBER], step[NUMBER];
    const double hidden_s = fmax(0, busy_s - exposed_s);

    mics_format_time(busy_s, busy, sizeof busy);
    mics_format_time(hidden_s, hidden, sizeof hidden);
    mics_format_time(step_s, step, sizeof step);
    append(text, " %s take %s of a step of %s; ", what, busy, step);
    if (hidden_s >= 0.995 * busy_s)
        append(text, "all of it overlaps with computation.");
    else if (hidden_s <= 0.005 * busy_s)
        append(text, "none of it overlaps with computation.");
    else
        append(text, "%s of it overlap with computation.", hidden);
}

static void append_communication(struct text *text, const struct mics_plan *plan)
{
    const struct mics_prediction *predicted = &plan->predicted;
    char step[NUMBER];
    int worst;

    if (mics_choice_world_size(&plan->choice) == 1) {
        mics_format_time(predicted->step_s, step, sizeof step);
        if (plan->choice.offload_piece == 0)
            append(text, " A step of %s is computation only.", step);
        else
            append_exchange(text,
                            mics_choice_updates_on_host(&plan->choice)
                                ? "Copies of gradients and parameters to the host and back"
                                : "Copies of optimizer states and their updates",
                            plan->classes.busy_s[MICS_CLASS_OFFLOAD],
                            plan->classes.exposed_s[MICS_CLASS_OFFLOAD], predicted->step_s);
        return;
    }
    worst = find_costliest(plan);
    if (worst < 0)
        append_exchange(text, "Exchanges", predicted->comm_s, predicted->exposed_s,
                        predicted->step_s);
    else
        append_exchange(text, exchanges[worst].words,
                        plan->classes.busy_s[exchanges[worst].op_class],
                        plan->classes.exposed_s[exchanges[worst].op_class], predicted->step_s);
}

/* What is left of the second hop, on average over the steps of its interval. */
static void append_interval(struct text *text, const struct mics_plan *plan)
{
    const struct mics_class_times *times = &plan->classes;
    const double exposed_s =
        times->exposed_s[MICS_CLASS_SYNC_NET] + times->exposed_s[MICS_CLASS_SYNC_NODE];
    char exposed[NUMBER];

    if (mics_choice_interval(&plan->choice) == 1)
        return;
    mics_format_time(exposed_s, exposed, sizeof exposed);
    append(
        text,
        " Units take turns with the second hop, each in every %u steps; what a step waits for it "
        "is %s.",
        plan->choice.sync_interval, exposed);
}

/* Bytes that the update of all units of a rank reads and writes in host memory. */
static double host_update_bytes(const struct mics_plan *plan)
{
    uint64_t elements = 0;

    for (uint32_t u = 0; u < plan->model->unit_count; u++) {
        const struct mics_layout layout = mics_choice_layout(plan->model, &plan->choice, u);

        elements += mics_layout_optim_shard(&layout);
    }
    return (double)elements * mics_host_update_bytes(&plan->choice);
}

static void append_host_update(struct text *text, const struct mics_plan *plan)
{
    const double rate = mics_host_update_rate(plan->topology);
    char seconds[NUMBER];

    mics_format_time(host_update_bytes(plan) / rate, seconds, sizeof seconds);
    append(text,
           ". The host's processors update them in %s, in which nothing else runs, with %.3g GB/s "
           "of the host's memory for each rank (%s)",
           seconds, rate / 1e9, mics_host_update_source(plan->topology));
}

/* What leaving the device costs, and why it was needed. */
static void append_offload(struct text *text, const struct mics_plan *plan)
{
    struct mics_plan_choice choice = plan->choice;
    const double without_s = plan->on_device_step_s, step_s = plan->predicted.step_s;
    struct mics_memory memory;
    struct mics_err err;
    char size[NUMBER], without[NUMBER], more[NUMBER];

    if (choice.offload_piece == 0)
        return;
    mics_format_bytes(plan->memory.offload_bytes, size, sizeof size);
    append(text,
           mics_choice_updates_on_host(&plan->choice)
               ? " The optimizer's states and gradients are in host memory, %s per rank"
               : " The optimizer's states are in host memory, %s per rank",
           size);
    if (without_s > 0) {
        mics_format_time(without_s, without, sizeof without);
        if (step_s < 2 * without_s)
            append(text, ", which makes a step %.2g %% longer than with them on the device, %s",
                   fmax(0, 100 * (step_s / without_s - 1)), without);
        else
            append(text, ", which makes a step %.3g times as long as with them on the device, %s",
                   step_s / without_s, without);
    }
    choice.offload_piece = 0;
    if (mics_memory_compute_on(plan->topology, plan->model, &choice, &memory, &err) == MICS_OK) {
        const uint64_t bytes = mics_memory_total(&memory, plan->topology);

        mics_format_bytes(bytes > plan->memory_limit ? bytes - plan->memory_limit
                                                     : plan->memory_limit - bytes,
                          more, sizeof more);
        append(text,
               bytes > plan->memory_limit ? "; there they would need %s more than the limit"
                                          : "; there they would fit, and leave %s of the limit",
               more);
    }
    if (mics_choice_updates_on_host(&plan->choice))
        append_host_update(text, plan);
    const char *const from = mics_topology_host_copy_source(plan->topology, false);
    const char *const to = mics_topology_host_copy_source(plan->topology, true);
    const bool same = strcmp(from, to) == 0;

    append(text, ". Copies run at %.3g GB/s from the host%s%s%s and %.3g GB/s to it (%s).",
           mics_topology_host_copy_rate(plan->topology, false) / 1e9, same ? "" : " (",
           same ? "" : from, same ? "" : ")",
           mics_topology_host_copy_rate(plan->topology, true) / 1e9, to);
}

/* What --sync-dtype=auto found. */
static void append_formats(struct text *text, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;
    const uint32_t units = plan->model->unit_count, blocks = units - choice->sync_exact_units;
    char exact[NUMBER];

    if (plan->exact_step_s <= 0)
        return;
    if (!mics_choice_compresses_sync(choice)) {
        append(text, " The second hop is exact: blocks of int8 or int4 would make a step less than "
                     "0.5 %% faster.");
        return;
    }
    mics_format_time(plan->exact_step_s, exact, sizeof exact);
    append(text, " With an exact second hop a step would take %s; ", exact);
    if (blocks == units)
        append(text, "that of all units is in blocks of %s.", mics_dtype_name(choice->sync_dtype));
    else
        append(text, "that of the first %u of %u units, which ends last, is in blocks of %s.",
               blocks, units, mics_dtype_name(choice->sync_dtype));
}

static bool has_own_groups(const struct mics_plan_choice *choice)
{
    return mics_choice_groups(choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT;
}

/* Experts: how many rows they have, and whether groups of their own pay. */
static void append_experts(struct text *text, const struct mics_plan *plan)
{
    const struct mics_model_config *config = &plan->model->config;
    const bool own = has_own_groups(&plan->choice);
    const struct mics_alternative *other = NULL;

    if (config->n_expert == 0)
        return;
    append(text, " An expert has %.0f rows of a micro-step on average.",
           (double)plan->choice.micro_batch * plan->choice.seq * config->n_expert_used /
               config->n_expert);
    /* Alternatives have gathered experts, and say nothing of the groups of resident ones. */
    for (uint32_t i = 0; i < plan->alternative_count && !(own && plan->choice.dispatches); i++) {
        const struct mics_alternative *each = &plan->alternatives[i];

        if (each->fits && has_own_groups(&each->choice) != own &&
            (!other || each->predicted.step_s < other->predicted.step_s))
            other = each;
    }
    if (own)
        append(text, " Experts are sharded over %u ranks, all else over %u",
               plan->choice.shapes[MICS_UNIT_EXPERT].p_param,
               plan->choice.shapes[MICS_UNIT_DENSE].p_param);
    if (other && other->predicted.step_s > 0) {
        if (own)
            append(text, "; with the same groups for both a step would ");
        else
            append(text, " With experts sharded over %u ranks and all else over %u a step would ",
                   other->choice.shapes[MICS_UNIT_EXPERT].p_param,
                   other->choice.shapes[MICS_UNIT_DENSE].p_param);
        append_slower(text, plan, other);
    }
    if (own || (other && other->predicted.step_s > 0))
        append(text, ".");
}

static double two_digits(double count)
{
    const double unit = pow(10, floor(log10(count)) - 1);

    return unit >= 1 ? round(count / unit) * unit : round(count);
}

/* What an uneven router costs resident experts. */
static void append_loads(struct text *text, const struct mics_expert_ways *ways)
{
    char even[NUMBER], worst[NUMBER];

    if (ways->load <= 0)
        return;
    mics_format_time(ways->even_step_s, even, sizeof even);
    mics_format_time(ways->worst_step_s, worst, sizeof worst);
    append(text,
           " That is for a busiest rank with %.3g times the mean rows. With resident experts a "
           "step takes %s if all have as many, and %s at the most, %.3g times the mean: ",
           ways->load, even, worst, ways->worst_load);
    if (ways->crossing_load <= 0)
        append(text, "gathered ones are faster at any load.");
    else if (ways->crossing_load >= ways->worst_load)
        append(text, "they are faster at any load.");
    else
        append(text, "they are faster up to a load of %.2g.", ways->crossing_load);
}

/* What --experts found. Exchanges of parameters take as long however many tokens a rank has; those
 * of tokens grow with them. */
static void append_expert_ways(struct text *text, const struct mics_plan *plan)
{
    const struct mics_expert_ways *ways = &plan->experts;
    const bool resident = plan->choice.dispatches;
    const double tokens = (double)plan->choice.micro_batch * plan->choice.seq;
    char other[NUMBER], gathered[NUMBER], sent[NUMBER], crossing[NUMBER];

    if (ways->gathered_step_s <= 0)
        return;
    mics_format_time(resident ? ways->gathered_step_s : ways->resident_step_s, other, sizeof other);
    append(text, " Experts are %s; with %s ones a step would take %s.",
           resident ? "resident" : "gathered", resident ? "gathered" : "resident", other);
    if (ways->gathered_s <= 0 || ways->resident_s <= 0) {
        append_loads(text, ways);
        return;
    }
    mics_format_time(ways->gathered_s, gathered, sizeof gathered);
    mics_format_time(ways->resident_s, sent, sizeof sent);
    mics_format_count(two_digits(tokens * ways->gathered_s / ways->resident_s), crossing,
                      sizeof crossing);
    append(text,
           " A step gathers and reduces gathered experts for %s, and sends tokens to resident ones "
           "for %s: below about %s tokens per rank and micro-step sending takes less time.",
           gathered, sent, crossing);
    append_loads(text, ways);
}

char *mics_plan_reasons(const struct mics_plan *plan, char text[MICS_PLAN_REASONS_BYTES])
{
    struct text out = {.at = text, .size = MICS_PLAN_REASONS_BYTES};

    text[0] = '\0';
    append_shards(&out, plan);
    append_communication(&out, plan);
    append_offload(&out, plan);
    append_interval(&out, plan);
    append_formats(&out, plan);
    append_experts(&out, plan);
    append_expert_ways(&out, plan);
    return text;
}
