/* SPDX-License-Identifier: Apache-2.0 */
/* plan_print.h - a plan as tables. */
#ifndef MICS_PLAN_PLAN_PRINT_H
#define MICS_PLAN_PLAN_PRINT_H

#include "plan/plan.h"

#include <stdio.h>

/* The choice, memory per rank by region, the predicted step, the reasons for the choice, the
 * alternatives, and if the plan was made from the configuration of another trainer, its keys and
 * how the plan compares with the best one; with an empty line between them. `tsv`: tab-separated
 * values with all numbers and all alternatives. MICS_ERR_FORMAT: the document is not a plan. */
enum mics_status mics_plan_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

/* Tab-separated, a row for each of several plans, by model, cluster, strategy and nodes, with its
 * predicted throughput. MICS_ERR_FORMAT: the document *wrong is not a plan. */
enum mics_status mics_plans_print(FILE *out, json_t *const *docs, size_t count, size_t *wrong,
                                  struct mics_err *err);

/* The table of alternatives: those that fit, by step, then those that do not, by what they lack. Of
 * many, the fastest, the fastest of each strategy, and the nearest misses are printed, and the rest
 * is counted. The table fits `width` columns, 80 or more; 0: tab-separated values of all. */
enum mics_status mics_plan_print_alternatives(FILE *out, const struct mics_plan *plan,
                                              unsigned width, struct mics_err *err);

/* "mics:8", "zero3"; for other shards the numbers of parameters, gradients and optimizer state,
 * where n is all ranks: "8/8/n". Returns `text`. */
char *mics_plan_format_strategy(const struct mics_plan_choice *choice, char *text, size_t size);

enum { MICS_PLAN_REASONS_BYTES = 2048 };

/* Why the plan was chosen, in two sentences: why so many shards and no fewer, and what
 * communication costs. Returns `text`. */
char *mics_plan_reasons(const struct mics_plan *plan, char text[MICS_PLAN_REASONS_BYTES]);

#endif
