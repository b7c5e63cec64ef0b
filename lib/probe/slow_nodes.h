/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_nodes.h - find slow ranks and links, and choose the nodes to leave out.
 *
 * A measurement in which a rank or a link is slow is repeated, twice, each time for twice as long:
 * on a shared machine, disturbances come and go. Only what is slow in every round is reported.
 */
#ifndef MICS_PROBE_SLOW_NODES_H
#define MICS_PROBE_SLOW_NODES_H

#include "measure/links.h"
#include "measure/statistics.h"

#include <jansson.h>

/* Slow ranks and links found so far. */
struct mics_slow_nodes {
    const struct mics_world *world; /* the caller's */
    json_t *list;                   /* "outliers" of the document, see topology.h */
    bool *slow;                     /* [node_count] a rank or a link inside the node is slow */
    bool *slow_edge;                /* [node_count] the link to the next node on the ring is slow */
    double *edge_times;             /* [node_count] seconds of a long message on that link */
    struct mics_rates own;          /* of this rank, of the newest round */
};

enum mics_status mics_slow_nodes_init(struct mics_slow_nodes *nodes, const struct mics_world *world,
                                      struct mics_err *err);
void mics_slow_nodes_fini(struct mics_slow_nodes *nodes);

/* Measure products and copies on all ranks at once, for about `seconds` each, and add slow ranks.
 * *flops and *memory_rate are the medians over ranks. Collective. */
enum mics_status mics_slow_nodes_measure_ranks(struct mics_slow_nodes *nodes,
                                               const struct mics_bench *bench, double seconds,
                                               double *flops, double *memory_rate,
                                               struct mics_err *err);

/* Measure pairs of neighbours by mics_links_measure(), whose conditions hold, and add slow links.
 * *link is the class's. Collective. */
enum mics_status mics_slow_nodes_measure_links(struct mics_slow_nodes *nodes,
                                               const struct mics_bench *bench,
                                               enum mics_link_class class, double seconds,
                                               struct mics_link *link, struct mics_err *err);

/* Both, for all classes of links that the world has, in about `seconds` altogether; more when
 * measurements are repeated. Collective. */
enum mics_status mics_slow_nodes_measure(struct mics_slow_nodes *nodes,
                                         const struct mics_bench *bench, double seconds,
                                         struct mics_err *err);

/* The indices of the nodes to leave out: those with a slow rank or link inside, and of each two
 * with a slow link between them the one that has more slow links; if both have as many, the one
 * whose other link is slower, else the later one. *out is a new array. */
enum mics_status mics_slow_nodes_indices(const struct mics_slow_nodes *nodes, json_t **out,
                                         struct mics_err *err);

/*
 * One kind of candidates, ranks or pairs, over the rounds of a measurement. Each has two times: a
 * rank's are seconds per FLOP and per byte, a pair's those of a short and of a long message.
 */
enum { MICS_SLOW_METRICS = 2 };

struct mics_slow_candidates {
    uint32_t count;
    double *times[MICS_SLOW_METRICS];             /* [count], set by the caller in each round */
    bool *slow[MICS_SLOW_METRICS];                /* [count]: slow in every round so far */
    struct mics_class classes[MICS_SLOW_METRICS]; /* of the newest round */
};

enum mics_status mics_slow_candidates_init(struct mics_slow_candidates *candidates, uint32_t count,
                                           struct mics_err *err);
void mics_slow_candidates_fini(struct mics_slow_candidates *candidates);

/* Compare each time with all others of its metric and drop the candidates that are not slow now.
 * *left is the number of those that remain, counted for each metric. */
enum mics_status mics_slow_candidates_filter(struct mics_slow_candidates *candidates,
                                             uint32_t *left, struct mics_err *err);

/* Add the remaining candidates. */
enum mics_status mics_slow_nodes_add_ranks(struct mics_slow_nodes *nodes,
                                           const struct mics_slow_candidates *candidates,
                                           struct mics_err *err);
enum mics_status mics_slow_nodes_add_pairs(struct mics_slow_nodes *nodes,
                                           enum mics_link_class class,
                                           const struct mics_pair *pairs,
                                           const struct mics_slow_candidates *candidates,
                                           struct mics_err *err);

#endif
