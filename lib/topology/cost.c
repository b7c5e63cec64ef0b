/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c - seconds of one operation: measured collectives first, then formulas.
 *
 * Where the ranks are processes, the algorithms are those of lib/comm/mpi: a ring; for short pieces
 * direct messages (a reduction in one round, a gather in log2(m) rounds); for an all-reduce of few
 * bytes a tree. A ring in node order leaves each node once, so a node's cards carry (m-1)/m S in
 * each direction. Groups that share the cards divide their bandwidth.
 */
#include "topology/cost.h"

#include <assert.h>
#include <math.h>

/* Of lib/comm/mpi: bytes of an all-reduce up to which a tree is used, its arity, and the staging
 * memory, which the pieces of all ranks must fit for direct messages. */
enum { TREE_BYTES = 4096, TREE_ARITY = 8, DIRECT_STAGING_BYTES = 8 * (64 * 1024 - 512) };

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
static struct mics_collective_time measured_time(const struct mics_topology *topology,
                                                 const struct mics_link *cost,
                                                 struct mics_span span, double bytes)
{
    double bandwidth = cost->bandwidth_bytes;

    if (span.nodes > 1)
        bandwidth *= (double)natural_sharing(topology, span) / span.sharing;
    return (struct mics_collective_time){cost->latency_s, bytes / bandwidth};
}

/* Bytes per second between neighbours of a ring, of the slowest link. */
static double ring_bandwidth(const struct mics_topology *topology, struct mics_span span)
{
    const double inside = span.per_node > 1 ? topology->node_link.bandwidth_bytes : INFINITY;
    const double outside =
        span.nodes > 1 ? topology->net_link.bandwidth_bytes / span.sharing : INFINITY;

    assert(fmin(inside, outside) > 0);
    return fmin(inside, outside);
}

/* All-gather or reduce-scatter. */
static struct mics_collective_time ring_time(const struct mics_topology *topology,
                                             struct mics_span span, double bytes)
{
    const double m = (double)span.nodes * span.per_node, q = span.nodes;

    return (struct mics_collective_time){(q - 1) * topology->net_link.latency_s +
                                             (m - q) * topology->node_link.latency_s,
                                         (m - 1) / m * bytes / ring_bandwidth(topology, span)};
}

/* Latency of `rounds` messages, one after another, to ranks at growing distances. */
static double rounds_latency(const struct mics_topology *topology, struct mics_span span,
                             double rounds)
{
    return rounds * (span.nodes > 1 ? topology->net_link.latency_s : topology->node_link.latency_s);
}

/* All-gather or reduce-scatter of messages from each rank to each other. Each of a node's ranks
 * exchanges the pieces of all other nodes over the cards. */
static struct mics_collective_time direct_time(const struct mics_topology *topology,
                                               enum mics_collective collective,
                                               struct mics_span span, double bytes)
{
    const double m = (double)span.nodes * span.per_node, k = span.per_node;
    const double rounds = collective == MICS_REDUCE_SCATTER ? 1 : ceil(log2(m));
    double transfer = (m - 1) / m * bytes / ring_bandwidth(topology, span);

    if (span.nodes > 1)
        transfer = fmax(transfer, k * (m - k) / m * bytes * span.sharing /
                                      topology->net_link.bandwidth_bytes);
    return (struct mics_collective_time){rounds_latency(topology, span, rounds), transfer};
}

/* All-reduce up and down a tree of all ranks, whose inner ranks have TREE_ARITY children. */
static struct mics_collective_time tree_time(const struct mics_topology *topology,
                                             struct mics_span span, double bytes)
{
    const double m = (double)span.nodes * span.per_node;
    const double depth = ceil(log(m) / log(TREE_ARITY));

    return (struct mics_collective_time){rounds_latency(topology, span, 2 * depth),
                                         2 * fmin(TREE_ARITY, m - 1) * bytes /
                                             ring_bandwidth(topology, span)};
}

static double total(struct mics_collective_time time)
{
    return time.latency_s + time.transfer_s;
}

static struct mics_collective_time faster(struct mics_collective_time a,
                                          struct mics_collective_time b)
{
    return total(b) < total(a) ? b : a;
}

/* All-gather or reduce-scatter between processes. */
static struct mics_collective_time exchange_time(const struct mics_topology *topology,
                                                 enum mics_collective collective,
                                                 struct mics_span span, double bytes)
{
    const struct mics_collective_time ring = ring_time(topology, span, bytes);

    if (bytes > DIRECT_STAGING_BYTES)
        return ring;
    return faster(ring, direct_time(topology, collective, span, bytes));
}

static struct mics_collective_time process_time(const struct mics_topology *topology,
                                                enum mics_collective collective,
                                                struct mics_span span, double bytes)
{
    if (collective != MICS_ALL_REDUCE)
        return exchange_time(topology, collective, span, bytes);

    const struct mics_collective_time reduce =
                                          exchange_time(topology, MICS_REDUCE_SCATTER, span, bytes),
                                      gather =
                                          exchange_time(topology, MICS_ALL_GATHER, span, bytes),
                                      both = {reduce.latency_s + gather.latency_s,
                                              reduce.transfer_s + gather.transfer_s};
    return bytes <= TREE_BYTES ? faster(both, tree_time(topology, span, bytes)) : both;
}

struct mics_collective_time mics_cost_collective_time(const struct mics_topology *topology,
                                                      enum mics_collective collective,
                                                      struct mics_span span, uint64_t bytes)
{
    const struct mics_link *measured;

    assert(span.sharing >= 1 && span.nodes >= 1 && span.per_node >= 1);
    if (span.nodes == 1 && span.per_node == 1)
        return (struct mics_collective_time){0, 0};
    measured = find_measured(topology, collective, span);
    if (measured)
        return measured_time(topology, measured, span, (double)bytes);
    return process_time(topology, collective, span, (double)bytes);
}

double mics_cost_collective(const struct mics_topology *topology, enum mics_collective collective,
                            struct mics_span span, uint64_t bytes)
{
    return total(mics_cost_collective_time(topology, collective, span, bytes));
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
