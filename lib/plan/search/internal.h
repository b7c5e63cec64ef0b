/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the parts of the search share. Private to lib/plan/search and its tests. */
#ifndef MICS_PLAN_SEARCH_INTERNAL_H
#define MICS_PLAN_SEARCH_INTERNAL_H

#include "plan/search/search.h"

/* Steps whose times differ by less than this fraction count as equal: no prediction is more exact
 * (the best published ones are off by 2 to 10 %). Of equal steps the simpler strategy, with the
 * smaller groups, is chosen. */
#define MICS_STEP_TIE 0.03

enum { MICS_MAX_SETTINGS = 16 }; /* five for each level of recomputation */

struct mics_candidate {
    struct mics_shape shape;
    const char *strategy; /* "mics" */
};

/* One way to run a strategy. */
struct mics_setting {
    struct mics_plan_choice choice;
    uint64_t total_bytes; /* per rank */
    double bound_s;
};

/* A strategy with its settings that fit, lowest bound first. */
struct mics_search_entry {
    struct mics_setting settings[MICS_MAX_SETTINGS];
    uint32_t setting_count;
    struct mics_setting least;        /* the setting that needs the least memory */
    struct mics_prediction predicted; /* of settings[best]; not simulated: step_s is its bound */
    uint32_t best;
    bool simulated;
};

/* A search in progress. */
struct mics_search {
    const struct mics_topology *topology;
    const struct mics_model *model;
    struct mics_search_options options; /* with defaults filled in */
    struct mics_search_entry *entries;  /* simplest strategy first */
    uint32_t count;
};

/* The strategies that `strategy` allows on this cluster, simplest first: by the size of the
 * optimizer group, then of the gradient group, then of the parameter group. *out belongs to the
 * caller, who calls free(). MICS_ERR_ARG: no such strategy. */
enum mics_status mics_search_candidates(const struct mics_topology *topology, const char *strategy,
                                        struct mics_candidate **out, uint32_t *count,
                                        struct mics_err *err);

/* Find the settings of one strategy. *out must be zero. */
enum mics_status mics_search_settings(const struct mics_search *search,
                                      const struct mics_candidate *candidate,
                                      struct mics_search_entry *out, struct mics_err *err);

/* Choose segments, and flat or hierarchical exchanges, for a choice's shape: by the time of
 * gathering and reducing all units once, with the hops of one unit overlapping from segment to
 * segment. */
void mics_choose_exchanges(const struct mics_topology *topology, const struct mics_model *model,
                           struct mics_plan_choice *choice);

/* The number of units to coalesce with one, so that latency is at most a tenth of the communication
 * time: 0, 1, 3 or 7, and at most half of the units together. The unit in the middle of the model
 * represents all. */
uint32_t mics_choose_coalesced(const struct mics_topology *topology, const struct mics_model *model,
                               const struct mics_plan_choice *choice);

/* A lower bound in seconds of the predicted step of a choice: the load of the busiest resource of
 * computation, links inside nodes, and network cards. */
double mics_step_bound(const struct mics_topology *topology, const struct mics_model *model,
                       const struct mics_plan_choice *choice);

#endif
