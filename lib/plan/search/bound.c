/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound.c - a lower bound of the period of the steps, in closed form.
 *
 * The step is divided into parts that follow each other in time: from the norm of the gradients
 * (without clipping: from the last update) to the first head; from each head to the next; from the
 * last head to the norm. A part takes at least as long as
 *   - its computation, which one stream does in order;
 *   - what cannot leave it of each link and stream: gathers into slots that a computation of the
 *     part frees and another reads, reductions of slots that are written again, at the end all;
 *   - the use of slots: a slot is gathered into or read by one operation at a time;
 *   - chains: the last unit's gradients are reduced, synchronised, and in the norm before an
 *     update.
 * The whole step takes at least the load of each resource. Exchanges of different streams share
 * links in the simulation, which adds nothing to their loads. What exchanges take of the speed of
 * computation is lost unless computation waits, so that a part takes at least its computation and
 * what is lost; delays of communication by computation only prolong a step. A step is at least the
 * intervals between the last gradient and the next forward, the computation outside of them, and
 * what exchanges take outside: of all that they take, not more than can run in those intervals, in
 * which there are only reductions, and then only gathers.
 */
#include "base/num.h"
#include "plan/search/bound_times.h"
#include "plan/trainer_exchanges.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

/* What a step consists of. */
struct parts {
    const struct mics_bounds *bounds;
    const struct mics_plan_choice *choice;
    const struct mics_pass_times *passes; /* [2] */
    const struct mics_exchange_times *times;
    const uint32_t *gathers;        /* by window and class; NULL: parameters are not gathered */
    const uint32_t *gathers_of_two; /* of two micro-steps, where there are more than three */
    uint32_t param_slots, grad_slots;
    struct unit_times first; /* the unit of stage 0 */
    double first_gather;     /* until its gather is complete */
    double start;            /* until it is published and gathered, segment by segment */
    double last_segment;     /* until its gather is complete when it is published */
    double last_reduction;   /* from its last gradient until its gradients are synchronised */
};

/* Loads of one part, and the time for which its slots are in use, by exchanges. */
struct content {
    struct load load;
    double param_slots, grad_slots;
    double resident_chain; /* of reductions of resident units */
};

static void add_load(struct load *total, const struct load *load, double times)
{
    for (int i = 0; i < RESOURCE_COUNT; i++)
        total->seconds[i] += times * load->seconds[i];
    total->lost += times * load->lost;
    total->node_latency += times * load->node_latency;
    total->net_latency += times * load->net_latency;
}

static void add_gathers(const struct parts *parts, enum gather_window window,
                        struct content *content)
{
    const struct mics_bounds *bounds = parts->bounds;

    for (uint32_t c = 0; c < bounds->class_count && parts->gathers; c++) {
        const double count = parts->gathers[window * bounds->class_count + c];
        const struct unit_times *unit = &parts->times->units[c];

        /* Updates precede all of the first gathers. */
        add_load(&content->load, window == WINDOW_FIRST ? &unit->gather_load : &unit->slot_load,
                 count);
        if (!bounds->classes[c].resident)
            content->param_slots += count * unit->slot_chain;
    }
}

static void add_reduce(const struct parts *parts, uint32_t c, double count, bool later,
                       struct content *content)
{
    const struct unit_times *unit = &parts->times->units[c];

    add_load(&content->load, &unit->reduce_load, count);
    content->load.seconds[parts->times->accumulate] += count * unit->accumulate[later];
    if (!parts->bounds->classes[c].resident)
        content->grad_slots += count * (unit->reduce.chain + unit->accumulate[later]);
    else
        content->resident_chain =
            fmax(content->resident_chain, (unit->reduce.chain + unit->accumulate[later]));
}

/* The first `count` units whose gradients a micro-step completes, resident ones apart. */
static void add_first_reduces(const struct parts *parts, uint32_t count, bool later,
                              struct content *content)
{
    const uint32_t classes = parts->bounds->class_count;
    const uint32_t *counts =
        parts->bounds->reduced + (size_t)mics_min_u64(count, parts->bounds->rotating) * classes;

