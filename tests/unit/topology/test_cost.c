/* SPDX-License-Identifier: Apache-2.0 */
/* test_cost.c - seconds for collectives and computation. */
#include "tap.h"
#include "topology/cost.h"

/* 4 nodes of 8; 1 us and 100 GB/s inside a node, 20 us and 10 GB/s for a whole node. */
static struct mics_topology make(void)
{
    return (struct mics_topology){
        .nodes = 4,
        .per_node = 8,
        .flops = 1e14,
        .memory_bandwidth = 1e12,
        .node_link = {.latency_s = 1e-6, .bandwidth_bytes = 100e9},
        .net_link = {.latency_s = 20e-6, .bandwidth_bytes = 10e9},
    };
}

static double gather(const struct mics_topology *topology, uint32_t nodes, uint32_t per_node,
                     uint32_t sharing, uint64_t bytes)
{
    const struct mics_span span = {nodes, per_node, sharing};

    return mics_cost_collective(topology, MICS_ALL_GATHER, span, bytes);
}

static void a_group_of_one_costs_nothing(void)
{
    const struct mics_topology topology = make();

    CHECK_NEAR(gather(&topology, 1, 1, 8, 1 << 30), 0, 0);
}

static void inside_a_node_it_is_the_ring_formula(void)
{
    const struct mics_topology topology = make();

    CHECK_NEAR(gather(&topology, 1, 8, 1, 800000000), 7e-6 + 7 * 1e-3, 1e-12);
}

static void a_piece_crosses_the_network_once_for_each_other_node(void)
{
    const struct mics_topology topology = make();

    /* 32 ranks on 4 nodes: 3 hops between nodes, 28 inside; the card carries 31/32 of the bytes. */
    CHECK_NEAR(gather(&topology, 4, 8, 1, 320000000), 3 * 20e-6 + 28e-6 + 31 * 1e-3, 1e-12);
    CHECK_NEAR(gather(&topology, 4, 1, 1, 40000000), 3 * 20e-6 + 3 * 1e-3, 1e-12);
}

static void short_pieces_are_sent_directly(void)
{
    const struct mics_topology topology = make();
    const struct mics_span node = {1, 6, 1}, nodes = {3, 8, 1};

    /* 6 ranks gather in 3 rounds, 24 in 5, and reduce in one. */
    CHECK_NEAR(gather(&topology, 1, 6, 1, 0), 3e-6, 1e-15);
    CHECK_NEAR(mics_cost_collective(&topology, MICS_REDUCE_SCATTER, node, 0), 1e-6, 1e-15);
    CHECK_NEAR(mics_cost_collective(&topology, MICS_REDUCE_SCATTER, nodes, 0), 20e-6, 1e-15);
    /* Each of a node's 8 ranks gets 2/3 of the bytes from other nodes, over one card. The ring
     * takes 61 us of latency, 2.3 us of transfer. */
    CHECK_NEAR(mics_cost_collective(&topology, MICS_REDUCE_SCATTER, nodes, 24000),
               20e-6 + 8 * 16000 / 10e9, 1e-15);
    CHECK_NEAR(gather(&topology, 3, 8, 1, 24000), 61e-6 + 23000 / 10e9, 1e-15);
}

static double all_to_all(const struct mics_topology *topology, struct mics_span span,
                         uint64_t bytes)
{
    return mics_cost_collective(topology, MICS_ALL_TO_ALL, span, bytes);
}

