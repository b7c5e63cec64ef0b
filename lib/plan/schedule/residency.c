/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replacement is Belady's: a unit that has to come in takes the slot whose unit is needed again last,
 * which for a fixed sequence of uses gives the fewest gathers (Belady 1966). A pass goes through the
 * blocks and back, so that this is mostly the slot that has been idle for longest: the gather can
 * begin prefetch turns ahead. Slots whose units are not needed again are taken idlest first.
 */
#include "plan/schedule/residency.h"

#include "plan/schedule/schedule.h"

#include <stdlib.h>

uint32_t mics_course_length(const struct mics_course *course)
{
    return course->train ? course->micro_steps * (2 * course->stage_count - 1)
                         : course->stage_count;
}

struct mics_turn mics_course_turn(const struct mics_course *course, uint32_t turn)
{
    uint32_t pass = 2 * course->stage_count - 1, place = turn % pass;
    bool backward = place >= course->stage_count;

    return (struct mics_turn){.micro_step = turn / pass,
                              .stage = backward ? pass - 1 - place : place,
                              .backward = backward};
}

bool mics_course_ends_pass(const struct mics_course *course, uint32_t turn)
{
    const uint32_t pass = course->train ? 2 * course->stage_count - 1 : course->stage_count;

    return (turn + 1) % pass == 0;
}

bool mics_course_is_blind(const struct mics_course *course, const struct mics_model *model,
                          uint32_t turn)
{
    const struct mics_turn at = mics_course_turn(course, turn);

    return at.backward && !model->stages[at.stage].backward_needs_params;
}

/* What a slot holds. */
struct holder {
    uint32_t unit; /* or MICS_NONE */
    uint32_t last; /* newest turn that used it, or MICS_NONE */
    uint32_t next; /* next turn that will, or MICS_NONE: none */
};

static uint32_t unit_of(const struct mics_model *model, const struct mics_course *course,
                        uint32_t turn)
{
    return model->stages[mics_course_turn(course, turn).stage].unit;
}

/* next[i]: the next turn after i that reads the same unit. */
static uint32_t *find_next_uses(const struct mics_model *model, const struct mics_course *course)
{
    uint32_t turns = mics_course_length(course);
    uint32_t *next = malloc(turns * sizeof *next);
    uint32_t *upcoming = malloc(model->unit_count * sizeof *upcoming);

    if (next && upcoming) {
        for (uint32_t u = 0; u < model->unit_count; u++)
            upcoming[u] = MICS_NONE;
        for (uint32_t i = turns; i-- > 0;) {
            uint32_t unit = unit_of(model, course, i);

            next[i] = upcoming[unit];
            if (!mics_course_is_blind(course, model, i))
                upcoming[unit] = i;
        }
    } else {
        free(next);
        next = NULL;
    }
    free(upcoming);
    return next;
}

/* Is a the better one to give up? MICS_NONE is larger than any turn; an empty slot has last + 1 == 0. */
static bool give_up_first(const struct holder *a, const struct holder *b)
{
    return a->next != b->next ? a->next > b->next : a->last + 1 < b->last + 1;
}

static uint32_t find_slot(const struct holder *holders, uint32_t rotating, uint32_t unit,
                          bool *present)
{
    uint32_t best = 0;

    *present = true;
    for (uint32_t i = 0; i < rotating; i++)
        if (holders[i].unit == unit)
            return i;
    *present = false;
    for (uint32_t i = 1; i < rotating; i++)
        if (give_up_first(&holders[i], &holders[best]))
            best = i;
    return best;
}

static void replay(const struct mics_model *model, const struct mics_course *course,
                   const struct mics_slot_set *slots, const uint32_t *next, struct holder *holders,
                   struct mics_residency *out)
{
    for (uint32_t turn = 0; turn < mics_course_length(course); turn++) {
        uint32_t unit = unit_of(model, course, turn), slot;
        bool present;

        if (mics_course_is_blind(course, model, turn))
            continue;
        if (model->units[unit].resident) {
            slot = mics_slots_of_resident(model, slots, unit);
            present = holders[slot].unit == unit;
        } else {
            slot = find_slot(holders, slots->rotating, unit, &present);
        }
        if (!present)
            out->fetches[out->fetch_count++] =
                (struct mics_fetch){unit, slot, turn, holders[slot].last};
        holders[slot] = (struct holder){unit, turn, next[turn]};
        out->slot_of_turn[turn] = slot;
    }
}

enum mics_status mics_residency_new(const struct mics_model *model,
                                    const struct mics_course *course,
                                    const struct mics_slot_set *slots, struct mics_residency *out,
                                    struct mics_err *err)
{
    uint32_t turns = mics_course_length(course);
    uint32_t *next = find_next_uses(model, course);
    struct holder *holders = malloc((slots->total + 1) * sizeof *holders);

    *out = (struct mics_residency){.slot_of_turn = malloc(turns * sizeof(uint32_t)),
                                   .fetches = malloc(turns * sizeof(struct mics_fetch))};
    if (!next || !holders || !out->slot_of_turn || !out->fetches) {
        mics_residency_fini(out);
        free(next);
        free(holders);
        return mics_err_nomem(err);
    }
    for (uint32_t i = 0; i < slots->total; i++)
        holders[i] = (struct holder){MICS_NONE, MICS_NONE, MICS_NONE};
    for (uint32_t i = 0; i < turns; i++)
        out->slot_of_turn[i] = MICS_NONE;
    if (slots->total > 0)
        replay(model, course, slots, next, holders, out);
    free(next);
    free(holders);
    return MICS_OK;
}

void mics_residency_fini(struct mics_residency *residency)
{
    free(residency->slot_of_turn);
    free(residency->fetches);
    *residency = (struct mics_residency){0};
}