    for (uint32_t c = 0; c < classes && parts->choice->shapes[MICS_UNIT_DENSE].p_grad > 1; c++)
        add_reduce(parts, c, counts[c], later, content);
}

static void add_resident_reduces(const struct parts *parts, bool later, struct content *content)
{
    for (uint32_t c = 0;
         c < parts->bounds->class_count && parts->choice->shapes[MICS_UNIT_DENSE].p_grad > 1; c++)
        if (parts->bounds->classes[c].resident)
            add_reduce(parts, c, parts->bounds->classes[c].count, later, content);
}

/* What these exchanges take of the computation, at least, unless it waits. */
static double lost_seconds(const struct mics_exchange_times *times, const struct load *load)
{
    return fmax(times->counted * load->lost, times->counted_of_transfers * load->lost -
                                                 times->node_excess * load->node_latency -
                                                 times->net_excess * load->net_latency);
}

static double busiest(const struct load *load)
{
    double most = 0;

    for (int i = 0; i < RESOURCE_COUNT; i++)
        most = fmax(most, load->seconds[i]);
    return most;
}

/* The least time of a part with `compute` seconds of computation, of which some occupy slots. */
static double part_seconds(const struct parts *parts, const struct content *content, double compute,
                           double in_param_slots, double in_grad_slots)
{
    const double lost = lost_seconds(parts->times, &content->load);
    double seconds = fmax(compute + lost, busiest(&content->load));

    if (parts->gathers && parts->param_slots > 0)
        seconds = fmax(seconds, (content->param_slots + in_param_slots) / parts->param_slots);
    if (parts->choice->shapes[MICS_UNIT_DENSE].p_grad > 1 && parts->grad_slots > 0)
        seconds = fmax(seconds, (content->grad_slots + in_grad_slots) / parts->grad_slots);
    return seconds;
}

/* From the norm, or without clipping from the last update, which is that of stage 0's unit, to the
 * first forward. */
static double start_seconds(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    double updates = 0;

    if (!parts->choice->clip)
        return parts->start;
    for (uint32_t c = 0; c < bounds->class_count; c++)
        updates += bounds->classes[c].count * parts->times->units[c].update;
    return fmax(parts->first.update + parts->start, updates);
}

/* From the same to the first head. Gathers follow each other in their streams, after that of stage
 * 0's unit, which its update precedes. */
static double first_part(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    const struct mics_pass_times *pass = &parts->passes[0];
    struct content content = {.resident_chain = 0};

    add_gathers(parts, WINDOW_FIRST, &content);
    if (!parts->choice->clip)
        add_load(&content.load, &parts->first.publish_load, 1);
    for (uint32_t c = 0; c < bounds->class_count && parts->choice->clip; c++)
        add_load(&content.load, &parts->times->units[c].publish_load, bounds->classes[c].count);
    return fmax(start_seconds(parts) + pass->forward,
                part_seconds(parts, &content, pass->forward, pass->forward_params, 0));
}

/* From one head to the next. A rotating gradient slot is written again `grad_slots` units later, a
 * resident one by the next head. */
