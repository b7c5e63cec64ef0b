/* SPDX-License-Identifier: Apache-2.0 */
/* candidate.h - the parts of the search: strategies, exchanges, a bound in closed form. Private to lib/plan. */
#ifndef MICS_PLAN_SEARCH_CANDIDATE_H
#define MICS_PLAN_SEARCH_CANDIDATE_H

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

#endif
