/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.h - when each operation of a step runs: predicted by the simulator, measured by the
 * engine.
 */
#ifndef MICS_PLAN_SCHEDULE_TIMELINE_H
#define MICS_PLAN_SCHEDULE_TIMELINE_H

#include "plan/schedule/op_costs.h"

/* Seconds from the beginning of the step; arrays of op_count. */
struct mics_timeline {
    uint32_t op_count;
    double *start, *end;
    double period_s; /* after which the next step does the same; 0: no other step overlaps */
    uint32_t turn;   /* of units in this step; the operations of others are idle */
};

/* Arrays of op_count for a schedule. *out belongs to the caller, who calls mics_timeline_fini().
 * MICS_ERR_NOMEM: out of memory; there is nothing to release. */
enum mics_status mics_timeline_init(const struct mics_schedule *schedule, struct mics_timeline *out,
                                    struct mics_err *err);
void mics_timeline_fini(struct mics_timeline *timeline);

/* In one period, in which the end of a step may run beside the beginning of the next: gathers of
 * updated parameters run behind the next forward pass. Computation, exposed communication and the
 * time in which neither runs add up to the period. */
struct mics_overlap {
    double span_s;    /* of the step, first start to last end */
    double compute_s; /* time with computation */
    double comm_s;    /* time with at least one communication operation */
    double exposed_s; /* the part of comm_s without computation */
};

/* Unions of the intervals of a timeline. MICS_ERR_ARG: it is of another schedule. */
enum mics_status mics_timeline_overlap(const struct mics_schedule *schedule,
                                       const struct mics_timeline *timeline,
                                       struct mics_overlap *out, struct mics_err *err);

enum mics_op_class mics_op_class(const struct mics_op *op);

/* The times of one period by class of operation. MICS_ERR_ARG: the timeline is of another
 * schedule. */
enum mics_status mics_timeline_classes(const struct mics_schedule *schedule,
                                       const struct mics_timeline *timeline,
                                       struct mics_class_times *out, struct mics_err *err);

/* Executor "simulate": one step in the steady state, on a virtual clock. Steps are repeated until
 * their periods repeat. Timeline arrays are the caller's, of op_count; *step_s and
 * timeline->period_s are the period of the steps, the mean of those that repeat. No device is used.
 * MICS_ERR_NOMEM: out of memory. */
enum mics_status mics_simulate(const struct mics_schedule *schedule,
                               const struct mics_plan_choice *choice, struct mics_op_costs *costs,
                               struct mics_timeline *timeline, double *step_s,
                               struct mics_err *err);

/* The same; visit() is called when `timeline` has each step of one interval, and period_s is that
 * step's. */
enum mics_status mics_simulate_turns(const struct mics_schedule *schedule,
                                     const struct mics_plan_choice *choice,
                                     struct mics_op_costs *costs, void (*visit)(void *context),
                                     void *context, struct mics_timeline *timeline, double *step_s,
                                     struct mics_err *err);

/* Seconds of each operation of the training schedule of `run`, 0 for communication, by the roofline
 * of the topology of `paced_by`. They are for the paced device, which computes nothing while
 * communication is real. The times may come from a plan of a larger model with the same operations,
 * so that a model small enough for slow links keeps the timing of the large one.
 * *out is [op_count] and belongs to the caller, who calls free().
 * MICS_ERR_ARG: the steps of the two plans do not consist of the same operations. */
enum mics_status mics_op_durations_new(const struct mics_plan *run,
                                       const struct mics_plan *paced_by, double **out,
                                       struct mics_err *err);

#endif
