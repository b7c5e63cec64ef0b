/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - choose a plan: of those that fit the memory, the one with the fastest predicted step.
 *
 * Candidates are strategies (how far parameters, gradients and optimizer state are cut). For each
 * the search considers micro-batch, recomputation, prefetch depth, segments, coalescing, and flat
 * or hierarchical exchanges. A bound in closed form (the load of the busiest resource) decides
 * which are simulated.
 */
#ifndef MICS_PLAN_SEARCH_SEARCH_H
#define MICS_PLAN_SEARCH_SEARCH_H

#include "plan/plan.h"

#define MICS_AUTO UINT32_MAX

struct mics_search_options {
    const char *strategy; /* "auto" (or NULL), "ddp", "zero1", "zero2", "zero3", "mics", "mics:P" */
    uint64_t global_batch; /* sequences per step; 0: one per rank */
    uint32_t seq;          /* tokens per sequence; 0: all positions of the model */
    uint32_t micro_batch;  /* sequences; 0: the largest power of two that fits */
    uint64_t memory_limit; /* bytes per rank; 0: the topology's */
    /* enum mics_recompute. MICS_AUTO: the faster of none and selective; full where neither fits. */
    uint32_t recompute;
    enum mics_optimizer optimizer;
    uint32_t prefetch; /* units, or MICS_AUTO */
    /* enum mics_dtype. MICS_AUTO: bf16 where the topology's FLOP/s are those of bf16, else f32. */
    uint32_t dtype;
    uint32_t grad_dtype; /* enum mics_dtype. MICS_AUTO: as dtype */
    bool clip;
};

/* On success the plan owns topology and model; otherwise they stay the caller's.
 * MICS_ERR_ARG: an option is invalid for this model and cluster; the message has valid values.
 * MICS_ERR_INFEASIBLE: nothing fits; the message has the least that is missing. */
enum mics_status mics_plan_search(struct mics_topology *topology, struct mics_model *model,
                                  const struct mics_search_options *options, struct mics_plan **out,
                                  struct mics_err *err);

/* Predict a step of a choice by simulating its schedule. A step of many micro-steps is extrapolated
 * from two short ones, since the micro-steps in the middle are alike. */
enum mics_status mics_plan_predict(const struct mics_topology *topology,
                                   const struct mics_model *model,
                                   const struct mics_plan_choice *choice,
                                   struct mics_prediction *out, struct mics_err *err);

#endif
