/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_check.c - compares what was measured of a run with its plan.
 *
 * Medians are taken member by member, so that a step that was disturbed counts no more than others.
 * An assumption is judged by what it adds to a step: computation by its time, exchanges by the part
 * that computation does not hide.
 */
#include "report/plan_check.h"

#include "plan/memory.h"
#include "plan/schedule/timeline.h"
#include "plan/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOTICEABLE 0.02 /* of a step */

/* Drop the first half of the samples. */
static void drop_half(struct mics_step_samples *samples)
{
    const size_t kept = samples->count / 2;

    memmove(samples->items, samples->items + samples->count - kept, kept * sizeof *samples->items);
    samples->count = kept;
}

static enum mics_status append(struct mics_step_samples *samples, size_t limit,
                               const struct mics_step_sample *sample, struct mics_err *err)
{
    /* Only the last repetition of a step counts. */
    while (samples->count > 0 && samples->items[samples->count - 1].step >= sample->step)
        samples->count--;
    if (limit && samples->count == limit)
        drop_half(samples);
    if (samples->count == samples->capacity) {
        const size_t capacity = samples->capacity ? 2 * samples->capacity : 64;
        struct mics_step_sample *grown = realloc(samples->items, capacity * sizeof *grown);

        if (!grown)
            return mics_err_nomem(err);
        samples->items = grown;
        samples->capacity = capacity;
    }
    samples->items[samples->count++] = *sample;
    return MICS_OK;
}

enum mics_status mics_measured_add(struct mics_measured *measured, uint64_t step, double step_s,
                                   const struct mics_class_times *classes, struct mics_err *err)
{
    struct mics_step_sample sample = {.step = step, .times = {.step_s = step_s}};

    if (classes)
        sample.times.classes = *classes;
    return append(classes ? &measured->sampled : &measured->steps, measured->limit, &sample, err);
}

void mics_measured_clear(struct mics_measured *measured)
{
    measured->steps.count = measured->sampled.count = 0;
    measured->comm_bytes = measured->peak_rss_bytes = 0;
    measured->state = "not ended";
}

