/* SPDX-License-Identifier: Apache-2.0 */
/* predict.c - from a simulated schedule to the figures of a plan. */
#include "plan/search/search.h"
#include "plan/schedule/timeline.h"

#include <math.h>
#include <stdlib.h>

/* Steps of more micro-steps than this are extended from steps of it and of one less. */
enum { DIRECT_MICRO_STEPS = 6 };

/* Bytes that leave a node by its card in one direction. A ring in node order has one link out of each node for
 * each communicator, and carries there what one rank sends. */
static uint64_t card_bytes(const struct mics_schedule *schedule, const struct mics_shape *shape)
{
    uint64_t calls[MICS_COMM_KIND_COUNT], sent[MICS_COMM_KIND_COUNT], bytes = 0;

    mics_schedule_counts(schedule, shape, 0, calls, sent);
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
        struct mics_member member;

        mics_shape_member(shape, (enum mics_comm_kind)kind, 0, &member);
        if (member.nodes > 1)
            bytes += sent[kind] * member.sharing;
    }
    return bytes;
}

static uint64_t rank_bytes(const struct mics_schedule *schedule, const struct mics_shape *shape)
{
    uint64_t calls[MICS_COMM_KIND_COUNT], sent[MICS_COMM_KIND_COUNT], bytes = 0;

    mics_schedule_counts(schedule, shape, 0, calls, sent);
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
        bytes += sent[kind];
    return bytes;
}

static enum mics_status run(const struct mics_schedule *schedule,
                            const struct mics_plan_choice *choice,
                            const struct mics_topology *topology, struct mics_prediction *out,
                            struct mics_err *err)
{
    struct mics_timeline timeline = {.op_count = schedule->op_count};
    struct mics_overlap overlap = {0};
    enum mics_status status = MICS_OK;
    double step_s = 0;

    timeline.start = calloc(schedule->op_count, sizeof *timeline.start);
    timeline.end = calloc(schedule->op_count, sizeof *timeline.end);
    if (!timeline.start || !timeline.end)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = mics_simulate(schedule, choice, topology, &timeline, &step_s, err);
    if (status == MICS_OK)
        status = mics_timeline_overlap(schedule, &timeline, &overlap, err);
    *out = (struct mics_prediction){.step_s = step_s,
                                    .compute_s = overlap.compute_s,
                                    .comm_s = overlap.comm_s,
                                    .exposed_s = overlap.exposed_s,
                                    .net_bytes = card_bytes(schedule, &choice->shape),
                                    .sent_bytes = rank_bytes(schedule, &choice->shape)};
    free(timeline.start);
    free(timeline.end);
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
        status = run(schedule, &shortened, topology, out, err);
    mics_schedule_free(schedule);
    return status;
}

/* b, and `more` times what b has more than a. */
static void extend(struct mics_prediction *b, const struct mics_prediction *a, uint32_t more)
{
    b->step_s += more * (b->step_s - a->step_s);
    b->compute_s += more * (b->compute_s - a->compute_s);
    b->comm_s += more * (b->comm_s - a->comm_s);
    b->exposed_s += more * fmax(0, b->exposed_s - a->exposed_s);
    b->net_bytes += more * (b->net_bytes - a->net_bytes);
    b->sent_bytes += more * (b->sent_bytes - a->sent_bytes);
}

enum mics_status mics_plan_predict(const struct mics_topology *topology,
                                   const struct mics_model *model,
                                   const struct mics_plan_choice *choice,
                                   struct mics_prediction *out, struct mics_err *err)
{
    uint32_t s = choice->micro_steps;
    uint64_t n = (uint64_t)choice->shape.nodes * choice->shape.per_node;
    struct mics_prediction shorter, result = {0};
    enum mics_status status;

    if (s <= DIRECT_MICRO_STEPS) {
        status = predict_direct(topology, model, choice, s, &result, err);
    } else {
        status = predict_direct(topology, model, choice, DIRECT_MICRO_STEPS, &result, err);
        if (status == MICS_OK)
            status = predict_direct(topology, model, choice, DIRECT_MICRO_STEPS - 1, &shorter, err);
        if (status == MICS_OK)
            extend(&result, &shorter, s - DIRECT_MICRO_STEPS);
    }
    if (status != MICS_OK)
        return status;
    result.tokens_per_s = (double)(n * s * choice->micro_batch * choice->seq) / result.step_s;
    *out = result;
    return MICS_OK;
}
