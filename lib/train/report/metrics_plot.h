/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_plot.h - pictures of the metrics of a run. */
#ifndef MICS_TRAIN_REPORT_METRICS_PLOT_H
#define MICS_TRAIN_REPORT_METRICS_PLOT_H

#include "doc/gnuplot.h"

#include <stddef.h>

/* "loss": of training and validation, and "throughput": tokens/s, by step. Of more than 2,000 steps
 * means over equal intervals are drawn; the key says of how many steps. MICS_ERR_FORMAT names the
 * line. MICS_ERR_INFEASIBLE: there is neither a step nor a validation with a loss. */
enum mics_status mics_metrics_plot(struct mics_gnuplot *gnuplot, const char *data, size_t size,
                                   struct mics_err *err);

#endif