void mics_measured_fini(struct mics_measured *measured)
{
    free(measured->steps.items);
    free(measured->sampled.items);
    *measured = (struct mics_measured){0};
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median of each member, over items [first, count), at least one. */
static enum mics_status take_medians(const struct mics_step_samples *samples, size_t first,
                                     struct mics_step_times *out, struct mics_err *err)
{
    const size_t count = samples->count - first;
    double *values = malloc(count * sizeof *values);

    if (!values)
        return mics_err_nomem(err);
    for (size_t member = 0; member < sizeof *out / sizeof(double); member++) {
        for (size_t i = 0; i < count; i++)
            values[i] = ((const double *)&samples->items[first + i].times)[member];
        qsort(values, count, sizeof *values, compare);
        ((double *)out)[member] = (values[(count - 1) / 2] + values[count / 2]) / 2;
    }
    free(values);
    return MICS_OK;
}

/* The first step includes the start: connections, first touches of memory. */
static size_t skip_first(const struct mics_step_samples *samples, uint64_t first)
{
    return samples->count > 1 && samples->items[0].step == first;
}

static enum mics_status measure(const struct mics_measured *measured, struct mics_plan_check *check,
                                struct mics_err *err)
{
    const struct mics_step_samples *steps = &measured->steps;
    const size_t skipped = skip_first(steps, steps->items[0].step);
    const size_t skipped_samples = skip_first(&measured->sampled, steps->items[0].step);
    struct mics_step_times all;
    enum mics_status status =
        take_medians(&measured->sampled, skipped_samples, &check->measured, err);

    if (status == MICS_OK)
        status = take_medians(steps, skipped, &all, err);
    if (status != MICS_OK)
        return status;
    check->measured.step_s = all.step_s;
    check->first = steps->items[skipped].step;
    check->last = steps->items[steps->count - 1].step;
    check->samples = measured->sampled.count - skipped_samples;
    check->state = measured->state;
    check->tokens_per_s = (double)check->plan->global_batch * check->plan->choice.seq / all.step_s;
    return MICS_OK;
}

static void compare_memory(const struct mics_measured *measured, struct mics_plan_check *check)
{
    const struct mics_memory *memory = &check->plan->memory;

    if (strcmp(check->plan->topology->device, "host") == 0) {
        check->predicted_bytes = mics_memory_total(memory, check->plan->topology);
        check->memory_bytes = measured->peak_rss_bytes;
    } else {
        check->predicted_bytes = memory->arena_bytes + memory->communicator_bytes;
        check->memory_bytes = memory->arena_bytes + measured->comm_bytes;
    }
}

/* Work of one step on one rank; net_bytes of one node. */
struct work {
    double flops, update_bytes, net_bytes, node_bytes, offload_bytes;
};

static enum mics_status count_work(const struct mics_plan *plan, uint32_t micro_steps,
                                   struct work *out, struct mics_err *err)
{
    struct mics_plan_choice choice = plan->choice;
    struct mics_schedule *schedule = NULL;
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    enum mics_status status;

    choice.micro_steps = micro_steps;
    *out = (struct work){0};
    status = mics_schedule_new(plan->model, &choice, true, &schedule, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];
        const enum mics_op_class op_class = mics_op_class(op);

        if (op_class == MICS_CLASS_FORWARD || op_class == MICS_CLASS_BACKWARD)
            out->flops += op->flops;
        else if (op->kind == MICS_OP_LOAD || op->kind == MICS_OP_STORE)
            out->offload_bytes +=
                (double)op->bytes * mics_op_times(op, schedule) / schedule->interval;
        else if (op_class == MICS_CLASS_UPDATE)
            out->update_bytes +=
                op->memory_bytes * mics_op_times(op, schedule) / schedule->interval;
    }
    mics_schedule_counts(schedule, &choice, 0, calls, sent);
    for (int groups = 0; groups < MICS_UNIT_KIND_COUNT; groups++)
        for (int comm = 0; comm < MICS_COMM_KIND_COUNT; comm++) {
            struct mics_group_position position;

            mics_shape_position(&choice.shapes[groups], (enum mics_comm_kind)comm, 0, &position);
            if (position.nodes > 1)
                out->net_bytes += (double)sent[groups][comm] * position.sharing;
            else
                out->node_bytes += (double)sent[groups][comm];
        }
    out->net_bytes /= schedule->interval;
    out->node_bytes /= schedule->interval;
    mics_schedule_free(schedule);
    return MICS_OK;
}

/* Steps of many micro-steps are extrapolated: those after the second are alike. */
static enum mics_status step_work(const struct mics_plan *plan, struct work *out,
                                  struct mics_err *err)
{
    const uint32_t s = plan->choice.micro_steps;
    struct work shorter;
    enum mics_status status = count_work(plan, s < 3 ? s : 3, out, err);

    if (status != MICS_OK || s <= 3)
        return status;
    status = count_work(plan, 2, &shorter, err);
    if (status != MICS_OK)
        return status;
    out->flops += (s - 3) * (out->flops - shorter.flops);
    out->update_bytes += (s - 3) * (out->update_bytes - shorter.update_bytes);
    out->offload_bytes += (s - 3) * (out->offload_bytes - shorter.offload_bytes);
    out->net_bytes += (s - 3) * (out->net_bytes - shorter.net_bytes);
    out->node_bytes += (s - 3) * (out->node_bytes - shorter.node_bytes);
    return MICS_OK;
}

static double passes_s(const struct mics_class_times *times)
{
    return times->busy_s[MICS_CLASS_FORWARD] + times->busy_s[MICS_CLASS_BACKWARD];
}

/* What is left of a step: nothing runs. */
static double other_s(const struct mics_step_times *times)
{
    const struct mics_class_times *classes = &times->classes;

    return fmax(0, times->step_s - passes_s(classes) - classes->busy_s[MICS_CLASS_UPDATE] -
                       classes->net_exposed_s - classes->node_exposed_s -
                       classes->exposed_s[MICS_CLASS_OFFLOAD] -
                       classes->exposed_s[MICS_CLASS_SCALARS]);
}

/* Rates of the same amount of work in two times. */
static struct mics_assumption_check compare_rates(double work, double predicted_s,
                                                  double measured_s, double added_s)
{
    const bool both = work > 0 && predicted_s > 0 && measured_s > 0;

    return (struct mics_assumption_check){
        .predicted = both ? work / predicted_s : 0,
        .measured = both ? work / measured_s : 0,
        .added_s = added_s,
        .busy_ratio = both ? measured_s / predicted_s : NAN,
    };
}

