/* SPDX-License-Identifier: Apache-2.0 */
/*
 * algorithm_times.h - flat against hierarchical exchanges, both measured on the same ranks in the same run.
 *
 * In the document mics.topology: exchanges [{collective ("all_gather", "reduce_scatter"), nodes, per_node, segments,
 * points [[bytes, flat seconds, hierarchical seconds], ...], ? hierarchical_from_bytes, ? hierarchical_to_bytes}],
 * with bytes of the whole array, growing. The last two say at which of the points a hierarchy is first and last faster;
 * null: at none.
 */
#ifndef MICS_TOPOLOGY_ALGORITHM_TIMES_H
#define MICS_TOPOLOGY_ALGORITHM_TIMES_H

#include "topology/topology.h"

enum { MICS_RACE_POINTS = 48 };

struct mics_race_point {
    double bytes, flat_s, staged_s;
};

struct mics_race {
    enum mics_collective collective;
    uint32_t nodes, per_node; /* of the group */
    uint32_t segments;        /* of the hierarchical exchange; the flat one has none */
    uint32_t count;           /* 1 or more */
    struct mics_race_point points[MICS_RACE_POINTS];
};

/* Read "exchanges", if there are any, into the topology. */
enum mics_status mics_races_read(const json_t *doc, struct mics_topology *topology,
                                 struct mics_err *err);

/* An array as above. *out is the caller's. */
enum mics_status mics_races_to_doc(const struct mics_race *races, uint32_t count, json_t **out,
                                   struct mics_err *err);

/* NULL when that was not measured. */
const struct mics_race *mics_race_find(const struct mics_topology *topology,
                                       enum mics_collective collective, uint32_t nodes,
                                       uint32_t per_node, uint32_t segments);

/* Seconds for an array of so many bytes: between two points by a line in the logarithms, below the first point its time,
 * above the last in proportion to the bytes. */
double mics_race_flat(const struct mics_race *race, double bytes);
double mics_race_staged(const struct mics_race *race, double bytes);

/* The bytes of the first and the last point where the hierarchy is faster; 0: there is none. */
struct mics_race_window {
    double from, to;
};
struct mics_race_window mics_race_window(const struct mics_race *race);

#endif
