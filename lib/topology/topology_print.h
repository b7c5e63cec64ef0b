/* SPDX-License-Identifier: Apache-2.0 */
/* topology_print.h - a topology as tables. */
#ifndef MICS_TOPOLOGY_TOPOLOGY_PRINT_H
#define MICS_TOPOLOGY_TOPOLOGY_PRINT_H

#include "doc/table.h"
#include "topology/topology.h"

#include <stdio.h>

/* The cluster, its links, GPUs, measured collectives and algorithms, and outliers: tables with an
 * empty line between them. MICS_ERR_FORMAT: the document is not a topology. */
enum mics_status mics_topology_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

/* Append the rows of the first table, of two columns: also part of a plan's. */
void mics_topology_rows(struct mics_table *table, const struct mics_topology *topology, int tsv);

#endif
