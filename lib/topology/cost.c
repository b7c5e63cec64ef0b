/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c - seconds of one operation: measured collectives first, then the formula of a ring.
 *
 * A ring of m ranks takes m - 1 steps; in each, every rank sends a piece of S / m to the next. When
 * the ring spans nodes, in every step a rank of each node sends to another node, so every step
 * takes the network's latency, and the node's cards carry (m-1)/m S in each direction. Groups that
 * share the cards divide their bandwidth. An all-reduce is a reduce-scatter and an all-gather in a
 * ring, or, where that is faster, two binary trees that each carry half of the bytes up and down.
 */
#include "topology/cost.h"

#include <assert.h>
#include <math.h>

/* Groups per node when groups of one shape cover all ranks, as when a probe measures them. */
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

/* It was measured with natural_sharing() groups per node; the bandwidth is scaled to
 * span.sharing. */
static double measured_seconds(const struct mics_topology *topology, const struct mics_link *cost,
                               struct mics_span span, double bytes)
{
    double bandwidth = cost->bandwidth_bytes;

    if (span.nodes > 1)
        bandwidth *= (double)natural_sharing(topology, span) / span.sharing;
    return cost->latency_s + bytes / bandwidth;
}

/* The slowest link between neighbours, which determines the time of one step of a ring or a
 * tree. */
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

const struct mics_algorithm_timing *mics_algorithm_timing_find(const struct mics_topology *topology,
                                                               enum mics_collective collective,
                                                               uint32_t nodes, uint32_t per_node,
                                                               uint32_t segments)
{
    for (uint32_t i = 0; i < topology->algorithm_timing_count; i++) {
        const struct mics_algorithm_timing *timing = &topology->algorithm_timings[i];

        if (timing->collective == collective && timing->nodes == nodes &&
            timing->per_node == per_node && timing->segments == segments)
            return timing;
    }
    return NULL;
}

static double time_of(const struct mics_algorithm_point *point, bool hierarchical)
{
    return hierarchical ? point->hierarchical_s : point->flat_s;
}

static double interpolate(const struct mics_algorithm_timing *timing, double bytes,
                          bool hierarchical)
{
    const struct mics_algorithm_point *points = timing->points, *last = &points[timing->count - 1];
    uint32_t i = 1;

    if (bytes <= points[0].bytes)
        return time_of(&points[0], hierarchical);
    if (bytes >= last->bytes)
        return time_of(last, hierarchical) * bytes / last->bytes;
    while (points[i].bytes < bytes)
        i++;
    const double part =
        log(bytes / points[i - 1].bytes) / log(points[i].bytes / points[i - 1].bytes);
    const double before = time_of(&points[i - 1], hierarchical),
                 after = time_of(&points[i], hierarchical);
    return before * pow(after / before, part);
}

double mics_algorithm_timing_flat(const struct mics_algorithm_timing *timing, double bytes)
{
    return interpolate(timing, bytes, false);
}

double mics_algorithm_timing_hierarchical(const struct mics_algorithm_timing *timing, double bytes)
{
    return interpolate(timing, bytes, true);
}

struct mics_hierarchical_window
mics_algorithm_timing_window(const struct mics_algorithm_timing *timing)
{
    struct mics_hierarchical_window window = {0, 0};

    for (uint32_t i = 0; i < timing->count; i++) {
        const struct mics_algorithm_point *point = &timing->points[i];

        if (point->hierarchical_s >= point->flat_s)
            continue;
        if (window.from == 0)
            window.from = point->bytes;
        window.to = point->bytes;
    }
    return window;
}
