/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch/slow_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEADY_STEPS = MICS_SLOW_WINDOW * 3 / 4, RANKS_IN_COMMON = 4 };

/* Shares of a step: what a rank must cost to be slow, and what it may cost to be no longer. */
static const double slow_cost = 0.05, quick_cost = 0.025;
/* A slow rank is above the others by so many median absolute deviations of theirs: seven standard
 * errors of the median of 20 normal values. */
static const double certain_deviations = 3;

struct mics_slow_ranks {
    uint32_t size;
    uint32_t *node_of;                     /* [size] */
    bool (*is_slow)[MICS_SLOW_CAUSES];     /* [size] in the window before */
    struct mics_slow_rank *found;          /* [size * MICS_SLOW_CAUSES] */
    float *sorted, *waits;                 /* [MICS_SLOW_WINDOW][size] of all ranks, in each step */
    float *deviations, *sorted_deviations; /* [size] */
};

const char *mics_slow_cause_name(enum mics_slow_cause cause)
{
    static const char *const names[] = {
        [MICS_SLOW_COMPUTING] = "computing",
        [MICS_SLOW_READING] = "reading data",
    };

    return names[cause];
}

enum mics_status mics_slow_ranks_open(uint32_t size, const uint32_t *node_of,
                                      struct mics_slow_ranks **out, struct mics_err *err)
{
    struct mics_slow_ranks *slow = calloc(1, sizeof *slow);

    *out = slow;
    if (!slow)
        return mics_err_nomem(err);
    slow->size = size;
    slow->node_of = calloc(size, sizeof *slow->node_of);
    slow->is_slow = calloc(size, sizeof *slow->is_slow);
    slow->found = calloc(size, MICS_SLOW_CAUSES * sizeof *slow->found);
    slow->sorted = calloc(size, MICS_SLOW_WINDOW * sizeof *slow->sorted);
    slow->waits = calloc(size, MICS_SLOW_WINDOW * sizeof *slow->waits);
    slow->deviations = calloc(size, sizeof *slow->deviations);
    slow->sorted_deviations = calloc(size, sizeof *slow->sorted_deviations);
    if (slow->deviations && slow->sorted_deviations && slow->node_of && slow->is_slow &&
        slow->found && slow->sorted && slow->waits) {
        memcpy(slow->node_of, node_of, size * sizeof *node_of);
        return MICS_OK;
    }
    mics_slow_ranks_close(slow);
    *out = NULL;
    return mics_err_nomem(err);
}

void mics_slow_ranks_close(struct mics_slow_ranks *slow)
{
    if (!slow)
        return;
    free(slow->node_of);
    free(slow->is_slow);
    free(slow->found);
    free(slow->sorted);
    free(slow->waits);
    free(slow->deviations);
    free(slow->sorted_deviations);
    free(slow);
}

static int compare(const void *left, const void *right)
{
    const float a = *(const float *)left, b = *(const float *)right;

    return a < b ? -1 : a > b;
}

static double seconds_in(const struct mics_slow_step *step, enum mics_slow_cause cause)
{
    return cause == MICS_SLOW_COMPUTING ? step->compute_s : step->read_s;
}

/* The k-th smallest of the values of all ranks but one, which has `own`. */
static double others_at(const float *sorted, uint32_t k, float own)
{
    return sorted[k] < own ? sorted[k] : sorted[k + 1];
}

/* The median of an odd or even number of steps. */
static double median_of(double *values)
{
    for (int i = 1; i < MICS_SLOW_WINDOW; i++)
        for (int k = i; k > 0 && values[k] < values[k - 1]; k--) {
            const double swapped = values[k];

            values[k] = values[k - 1];
            values[k - 1] = swapped;
        }
    return (values[(MICS_SLOW_WINDOW - 1) / 2] + values[MICS_SLOW_WINDOW / 2]) / 2;
}

/* How much slower than the others a rank was, and whether that is more than noise would make it. Of
 * an even number of other ranks the slower one in the middle counts, and the one that has waited
 * less: where half of them are slow, none is named. */
static struct mics_slow_rank compare_rank(const struct mics_slow_ranks *slow,
                                          const struct mics_slow_window *windows, uint32_t rank,
                                          enum mics_slow_cause cause, bool *is_certain)
{
    const uint32_t size = slow->size, upper = (size - 1) / 2, lower = (size - 2) / 2;
    double own[MICS_SLOW_WINDOW], others[MICS_SLOW_WINDOW], excess[MICS_SLOW_WINDOW];
    double step_s = 0, waited_s = 0;
    int steady = 0;

