/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c - seconds of one operation: measured collectives first, then formulas.
 *
 * Where the ranks are processes, the algorithms are those of lib/comm/mpi: a ring; for short pieces
 * direct messages (a reduction in one round, a gather in log2(m) rounds); for short data halving
 * and doubling where m is a power of two, else for an all-reduce of few bytes a tree. A ring in
 * node order leaves each node once, so a node's cards carry (m-1)/m S in each direction; of an
 * all_to_all they carry k (m-k)/m S. Groups that share the cards divide their bandwidth.
 */
#include "topology/cost.h"

#include "comm/comm.h"
#include "topology/nccl_cost.h"

#include <assert.h>
#include <math.h>

/* Groups per node when groups of one shape cover all ranks, as when a probe measures them. */
static uint32_t natural_sharing(const struct mics_topology *topology, struct mics_span span)
{
    return topology->per_node / span.per_node > 0 ? topology->per_node / span.per_node : 1;
}

/* Measured times of arrays of increasing sizes, in arrays of structures of `stride` numbers. */
struct series {
    const double *bytes, *seconds;
    size_t count, stride;
    double bandwidth; /* beyond the last */
};

static double at(const double *values, const struct series *series, size_t index)
{
    return values[index * series->stride];
}

/* In the logarithms between two points; below the first point its time; above the last one more in
 * proportion to the additional bytes. */
static double interpolate(const struct series *series, double bytes)
{
    const double *x = series->bytes, *y = series->seconds;
    const size_t last = series->count - 1;
    size_t i = 1;

    if (bytes <= x[0])
        return y[0];
    if (bytes >= at(x, series, last))
        return at(y, series, last) + (bytes - at(x, series, last)) / series->bandwidth;
    while (at(x, series, i) < bytes)
        i++;
    const double before = at(x, series, i - 1), after = at(x, series, i);
    const double part = log(bytes / before) / log(after / before);
    return at(y, series, i - 1) * pow(at(y, series, i) / at(y, series, i - 1), part);
}

static bool is_of(enum mics_collective collective, struct mics_span span, enum mics_collective of,
                  uint32_t nodes, uint32_t per_node)
{
    return collective == of && span.nodes == nodes && span.per_node == per_node;
}

/* Seconds by the series of the group, or by that of its flat exchanges. *latency_s is what does
 * not grow with the bytes. */
static bool measured_seconds(const struct mics_topology *topology, enum mics_collective collective,
                             struct mics_span span, double bytes, double *seconds,
                             double *latency_s)
{
    for (uint32_t i = 0; i < topology->cost_count; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];

        if (!is_of(collective, span, cost->collective, cost->nodes, cost->per_node))
            continue;
        *latency_s = cost->cost.latency_s;
        *seconds = cost->cost.latency_s + bytes / cost->cost.bandwidth_bytes;
        if (cost->point_count > 0)
            *seconds = interpolate(&(struct series){&cost->points[0].bytes,
                                                    &cost->points[0].seconds, cost->point_count,
                                                    sizeof cost->points[0] / sizeof(double),
                                                    cost->cost.bandwidth_bytes},
                                   bytes);
        return true;
    }
    for (uint32_t i = 0; i < topology->algorithm_timing_count; i++) {
        const struct mics_algorithm_timing *timing = &topology->algorithm_timings[i];

        if (!is_of(collective, span, timing->collective, timing->nodes, timing->per_node))
            continue;
        *latency_s = timing->points[0].flat_s;
        *seconds = mics_algorithm_timing_flat(timing, bytes);
        return true;
    }
    return false;
}

/* It was measured with natural_sharing() groups per node; the transfer is scaled to
 * span.sharing. */
static bool measured_time(const struct mics_topology *topology, enum mics_collective collective,
                          struct mics_span span, double bytes, struct mics_collective_time *out)
{
    double seconds, latency_s;

    if (!measured_seconds(topology, collective, span, bytes, &seconds, &latency_s))
        return false;
    out->latency_s = fmin(latency_s, seconds);
    out->transfer_s = seconds - out->latency_s;
    if (span.nodes > 1)
        out->transfer_s *= (double)span.sharing / natural_sharing(topology, span);
    return true;
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

/* All-reduce up and down a tree of all ranks, whose inner ranks have MICS_COMM_TREE_ARITY
 * children. */
static struct mics_collective_time tree_time(const struct mics_topology *topology,
                                             struct mics_span span, double bytes)
{
    const double m = (double)span.nodes * span.per_node;
    const double depth = ceil(log(m) / log(MICS_COMM_TREE_ARITY));

    return (struct mics_collective_time){rounds_latency(topology, span, 2 * depth),
                                         2 * fmin(MICS_COMM_TREE_ARITY, m - 1) * bytes /
                                             ring_bandwidth(topology, span)};
}

static bool is_power_of_two(double m)
{
    return m > 1 && log2(m) == floor(log2(m));
}

/* Rounds of distance 1, 2, 4, ... m/2. Those of distances below k stay inside a node; in the others
 * one rank of a node may send the bytes of all, in as much time. A rank sends half of the pieces in
 * the first round, a quarter in the second, and so on; an all-reduce whose pieces have become short
 * sends whole pieces. A gather is the same backwards. */
static struct mics_collective_time halving_time(const struct mics_topology *topology,
                                                enum mics_collective collective,
                                                struct mics_span span, double bytes)
{
    const double m = (double)span.nodes * span.per_node, k = span.per_node;
    struct mics_collective_time time = {0, 0};
    double part = bytes;