static double between_heads(const struct parts *parts, bool later)
{
    const struct mics_model *model = parts->bounds->model;
    const struct mics_pass_times *pass = &parts->passes[later], *next = &parts->passes[1];
    const enum gather_window windows = later ? WINDOW_LATER_BACKWARD : WINDOW_BACKWARD;
    const uint32_t rotating = parts->bounds->rotating;
    const uint32_t reduced = rotating > parts->grad_slots ? rotating - parts->grad_slots : 0;
    const bool head_rotates = !model->units[model->stages[model->stage_count - 1].unit].resident;
    struct content backward = {.resident_chain = 0}, forward = backward, all = backward;
    double apart, together;

    add_gathers(parts, windows, &backward);
    add_gathers(parts, windows + 1, &forward);
    add_gathers(parts, windows + 2, &all);
    if (!parts->choice->whole_grads) {
        add_first_reduces(parts, reduced, later, &backward);
        add_resident_reduces(parts, later, &forward);
        add_first_reduces(parts, reduced + (head_rotates && rotating >= parts->grad_slots), later,
                          &all);
        add_resident_reduces(parts, later, &all);
    }
    apart = part_seconds(parts, &backward, pass->backward, pass->backward_params,
                         pass->backward_grads) +
            pass->last +
            fmax(forward.resident_chain,
                 part_seconds(parts, &forward, next->forward, next->forward_params, 0));
    together = part_seconds(parts, &all, pass->backward + pass->last + next->forward,
                            pass->backward_params + next->forward_params, pass->backward_grads);
    return fmax(apart, together);
}

/* From the last head until all gradients are computed. */
static double last_backward(const struct parts *parts)
{
    const uint32_t rotating = parts->bounds->rotating;
    const bool later = parts->choice->micro_steps > 1;
    const struct mics_pass_times *pass = &parts->passes[later];
    struct content content = {.resident_chain = 0};

    add_gathers(parts, WINDOW_LAST, &content);
    add_first_reduces(parts, rotating > parts->grad_slots ? rotating - parts->grad_slots : 0, later,
                      &content);
    return part_seconds(parts, &content, pass->backward, pass->backward_params,
                        pass->backward_grads) +
           pass->last;
}

/* The optimizer's computation between the last gradient and the unit of stage 0. */
static double other_norms(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    double seconds = 0;

    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const struct unit_times *unit = &parts->times->units[c];

        seconds +=
            bounds->classes[c].count * (unit->norm + (parts->choice->clip ? 0 : unit->update));
    }
    return seconds - parts->first.norm - (parts->choice->clip ? 0 : parts->first.update);
}

/* The norm of the unit of stage 0 and of all, and without clipping its update. */
static double last_norm(const struct parts *parts)
{
    return parts->first.norm +
           (parts->choice->clip ? parts->times->norm_reduce : parts->first.update);
}

/* From the last gradient to the norm, and without clipping to the last update. */
static double tail_seconds(const struct parts *parts)
{
    return fmax(other_norms(parts), parts->last_reduction) + last_norm(parts);
}

/* From the last head to the same. */
static double last_part(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    const bool later = parts->choice->micro_steps > 1;
    const struct mics_pass_times *pass = &parts->passes[later];
    const double compute = pass->backward + pass->last + other_norms(parts);
    struct content content = {.resident_chain = 0};

    add_gathers(parts, WINDOW_LAST, &content);
    add_first_reduces(parts, bounds->rotating, later, &content);
    add_resident_reduces(parts, later, &content);
    for (uint32_t c = 0; c < bounds->class_count; c++)
        add_load(&content.load, &parts->times->units[c].second_hop_load, bounds->classes[c].count);
    return fmax(last_norm(parts) + part_seconds(parts, &content, compute, pass->backward_params,
                                                pass->backward_grads),
                last_backward(parts) + tail_seconds(parts));
}

/* Without clipping, from the last head to the first: units are updated, and published, in the order
 * of the last backward, so that the unit that the next step needs first comes last, and all
 * exchanges of gradients and updated parameters precede the first forward. */
