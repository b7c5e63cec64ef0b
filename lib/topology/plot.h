/* SPDX-License-Identifier: Apache-2.0 */
/* plot.h - pictures of a topology. */
#ifndef MICS_TOPOLOGY_PLOT_H
#define MICS_TOPOLOGY_PLOT_H

#include "doc/gnuplot.h"

#include <jansson.h>

/* "links": bandwidth by size of a message, by the latency and bandwidth of each class of links; for
 * each measured collective a picture of its name with the measurements and the line fitted to them;
 * and where algorithms were measured "exchange_NAME_NODESxRANKS" with the flat
 * and the hierarchical one. MICS_ERR_INFEASIBLE: one rank has no
 * links. */
enum mics_status mics_topology_plot(struct mics_gnuplot *gnuplot, const json_t *doc,
                                    struct mics_err *err);

#endif