static void an_all_to_all_goes_over_the_slower_of_node_and_network(void)
{
    const struct mics_topology topology = make();
    const struct mics_span node = {1, 8, 1}, column = {4, 1, 1}, all = {4, 8, 1}, half = {4, 4, 1},
                           half_shared = {4, 4, 2};

    CHECK_NEAR(all_to_all(&topology, node, 800000000), 7e-6 + 7e-3, 1e-12);
    /* 3 messages at once, of a quarter of 40 MB each */
    CHECK_NEAR(all_to_all(&topology, column, 40000000), 20e-6 + 3e-3, 1e-12);
    /* 24 of 32 blocks of 8 ranks go to other nodes, in 3 windows of messages. */
    CHECK_NEAR(all_to_all(&topology, all, 320000000), 7e-6 + 60e-6 + 8 * 240e6 / 10e9, 1e-12);
    CHECK_NEAR(all_to_all(&topology, half_shared, 320000000) -
                   all_to_all(&topology, half, 320000000),
               4 * 240e6 / 10e9, 1e-12);
    CHECK_NEAR(all_to_all(&topology, (struct mics_span){1, 1, 1}, 1 << 20), 0, 0);
}

static void a_calibration_without_all_to_all_leaves_it_to_the_formula(void)
{
    struct mics_topology topology = make();
    const struct mics_span node = {1, 8, 1};
    const double formula = all_to_all(&topology, node, 1 << 20);
    struct mics_collective_cost costs[] = {
        {.collective = MICS_ALL_GATHER,
         .nodes = 1,
         .per_node = 8,
         .cost = {.latency_s = 1, .bandwidth_bytes = 1e9}},
        {.collective = MICS_ALL_TO_ALL,
         .nodes = 1,
         .per_node = 8,
         .cost = {.latency_s = 2e-6, .bandwidth_bytes = 1e9},
         .point_count = 2,
         .points = {{1 << 10, 1e-5}, {1 << 20, 1e-3}}},
    };

    topology.costs = costs;
    topology.cost_count = 1;
    CHECK_NEAR(all_to_all(&topology, node, 1 << 20), formula, 0);
    topology.cost_count = 2;
    CHECK_NEAR(all_to_all(&topology, node, 1 << 20), 1e-3, 1e-15);
    CHECK_NEAR(all_to_all(&topology, node, 1 << 15), 1e-4, 1e-12);
}

static void only_the_transfer_grows_with_the_bytes(void)
{
    const struct mics_topology topology = make();
    const struct mics_span span = {4, 8, 1};
    const struct mics_collective_time one = mics_cost_collective_time(&topology, MICS_ALL_GATHER,
                                                                      span, 1 << 30),
                                      two = mics_cost_collective_time(&topology, MICS_ALL_GATHER,
                                                                      span, (uint64_t)2 << 30);

    CHECK_NEAR(one.latency_s, 3 * 20e-6 + 28e-6, 1e-15);
    CHECK_NEAR(two.latency_s, one.latency_s, 0);
    CHECK_NEAR(two.transfer_s, 2 * one.transfer_s, 1e-12);
    CHECK_NEAR(mics_cost_collective(&topology, MICS_ALL_GATHER, span, 1 << 30),
               one.latency_s + one.transfer_s, 0);
}

static void groups_that_share_a_card_share_its_bandwidth(void)
{
    const struct mics_topology topology = make();
    const double exclusive = gather(&topology, 4, 1, 1, 1 << 30) - 60e-6;
    const double shared = gather(&topology, 4, 1, 8, 1 << 30) - 60e-6;

    CHECK_NEAR(shared / exclusive, 8, 1e-9);
    CHECK_NEAR(gather(&topology, 1, 2, 4, 1 << 20), gather(&topology, 1, 2, 1, 1 << 20), 0);
}

static void a_hierarchy_beats_the_flat_ring_across_nodes(void)
{
    const struct mics_topology topology = make();
    const uint64_t bytes = 64 << 20;
    const double flat = gather(&topology, 2, 8, 1, bytes);
    /* The first stage: 8 concurrent gathers of an eighth of the bytes each. */
    const double two_stages =
        gather(&topology, 2, 1, 8, bytes / 8) + gather(&topology, 1, 8, 1, bytes);

    CHECK(two_stages < flat);
}

