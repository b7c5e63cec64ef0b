/* SPDX-License-Identifier: Apache-2.0 */
/* predict.c - from a simulated schedule to the figures of a plan. */
#include "plan/schedule/timeline.h"
#include "plan/search/search_internal.h"

#include <math.h>

/* Steps of more micro-steps are extrapolated from a step of this many and one of one less. */
enum { DIRECT_MICRO_STEPS = 6 };

/* A ring in node order has one link out of each node per communicator, which carries what one rank
 * sends. */
static void count_bytes(const struct mics_schedule *schedule, const struct mics_plan_choice *choice,
                        struct mics_prediction *out)
{
    uint64_t calls[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t sent[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];

    mics_schedule_counts(schedule, choice, 0, calls, sent);
    for (int groups = 0; groups < MICS_UNIT_KIND_COUNT; groups++)
        for (int comm = 0; comm < MICS_COMM_KIND_COUNT; comm++) {
            struct mics_group_position position;

            mics_shape_position(&choice->shapes[groups], (enum mics_comm_kind)comm, 0, &position);
            out->sent_bytes += sent[groups][comm];
            if (position.nodes > 1)
                out->net_bytes += sent[groups][comm] * position.sharing;
        }
    out->sent_bytes /= schedule->interval;
    out->net_bytes /= schedule->interval;
}

/* The means over the steps of an interval; `classes` may be NULL. */
struct means {
    const struct mics_schedule *schedule;
    struct mics_timeline timeline;
    struct mics_prediction *out;
    struct mics_class_times *classes;
    enum mics_status status;
    struct mics_err *err;
};

static void add_step(void *context)
{
    struct means *means = context;
    const double part = 1.0 / means->schedule->interval;
    struct mics_class_times classes;
    struct mics_overlap overlap;

    if (means->status == MICS_OK)
        means->status =
            mics_timeline_overlap(means->schedule, &means->timeline, &overlap, means->err);
    if (means->status == MICS_OK && means->classes)
        means->status =
            mics_timeline_classes(means->schedule, &means->timeline, &classes, means->err);
    if (means->status != MICS_OK)
        return;
    means->out->compute_s += part * overlap.compute_s;
    means->out->comm_s += part * overlap.comm_s;
    means->out->exposed_s += part * overlap.exposed_s;
    if (means->classes)
        mics_class_times_add(means->classes, &classes, part);
}

/* The times of a step by class of operation as well, if `classes` is not NULL. */
static enum mics_status simulate_schedule(const struct mics_schedule *schedule,
                                          const struct mics_plan_choice *choice,
                                          struct mics_op_costs *costs, struct mics_prediction *out,
                                          struct mics_class_times *classes, struct mics_err *err)
{
    struct means means = {.schedule = schedule, .out = out, .classes = classes, .err = err};
    enum mics_status status = mics_timeline_init(schedule, &means.timeline, err);

    if (status != MICS_OK)
        return status;
    *out = (struct mics_prediction){0};
    if (classes)
        *classes = (struct mics_class_times){0};
    status = mics_simulate_turns(schedule, choice, costs, add_step, &means, &means.timeline,
                                 &out->step_s, err);
    if (status == MICS_OK)
        status = means.status;
    if (status == MICS_OK)
        count_bytes(schedule, choice, out);
    mics_timeline_fini(&means.timeline);
    return status;
}

/* Units are updated as if their second hop had taken no time. */
static void leave_out_second_hop(struct mics_schedule *schedule)
{
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        struct mics_op *op = &schedule->ops[i];

        if (op->kind == MICS_OP_SCATTER || op->kind == MICS_OP_SYNC ||
            (op->kind == MICS_OP_CONVERT && op->turn != MICS_NONE))
            op->turn = MICS_TURN_NEVER;
    }
}

/* What is asked of a simulation. */
struct question {
    bool no_second_hop;
    struct mics_class_times *classes; /* may be NULL */
};

static enum mics_status simulate_steps(struct mics_op_costs *costs, const struct mics_model *model,
                                       const struct mics_plan_choice *choice, uint32_t micro_steps,
                                       const struct question *question, struct mics_prediction *out,
                                       struct mics_err *err)
{
    struct mics_plan_choice shortened = *choice;
    struct mics_schedule *schedule = NULL;
    enum mics_status status;

    shortened.micro_steps = micro_steps;
    status = mics_schedule_new(model, &shortened, true, &schedule, err);
    if (status == MICS_OK && question->no_second_hop)
        leave_out_second_hop(schedule);
    if (status == MICS_OK)
        status = simulate_schedule(schedule, &shortened, costs, out, question->classes, err);
    mics_schedule_free(schedule);
    return status;
}

/* Add to b `times` times the difference between b and a. */
static void extrapolate(struct mics_prediction *b, const struct mics_prediction *a, uint32_t times)
{
    b->step_s += times * (b->step_s - a->step_s);
    b->compute_s += times * (b->compute_s - a->compute_s);
    b->comm_s += times * (b->comm_s - a->comm_s);
    b->exposed_s += times * fmax(0, b->exposed_s - a->exposed_s);
    b->net_bytes += times * (b->net_bytes - a->net_bytes);
    b->sent_bytes += times * (b->sent_bytes - a->sent_bytes);
}

/* The same of times by class. */
static void extrapolate_classes(struct mics_class_times *b, const struct mics_class_times *a,
                                double times)
{
    const struct mics_class_times before = *b;

    mics_class_times_add(b, &before, times);
    mics_class_times_add(b, a, -times);
    for (int c = 0; c < MICS_CLASS_COUNT; c++)
        b->exposed_s[c] = fmax(0, b->exposed_s[c]);
    b->net_exposed_s = fmax(0, b->net_exposed_s);
    b->node_exposed_s = fmax(0, b->node_exposed_s);
}

