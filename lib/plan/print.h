/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - a plan as tables. */
#ifndef MICS_PLAN_PRINT_H
#define MICS_PLAN_PRINT_H

#include "plan/plan.h"

#include <stdio.h>

/* The choice, memory per rank by region, the predicted step, and the alternatives with the reason
 * why each lost; tables with an empty line between them. `tsv`: tab-separated values with all
 * numbers. MICS_ERR_FORMAT: the document is not a plan. */
enum mics_status mics_plan_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