    for (int i = 0; i < MICS_SLOW_WINDOW; i++) {
        const struct mics_slow_step *step = &windows[rank].steps[i];
        const float own_s = (float)seconds_in(step, cause);

        own[i] = own_s;
        others[i] = others_at(slow->sorted + (size_t)i * size, upper, own_s);
        excess[i] = own[i] - others[i];
        waited_s += others_at(slow->waits + (size_t)i * size, lower, step->comm_s) - step->comm_s;
        step_s += step->step_s;
        steady += excess[i] > quick_cost * step->step_s;
    }
    const double more_s = median_of(excess), lost_s = fmin(MICS_SLOW_WINDOW * more_s, waited_s);

    *is_certain = steady >= STEADY_STEPS &&
                  more_s > certain_deviations *
                               others_at(slow->sorted_deviations, upper, slow->deviations[rank]);
    return (struct mics_slow_rank){
        .cause = cause,
        .rank = rank,
        .ranks = 1,
        .s = median_of(own),
        .others_s = median_of(others),
        .cost = step_s > 0 ? fmax(0, lost_s / step_s) : 0,
    };
}

/* Sort what the ranks have of a step. */
static void sort_step(const struct mics_slow_ranks *slow, const struct mics_slow_window *windows,
                      int step, enum mics_slow_cause cause)
{
    float *sorted = slow->sorted + (size_t)step * slow->size;
    float *waits = slow->waits + (size_t)step * slow->size;

    for (uint32_t rank = 0; rank < slow->size; rank++) {
        sorted[rank] = (float)seconds_in(&windows[rank].steps[step], cause);
        waits[rank] = windows[rank].steps[step].comm_s;
    }
    qsort(sorted, slow->size, sizeof *sorted, compare);
    qsort(waits, slow->size, sizeof *waits, compare);
}

/* How the times of each rank vary: the median absolute deviation of its steps, where there are
 * enough ranks without what all have in common. */
static void set_deviations(const struct mics_slow_ranks *slow,
                           const struct mics_slow_window *windows, enum mics_slow_cause cause)
{
    const size_t bytes = slow->size * sizeof *slow->deviations;

    for (uint32_t rank = 0; rank < slow->size; rank++) {
        double values[MICS_SLOW_WINDOW], sorted[MICS_SLOW_WINDOW];

        for (int i = 0; i < MICS_SLOW_WINDOW; i++) {
            const float *ranks = slow->sorted + (size_t)i * slow->size;

            values[i] = seconds_in(&windows[rank].steps[i], cause) -
                        (slow->size >= RANKS_IN_COMMON ? ranks[slow->size / 2] : 0);
        }
        memcpy(sorted, values, sizeof values);
        const double median = median_of(sorted);

        for (int i = 0; i < MICS_SLOW_WINDOW; i++)
            values[i] = fabs(values[i] - median);
        slow->deviations[rank] = (float)median_of(values);
    }
    memcpy(slow->sorted_deviations, slow->deviations, bytes);
    qsort(slow->sorted_deviations, slow->size, sizeof(float), compare);
}

/* Append what is found, or add it to what was found of the same node. */
static size_t add_found(const struct mics_slow_ranks *slow, size_t count,
                        const struct mics_slow_rank *one)
{
    struct mics_slow_rank *last = count > 0 ? &slow->found[count - 1] : NULL;

    if (!last || last->cause != one->cause ||
        slow->node_of[last->rank] != slow->node_of[one->rank]) {
        slow->found[count] = *one;
        return count + 1;
    }
    const uint32_t ranks = last->ranks + 1;

    if (one->s > last->s)
        *last = *one;
    last->ranks = ranks;
    return count;
}

size_t mics_slow_ranks_judge(struct mics_slow_ranks *slow, const struct mics_slow_window *windows,
                             const struct mics_slow_rank **out)
{
    size_t count = 0;

    for (int c = 0; c < MICS_SLOW_CAUSES; c++) {
        const enum mics_slow_cause cause = (enum mics_slow_cause)c;

        for (int step = 0; step < MICS_SLOW_WINDOW; step++)
            sort_step(slow, windows, step, cause);
        set_deviations(slow, windows, cause);
        for (uint32_t rank = 0; rank < slow->size; rank++) {
            bool is_certain;
            const struct mics_slow_rank one = compare_rank(slow, windows, rank, cause, &is_certain);
            const bool was_slow = slow->is_slow[rank][c];

            slow->is_slow[rank][c] =
                was_slow ? one.cost > quick_cost : is_certain && one.cost > slow_cost;
            if (slow->is_slow[rank][c] && !was_slow)
                count = add_found(slow, count, &one);
        }
    }
    *out = slow->found;
    return count;
}