static double unclipped_turn(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    const bool later = parts->choice->micro_steps > 1;
    struct content content = {.resident_chain = 0};
    struct load publish = {.lost = 0};
    double optimizer = 0, least = INFINITY, compute;

    add_gathers(parts, WINDOW_LAST, &content);
    add_first_reduces(parts, bounds->rotating, later, &content);
    add_resident_reduces(parts, later, &content);
    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const struct unit_times *unit = &parts->times->units[c];
        const double count = bounds->classes[c].count;

        optimizer += count * (unit->norm + unit->update);
        least =
            mics_choice_interval(parts->choice) > 1 ? 0 : fmin(least, unit->norm + unit->update);
        add_load(&publish, &unit->publish_load, count);
        add_load(&content.load, &unit->second_hop_load, count);
        add_load(&content.load, &unit->publish_load, count);
    }
    compute = last_backward(parts) +
              fmax(optimizer + parts->start, least + busiest(&publish) + parts->last_segment);
    return fmax(compute, busiest(&content.load) + parts->last_segment) + parts->passes[0].forward;
}

/* All forward and backward computation of a step. */
static double passes_seconds(const struct parts *parts)
{
    double seconds = 0;

    for (int later = 0; later < 2; later++) {
        const struct mics_pass_times *pass = &parts->passes[later];

        seconds += (later ? parts->choice->micro_steps - 1 : 1) *
                   (pass->forward + pass->head + pass->backward + pass->last);
    }
    return seconds;
}

static double optimizer_seconds(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    double seconds = 0;

    for (uint32_t c = 0; c < bounds->class_count; c++)
        seconds += bounds->classes[c].count *
                   (parts->times->units[c].norm + parts->times->units[c].update);
    return seconds;
}

/* Gathers of a step of more than three micro-steps, all but the first of which are alike. */
static double gather_count(const struct parts *parts, uint32_t c)
{
    const uint32_t steps = parts->choice->micro_steps;
    const double three = parts->gathers[WINDOW_STEP * parts->bounds->class_count + c];

    if (steps <= 3)
        return three;
    return three +
           (steps - 3) *
               (three - parts->gathers_of_two[WINDOW_STEP * parts->bounds->class_count + c]);
}

/* All loads of a step. */
static struct load step_load(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    const double steps = parts->choice->micro_steps;
    const bool whole = parts->choice->whole_grads; /* reduced in the last micro-step only */
    struct load load = parts->times->scalars;

    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const struct unit_times *unit = &parts->times->units[c];
        const double count = bounds->classes[c].count;

        if (parts->gathers) {
            const double first = parts->choice->secondary_shards ? count : 0;

            add_load(&load, &unit->first_gather_load, first);
            add_load(&load, &unit->gather_load, gather_count(parts, c) - first);
        }
        add_load(&load, &unit->reduce_load, whole ? count : steps * count);
        load.seconds[parts->times->accumulate] +=
            count * ((whole && steps > 1 ? 0 : unit->accumulate[0]) +
                     (whole && steps > 1 ? 1 : steps - 1) * unit->accumulate[1]);
        add_load(&load, &unit->second_hop_load, count);
        add_load(&load, &unit->publish_load, count);
    }
    return load;
}

/* Least times: from the last gradient to the first forward and to the first head, and from the last
 * head to both. */
struct turn {
    double gradient_to_forward, gradient_to_head, head_to_forward, head_to_head;
};

static struct turn time_turn(const struct parts *parts)
{
    const double tail = tail_seconds(parts), last = last_part(parts);
    const double start = start_seconds(parts), first = first_part(parts);
    struct turn turn = {tail + start, tail + first, last + start, last + first};

    /* States in host memory are updated on another stream, without clipping before the backward
     * pass has ended. */
    if (!parts->choice->clip && parts->choice->offload_piece == 0)
        turn.head_to_head = fmax(turn.head_to_head, unclipped_turn(parts));
    return turn;
}

/* What is left of an interval when exchanges take `lost` seconds of computation, or the most that
 * they can. */
static double seconds_left(double seconds, double lost)
{
    return seconds - fmin(lost, (1 - MICS_LEAST_COMPUTE_SPEED) * seconds);
}

/* What reductions inside nodes can take after the last gradient but one: no more units than have
 * slots, and the last one, are not reduced yet. INFINITY: second exchanges are on that stream. */
