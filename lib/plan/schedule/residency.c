/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency.c - the order of computations, and which unit occupies which parameter slot when.
 *
 * Replacement is Belady's: a unit that is gathered takes the slot whose unit is needed again last,
 * which gives the fewest gathers for a known sequence of uses (Belady 1966). A micro-step goes
 * through the blocks and back, so this is mostly the slot that has been idle for longest, and the
 * gather can begin `prefetch` computations ahead. Among slots whose units are not needed again,
 * the one that has been idle for longest is taken first.
 *
 * A trainer that releases units after each pass leaves empty slots behind, and gathers more.
 */
#include "plan/schedule/build.h"

#include <stdlib.h>

/* Computations of one micro-step. */
static uint32_t micro_step_length(const struct mics_compute_order *order)
{
    return order->train ? 2 * order->stage_count - 1 : order->stage_count;
}

uint32_t mics_compute_order_length(const struct mics_compute_order *order)
{
    return order->micro_steps * micro_step_length(order);
}

struct mics_computation mics_compute_order_at(const struct mics_compute_order *order,
                                              uint32_t index)
{
    const uint32_t length = micro_step_length(order), offset = index % length;
    const bool backward = offset >= order->stage_count;

    return (struct mics_computation){.micro_step = index / length,
                                     .stage = backward ? length - 1 - offset : offset,
                                     .backward = backward};
}

bool mics_compute_order_ends_micro_step(const struct mics_compute_order *order, uint32_t index)
{
    return (index + 1) % micro_step_length(order) == 0;
}

bool mics_compute_order_needs_params(const struct mics_compute_order *order,
                                     const struct mics_model *model, uint32_t index)
{
    const struct mics_computation computation = mics_compute_order_at(order, index);
    const struct mics_stage *stage = &model->stages[computation.stage];

    if (order->exchanges->releases)
        return stage->unit != MICS_NO_UNIT;
    return mics_stage_needs_params(stage, computation.backward);
}

static uint32_t unit_of(const struct mics_model *model, const struct mics_compute_order *order,
                        uint32_t index)
{
    return model->stages[mics_compute_order_at(order, index).stage].unit;
}

/* next[i]: where computation i reads parameters, the next one that reads those of the same unit. */
static uint32_t *find_next_uses(const struct mics_model *model,
                                const struct mics_compute_order *order)
{
    const uint32_t length = mics_compute_order_length(order);
    uint32_t *next = malloc(length * sizeof *next);
    uint32_t *upcoming = malloc(model->unit_count * sizeof *upcoming);

    if (!next || !upcoming) {
        free(next);
        free(upcoming);
        return NULL;
    }
    for (uint32_t u = 0; u < model->unit_count; u++)
        upcoming[u] = MICS_NONE;
    for (uint32_t i = length; i-- > 0;) {
        const uint32_t unit = unit_of(model, order, i);

        if (!mics_compute_order_needs_params(order, model, i))
            continue;
        next[i] = upcoming[unit];
        upcoming[unit] = i;
    }
    free(upcoming);
    return next;
}

static bool is_head(const struct mics_compute_order *order, uint32_t index)
{
    return order->train && mics_compute_order_at(order, index).stage + 1 == order->stage_count;
}

/* Elements of parameters that the computations between two of them use. The head has two passes. */
static uint64_t distance(const struct mics_model *model, const struct mics_compute_order *order,
                         uint32_t from, uint32_t to)
{
    uint64_t elements = 0;

    for (uint32_t i = from + 1; i < to; i++)
        if (mics_compute_order_needs_params(order, model, i))
            elements += model->units[unit_of(model, order, i)].count << is_head(order, i);
    return elements;
}

/* Does a unit stay in its slot from one computation to the next that uses it? */
static bool stays(const struct mics_model *model, const struct mics_compute_order *order,
                  uint32_t from, uint32_t to)
{
    const struct mics_trainer_exchanges *exchanges = order->exchanges;

    if (!exchanges->releases)
        return true;
    if (to == MICS_NONE || mics_compute_order_at(order, to).micro_step !=
                               mics_compute_order_at(order, from).micro_step)
        return false;
    return (exchanges->keeps_resident && model->units[unit_of(model, order, from)].resident) ||
           (exchanges->reuse_distance > 0 &&
            distance(model, order, from, to) < exchanges->reuse_distance);
}

