/* SPDX-License-Identifier: Apache-2.0 */
/* contender.h - a search under way: strategies with the settings that fit. Private to lib/plan. */
#ifndef MICS_PLAN_SEARCH_ENTRY_H
#define MICS_PLAN_SEARCH_ENTRY_H

#include "plan/search/candidate.h"

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
