/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - a schedule under construction. Private to lib/plan. */
#ifndef MICS_PLAN_SCHEDULE_BUILD_H
#define MICS_PLAN_SCHEDULE_BUILD_H

#include "plan/schedule/residency.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/routes.h"

struct mics_build {
    const struct mics_model *model;
    const struct mics_plan_choice *choice;
    struct mics_wiring wiring;
    struct mics_course course;
    struct mics_slot_set params, grads;
    struct mics_residency residency;
    uint32_t next_fetch; /* fetches before it have their gathers */
    uint32_t next_grad_slot;
    uint32_t pending[MICS_JOINED_MAX +
                     1]; /* units whose gradients wait for others, to be reduced with them */
    uint32_t pending_count;
    uint32_t *grad_slot_of_unit; /* while its gradients are there; else MICS_NONE */
    uint32_t *grads_left;        /* stages of the unit whose gradients are still to come */
    uint32_t *unit_order;        /* units by their first use */
    struct mics_schedule *out;
    uint32_t capacity;
    bool failed; /* out of memory: remembered, reported at the end */
};

/* Append an operation; the build remembers a failure. */
void mics_build_append(struct mics_build *build, const struct mics_op *op);

/* Append every segment and hop of an exchange of `count` units, which travel together if they have as many segments.
 * `like` gives kind, unit, micro-step and slots of each. */
void mics_build_exchange(struct mics_build *build, const struct mics_exchange *exchange,
                         enum mics_collective collective, const struct mics_op *like,
                         uint32_t count);

/* The parts of a step, in the order in which they are issued. */
void mics_build_passes(struct mics_build *build);
void mics_build_finish(struct mics_build *build);

/* Fill in what every operation waits for: hazard.c. */
enum mics_status mics_build_deps(struct mics_schedule *schedule,
                                 const struct mics_plan_choice *choice, struct mics_err *err);

#endif
