/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - the parts that mics_schedule_new() is made of. Private to lib/plan. */
#ifndef MICS_PLAN_SCHEDULE_BUILD_H
#define MICS_PLAN_SCHEDULE_BUILD_H

#include "plan/schedule/schedule.h"
#include "plan/trainer_exchanges.h"

/* The order in which a step computes, numbered from 0: in each micro-step all stages forward, then
 * (in training) all but the last stage backward. */
struct mics_compute_order {
    uint32_t stage_count, micro_steps;
    bool train;
    const struct mics_trainer_exchanges *exchanges;
};

struct mics_computation {
    uint32_t micro_step, stage;
    bool backward;
};

uint32_t mics_compute_order_length(const struct mics_compute_order *order);
struct mics_computation mics_compute_order_at(const struct mics_compute_order *order,
                                              uint32_t index);
/* Is it the last computation of its micro-step? */
bool mics_compute_order_ends_micro_step(const struct mics_compute_order *order, uint32_t index);
/* Are the parameters of its unit gathered for it? */
bool mics_compute_order_needs_params(const struct mics_compute_order *order,
                                     const struct mics_model *model, uint32_t index);

/* A gather of a unit into a slot. Computation `needed` is the first that reads it; computation
 * `former` is the last that reads what the slot held before, MICS_NONE: the slot is free from the
 * beginning of the step. */
struct mics_fetch {
    uint32_t unit, slot;
    uint32_t needed, former;
};

/* Which gathered unit is in which slot at each moment of a step. It is decided once and replayed in
 * every step. Parameters do not change inside a step, so mics does not gather a unit again that is
 * still in its slot, even for a later micro-step; other trainers do (mics_trainer_exchanges). */
struct mics_residency {
    uint32_t *slots; /* [computations]; MICS_NONE: parameters in the shard, or not needed */
    struct mics_fetch *fetches; /* in the order of `needed` */
    uint32_t fetch_count;
};

/* MICS_ERR_NOMEM: out of memory. The caller calls mics_residency_fini() after success. */
enum mics_status mics_residency_init(const struct mics_model *model,
                                     const struct mics_compute_order *order,
                                     const struct mics_slot_set *slots, struct mics_residency *out,
                                     struct mics_err *err);
void mics_residency_fini(struct mics_residency *residency);

/* Fill in what every operation of a schedule waits for (dependencies.c). MICS_ERR_NOMEM. */
enum mics_status mics_schedule_add_dependencies(struct mics_schedule *schedule,
                                                const struct mics_plan_choice *choice,
                                                struct mics_err *err);

#endif