/* Simulate a step, or two short ones if it has many micro-steps. */
static enum mics_status simulate_interval(struct mics_op_costs *costs,
                                          const struct mics_model *model,
                                          const struct mics_plan_choice *choice,
                                          const struct question *question,
                                          struct mics_prediction *out, struct mics_err *err)
{
    const uint32_t s = choice->micro_steps;
    const uint32_t direct = s < DIRECT_MICRO_STEPS ? s : DIRECT_MICRO_STEPS;
    struct mics_prediction shorter;
    struct mics_class_times shorter_classes = {.net_s = 0};
    struct question again = *question;
    enum mics_status status = simulate_steps(costs, model, choice, direct, question, out, err);

    if (status != MICS_OK || s == direct)
        return status;
    again.classes = question->classes ? &shorter_classes : NULL;
    status = simulate_steps(costs, model, choice, direct - 1, &again, &shorter, err);
    if (status != MICS_OK)
        return status;
    extrapolate(out, &shorter, s - direct);
    if (question->classes)
        extrapolate_classes(question->classes, &shorter_classes, s - direct);
    return MICS_OK;
}

/* The part of the difference from b to a by which the mean of a step is away from b: in `a` the
 * replicas meet every `least` steps, in `b` every least + 1, in the mean every `steps`. */
static double part_of_meetings(uint32_t least, uint32_t steps)
{
    return least * ((double)least + 1 - steps) / steps;
}

/* Move b by this part of the difference from it to a. */
static void mean_of_meetings(struct mics_prediction *b, const struct mics_prediction *a,
                             double part)
{
    b->step_s += part * (a->step_s - b->step_s);
    b->compute_s += part * (a->compute_s - b->compute_s);
    b->comm_s += part * (a->comm_s - b->comm_s);
    b->exposed_s = fmax(0, b->exposed_s + part * (a->exposed_s - b->exposed_s));
    b->net_bytes += (int64_t)llround(part * ((double)a->net_bytes - (double)b->net_bytes));
    b->sent_bytes += (int64_t)llround(part * ((double)a->sent_bytes - (double)b->sent_bytes));
}

/* The mean of a step. Steps without a meeting, and without what follows one in the next step, are
 * alike, however many there are. */
static enum mics_status simulate(struct mics_op_costs *costs, const struct mics_model *model,
                                 const struct mics_plan_choice *choice,
                                 const struct question *question, struct mics_prediction *out,
                                 struct mics_err *err)
{
    struct mics_plan_choice shorter = *choice;
    struct question of_each = *question;
    struct mics_prediction each;
    struct mics_class_times each_classes = {0};
    const uint32_t least = choice->outer_overlap ? 2 : 1;
    enum mics_status status;

    if (choice->outer_steps <= least + 1)
        return simulate_interval(costs, model, choice, question, out, err);
    shorter.outer_steps = least;
    of_each.classes = question->classes ? &each_classes : NULL;
    status = simulate_interval(costs, model, &shorter, &of_each, &each, err);
    shorter.outer_steps = least + 1;
    if (status == MICS_OK)
        status = simulate_interval(costs, model, &shorter, question, out, err);
    if (status != MICS_OK)
        return status;
    const double part = part_of_meetings(least, choice->outer_steps);

    mean_of_meetings(out, &each, part);
    if (question->classes)
        extrapolate_classes(question->classes, &each_classes, -part);
    return MICS_OK;
}

enum mics_status mics_plan_predict_above(struct mics_op_costs *costs,
                                         const struct mics_model *model,
                                         const struct mics_plan_choice *choice, double bound_s,
                                         struct mics_prediction *out, struct mics_err *err)
{
    const uint64_t n = mics_choice_world_size(choice);
    struct mics_prediction result = {0};
    enum mics_status status = simulate(costs, model, choice, &(struct question){0}, &result, err);

    if (status != MICS_OK)
        return status;
    /* Neither extrapolated nor, where the periods of the steps alternate, the last of a few. */
    result.step_s = fmax(result.step_s, bound_s);
    result.tokens_per_s =
        (double)(n * choice->micro_steps * choice->micro_batch * choice->seq) / result.step_s;
    *out = result;
    return MICS_OK;
}

enum mics_status mics_plan_predict(struct mics_op_costs *costs, const struct mics_model *model,
                                   const struct mics_plan_choice *choice,
                                   struct mics_prediction *out, struct mics_err *err)
{
    double bound_s;
    enum mics_status status = mics_step_bound(costs, model, choice, &bound_s, err);

    if (status == MICS_OK)
        status = mics_plan_predict_above(costs, model, choice, bound_s, out, err);
    return status;
}

enum mics_status mics_plan_predict_classes(struct mics_op_costs *costs,
                                           const struct mics_model *model,
                                           const struct mics_plan_choice *choice,
                                           struct mics_class_times *out, struct mics_err *err)
{
    struct mics_prediction predicted;

    return simulate(costs, model, choice, &(struct question){.classes = out}, &predicted, err);
}

enum mics_status mics_second_hop_share(struct mics_op_costs *costs, const struct mics_model *model,
                                       const struct mics_plan_choice *choice, double *out,
                                       struct mics_err *err)
{
    struct mics_prediction with, without;
    enum mics_status status = simulate(costs, model, choice, &(struct question){0}, &with, err);

    if (status == MICS_OK)
        status = simulate(costs, model, choice, &(struct question){.no_second_hop = true}, &without,
                          err);
    if (status == MICS_OK)
        *out = with.step_s / without.step_s - 1;
    return status;
}
