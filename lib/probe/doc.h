/* SPDX-License-Identifier: Apache-2.0 */
/* probe_doc.h - what a probe's document holds beyond a topology's own members. */
#ifndef MICS_PROBE_DOC_H
#define MICS_PROBE_DOC_H

#include "bench/collectives.h"
#include "probe/outliers.h"

struct mics_probe_parts {
    const struct mics_topology *topology;
    const struct mics_outliers *outliers;
    const struct mics_measured *measured; /* as many as the topology's costs, in their order */
    uint32_t measured_count;
};

/* The topology's document with hosts, declared_nodes, points, outliers and bad_nodes; *out is the
 * caller's. */
enum mics_status mics_probe_doc(const struct mics_probe_parts *parts, json_t **out,
                                struct mics_err *err);

/* Add "points" to each of the document's collectives, which are the measured ones in their order. */
enum mics_status mics_probe_doc_add_points(json_t *doc, const struct mics_measured *measured,
                                           uint32_t count, struct mics_err *err);

/* Add "machine": the node that this process runs on. */
enum mics_status mics_probe_doc_add_machine(json_t *doc, struct mics_err *err);

#endif
