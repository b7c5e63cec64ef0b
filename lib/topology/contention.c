/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/contention.h"

#include <math.h>

/* Seconds that a collective takes longer beside computation: a + b bytes through the first and the
 * last point, a, b >= 0. */
static double delay_s(const struct mics_collective_cost *cost, double bytes)
{
    const struct mics_overlap_point *first = &cost->overlap[0];
    const struct mics_overlap_point *last = &cost->overlap[cost->overlap_count - 1];
    const double before = fmax(0, first->overlap_s - first->alone_s);
    const double after = fmax(0, last->overlap_s - last->alone_s);

    if (last == first)
        return before;
    if (after <= before)
        return (before + after) / 2;
    if (after / before > last->bytes / first->bytes)
        return after * bytes / last->bytes;
    return before + (after - before) * (bytes - first->bytes) / (last->bytes - first->bytes);
}

static double slowdown(const struct mics_collective_cost *cost, double bytes)
{
    uint32_t i = 0;

    while (i < cost->overlap_count && cost->overlap[i].bytes < bytes)
        i++;
    if (i == 0 || i == cost->overlap_count)
        return cost->overlap[i == 0 ? 0 : i - 1].slowdown;
    return cost->overlap[i - 1].slowdown +
           log(bytes / cost->overlap[i - 1].bytes) /
               log(cost->overlap[i].bytes / cost->overlap[i - 1].bytes) *
               (cost->overlap[i].slowdown - cost->overlap[i - 1].slowdown);
}

struct mics_contention mics_contention_of(const struct mics_topology *topology,
                                          enum mics_collective collective, struct mics_span span,
                                          uint64_t bytes)
{
    for (uint32_t i = 0; i < topology->cost_count; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];

        if (cost->collective == collective && cost->nodes == span.nodes &&
            cost->per_node == span.per_node && cost->overlap_count > 0)
            return (struct mics_contention){delay_s(cost, (double)bytes),
                                            slowdown(cost, (double)bytes)};
    }
    return (struct mics_contention){0, 0};
}

double mics_straggler_delay(const struct mics_topology *topology, double computing_s)
{
    struct mics_straggler_point before = {0, 0};

    for (uint32_t i = 0; i < topology->straggler_count; i++) {
        const struct mics_straggler_point *point = &topology->stragglers[i];

        if (computing_s <= point->computing_s)
            return before.behind_s + (point->behind_s - before.behind_s) *
                                         fmax(0, computing_s - before.computing_s) /
                                         (point->computing_s - before.computing_s);
        before = *point;
    }
    return before.behind_s;
}
