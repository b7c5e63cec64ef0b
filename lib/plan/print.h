/* SPDX-License-Identifier: Apache-2.0 */
/* plan_print.h - a plan as tables. */
#ifndef MICS_PLAN_PRINT_H
#define MICS_PLAN_PRINT_H

#include "plan/plan.h"

#include <stdio.h>

/* What was chosen for what, memory per rank by region, the predicted step, and the alternatives with why
 * each lost; an empty line between them. MICS_ERR_FORMAT for a document that is no plan. */
enum mics_status mics_plan_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

/* The table of memory alone: what a trainer shows when it starts. */
enum mics_status mics_plan_print_memory(FILE *out, const struct mics_plan *plan, int tsv,
                                        struct mics_err *err);

#endif