static void a_large_all_reduce_is_two_rings(void)
{
    const struct mics_topology topology = make();
    const struct mics_span span = {2, 8, 1};

    CHECK_NEAR(mics_cost_collective(&topology, MICS_ALL_REDUCE, span, 1 << 30),
               2 * mics_cost_collective(&topology, MICS_REDUCE_SCATTER, span, 1 << 30), 1e-12);
}

static void a_small_all_reduce_waits_for_the_depth_of_a_tree(void)
{
    const struct mics_topology topology = make();
    const struct mics_span span = {1023, 8, 1};
    const double seconds = mics_cost_collective(&topology, MICS_ALL_REDUCE, span, 8);

    /* Ranks with 8 children each: 5 levels. */
    CHECK(seconds >= 2 * 5 * topology.net_link.latency_s);
    CHECK(seconds < 2 * 5.01 * topology.net_link.latency_s);
}

static void short_data_of_a_power_of_two_of_ranks_are_halved(void)
{
    const struct mics_topology topology = make();
    const struct mics_span span = {4, 8, 1}, odd = {3, 8, 1};
    const double rounds = 3 * topology.node_link.latency_s + 2 * topology.net_link.latency_s;
    const double net = 8 * (512.0 + 256) / topology.net_link.bandwidth_bytes;
    const double node = (2048.0 + 1024 + 4096) / topology.node_link.bandwidth_bytes;

    CHECK_NEAR(mics_cost_collective(&topology, MICS_REDUCE_SCATTER, span, 8192),
               rounds + net + node, 1e-12);
    CHECK_NEAR(mics_cost_collective(&topology, MICS_ALL_GATHER, span, 8192), rounds + net + node,
               1e-12);
    /* Halved twice, down to 2 KiB; then whole pieces. */
    CHECK_NEAR(mics_cost_collective(&topology, MICS_ALL_REDUCE, span, 8192),
               rounds + 2 * topology.node_link.latency_s +
                   (2 * (4096.0 + 2048) + 2048) / topology.node_link.bandwidth_bytes +
                   8 * 2 * 2048.0 / topology.net_link.bandwidth_bytes,
               1e-12);
    CHECK(mics_cost_collective(&topology, MICS_ALL_REDUCE, odd, 8) > rounds);
}

static void a_measured_collective_of_that_shape_is_preferred(void)
{
    struct mics_topology topology = make();
    struct mics_collective_cost cost = {
        .collective = MICS_ALL_GATHER, .nodes = 4, .per_node = 1, .cost = {50e-6, 1e9, 12, .01}};

    topology.costs = &cost;
    topology.cost_count = 1;
    /* As measured: one group for each of the 8 local ranks. */
    CHECK_NEAR(gather(&topology, 4, 1, 8, 1000000), 50e-6 + 1e-3, 1e-12);
    /* With the card to itself it has 8 times the bandwidth. */
    CHECK_NEAR(gather(&topology, 4, 1, 1, 1000000), 50e-6 + 1e-3 / 8, 1e-12);
    /* Another shape and another collective: by the formula. */
    CHECK_NEAR(gather(&topology, 2, 1, 1, 1000000), 20e-6 + 5e-5, 1e-12);
    CHECK_NEAR(
        mics_cost_collective(&topology, MICS_REDUCE_SCATTER, (struct mics_span){4, 1, 1}, 4000000),
        60e-6 + 3e-4, 1e-12);
}

