/* SPDX-License-Identifier: Apache-2.0 */
/* plot.h - pictures of plans. */
#ifndef MICS_PLAN_PLOT_H
#define MICS_PLAN_PLOT_H

#include "doc/gnuplot.h"

#include <jansson.h>
#include <stddef.h>

/* Of one plan, "memory": the memory of a rank by region for each number of shards, against the
 * limit; and "throughput": predicted tokens/s by the shards of parameters. Only what the
 * alternatives of the document say is drawn. MICS_ERR_FORMAT as of mics_plan_from_doc(). */
enum mics_status mics_plan_plot(struct mics_gnuplot *gnuplot, const json_t *doc,
                                struct mics_err *err);

/* Of several plans, "throughput" and "rank_throughput": predicted tokens/s of the job and of one
 * rank by the number of nodes, a line for each model and instance. MICS_ERR_FORMAT: the plan with
 * this index cannot be read; *wrong is set to it. */
enum mics_status mics_plans_plot(struct mics_gnuplot *gnuplot, json_t *const *docs, size_t count,
                                 size_t *wrong, struct mics_err *err);

#endif
