/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range.h - how far a measured step may be from the predicted one.
 *
 * Each class of costs (computation, collectives inside nodes, collectives between nodes) has an
 * error: between which two factors of the predicted seconds nine of ten measured ones are.
 *
 * - What was measured on the cluster: the error of steps that were predicted from measured costs,
 *   and the spread of these measurements.
 * - GPUs and NCCL that were not measured: the errors of published runs (docs/planning.md).
 * - Where there is nothing to compare with, a wide range is assumed.
 *
 * The errors are independent of each other, and what one of them does to a step depends on what
 * runs beside it. So the plan is priced again for each class, with the costs of this class at
 * either end of its error and the others as predicted; the squares of the differences from the
 * predicted step add up. A class that is hidden behind another hardly widens the range.
 */
#ifndef MICS_PLAN_SEARCH_RANGE_H
#define MICS_PLAN_SEARCH_RANGE_H

#include "plan/schedule/op_costs.h"

/* The error of a class on this topology. */
struct mics_cost_error mics_cost_error_of(const struct mics_topology *topology,
                                          enum mics_cost_class cost_class);

/* Set plan->range, of plan->predicted. */
enum mics_status mics_plan_predict_range(struct mics_plan *plan, struct mics_err *err);

/* The step of the plan where each class takes times[class] its seconds. */
enum mics_status mics_plan_predict_scaled(const struct mics_plan *plan,
                                          const double times[MICS_COST_CLASS_COUNT], double *step_s,
                                          struct mics_err *err);

#endif