static double most_lost_to_reductions(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    double rotating = 0, resident = 0;

    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const struct unit_times *unit = &parts->times->units[c];

        if (unit->second_hop_load.seconds[REDUCE_NODE_STREAM] > 0)
            return INFINITY;
        if (bounds->classes[c].resident)
            resident += bounds->classes[c].count * unit->most_lost_to_reduce;
        else
            rotating = fmax(rotating, unit->most_lost_to_reduce);
    }
    return resident + (parts->grad_slots + 1) * rotating;
}

/* With clipping, nothing but reductions runs from the last gradients to the norm. */
static double left_of_tail(const struct parts *parts, double seconds)
{
    const double *most = parts->times->most_lost;

    return seconds_left(seconds,
                        most[REDUCE_NET_STREAM] * seconds + fmin(most[REDUCE_NODE_STREAM] * seconds,
                                                                 most_lost_to_reductions(parts)));
}

/* From the gradients of the second unit to the norm: the streams take what is left of the units of
 * the first two stages one by one. */
static double longer_tail(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    const bool later = parts->choice->micro_steps > 1;
    const uint32_t *counts = bounds->leading + (size_t)2 * bounds->class_count;
    struct content content = {.resident_chain = 0};
    double first_hop = INFINITY;

    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const struct unit_times *unit = &parts->times->units[c];

        if (counts[c] == 0)
            continue;
        if (parts->choice->shapes[MICS_UNIT_DENSE].p_grad > 1)
            add_reduce(parts, c, counts[c], later, &content);
        add_load(&content.load, &unit->second_hop_load, counts[c]);
        first_hop =
            fmin(first_hop,
                 unit->reduce_load.seconds[REDUCE_NODE_STREAM] > 0 ? unit->reduce.least[0] : 0);
    }
    return fmax(first_hop + content.load.seconds[REDUCE_NET_STREAM],
                content.load.seconds[REDUCE_NODE_STREAM]) +
           last_norm(parts);
}

/* Has the stage after the first, which is not the head, another unit? */
static bool has_second_unit(const struct mics_model *model)
{
    return model->stage_count > 2 && model->stages[1].unit != MICS_NO_UNIT &&
           model->stages[1].unit != model->stages[0].unit;
}

/* By how much the time from the last gradient to the norm, and what precedes it, exceeds their
 * computation and what exchanges take of it. */
static double tail_pause(const struct parts *parts)
{
    const struct mics_model *model = parts->bounds->model;
    const struct mics_pass_times *pass = &parts->passes[parts->choice->micro_steps > 1];
    const double tail = left_of_tail(parts, tail_seconds(parts));

    if (!has_second_unit(model) || model->stages[0].backward_needs_params ||
        mics_trainer_exchanges(parts->choice->trainer)->releases)
        return tail;
    return fmax(tail, left_of_tail(parts, longer_tail(parts)) - pass->last);
}

/* With clipping, only gathers of updated parameters run from the norm to the first head, and those
 * inside nodes follow the exchange of the same segment between nodes, if there is one. */
static double left_of_start(const struct parts *parts, double seconds)
{
    const struct mics_bounds *bounds = parts->bounds;
    const double *most = parts->times->most_lost;
    double node = 0;

    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const struct unit_times *unit = &parts->times->units[c];
        const double net = unit->gather_load.seconds[GATHER_NET_STREAM] +
                           unit->publish_load.seconds[GATHER_NET_STREAM];

        node = fmax(node, net > 0 && unit->publish_load.seconds[GATHER_NODE_STREAM] == 0
                              ? unit->most_lost_to_gather / net
                              : most[GATHER_NODE_STREAM]);
    }
    return seconds_left(
        seconds, parts->times->scalars.lost +
                     (fmin(node, most[GATHER_NODE_STREAM]) + most[GATHER_NET_STREAM]) * seconds);
}

/* From the norm to the forward of the second stage: its unit is published and gathered after that
 * of the first. */
