/* SPDX-License-Identifier: Apache-2.0 */
/* topology_dot.h - a cluster as a graph. */
#ifndef MICS_TOPOLOGY_TOPOLOGY_DOT_H
#define MICS_TOPOLOGY_TOPOLOGY_DOT_H

#include "topology/catalogue.h"

#include <jansson.h>
#include <stdio.h>

/* Write a graph in DOT: nodes with their ranks, links and network cards. Links have the colour of
 * the share that they reach of what is expected of them: of the rates of `expected` (NULL: of
 * NVLink's rate and of the network cards, where the document has them), and the share of the median
 * for links that the document lists as slow. Slow ranks and nodes to leave out are marked. With
 * more than MICS_DOT_NODES nodes, those that are alike become one. MICS_ERR_FORMAT as of
 * mics_topology_from_doc(). */
enum { MICS_DOT_NODES = 8 };
enum mics_status mics_topology_dot(FILE *out, const json_t *doc,
                                   const struct mics_instance *expected, struct mics_err *err);

#endif
