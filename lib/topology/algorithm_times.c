/* SPDX-License-Identifier: Apache-2.0 */
/* races.c - who was faster, and what a size in between would take. */
#include "topology/algorithm_times.h"

#include <math.h>
#include <stddef.h>

const struct mics_race *mics_race_find(const struct mics_topology *topology,
                                       enum mics_collective collective, uint32_t nodes,
                                       uint32_t per_node, uint32_t segments)
{
    for (uint32_t i = 0; i < topology->race_count; i++) {
        const struct mics_race *race = &topology->races[i];

        if (race->collective == collective && race->nodes == nodes && race->per_node == per_node &&
            race->segments == segments)
            return race;
    }
    return NULL;
}

static double time_of(const struct mics_race_point *point, bool staged)
{
    return staged ? point->staged_s : point->flat_s;
}

static double seconds(const struct mics_race *race, double bytes, bool staged)
{
    const struct mics_race_point *points = race->points, *last = &points[race->count - 1];
    uint32_t i = 1;

    if (bytes <= points[0].bytes)
        return time_of(&points[0], staged);
    if (bytes >= last->bytes)
        return time_of(last, staged) * bytes / last->bytes;
    while (points[i].bytes < bytes)
        i++;
    const double part =
        log(bytes / points[i - 1].bytes) / log(points[i].bytes / points[i - 1].bytes);
    const double before = time_of(&points[i - 1], staged), after = time_of(&points[i], staged);
    return before * pow(after / before, part);
}

double mics_race_flat(const struct mics_race *race, double bytes)
{
    return seconds(race, bytes, false);
}

double mics_race_staged(const struct mics_race *race, double bytes)
{
    return seconds(race, bytes, true);
}

struct mics_race_window mics_race_window(const struct mics_race *race)
{
    struct mics_race_window window = {0, 0};

    for (uint32_t i = 0; i < race->count; i++) {
        const struct mics_race_point *point = &race->points[i];

        if (point->staged_s >= point->flat_s)
            continue;
        if (window.from == 0)
            window.from = point->bytes;
        window.to = point->bytes;
    }
    return window;
}