static double longer_start(const struct parts *parts)
{
    const struct mics_bounds *bounds = parts->bounds;
    const uint32_t *counts = bounds->leading + (size_t)2 * bounds->class_count;
    const struct unit_times *second =
        &parts->times->units[bounds->class_of[bounds->model->stages[1].unit]];
    struct load load = {.lost = 0};

    for (uint32_t c = 0; c < bounds->class_count; c++) {
        add_load(&load, &parts->times->units[c].publish_load, counts[c]);
        if (parts->gathers)
            add_load(&load, &parts->times->units[c].gather_load, counts[c]);
    }
    if (parts->gathers && second->gather_load.seconds[GATHER_NODE_STREAM] > 0 &&
        load.seconds[GATHER_NET_STREAM] > 0)
        load.seconds[GATHER_NET_STREAM] +=
            second->gather.least[second->gather_load.seconds[GATHER_NET_STREAM] > 0];
    return parts->first.update +
           fmax(load.seconds[GATHER_NET_STREAM], load.seconds[GATHER_NODE_STREAM]);
}

/* The same of the time from the norm to the first forward, and to the second. */
static double start_pause(const struct parts *parts)
{
    const struct mics_model *model = parts->bounds->model;
    const double start = left_of_start(parts, start_seconds(parts));

    if (!has_second_unit(model))
        return start;
    return fmax(start, left_of_start(parts, longer_start(parts)) - parts->passes[0].first_forward);
}

/* All computation and all loads of a step. */
static double least_seconds(const struct parts *parts)
{
    const struct load load = step_load(parts);

    return fmax(passes_seconds(parts) + optimizer_seconds(parts) +
                    lost_seconds(parts->times, &load),
                busiest(&load));
}

/* All computation and loads of a step. In an interval of I seconds exchanges take no more than a
 * part of I. What else they take is lost outside: a step takes the rest of I, the computation
 * outside, and all that is lost. */
static double whole_seconds(const struct parts *parts, const struct turn *turn)
{
    const struct load load = step_load(parts);
    const struct mics_pass_times *first = &parts->passes[0];
    const struct mics_pass_times *last = &parts->passes[parts->choice->micro_steps > 1];
    const double lost = lost_seconds(parts->times, &load), passes = passes_seconds(parts);
    const double backward = last->backward + last->last;
    const double rest = 1 - parts->times->most_lost_at_once;
    double seconds = least_seconds(parts);

    seconds = fmax(seconds, passes + lost + rest * turn->gradient_to_forward);
    seconds = fmax(seconds, passes - first->forward + lost + rest * turn->gradient_to_head);
    seconds = fmax(seconds, passes - backward + lost + rest * turn->head_to_forward);
    seconds = fmax(seconds, passes - backward - first->forward + lost + rest * turn->head_to_head);
    /* The pauses of steps that differ have no mean that could be had from means. */
    if (parts->choice->clip && parts->bounds->model->stage_count > 1 &&
        mics_choice_interval(parts->choice) == 1)
        seconds = fmax(seconds, passes + lost + tail_pause(parts) + start_pause(parts));
    return seconds;
}

/* Seconds of one segment of each hop, of `count` units together: those of the first stages, of
 * which the first is the unit of stage 0. */
static void add_hops(const struct parts *parts, uint32_t count, size_t exchange, double hops[2])
{
    const struct mics_bounds *bounds = parts->bounds;
    const uint32_t *counts = bounds->leading + (size_t)count * bounds->class_count;

    hops[0] = hops[1] = 0;
    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const struct exchange_times *times =
            (const void *)((const char *)&parts->times->units[c] + exchange);

        hops[0] += counts[c] * times->hops[0];
        hops[1] += counts[c] * times->hops[1];
    }
}

/* Two hops take the segments of a set one by one. */
static double pipeline_seconds(const struct parts *parts, double first, double second)
{
    const double segments = parts->times->segments > 0 ? parts->times->segments : 1;

    return first + second + (segments - 1) * fmax(first, second);
}