static void measured_sizes_override_the_fit(void)
{
    struct mics_topology topology = make();
    struct mics_collective_cost cost = {
        .collective = MICS_ALL_GATHER,
        .nodes = 4,
        .per_node = 1,
        .cost = {50e-6, 1e9, 12, .01},
        .point_count = 3,
        .points = {{1000, 40e-6}, {100000, 160e-6}, {1000000, 2e-3}},
    };

    topology.costs = &cost;
    topology.cost_count = 1;
    CHECK_NEAR(gather(&topology, 4, 1, 8, 1), 40e-6, 1e-15);
    CHECK_NEAR(gather(&topology, 4, 1, 8, 1000), 40e-6, 1e-15);
    CHECK_NEAR(gather(&topology, 4, 1, 8, 10000), 80e-6, 1e-12); /* half way in the logarithms */
    CHECK_NEAR(gather(&topology, 4, 1, 8, 1000000), 2e-3, 1e-12);
    CHECK_NEAR(gather(&topology, 4, 1, 8, 3000000), 2e-3 + 2e-3, 1e-12); /* the fit's bandwidth */
    /* What exceeds the fit's latency shares the card. */
    CHECK_NEAR(gather(&topology, 4, 1, 4, 1000000), 50e-6 + (2e-3 - 50e-6) / 2, 1e-12);
    CHECK_NEAR(gather(&topology, 4, 1, 4, 1000), 40e-6, 1e-15);
}

static void flat_exchanges_are_measured_collectives_too(void)
{
    struct mics_topology topology = make();
    struct mics_algorithm_timing timing = {
        .collective = MICS_ALL_GATHER,
        .nodes = 2,
        .per_node = 8,
        .segments = 1,
        .count = 2,
        .points = {{1000, 1e-4, 9}, {1000000, 1e-2, 9}},
    };

    topology.algorithm_timings = &timing;
    topology.algorithm_timing_count = 1;
    CHECK_NEAR(gather(&topology, 2, 8, 1, 1000000), 1e-2, 1e-12);
    CHECK_NEAR(gather(&topology, 2, 8, 1, 2000000), 2e-2, 1e-12);
    CHECK(gather(&topology, 4, 8, 1, 1000000) < 1e-3); /* not measured */
}

static void a_measured_collective_inside_a_node_ignores_the_card(void)
{
    struct mics_topology topology = make();
    struct mics_collective_cost cost = {
        .collective = MICS_ALL_GATHER, .nodes = 1, .per_node = 2, .cost = {5e-6, 1e9, 12, .01}};

    topology.costs = &cost;
    topology.cost_count = 1;
    CHECK_NEAR(gather(&topology, 1, 2, 1, 1000000), 5e-6 + 1e-3, 1e-12);
    CHECK_NEAR(gather(&topology, 1, 2, 4, 1000000), 5e-6 + 1e-3, 1e-12);
}

static void more_bytes_never_cost_less(void)
{
    const struct mics_topology topology = make();
    double last = 0;

    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 40; bytes *= 2) {
        const double seconds = gather(&topology, 2, 4, 2, bytes);

        CHECK(seconds >= last && isfinite(seconds));
        last = seconds;
    }
}

int main(void)
{
    TAP_RUN(a_group_of_one_costs_nothing);
    TAP_RUN(inside_a_node_it_is_the_ring_formula);
    TAP_RUN(a_piece_crosses_the_network_once_for_each_other_node);
    TAP_RUN(short_pieces_are_sent_directly);
    TAP_RUN(an_all_to_all_goes_over_the_slower_of_node_and_network);
    TAP_RUN(a_calibration_without_all_to_all_leaves_it_to_the_formula);
    TAP_RUN(only_the_transfer_grows_with_the_bytes);
    TAP_RUN(groups_that_share_a_card_share_its_bandwidth);
    TAP_RUN(a_hierarchy_beats_the_flat_ring_across_nodes);
    TAP_RUN(a_large_all_reduce_is_two_rings);
    TAP_RUN(a_small_all_reduce_waits_for_the_depth_of_a_tree);
    TAP_RUN(short_data_of_a_power_of_two_of_ranks_are_halved);
    TAP_RUN(a_measured_collective_of_that_shape_is_preferred);
    TAP_RUN(measured_sizes_override_the_fit);
    TAP_RUN(flat_exchanges_are_measured_collectives_too);
    TAP_RUN(a_measured_collective_inside_a_node_ignores_the_card);
    TAP_RUN(more_bytes_never_cost_less);
    return tap_done();
}
