/* SPDX-License-Identifier: Apache-2.0 */
/* predict.c - from a simulated schedule to the figures of a plan. */
#include "plan/schedule/timeline.h"
#include "plan/search/search.h"

#include <math.h>

/* Steps of more micro-steps are extrapolated from a step of this many and one of one less. */
enum { DIRECT_MICRO_STEPS = 6 };

/* A ring in node order has one link out of each node per communicator, which carries what one rank
 * sends. */
static void count_bytes(const struct mics_schedule *schedule, const struct mics_shape *shape,
                        struct mics_prediction *out)
{
    uint64_t calls[MICS_COMM_KIND_COUNT], sent[MICS_COMM_KIND_COUNT];

    mics_schedule_counts(schedule, shape, 0, calls, sent);
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
        struct mics_group_position position;

        mics_shape_position(shape, (enum mics_comm_kind)kind, 0, &position);
        out->sent_bytes += sent[kind];
        if (position.nodes > 1)
            out->net_bytes += sent[kind] * position.sharing;
    }
}

static enum mics_status predict_schedule(const struct mics_schedule *schedule,
                                         const struct mics_plan_choice *choice,
                                         const struct mics_topology *topology,
                                         struct mics_prediction *out, struct mics_err *err)
{
    struct mics_timeline timeline;
    struct mics_overlap overlap;
    double step_s;
    enum mics_status status = mics_timeline_init(schedule, &timeline, err);

    if (status != MICS_OK)
        return status;
    status = mics_simulate(schedule, choice, topology, &timeline, &step_s, err);
    if (status == MICS_OK)
        status = mics_timeline_overlap(schedule, &timeline, &overlap, err);
    if (status == MICS_OK) {
        *out = (struct mics_prediction){.step_s = step_s,
                                        .compute_s = overlap.compute_s,
                                        .comm_s = overlap.comm_s,
                                        .exposed_s = overlap.exposed_s};
        count_bytes(schedule, &choice->shape, out);
    }
    mics_timeline_fini(&timeline);
    return status;
}

static enum mics_status predict_direct(const struct mics_topology *topology,
                                       const struct mics_model *model,
                                       const struct mics_plan_choice *choice, uint32_t micro_steps,
                                       struct mics_prediction *out, struct mics_err *err)
{
    struct mics_plan_choice shortened = *choice;
    struct mics_schedule *schedule = NULL;
    enum mics_status status;

    shortened.micro_steps = micro_steps;
    status = mics_schedule_new(model, &shortened, true, &schedule, err);
    if (status == MICS_OK)
        status = predict_schedule(schedule, &shortened, topology, out, err);
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

enum mics_status mics_plan_predict(const struct mics_topology *topology,
                                   const struct mics_model *model,
                                   const struct mics_plan_choice *choice,
                                   struct mics_prediction *out, struct mics_err *err)
{
    const uint32_t s = choice->micro_steps;
    const uint64_t n = mics_shape_world_size(&choice->shape);
    struct mics_prediction shorter, result = {0};
    enum mics_status status;

    if (s <= DIRECT_MICRO_STEPS) {
        status = predict_direct(topology, model, choice, s, &result, err);
    } else {
        status = predict_direct(topology, model, choice, DIRECT_MICRO_STEPS, &result, err);
        if (status == MICS_OK)
            status = predict_direct(topology, model, choice, DIRECT_MICRO_STEPS - 1, &shorter, err);
        if (status == MICS_OK)
            extrapolate(&result, &shorter, s - DIRECT_MICRO_STEPS);
    }
    if (status != MICS_OK)
        return status;
    result.tokens_per_s = (double)(n * s * choice->micro_batch * choice->seq) / result.step_s;
    *out = result;
    return MICS_OK;
}
