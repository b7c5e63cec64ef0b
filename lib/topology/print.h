/* SPDX-License-Identifier: Apache-2.0 */
/* topology_print.h - a topology as tables. */
#ifndef MICS_TOPOLOGY_PRINT_H
#define MICS_TOPOLOGY_PRINT_H

#include "topology/topology.h"
#include "doc/table.h"

#include <stdio.h>

/* What it is made of, its links, what was measured of its collectives, and outliers; each a table, with an
 * empty line between them. MICS_ERR_FORMAT for a document that is no topology. */
enum mics_status mics_topology_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

/* The rows of the first of these tables, of two columns: also a part of a plan's. */
void mics_topology_rows(struct mics_table *table, const struct mics_topology *topology, int tsv);

#endif