    for (double distance = 1; distance < m; distance *= 2) {
        const bool inside = distance < k;
        const bool halved = collective != MICS_ALL_REDUCE || part > MICS_COMM_HALVING_PIECE_BYTES;
        const double times = halved && collective == MICS_ALL_REDUCE ? 2 : 1;
        const struct mics_link *link = inside ? &topology->node_link : &topology->net_link;

        part = halved ? part / 2 : part;
        time.latency_s += times * link->latency_s;
        time.transfer_s += times * part * (inside ? 1 : k * span.sharing) / link->bandwidth_bytes;
    }
    return time;
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

/* Messages from each rank to each other, MICS_COMM_WINDOW of them at once; inside a node copies,
 * one after another. Both go on at the same time. */
static struct mics_collective_time all_to_all_time(const struct mics_topology *topology,
                                                   struct mics_span span, double bytes)
{
    const double m = (double)span.nodes * span.per_node, k = span.per_node;
    struct mics_collective_time time = {0, 0};

    if (span.per_node > 1) {
        time.latency_s = (k - 1) * topology->node_link.latency_s;
        time.transfer_s = (k - 1) / m * bytes / topology->node_link.bandwidth_bytes;
    }
    if (span.nodes > 1) {
        time.latency_s += ceil((m - k) / MICS_COMM_WINDOW) * topology->net_link.latency_s;
        time.transfer_s = fmax(time.transfer_s, k * (m - k) / m * bytes * span.sharing /
                                                    topology->net_link.bandwidth_bytes);
    }
    return time;
}

/* All-gather or reduce-scatter between processes. */
static struct mics_collective_time exchange_time(const struct mics_topology *topology,
                                                 enum mics_collective collective,
                                                 struct mics_span span, double bytes)
{
    const struct mics_collective_time ring = ring_time(topology, span, bytes);

    if (bytes > MICS_COMM_STAGING_BYTES) /* which the pieces of all ranks must fit otherwise */
        return ring;
    return faster(ring, direct_time(topology, collective, span, bytes));
}

static struct mics_collective_time process_time(const struct mics_topology *topology,
                                                enum mics_collective collective,
                                                struct mics_span span, double bytes)
{
    if (collective == MICS_ALL_TO_ALL)
        return all_to_all_time(topology, span, bytes);
    if (bytes <= MICS_COMM_HALVING_BYTES && is_power_of_two((double)span.nodes * span.per_node) &&
        (collective != MICS_ALL_REDUCE || bytes >= MICS_COMM_HALVING_FROM_BYTES))
        return halving_time(topology, collective, span, bytes);
    if (collective != MICS_ALL_REDUCE)
        return exchange_time(topology, collective, span, bytes);

    const struct mics_collective_time reduce =
                                          exchange_time(topology, MICS_REDUCE_SCATTER, span, bytes),
                                      gather =
                                          exchange_time(topology, MICS_ALL_GATHER, span, bytes),
                                      both = {reduce.latency_s + gather.latency_s,
                                              reduce.transfer_s + gather.transfer_s};
    return bytes <= MICS_COMM_TREE_REDUCE_BYTES ? faster(both, tree_time(topology, span, bytes))
                                                : both;
}

struct mics_collective_time mics_cost_collective_time(const struct mics_topology *topology,
                                                      enum mics_collective collective,
                                                      struct mics_span span, uint64_t bytes)
{
    struct mics_collective_time measured;

    assert(span.sharing >= 1 && span.nodes >= 1 && span.per_node >= 1);
    if (span.nodes == 1 && span.per_node == 1)
        return (struct mics_collective_time){0, 0};
    if (measured_time(topology, collective, span, (double)bytes, &measured))
        return measured;
    if (mics_nccl_is_used(topology))
        return mics_nccl_cost(topology, collective, span, bytes).time;
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

static double algorithm_seconds(const struct mics_algorithm_timing *timing, const double *seconds,
                                double bytes)
{
    const struct mics_algorithm_point *points = timing->points;
    const size_t stride = sizeof points[0] / sizeof(double);
    const size_t last = timing->count - 1;

    return interpolate(&(struct series){&points[0].bytes, seconds, timing->count, stride,
                                        points[last].bytes / seconds[last * stride]},
                       bytes);
}

double mics_algorithm_timing_flat(const struct mics_algorithm_timing *timing, double bytes)
{
    return algorithm_seconds(timing, &timing->points[0].flat_s, bytes);
}

double mics_algorithm_timing_hierarchical(const struct mics_algorithm_timing *timing, double bytes)
{
    return algorithm_seconds(timing, &timing->points[0].hierarchical_s, bytes);
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
