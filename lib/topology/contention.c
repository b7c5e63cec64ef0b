/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/contention.h"

#include <math.h>

static struct mics_contention at_point(const struct mics_beside_point *point)
{
    return (struct mics_contention){fmax(1, point->beside_s / point->alone_s), point->lost};
}

static struct mics_contention interpolate(const struct mics_collective_cost *cost, double bytes)
{
    uint32_t i = 0;

    while (i < cost->beside_count && cost->beside[i].bytes < bytes)
        i++;
    if (i == 0 || i == cost->beside_count)
        return at_point(&cost->beside[i == 0 ? 0 : i - 1]);
    const struct mics_contention before = at_point(&cost->beside[i - 1]),
                                 after = at_point(&cost->beside[i]);
    const double part = log(bytes / cost->beside[i - 1].bytes) /
                        log(cost->beside[i].bytes / cost->beside[i - 1].bytes);

    return (struct mics_contention){before.stretch + part * (after.stretch - before.stretch),
                                    before.lost + part * (after.lost - before.lost)};
}

struct mics_contention mics_contention_of(const struct mics_topology *topology,
                                          enum mics_collective collective, struct mics_span span,
                                          uint64_t bytes)
{
    for (uint32_t i = 0; i < topology->cost_count; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];

        if (cost->collective == collective && cost->nodes == span.nodes &&
            cost->per_node == span.per_node && cost->beside_count > 0)
            return interpolate(cost, (double)bytes);
    }
    return (struct mics_contention){1, 0};
}
