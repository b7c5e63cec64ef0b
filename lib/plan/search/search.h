/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - choose a plan: the fastest by prediction of those that fit the memory.
 *
 * Candidates are strategies (how far parameters, gradients and optimizer state are cut); each gets the
 * best micro-batch, recomputation, prefetch depth, segments, and flat or hierarchical exchanges for
 * it. A bound in closed form (work of the busiest resource) says which are worth simulating.
 */
#ifndef MICS_PLAN_SEARCH_SEARCH_H
#define MICS_PLAN_SEARCH_SEARCH_H

#include "plan/plan.h"

#define MICS_AUTO UINT32_MAX

struct mics_search_options {
    const char *strategy; /* "auto" (or NULL), "ddp", "zero1", "zero2", "zero3", "mics", "mics:P" */
    uint64_t global_batch; /* sequences per step; 0: one per rank */
    uint32_t seq;          /* 0: all positions of the model */
    uint32_t micro_batch;  /* 0: the largest power of two that fits */
    uint64_t memory_limit; /* bytes per rank; 0: what the topology says */
    uint32_t recompute; /* enum mics_recompute; MICS_AUTO: none or selective, whichever is faster,
                              and full where neither fits */
    enum mics_optimizer optimizer;
    uint32_t prefetch; /* or MICS_AUTO */
    uint32_t
        dtype; /* enum mics_dtype; MICS_AUTO: bf16 where the device's rate is of bf16, else f32 */
    uint32_t grad_dtype; /* likewise; MICS_AUTO: as dtype */
    bool clip;
};

/* On success the plan owns topology and model; otherwise they stay the caller's.
 * MICS_ERR_ARG: an option that makes no sense for this model and cluster, with near values that do.
 * MICS_ERR_INFEASIBLE: nothing fits, and by how much. */
enum mics_status mics_plan_search(struct mics_topology *topology, struct mics_model *model,
                                  const struct mics_search_options *options, struct mics_plan **out,
                                  struct mics_err *err);

/* Predict a step of a choice on a topology, by simulating its schedule. A step of many micro-steps is
 * extended from two short ones: micro-steps in the middle are alike. */
enum mics_status mics_plan_predict(const struct mics_topology *topology,
                                   const struct mics_model *model,
                                   const struct mics_plan_choice *choice,
                                   struct mics_prediction *out, struct mics_err *err);

#endif
