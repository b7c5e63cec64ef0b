/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - choose a plan: of those that fit the memory, the one with the fastest predicted step.
 *
 * Every strategy (how far parameters, gradients and optimizer state are cut) is combined with every
 * micro-batch, level of recomputation, prefetch depth, number of segments and of coalesced units,
 * and with flat and hierarchical exchanges. Lower bounds that are never above the simulated step
 * decide which combinations need not be simulated; the plan is within 1 % of the best of all.
 */
#ifndef MICS_PLAN_SEARCH_SEARCH_H
#define MICS_PLAN_SEARCH_SEARCH_H

#include "plan/schedule/op_costs.h"

#define MICS_AUTO UINT32_MAX

/* Steps that differ by no more than this part count as equal. Among equal steps the simpler
 * strategy, with the smaller groups, is chosen. */
#define MICS_STEP_TIE 0.005

/* The longest interval that is chosen automatically, and the part of a step by which a second hop
 * may prolong it and counts as hidden. */
#define MICS_INTERVAL_AUTO_MAX 16
#define MICS_INTERVAL_HIDDEN   0.01

/* Loads that are expected of routers, assumed: with a loss that balances experts ranks are near
 * each other; without one loads grow apart, and half of the ranks may have nearly all rows. */
#define MICS_EXPERT_LOAD_BALANCED 1.25
#define MICS_EXPERT_LOAD_FREE     2.0

/* Exchanges of groups that span nodes. */
enum mics_hierarchy {
    MICS_HIERARCHY_AUTO, /* each of gathers and reductions: what is faster */
    MICS_HIERARCHY_ON,
    MICS_HIERARCHY_OFF
};

/* Where tokens meet the experts of other ranks (struct mics_plan_choice.dispatches). AUTO: resident
 * where the plan allows it, and a step is faster by more than MICS_STEP_TIE. */
enum mics_expert_way { MICS_EXPERTS_GATHERED, MICS_EXPERTS_RESIDENT, MICS_EXPERTS_AUTO };

/* Are masters and optimizer states in host memory? AUTO: only where nothing fits without. */
enum mics_offload { MICS_OFFLOAD_NONE, MICS_OFFLOAD_OPTIMIZER, MICS_OFFLOAD_AUTO };

struct mics_search_options {
    /* "auto" (or NULL), "ddp", "zero1", "zero2", "zero3", "mics", "mics:P", "hpz", "hpz:P" (with
     * secondary shards, which auto has not), or "P,G,O": the group sizes of parameters, gradients
     * and optimizer state. */
    const char *strategy;
    /* Ranks over which experts are cut, in a model that has them. 0: as dense units. MICS_AUTO: the
     * fastest where `strategy` is auto, else as dense units. */
    uint32_t expert_group;
    uint64_t global_batch; /* sequences per step; 0: one per rank */
    uint32_t seq;          /* tokens per sequence; 0: all positions of the model */
    uint32_t micro_batch;  /* sequences; 0: any divisor of a rank's share of the batch */
    uint64_t memory_limit; /* bytes per rank; 0: the topology's, less headroom */
    double headroom;       /* part of a GPU's memory, 0 to 0.9; none where ranks are on hosts */
    uint32_t recompute;    /* enum mics_recompute, or MICS_AUTO */
    enum mics_optimizer optimizer;
    uint32_t prefetch; /* units, or MICS_AUTO */
    uint32_t segments; /* of large units, 1 to 64; 0: 1, 2 or 4 */
    uint32_t coalesce; /* units that are exchanged together, 1 to 8; 0: 1, 2, 4 or 8 */
    enum mics_hierarchy hierarchical;
    /* enum mics_dtype. MICS_AUTO: see mics_search_dtype(). */
    uint32_t dtype;
    uint32_t grad_dtype; /* enum mics_dtype. MICS_AUTO: as dtype */
    bool clip;
    /* Blocks (MICS_INT8, MICS_INT4) in the second hop, up and down, and in the network stage of
     * hierarchical gathers (MICS_INT8); MICS_F32: none. They are used where a strategy has these
     * exchanges. */
    enum mics_dtype sync_dtype, sync_down_dtype, gather_dtype;
    bool sync_stochastic;
    /* Steps from one second hop of a unit to the next, 1 to MICS_INTERVAL_MAX; 0: 1. MICS_AUTO: the
     * fewest that hide it, at most MICS_INTERVAL_AUTO_MAX. */
    uint32_t sync_interval;
    uint32_t outer_steps; /* as in struct mics_plan_choice */
    double outer_lr, outer_momentum;
    bool outer_overlap;
    uint32_t sync_warmup; /* where there are an interval or outer steps */
    enum mics_offload offload;
    /* As in struct mics_plan: host memory of nodes with GPUs must be enough for these states. */
    uint64_t memory_every, memory_copies;
    /* What another trainer can do: the shapes and the levels of recomputation (an array) that it
     * has, and the most micro-steps. NULL and 0: all. */
    bool (*allows)(const struct mics_shape *shape);
    bool allows_secondary; /* with secondary shards; else without */
    const bool *recomputes;
    uint32_t micro_steps;
    enum mics_trainer trainer; /* whose memory counts */
    bool whole_grads;          /* as in struct mics_plan_choice */
    /* sync_dtype and sync_down_dtype are to be chosen: the weakest formats, in the fewest units,
     * with which a step is as fast, within MICS_STEP_TIE, as with any. */
    bool sync_auto;
    /* Of the plan that the search finds with gathered experts. */
    enum mics_expert_way experts;
    /* As in struct mics_plan_choice. 0: MICS_EXPERT_LOAD_BALANCED where a loss balances the experts
     * of the model, else MICS_EXPERT_LOAD_FREE. */
    double expert_load;
};

/* The memory that a plan may take of a rank, in bytes. */
uint64_t mics_search_memory(const struct mics_search_options *options,
                            const struct mics_topology *topology);

/* The type of a plan that the options say, or else the 16-bit type that the devices multiply, fp16
 * only where no other option excludes it; else f32. */
enum mics_dtype mics_search_dtype(const struct mics_search_options *options,
                                  const struct mics_topology *topology);

/* On success the plan owns topology and model; otherwise they stay the caller's. MICS_ERR_ARG: an
 * option is invalid for this model and cluster; the message has valid values. MICS_ERR_INFEASIBLE:
 * nothing fits; the message has the plan option that needs the least memory, and what would make it
 * fit. */
enum mics_status mics_plan_search(struct mics_topology *topology, struct mics_model *model,
                                  const struct mics_search_options *options, struct mics_plan **out,
                                  struct mics_err *err);

/* Predict a step of a choice by simulating its schedule. A step of many micro-steps is extrapolated
 * from two short ones, since the micro-steps in the middle are alike.
 * Never below mics_step_bound(). */
enum mics_status mics_plan_predict(struct mics_op_costs *costs, const struct mics_model *model,
                                   const struct mics_plan_choice *choice,
                                   struct mics_prediction *out, struct mics_err *err);

#endif