static struct mics_assumption_check compare_seconds(double predicted_s, double measured_s,
                                                    double added_s)
{
    return (struct mics_assumption_check){
        .predicted = predicted_s,
        .measured = measured_s,
        .added_s = added_s,
        .busy_ratio = predicted_s > 0 ? measured_s / predicted_s : NAN,
    };
}

static enum mics_status compare_assumptions(struct mics_plan_check *check, struct mics_err *err)
{
    const struct mics_class_times *p = &check->predicted.classes, *m = &check->measured.classes;
    const double scalars[] = {p->busy_s[MICS_CLASS_SCALARS], m->busy_s[MICS_CLASS_SCALARS]};
    const double updates[] = {p->busy_s[MICS_CLASS_UPDATE], m->busy_s[MICS_CLASS_UPDATE]};
    const double other[] = {other_s(&check->predicted), other_s(&check->measured)};
    struct mics_assumption_check *out = check->assumptions;
    struct work work;
    enum mics_status status = step_work(check->plan, &work, err);

    if (status != MICS_OK)
        return status;
    out[MICS_ASSUME_COMPUTE] =
        compare_rates(work.flops, passes_s(p), passes_s(m), passes_s(m) - passes_s(p));
    out[MICS_ASSUME_UPDATE] =
        compare_rates(work.update_bytes, updates[0], updates[1], updates[1] - updates[0]);
    out[MICS_ASSUME_NET] =
        compare_rates(work.net_bytes, p->net_s, m->net_s, m->net_exposed_s - p->net_exposed_s);
    out[MICS_ASSUME_NODE] =
        compare_rates(work.node_bytes, p->node_s, m->node_s, m->node_exposed_s - p->node_exposed_s);
    out[MICS_ASSUME_OFFLOAD] = compare_rates(
        work.offload_bytes, p->busy_s[MICS_CLASS_OFFLOAD], m->busy_s[MICS_CLASS_OFFLOAD],
        m->exposed_s[MICS_CLASS_OFFLOAD] - p->exposed_s[MICS_CLASS_OFFLOAD]);
    out[MICS_ASSUME_SCALARS] =
        compare_seconds(scalars[0], scalars[1],
                        m->exposed_s[MICS_CLASS_SCALARS] - p->exposed_s[MICS_CLASS_SCALARS]);
    out[MICS_ASSUME_OTHER] = compare_seconds(other[0], other[1], other[1] - other[0]);
    return MICS_OK;
}

enum mics_status mics_plan_check_measured(struct mics_plan *plan,
                                          const struct mics_measured *measured,
                                          struct mics_plan_check *out, struct mics_err *err)
{
    enum mics_status status;

    *out = (struct mics_plan_check){.plan = plan};
    if (measured->steps.count == 0)
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "no step is complete yet");
    if (measured->sampled.count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "no times of operations");
    status = measure(measured, out, err);
    if (status != MICS_OK)
        return status;
    out->predicted =
        (struct mics_step_times){.step_s = plan->predicted.step_s, .classes = plan->classes};
    compare_memory(measured, out);
    return compare_assumptions(out, err);
}

enum mics_range_verdict mics_plan_check_range(const struct mics_plan_check *check)
{
    const struct mics_step_range *range = &check->plan->range;
    const double step_s = check->measured.step_s;

    if (range->low_s <= 0)
        return MICS_RANGE_UNKNOWN;
    if (step_s < range->low_s)
        return MICS_RANGE_SHORTER;
    return step_s > range->high_s ? MICS_RANGE_LONGER : MICS_RANGE_INSIDE;
}

enum mics_assumption mics_plan_check_worst(const struct mics_plan_check *check)
{
    enum mics_assumption worst = MICS_ASSUME_COUNT;
    double most = NOTICEABLE * check->predicted.step_s;

    for (int i = 0; i < MICS_ASSUME_COUNT; i++) {
        if (fabs(check->assumptions[i].added_s) <= most)
            continue;
        most = fabs(check->assumptions[i].added_s);
        worst = (enum mics_assumption)i;
    }
    return worst;
}
