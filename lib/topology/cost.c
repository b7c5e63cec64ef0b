/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c - seconds for one operation: measured collectives first, then the ring formula.
 *
 * A ring of m ranks makes m - 1 steps, each with a piece of S / m from every rank to the next. When
 * it spans nodes, every step has a rank on each node whose next one is on another, so every step
 * pays the network's latency, and the node's card carries (m-1)/m S in each direction. Groups that
 * share the card divide its bandwidth. An all-reduce is a reduce-scatter and an all-gather in a ring, or,
 * where that has less to wait for, two binary trees that each carry half of the bytes up and down.
 */
#include "topology/cost.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

/* Groups of one shape that cover all ranks, as a probe measures them, put so many on each node. */
static uint32_t natural_sharing(const struct mics_topology *topology, struct mics_span span)
{
    return topology->per_node / span.per_node > 0 ? topology->per_node / span.per_node : 1;
}

static const struct mics_link *find_measured(const struct mics_topology *topology,
                                             enum mics_collective collective, struct mics_span span)
{
    for (uint32_t i = 0; i < topology->cost_count; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];

        if (cost->collective == collective && cost->nodes == span.nodes &&
            cost->per_node == span.per_node)
            return &cost->cost;
    }
    return NULL;
}

/* Measured with natural_sharing() groups on each card; another number of them gets its own part. */
static double measured_seconds(const struct mics_topology *topology, const struct mics_link *cost,
                               struct mics_span span, double bytes)
{
    double bandwidth = cost->bandwidth_bytes;

    if (span.nodes > 1)
        bandwidth *= (double)natural_sharing(topology, span) / span.sharing;
    return cost->latency_s + bytes / bandwidth;
}

/* What one step of a ring or a tree costs: the link between neighbours that is slowest. */
static struct mics_link step_link(const struct mics_topology *topology, struct mics_span span)
{
    struct mics_link link = topology->node_link;

    if (span.nodes > 1) {
        const double share = topology->net_link.bandwidth_bytes / span.sharing;
        const double latency = topology->net_link.latency_s;

        link.latency_s = span.per_node > 1 ? fmax(link.latency_s, latency) : latency;
        link.bandwidth_bytes = span.per_node > 1 ? fmin(link.bandwidth_bytes, share) : share;
    }
    assert(link.bandwidth_bytes > 0);
    return link;
}

static double ring_seconds(struct mics_link link, double m, double bytes)
{
    return (m - 1) * link.latency_s + (m - 1) / m * bytes / link.bandwidth_bytes;
}

static double tree_all_reduce_seconds(struct mics_link link, double m, double bytes)
{
    return 2 * (ceil(log2(m)) * link.latency_s + bytes / link.bandwidth_bytes);
}

double mics_cost_collective(const struct mics_topology *topology, enum mics_collective collective,
                            struct mics_span span, uint64_t bytes)
{
    const struct mics_link *measured;

    assert(span.sharing >= 1 && span.nodes >= 1 && span.per_node >= 1);
    if (span.nodes == 1 && span.per_node == 1)
        return 0;
    measured = find_measured(topology, collective, span);
    if (measured)
        return measured_seconds(topology, measured, span, (double)bytes);
    const struct mics_link link = step_link(topology, span);
    const double m = (double)span.nodes * span.per_node;
    const double ring = ring_seconds(link, m, (double)bytes);
    if (collective != MICS_ALL_REDUCE)
        return ring;
    return fmin(2 * ring, tree_all_reduce_seconds(link, m, (double)bytes));
}

double mics_cost_compute(const struct mics_topology *topology, double flops, double bytes)
{
    return fmax(flops / topology->flops, bytes / topology->memory_bandwidth);
}

/* races.c - who was faster, and what a size in between would take. */

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
