/* SPDX-License-Identifier: Apache-2.0 */
/* plot.h - pictures of measured collectives. */
#ifndef MICS_MEASURE_PLOT_H
#define MICS_MEASURE_PLOT_H

#include "doc/gnuplot.h"

#include <jansson.h>

/* For each operation and group a picture "OP_GROUP": bus bandwidth by size, a curve for each
 * algorithm, with the line that mics-probe and mics-bench --calibrate would fit to its times.
 * MICS_ERR_FORMAT as of mics_bench_from_doc(). */
enum mics_status mics_bench_plot(struct mics_gnuplot *gnuplot, const json_t *doc,
                                 struct mics_err *err);

#endif
