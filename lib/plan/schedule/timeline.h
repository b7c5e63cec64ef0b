/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.h - when each operation of a step ran: predicted by the simulator, measured by the trainer.
 */
#ifndef MICS_PLAN_SCHEDULE_TIMELINE_H
#define MICS_PLAN_SCHEDULE_TIMELINE_H

#include "plan/schedule/schedule.h"

/* Seconds from the beginning of the step; arrays of op_count. */
struct mics_timeline {
    uint32_t op_count;
    double *start, *end;
};

struct mics_overlap {
    double span_s;    /* first start to last end */
    double compute_s; /* time with computation */
    double comm_s;    /* time with at least one communication operation */
    double exposed_s; /* the part of comm_s without computation */
};

/* Union of intervals over a timeline. */
enum mics_status mics_timeline_overlap(const struct mics_schedule *schedule,
                                       const struct mics_timeline *timeline,
                                       struct mics_overlap *out, struct mics_err *err);

/* Executor "simulate": virtual clock, one step in the steady state (steps are repeated until the time of
 * a step changes no more). Timeline arrays are the caller's, of op_count; step_s is the distance between
 * two steps. Host time only, no device. */
enum mics_status mics_simulate(const struct mics_schedule *schedule,
                               const struct mics_plan_choice *choice,
                               const struct mics_topology *topology, struct mics_timeline *timeline,
                               double *step_s, struct mics_err *err);

/*
 * op_durations.h - how long each computation of a schedule takes on the hardware of a plan.
 *
 * For the paced device: nothing is computed, operations only take their time, and communication is
 * real. The times may be those of another plan with the same operations: a model made smaller, so that its
 * tensors suit slow links, then keeps the pace of the large one.
 */

/* Seconds for each operation of the training schedule of `run`, 0 for communication: the roofline of
 * the topology of `pace`. *out is the caller's, [op_count], to free().
 * MICS_ERR_ARG when the steps of the two plans are not made of the same operations. */
enum mics_status mics_pace_make(const struct mics_plan *run, const struct mics_plan *pace,
                                double **out, struct mics_err *err);

#endif
