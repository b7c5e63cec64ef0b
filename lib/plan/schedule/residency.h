/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency.h - which gathered unit sits in which slot at each moment of a step.
 *
 * Decided once, when the schedule is made, and replayed every step. Parameters do not change inside a
 * step, so a unit that still sits in its slot is not gathered again, not even by a later micro-step.
 */
#ifndef MICS_PLAN_SCHEDULE_RESIDENCY_H
#define MICS_PLAN_SCHEDULE_RESIDENCY_H

#include "plan/slots.h"

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

#endif
