/* SPDX-License-Identifier: Apache-2.0 */
/* search_internal.h - what the parts of the search share. Private to lib/plan/search, its tests and
 * benchmarks. */
#ifndef MICS_PLAN_SEARCH_SEARCH_INTERNAL_H
#define MICS_PLAN_SEARCH_SEARCH_INTERNAL_H

#include "plan/search/bound.h"
#include "plan/search/search.h"

/* A plan option is not simulated if its bound is less than this part faster than the best step.
 * With MICS_STEP_TIE the plan is at most 1 % slower than the best. */
#define MICS_STEP_PRUNE 0.003

/* A strategy by name and cut. */
struct mics_strategy {
    struct mics_shape shape;
    const char *name; /* "mics" */
    bool secondary_shards;
};

/* One way to run a strategy. */
struct mics_plan_option {
    struct mics_plan_choice choice;
    uint64_t total_bytes; /* per rank */
};

/* How units are exchanged. */
struct mics_exchange_option {
    uint32_t segments, coalesce;
    bool hierarchical_gather, hierarchical_reduce;
};

/* One point of the space of plan options. */
struct mics_search_point {
    uint32_t alternative, option, level, micro_batch; /* indices */
    uint32_t prefetch;
};

/* A strategy in a search, and the best of its plan options. */
struct mics_search_alternative {
    struct mics_strategy strategy;
    struct mics_plan_option least;    /* the plan option that needs the least memory */
    double bound_s;                   /* no plan option that fits is faster; INFINITY: none fits */
    struct mics_search_point fastest; /* has that bound; its prefetch may be too large */
    struct mics_exchange_option *options;
    struct mics_exchange_times **times; /* [option_count] */
    uint32_t option_count;
    uint64_t lacks_host; /* bytes of host memory that a node lacks for it; 0: it fits */
    bool sync_gathers;   /* of the routes of a second hop in blocks, the faster one */
    /* Memory with the least of all plan options, by hierarchical_gather + 2 * hierarchical_reduce,
     * and of one more slot. */
    uint64_t base_bytes[4];
    uint64_t param_slot_bytes, grad_slot_bytes;
    struct mics_plan_option best; /* of those that were simulated */
    struct mics_prediction predicted;
    bool simulated;
    bool excluded; /* not what was asked for: it is not listed */
};

/* What the plan options of all strategies are made of. */
struct mics_search_space {
    uint32_t *micro_batches, micro_batch_count; /* divisors of a rank's share, from 1 */
    uint32_t levels[MICS_RECOMPUTE_LEVELS], level_count;
    uint32_t *prefetches, prefetch_count; /* increasing */
    uint32_t rotating;                    /* units that are not resident */
    int64_t *activation_bytes; /* [level_count][micro_batch_count], relative to the first */
};

/* A search in progress. */
struct mics_search {
    const struct mics_topology *topology;
    const struct mics_model *model;
    struct mics_op_costs *costs;
    struct mics_bounds *bounds;
    struct mics_search_options options; /* with defaults filled in */
    struct mics_search_space space;
    /* Simplest strategy first; there is room for one more. */
    struct mics_search_alternative *alternatives;
    uint32_t count;
    uint64_t simulations;
};

/* Options are completed and checked, strategies and dimensions listed. The caller calls
 * mics_search_fini() in any case. */
enum mics_status mics_search_init(struct mics_search *search, const struct mics_topology *topology,
                                  const struct mics_model *model,
                                  const struct mics_search_options *options, struct mics_err *err);
void mics_search_fini(struct mics_search *search);

/* The plan of an alternative of the search, without topology and model. */
enum mics_status mics_search_make_plan(const struct mics_search *search,
                                       const struct mics_search_alternative *chosen,
                                       struct mics_plan **out, struct mics_err *err);

/* Search with this interval and the formats of the options; *out has no topology and no model. */
enum mics_status mics_search_once(const struct mics_topology *topology,
                                  const struct mics_model *model,
                                  const struct mics_search_options *options, uint32_t interval,
                                  struct mics_plan **out, struct mics_err *err);

/* The strategies that `strategy` allows on this cluster, simplest first: by the size of the
 * optimizer group, then of the gradient group, then of the parameter group. *out belongs to the
 * caller, who calls free(). MICS_ERR_ARG: no such strategy. */
enum mics_status mics_search_strategies(const struct mics_topology *topology, const char *strategy,
                                        struct mics_strategy **out, uint32_t *count,
                                        struct mics_err *err);

/* space.c: the dimensions of the search, and each alternative's options and memory. */
enum mics_status mics_search_space_init(struct mics_search *search, struct mics_err *err);
void mics_search_space_fini(struct mics_search *search);

struct mics_plan_choice mics_search_choice(const struct mics_search *search,
                                           const struct mics_search_point *point);
/* Set the wire formats of a choice of this alternative, of which all other members are set. */
void mics_search_set_formats(const struct mics_search *search,
                             const struct mics_search_alternative *alternative,
                             struct mics_plan_choice *choice);
/* The least and the most prefetch that an option can have; false: none. Most is a necessary
 * condition for the memory limit only. */
bool mics_search_prefetch_range(const struct mics_search *search,
                                const struct mics_search_point *point, uint32_t *least,
                                uint32_t *most);