static double set_seconds(const struct parts *parts, uint32_t count, size_t exchange,
                          const struct exchange_times *first)
{
    double hops[2];

    add_hops(parts, count, exchange, hops);
    return fmax(pipeline_seconds(parts, hops[0], hops[1]), first->chain);
}

/* Are the second hops of units coalesced? With an interval the units of a set have different turns.
 */
static bool coalesces_sync(const struct mics_plan_choice *choice)
{
    return choice->grad_dtype == MICS_F32 && !mics_choice_compresses_sync(choice) &&
           mics_choice_interval(choice) == 1;
}

/* From the last gradients, of `reduced` units together, until they are synchronised. A stream that
 * scatters and synchronises first scatters all of a set. Of gradients that are not cut, all but the
 * last unit's may be scattered before; with an interval also synchronised. */
static double second_hop_seconds(const struct parts *parts, uint32_t reduced)
{
    const bool cut_grads = parts->choice->shapes[MICS_UNIT_DENSE].p_grad > 1;
    const bool coalesces = coalesces_sync(parts->choice);
    const uint32_t scattered = cut_grads || coalesces ? reduced : 1;
    const double segments = parts->times->segments > 0 ? parts->times->segments : 1;
    double scatter[2], last[2], all[2];

    if (!cut_grads && mics_choice_interval(parts->choice) > 1)
        reduced = 1;
    add_hops(parts, scattered, offsetof(struct unit_times, scatter), scatter);
    add_hops(parts, reduced, offsetof(struct unit_times, sync), all);
    add_hops(parts, coalesces ? reduced : 1, offsetof(struct unit_times, sync), last);
    if (parts->times->one_second_stream)
        return segments * (scatter[0] + all[0]);
    return fmax(pipeline_seconds(parts, scatter[0], last[0]), cut_grads ? segments * all[0] : 0);
}

/* Units are coalesced with those of stage 0: the first set to be gathered, and the set of the last
 * gradients, which is what remains of the units. Coalesced, they complete together; after that each
 * stream takes what follows unit by unit, that of stage 0 last. */
static void time_sets(struct parts *parts)
{
    const struct mics_plan_choice *choice = parts->choice;
    const bool later = choice->micro_steps > 1,
               cut_grads = choice->shapes[MICS_UNIT_DENSE].p_grad > 1;
    const uint32_t units = parts->bounds->model->unit_count, classes = parts->bounds->class_count;
    uint32_t gathered = (uint32_t)mics_min_u64(choice->coalesce, units), reduced = gathered;
    double accumulate = 0, first_accumulate = INFINITY;

    if (parts->gathers)
        gathered = (uint32_t)mics_max_u64(1, mics_min_u64(gathered, parts->param_slots));
    if (cut_grads)
        reduced = (uint32_t)mics_max_u64(1, mics_min_u64(reduced, parts->grad_slots));
    reduced = (units - 1) % reduced + 1;
    if (mics_dtype_is_blocks(choice->gather_dtype))
        gathered = 1; /* not coalesced where they are converted */
    if (parts->times->segments == 0)
        gathered = reduced = 1;
    for (uint32_t c = 0; c < classes; c++) {
        const uint32_t count = parts->bounds->leading[(size_t)reduced * classes + c];

        accumulate += count * parts->times->units[c].accumulate[later];
        if (count > 0)
            first_accumulate = fmin(first_accumulate, parts->times->units[c].accumulate[later]);
    }
    parts->first_gather =
        set_seconds(parts, gathered, offsetof(struct unit_times, gather), &parts->first.gather);
    if (!parts->gathers)
        parts->first_gather = 0;
    const double segments = parts->times->segments > 0 ? parts->times->segments : 64;
    const double gather_segment = parts->first_gather / segments;
    const double publish_segment = parts->first.publish.chain / segments;
    parts->start =
        fmax(parts->first.publish.chain + gather_segment, publish_segment + parts->first_gather);
    parts->last_segment = parts->first.publish.chain > 0 ? gather_segment : parts->first_gather;
    /* Coalesced, the second exchange waits until all are accumulated; else it goes unit by unit. */
    parts->last_reduction =
        set_seconds(parts, reduced, offsetof(struct unit_times, reduce), &parts->first.reduce) +
        (coalesces_sync(choice) ? accumulate + second_hop_seconds(parts, reduced)
                                : fmax(accumulate + second_hop_seconds(parts, 1),
                                       first_accumulate + second_hop_seconds(parts, reduced)));
}

