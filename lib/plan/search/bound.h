/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound.h - a lower bound of the time of a step, without simulating it. Private to
 * lib/plan/search and its tests.
 *
 * A bound has three ingredients, which many choices share: the passes (computation, by micro-batch
 * and recomputation), the exchanges (by groups, hierarchy, segments and coalescing), and how many
 * gathers and reductions cannot leave a part of the step (by slots). Times are in seconds.
 */
#ifndef MICS_PLAN_SEARCH_BOUND_H
#define MICS_PLAN_SEARCH_BOUND_H

#include "plan/schedule/op_costs.h"

/* Caches of one model on one topology. One thread at a time. */
struct mics_bounds;

/* `costs` and `model` must outlive *out, which the caller frees. MICS_ERR_NOMEM. */
enum mics_status mics_bounds_new(struct mics_op_costs *costs, const struct mics_model *model,
                                 struct mics_bounds **out, struct mics_err *err);
void mics_bounds_free(struct mics_bounds *bounds); /* NULL is fine */

/* Computation of one micro-step. Stages are numbered 0 to n-1; n-1 is the head, which computes
 * forward and backward at once. */
struct mics_pass_times {
    double forward;       /* stages 0 to n-2 */
    double head;          /* stage n-1 */
    double backward;      /* stages n-2 to 1 */
    double last;          /* stage 0 backward */
    double first_forward; /* stage 0 */
    /* The parts of forward and backward that read a rotating parameter slot, and the part of
     * backward that writes a rotating gradient slot. */
    double forward_params, backward_params, backward_grads;
};

/* The passes of the first and of a later micro-step: [2]. They depend on micro_batch, seq,
 * recompute, the types, and on whether p_grad is 1. *out belongs to `bounds`. */
enum mics_status mics_bounds_passes(struct mics_bounds *bounds,
                                    const struct mics_plan_choice *choice,
                                    const struct mics_pass_times **out, struct mics_err *err);

/* What each unit's exchanges, norm and update take. */
struct mics_exchange_times;

/* They depend on all but micro-batch, recomputation and prefetch. The caller frees *out. */
enum mics_status mics_bounds_exchanges(struct mics_bounds *bounds,
                                       const struct mics_plan_choice *choice,
                                       struct mics_exchange_times **out, struct mics_err *err);
void mics_exchange_times_free(struct mics_exchange_times *times); /* NULL is fine */

/* The bound of a choice, of its passes and exchanges. MICS_ERR_NOMEM. */
enum mics_status mics_bounds_step(struct mics_bounds *bounds, const struct mics_plan_choice *choice,
                                  const struct mics_pass_times *passes,
                                  const struct mics_exchange_times *times, double *out,
                                  struct mics_err *err);

/* The same in one call, for a single choice. 0 if some units have another second hop than others;
 * where experts are resident or have groups of their own, only the time of computation, and for
 * which it waits for tokens. */
enum mics_status mics_step_bound(struct mics_op_costs *costs, const struct mics_model *model,
                                 const struct mics_plan_choice *choice, double *out,
                                 struct mics_err *err);

#endif