/* Do the plan option that needs the least memory and what it has in host memory fit? */
bool mics_search_fits(const struct mics_search *search,
                      const struct mics_search_alternative *alternative);
/* The memory of a node for the in-memory checkpoints of a choice; 0: there are none. */
uint64_t mics_search_memory_ckpt(const struct mics_search *search,
                                 const struct mics_plan_choice *choice);
/* The host memory that a node lacks for a choice and these checkpoints. It hardly depends on
 * anything but the groups. */
enum mics_status mics_search_lacks_host(const struct mics_search *search,
                                        const struct mics_plan_choice *choice, uint64_t *bytes,
                                        struct mics_err *err);
/* The bytes of a choice. */
enum mics_status mics_search_bytes(const struct mics_search *search,
                                   const struct mics_plan_choice *choice, uint64_t *bytes,
                                   struct mics_err *err);

/* Every plan option of the listed depths that fits; no bound is used. Stops when visit() fails. For
 * tests and benchmarks, which compare it with the search. */
enum mics_status mics_search_visit(struct mics_search *search,
                                   enum mics_status (*visit)(void *context,
                                                             const struct mics_plan_choice *choice,
                                                             struct mics_err *err),
                                   void *context, struct mics_err *err);

/* The times of a step by class, extrapolated as in mics_plan_predict(). */
enum mics_status mics_plan_predict_classes(struct mics_op_costs *costs,
                                           const struct mics_model *model,
                                           const struct mics_plan_choice *choice,
                                           struct mics_class_times *out, struct mics_err *err);
/* mics_plan_predict() of a choice whose mics_step_bound() is known. */
enum mics_status mics_plan_predict_above(struct mics_op_costs *costs,
                                         const struct mics_model *model,
                                         const struct mics_plan_choice *choice, double bound_s,
                                         struct mics_prediction *out, struct mics_err *err);

/* The part by which the second hop prolongs a step, of what that takes without. */
enum mics_status mics_second_hop_share(struct mics_op_costs *costs, const struct mics_model *model,
                                       const struct mics_plan_choice *choice, double *out,
                                       struct mics_err *err);

/* expert_groups.c */

/* Are experts to be cut over other groups than dense units, or may they be? */
bool mics_search_wants_expert_groups(const struct mics_search *search);
/* MICS_ERR_ARG: experts cannot be cut over groups of the size that is asked for. */
enum mics_status mics_search_check_expert_group(const struct mics_search *search,
                                                struct mics_err *err);
/* The fastest of the plans that were simulated whose experts have groups of their own, of those
 * that may be faster than best_s (INFINITY: all). *out is not `simulated` if there is none. */
enum mics_status mics_search_expert_groups(struct mics_search *search, double best_s,
                                           struct mics_search_alternative *out,
                                           struct mics_err *err);

/* The smallest groups of experts that the options allow with which something fits, or else what
 * needs the least memory: `least` and `lacks_host` of *out. UINT64_MAX bytes: no groups of their
 * own are possible. */
enum mics_status mics_search_least_expert_group(const struct mics_search *search,
                                                struct mics_search_alternative *out,
                                                struct mics_err *err);

/* The fastest of the plans with resident experts that were simulated, of those that may be faster
 * than best_s, in the groups that the options allow. *out is not `simulated` if there is none.
 * `any`: if none is faster, one that has the least bound. */
enum mics_status mics_search_resident(struct mics_search *search, double best_s, bool any,
                                      struct mics_search_alternative *out, struct mics_err *err);
/* Is there any? */
bool mics_search_resident_fits(struct mics_search *search);

/* experts.c */

/* The load for which resident experts are planned, at most that of a rank to which all ranks send
 * whatever they can. Depends on micro-batch and groups of the choice. */
double mics_search_expert_load(const struct mics_model *model,
                               const struct mics_search_options *options,
                               const struct mics_plan_choice *choice);
/* A plan without topology and model that has gathered experts, or NULL where none fits, becomes one
 * with resident experts if the options say so. MICS_ERR_ARG, MICS_ERR_INFEASIBLE: it cannot have
 * them; with MICS_EXPERTS_AUTO it is left as it is. Where *plan is NULL and stays so,
 * MICS_ERR_INFEASIBLE, and *err is what it was. */
enum mics_status mics_search_experts(const struct mics_topology *topology,
                                     const struct mics_model *model,
                                     const struct mics_search_options *options,
                                     struct mics_plan **plan, struct mics_err *err);

/* report.c */

/* Will the alternatives of a plan have a row for it? */
bool mics_search_is_listed(const struct mics_search *search,
                           const struct mics_search_alternative *alternative,
                           const struct mics_search_alternative *chosen);
/* The alternatives of a plan: one row for each family, of those that are worth reading. */
enum mics_status mics_search_report(const struct mics_search *search,
                                    const struct mics_search_alternative *chosen,
                                    struct mics_plan *plan, struct mics_err *err);
/* The largest global batch that fits, where the one that is asked for has more sequences per rank
 * than a step may have micro-steps; 0: it has not, none fits, or the micro-batch is given. */
uint64_t mics_search_largest_batch(const struct mics_search *search);
/* Nothing fits: the plan option that needs the least memory, and what would make it fit. Returns
 * MICS_ERR_INFEASIBLE. */
enum mics_status mics_search_report_infeasible(const struct mics_search *search,
                                               struct mics_err *err);

#endif
