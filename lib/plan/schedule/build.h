/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - a schedule under construction. Private to lib/plan. */
#ifndef MICS_PLAN_SCHEDULE_BUILD_H
#define MICS_PLAN_SCHEDULE_BUILD_H

#include "plan/schedule/schedule.h"
#include "plan/layout.h"

/*
 * residency.h - which gathered unit sits in which slot at each moment of a step.
 *
 * Decided once, when the schedule is made, and replayed every step. Parameters do not change inside a
 * step, so a unit that still sits in its slot is not gathered again, not even by a later micro-step.
 */

/* The computations of a step, numbered in order: per micro-step the stages forward, then (when
 * training) all but the last backward. */
struct mics_course {
    uint32_t stage_count, micro_steps;
    bool train;
};

struct mics_turn {
    uint32_t micro_step, stage;
    bool backward;
};

uint32_t mics_course_length(const struct mics_course *course);
struct mics_turn mics_course_turn(const struct mics_course *course, uint32_t turn);
/* Is it the last computation of its micro-step? */
bool mics_course_ends_pass(const struct mics_course *course, uint32_t turn);
/* Does it read no parameters? Then its unit need not be there. */
bool mics_course_is_blind(const struct mics_course *course, const struct mics_model *model,
                          uint32_t turn);

/* A unit that must be gathered into a slot before turn `needed`, and not before the slot's former user
 * `former` (a turn of this step, or MICS_NONE: free since the step before). */
struct mics_fetch {
    uint32_t unit, slot;
    uint32_t needed, former;
};

struct mics_residency {
    uint32_t *slot_of_turn; /* [turns]; MICS_NONE: computed from the shard, or without parameters */
    struct mics_fetch *fetches;
    uint32_t fetch_count;
};

enum mics_status mics_residency_new(const struct mics_model *model,
                                    const struct mics_course *course,
                                    const struct mics_slot_set *slots, struct mics_residency *out,
                                    struct mics_err *err);
void mics_residency_fini(struct mics_residency *residency);

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
