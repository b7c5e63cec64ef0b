/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_durations.h - how long each computation of a schedule takes on the hardware of a plan.
 *
 * For the paced device: nothing is computed, operations only take their time, and communication is
 * real. The times may be those of another plan with the same operations: a model made smaller, so that its
 * tensors suit slow links, then keeps the pace of the large one.
 */
#ifndef MICS_PLAN_SCHEDULE_OP_DURATIONS_H
#define MICS_PLAN_SCHEDULE_OP_DURATIONS_H

#include "plan/schedule/schedule.h"

/* Seconds for each operation of the training schedule of `run`, 0 for communication: the roofline of
 * the topology of `pace`. *out is the caller's, [op_count], to free().
 * MICS_ERR_ARG when the steps of the two plans are not made of the same operations. */
enum mics_status mics_pace_make(const struct mics_plan *run, const struct mics_plan *pace,
                                double **out, struct mics_err *err);

#endif