/* What a slot holds. */
struct holding {
    uint32_t unit; /* or MICS_NONE */
    uint32_t last; /* latest computation that used it, or MICS_NONE */
    uint32_t next; /* next computation that will use it, or MICS_NONE */
};

/* Should a be replaced before b? MICS_NONE is larger than any index; for an empty slot last + 1 is
 * 0. */
static bool is_replaced_first(const struct holding *a, const struct holding *b)
{
    return a->next != b->next ? a->next > b->next : a->last + 1 < b->last + 1;
}

static uint32_t find_rotating_slot(const struct holding *holdings, uint32_t rotating, uint32_t unit)
{
    uint32_t best = 0;

    for (uint32_t i = 0; i < rotating; i++)
        if (holdings[i].unit == unit)
            return i;
    for (uint32_t i = 1; i < rotating; i++)
        if (is_replaced_first(&holdings[i], &holdings[best]))
            best = i;
    return best;
}

static void assign_slots(const struct mics_model *model, const struct mics_compute_order *order,
                         const struct mics_slot_set *slots, const uint32_t *next,
                         struct holding *holdings, struct mics_residency *out)
{
    const uint32_t length = mics_compute_order_length(order);

    for (uint32_t i = 0; i < length; i++) {
        const uint32_t unit = unit_of(model, order, i);

        if (!mics_compute_order_needs_params(order, model, i) ||
            slots->of_unit[unit] == MICS_SLOT_NONE)
            continue;
        const uint32_t slot = slots->of_unit[unit] == MICS_SLOT_ROTATING
                                  ? find_rotating_slot(holdings, slots->rotating, unit)
                                  : slots->of_unit[unit];
        /* A second gather between the passes of the head is counted before both. */
        const uint32_t gathers = ((holdings[slot].unit != unit) +
                                  (order->exchanges->releases_head && is_head(order, i))) *
                                 mics_trainer_exchange_times(order->exchanges, model, unit);

        for (uint32_t g = 0; g < gathers; g++)
            out->fetches[out->fetch_count++] =
                (struct mics_fetch){unit, slot, i, holdings[slot].last};
        holdings[slot] = stays(model, order, i, next[i])
                             ? (struct holding){unit, i, next[i]}
                             : (struct holding){MICS_NONE, i, MICS_NONE};
        out->slots[i] = slot;
    }
}

enum mics_status mics_residency_init(const struct mics_model *model,
                                     const struct mics_compute_order *order,
                                     const struct mics_slot_set *slots, struct mics_residency *out,
                                     struct mics_err *err)
{
    const uint32_t length = mics_compute_order_length(order);
    const uint32_t most_fetches = length + 2 * order->micro_steps;
    uint32_t *next = find_next_uses(model, order);
    struct holding *holdings = malloc((slots->total + 1) * sizeof *holdings);
    enum mics_status status = MICS_OK;

    *out = (struct mics_residency){.slots = malloc(length * sizeof *out->slots),
                                   .fetches = malloc(most_fetches * sizeof *out->fetches)};
    if (!next || !holdings || !out->slots || !out->fetches) {
        mics_residency_fini(out);
        status = mics_err_nomem(err);
        goto out;
    }
    for (uint32_t i = 0; i < slots->total; i++)
        holdings[i] = (struct holding){MICS_NONE, MICS_NONE, MICS_NONE};
    for (uint32_t i = 0; i < length; i++)
        out->slots[i] = MICS_NONE;
    if (slots->total > 0)
        assign_slots(model, order, slots, next, holdings, out);
out:
    free(next);
    free(holdings);
    return status;
}

void mics_residency_fini(struct mics_residency *residency)
{
    free(residency->slots);
    free(residency->fetches);
    *residency = (struct mics_residency){0};
}
