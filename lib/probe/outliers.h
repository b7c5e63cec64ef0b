/* SPDX-License-Identifier: Apache-2.0 */
/* outliers.h - the findings of a probe: which ranks and links are slow, and which nodes to leave out. */
#ifndef MICS_PROBE_OUTLIERS_H
#define MICS_PROBE_OUTLIERS_H

#include "bench/links.h"
#include "probe/suspects.h"

#include <jansson.h>

struct mics_outliers {
    const struct mics_world *world; /* the caller's */
    json_t *list;                   /* as in the document: see topology.h */
    bool *bad;                      /* [node_count] a rank or a link inside the node is slow */
    bool *slow_edge;                /* [node_count] a link from this node to the next on the ring */
};

enum mics_status mics_outliers_init(struct mics_outliers *outliers, const struct mics_world *world,
                                    struct mics_err *err);
void mics_outliers_fini(struct mics_outliers *outliers);

/* Add the suspects that are left. Ranks: their times are seconds per FLOP and per byte. */
enum mics_status mics_outliers_add_ranks(struct mics_outliers *outliers,
                                         const struct mics_suspects *suspects,
                                         struct mics_err *err);
enum mics_status mics_outliers_add_pairs(struct mics_outliers *outliers, enum mics_link_class class,
                                         const struct mics_pair *pairs,
                                         const struct mics_suspects *suspects,
                                         struct mics_err *err);

/* The indices of the nodes to leave out: those with a slow rank or link inside, and of each two
 * with a slow link between them the one that has more slow links (the later one if both are alike).
 * *out is a new array. */
enum mics_status mics_outliers_bad_nodes(const struct mics_outliers *outliers, json_t **out,
                                         struct mics_err *err);

#endif
