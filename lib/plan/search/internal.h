/* SPDX-License-Identifier: Apache-2.0 */
/* candidate.h - the parts of the search: strategies, exchanges, a bound in closed form. Private to lib/plan. */
#ifndef MICS_PLAN_SEARCH_INTERNAL_H
#define MICS_PLAN_SEARCH_INTERNAL_H

#include "plan/search/search.h"

struct mics_candidate {
    struct mics_shape shape;
    const char *strategy; /* "mics" */
};

/* The strategies that options->strategy allows on this cluster, simplest first: by the size of the optimizer
 * group, then of the gradient group, then of the parameter group. *out is the caller's, to free(). */
enum mics_status mics_candidates(const struct mics_topology *topology, const char *strategy,
                                 struct mics_candidate **out, uint32_t *count,
                                 struct mics_err *err);

/* Decide segments, and flat or hierarchical, for a choice's shape: by the cost of gathering and reducing all
 * units once, with the stages of one unit overlapping from segment to segment. */
void mics_choose_exchanges(const struct mics_topology *topology, const struct mics_model *model,
                           struct mics_plan_choice *choice);

/* How many units should join one, so that latency is a tenth of the time on the wires at most: 0, 1, 3 or 7, and no more
 * than half of the units. A unit in the middle of the model stands for all. */
uint32_t mics_choose_joined(const struct mics_topology *topology, const struct mics_model *model,
                            const struct mics_plan_choice *choice);

/* Seconds below which no step of this choice can be predicted: the work of the busiest resource, of
 * computation, links inside nodes, and network cards. */
double mics_step_bound(const struct mics_topology *topology, const struct mics_model *model,
                       const struct mics_plan_choice *choice);

/* contender.h - a search under way: strategies with the settings that fit. Private to lib/plan. */


enum { MICS_MAX_SETTINGS = 16 }; /* five of each level of recomputation */

/* Steps closer than this are equal: no prediction is more exact (the best published ones are 2 to 10 %
 * off), and then the simpler strategy, with the smaller groups, is the better choice. */
#define MICS_STEP_TIE 0.03

/* One way to run a strategy. */
struct mics_setting {
    struct mics_plan_choice choice;
    uint64_t total_bytes;
    double bound_s;
};

/* A strategy with its settings that fit, best bound first; if none does, the one that needs least. */
struct mics_contender {
    struct mics_setting settings[MICS_MAX_SETTINGS];
    uint32_t setting_count; /* that fit */
    struct mics_setting least;
    struct mics_prediction predicted; /* of settings[best]; only a bound if not simulated */
    uint32_t best;
    bool simulated;
};

struct mics_search {
    const struct mics_topology *topology;
    const struct mics_model *model;
    struct mics_search_options options; /* with defaults filled in */
    struct mics_contender *contenders;
    uint32_t count;
};

/* Fill in defaults, and refuse what makes no sense for this model and cluster. */
enum mics_status mics_search_fill_in(struct mics_search *search, struct mics_err *err);

/* Find the settings of one strategy. *out must be zero. */
enum mics_status mics_search_settings(const struct mics_search *search,
                                      const struct mics_candidate *candidate,
                                      struct mics_contender *out, struct mics_err *err);

/* The plan of the chosen contender, without topology and model, with a verdict on every other. */
enum mics_status mics_search_report(const struct mics_search *search,
                                    const struct mics_contender *chosen, struct mics_plan **out,
                                    struct mics_err *err);

/* Nothing fits: MICS_ERR_INFEASIBLE, and by how much. */
enum mics_status mics_search_refuse(const struct mics_search *search, struct mics_err *err);

#endif