enum mics_status mics_bounds_step(struct mics_bounds *bounds, const struct mics_plan_choice *choice,
                                  const struct mics_pass_times *passes,
                                  const struct mics_exchange_times *times, double *out,
                                  struct mics_err *err)
{
    const uint32_t steps = choice->micro_steps;
    struct parts parts = {
        .bounds = bounds,
        .choice = choice,
        .passes = passes,
        .times = times,
        .param_slots = (uint32_t)mics_min_u64(mics_choice_param_slots(choice), bounds->rotating),
        .grad_slots = (uint32_t)mics_min_u64(choice->grad_slots, bounds->rotating),
        .first = times->units[bounds->class_of[bounds->model->stages[0].unit]],
    };
    struct turn turn;
    double seconds;

    if (choice->shapes[MICS_UNIT_DENSE].p_param > 1) {
        parts.gathers = mics_bounds_gathers(bounds, choice->trainer, parts.param_slots, steps);
        parts.gathers_of_two = mics_bounds_gathers(bounds, choice->trainer, parts.param_slots, 2);
        if (!parts.gathers || !parts.gathers_of_two)
            return mics_err_nomem(err);
    }
    /* Of gathers of two kinds only the sum of a step is counted. */
    if (choice->secondary_shards) {
        *out = least_seconds(&parts);
        return MICS_OK;
    }
    time_sets(&parts);
    if (bounds->model->stage_count > 1)
        turn = time_turn(&parts);
    else
        turn = (struct turn){0};
    seconds = whole_seconds(&parts, &turn);
    if (bounds->model->stage_count > 1) {
        double sum = turn.head_to_head + passes[0].head;

        if (steps > 1)
            sum += between_heads(&parts, false) + passes[1].head;
        if (steps > 2)
            sum += (steps - 2) * (between_heads(&parts, true) + passes[1].head);
        seconds = fmax(seconds, sum);
    }
    *out = fmax(seconds, times->offload);
    return MICS_OK;
}

enum mics_status mics_step_bound(struct mics_op_costs *costs, const struct mics_model *model,
                                 const struct mics_plan_choice *choice, double *out,
                                 struct mics_err *err)
{
    struct mics_bounds *bounds = NULL;
    struct mics_exchange_times *times = NULL;
    const struct mics_pass_times *passes;
    enum mics_status status;

    *out = 0;
    if (choice->sync_exact_units)
        return MICS_OK;
    if (choice->dispatches || mics_choice_uses_groups(model, choice, MICS_UNIT_EXPERT)) {
        if (mics_choice_interval(choice) == 1 && choice->outer_steps == 0)
            *out = choice->micro_steps * (mics_op_costs_micro_step(costs, choice) +
                                          mics_op_costs_dispatch(costs, choice)) +
                   mics_op_costs_updates(costs, choice);
        return MICS_OK;
    }
    status = mics_bounds_new(costs, model, &bounds, err);
    if (status == MICS_OK)
        status = mics_bounds_passes(bounds, choice, &passes, err);
    if (status == MICS_OK)
        status = mics_bounds_exchanges(bounds, choice, &times, err);
    if (status == MICS_OK)
        status = mics_bounds_step(bounds, choice, passes, times, out, err);
    mics_exchange_times_free(times);
    mics_bounds_free(bounds);
    return status;
}
