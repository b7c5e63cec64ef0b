/* SPDX-License-Identifier: Apache-2.0 */
/* test_nccl_cost.c - NCCL's model against values computed by hand from its constants. */
#include "tap.h"
#include "topology/nccl_cost.h"

static const double us = 1e-6;

/* 8 A100 with a card of 200 Gbit/s each; the network adds 5 us to a hop. */
static struct mics_topology a100(uint32_t nodes)
{
    return (struct mics_topology){
        .name = "here",
        .device = "NVIDIA A100 80GB",
        .nodes = nodes,
        .per_node = 8,
        .memory_bandwidth = 1.8e12,
        .node_link = {.latency_s = 2e-6, .bandwidth_bytes = 240e9},
        .net_link = {.latency_s = 5e-6, .bandwidth_bytes = 192e9},
    };
}

static struct mics_topology h100(uint32_t nodes)
{
    struct mics_topology topology = a100(nodes);

    strcpy(topology.device, "NVIDIA H100 80GB");
    topology.memory_bandwidth = 3e12;
    topology.node_link.bandwidth_bytes = 360e9;
    topology.net_link.bandwidth_bytes = 384e9;
    return topology;
}

static struct mics_topology b200(uint32_t nodes)
{
    struct mics_topology topology = h100(nodes);

    strcpy(topology.device, "NVIDIA B200");
    topology.memory_bandwidth = 8e12;
    topology.node_link.bandwidth_bytes = 720e9;
    return topology;
}

/* The H100 with AWS's network and its larger chunks. */
static struct mics_topology p5(uint32_t nodes)
{
    struct mics_topology topology = h100(nodes);

    strcpy(topology.name, "p5.48xlarge");
    return topology;
}

static struct mics_nccl_cost cost_of(const struct mics_topology *topology,
                                     enum mics_collective collective, uint64_t bytes)
{
    return mics_nccl_cost(topology, collective,
                          (struct mics_span){topology->nodes, topology->per_node, 1}, bytes);
}

static void few_bytes_go_by_ll(void)
{
    const struct mics_topology one = a100(1), two = a100(2);
    const struct mics_nccl_cost inside = cost_of(&one, MICS_ALL_GATHER, 1024),
                                across = cost_of(&two, MICS_ALL_GATHER, 1024);

    CHECK_STR(inside.algorithm, "ring LL");
    CHECK_NEAR(inside.time.latency_s, (6.6 + 7 * .6) * us, 1e-12);
    CHECK_NEAR(inside.time.transfer_s, 7. / 8 * 1024 / 41e9, 1e-15);
    /* 14 hops inside the nodes, which wait 1 us for the network; one of 2.7 + 5 us between them. */
    CHECK_STR(across.algorithm, "ring LL");
    CHECK_NEAR(across.time.latency_s, (6.6 + 14 * 1 + 7.7) * us, 1e-12);
    CHECK_NEAR(across.time.transfer_s, 15. / 16 * 1024 / 39e9, 1e-15);
}

static void many_bytes_go_by_simple(void)
{
    const struct mics_topology one = a100(1), two = a100(2);
    const double bytes = 1 << 30;
    const struct mics_nccl_cost inside = cost_of(&one, MICS_ALL_GATHER, 1 << 30),
                                across = cost_of(&two, MICS_REDUCE_SCATTER, 1 << 30),
                                reduced = cost_of(&one, MICS_ALL_REDUCE, 1 << 30);

    CHECK_STR(inside.algorithm, "ring Simple");
    CHECK_NEAR(inside.time.latency_s, (8.4 + 7 * 8) * us, 1e-12);
    CHECK_NEAR(inside.time.transfer_s, 7. / 8 * bytes / 240e9, 1e-9);
    CHECK_STR(across.algorithm, "ring Simple");
    CHECK_NEAR(across.time.latency_s, (8.4 + 14 * 8 + 14 + 2 * 5) * us, 1e-12);
    CHECK_NEAR(across.time.transfer_s, 15. / 16 * bytes / 192e9, 1e-9);
    CHECK_STR(reduced.algorithm, "ring Simple");
    CHECK_NEAR(reduced.time.latency_s, (8.4 + 14 * 8) * us, 1e-12);
    CHECK_NEAR(reduced.time.transfer_s, 7. / 4 * bytes / 240e9, 1e-9);
}

static void pairs_exchange_over_links_and_cards_at_the_same_time(void)
{
    const struct mics_topology one = a100(1), two = a100(2);
    const double bytes = 1 << 30;
    const struct mics_nccl_cost inside = cost_of(&one, MICS_ALL_TO_ALL, 1 << 30),
                                across = cost_of(&two, MICS_ALL_TO_ALL, 1 << 30);

    CHECK_STR(inside.algorithm, "pairs");
    CHECK_NEAR(inside.time.latency_s, (8.4 + 8) * us, 1e-12);
    CHECK_NEAR(inside.time.transfer_s, 7. / 8 * bytes / (.8 * 240e9), 1e-9);
    /* 8 ranks of a node send half of their data over its cards: 8 messages each, of 3 us. */
    CHECK_NEAR(across.time.latency_s, (8.4 + 8 + 14 + 2 * 5 + 8 * 3) * us, 1e-12);
    CHECK_NEAR(across.time.transfer_s, 8 * .5 * bytes / 192e9, 1e-9);
}

static void the_switch_reduces_from_hopper_on(void)
{
    const struct mics_topology one = h100(1), four = h100(4);
    const double bytes = 1 << 30, inside = 360e9 * .85 * 8 / 9;
    const struct mics_nccl_cost node = cost_of(&one, MICS_ALL_REDUCE, 1 << 30),
                                nodes = cost_of(&four, MICS_ALL_REDUCE, (uint64_t)4 << 30);

    CHECK_STR(node.algorithm, "NVLS");
    CHECK_NEAR(node.time.latency_s, 25 * us, 1e-12);
    CHECK_NEAR(node.time.transfer_s, bytes / inside, 1e-9);
    /* A tree of 4 nodes: 2 hops up, 2 hops down; each node's cards send every byte twice. The first
     * chunks, 64 KiB in each of 16 channels for each of 8 GPUs, are stored at each hop. */
    CHECK_STR(nodes.algorithm, "NVLS tree");
    CHECK_NEAR(nodes.time.latency_s, (25 + 4 * (20.9 + 2 * 5)) * us, 1e-12);
    CHECK_NEAR(nodes.time.transfer_s, (4 * bytes + 4 * 65536. * 16 * 8) / (384e9 / 2), 1e-9);
    /* Gathers never use it. */
    CHECK_STR(cost_of(&one, MICS_ALL_GATHER, 1 << 30).algorithm, "ring Simple");
}

/* Chunks of 128 KiB from 1 GiB on, of 64 KiB from 64 MiB on, of 32 KiB below; a chunk's
 * synchronisation takes as long as 9 KiB. */
static void the_switch_takes_longer_for_small_chunks(void)
{
    const struct mics_topology one = h100(1);
    const double mb = 1 << 20, inside = 360e9 * .85 * 8 / 9, of_128 = 1 + 9. / 128;
    const struct mics_nccl_cost cost = cost_of(&one, MICS_ALL_REDUCE, 64 << 20);

    CHECK_STR(cost.algorithm, "NVLS");
    CHECK_NEAR(cost.time.transfer_s, 64 * mb / inside * (1 + 9. / 64) / of_128, 1e-9);
    /* 63 MiB would take longer: predicted as 64. */
    CHECK_NEAR(cost_of(&one, MICS_ALL_REDUCE, 63 << 20).time.transfer_s, cost.time.transfer_s,
               1e-12);
    CHECK_NEAR(cost_of(&one, MICS_ALL_REDUCE, 48 << 20).time.transfer_s,
               48 * mb / inside * (1 + 9. / 32) / of_128, 1e-9);
}

/* The first chunk of 512 KiB goes up and down a chain of 8 GPUs, in each of 16 channels at 24 GB/s,
 * and once between the nodes, at 192 / 16. */
static void a_tree_stores_and_forwards(void)
{
    const struct mics_topology two = a100(2);
    const struct mics_nccl_cost cost = cost_of(&two, MICS_ALL_REDUCE, 1 << 30);
    const double bytes = 1 << 30, chunk = 512 << 10;

    CHECK_STR(cost.algorithm, "tree Simple");
    CHECK_NEAR(cost.time.latency_s, (8.4 + 2 * (7 * 4 + 14 + 2 * 5)) * us, 1e-12);
    CHECK_NEAR(cost.time.transfer_s,
               2 * bytes / (.92 * 240e9) + 2 * (7 * chunk / 24e9 + chunk / 12e9), 1e-9);
}

static void an_algorithm_can_be_demanded(void)
{
    const struct mics_topology one = h100(1);
    const struct mics_span span = {1, 8, 1};

    CHECK_STR(mics_nccl_cost_of(&one, MICS_ALL_REDUCE, span, 1 << 30, "ring").algorithm,
              "ring Simple");
    CHECK_STR(mics_nccl_cost_of(&one, MICS_ALL_REDUCE, span, 1 << 30, "tree").algorithm,
              "tree Simple");
    CHECK(mics_nccl_cost_of(&one, MICS_ALL_GATHER, span, 1 << 30, "NVLS").algorithm == NULL);
}

static void a_tree_saves_latency_between_many_nodes(void)
{
    const struct mics_topology topology = a100(64);
    const struct mics_nccl_cost cost = cost_of(&topology, MICS_ALL_REDUCE, 8);

    CHECK_STR(cost.algorithm, "tree LL");
    CHECK_NEAR(cost.time.latency_s, (6.8 + 2 * (7 * .6 + 6 * (5 + 5))) * us, 1e-12);
}

/* 32 nodes are 4, doubled three times. */
static void a_ring_of_many_nodes_is_slower(void)
{
    const struct mics_topology topology = a100(32);
    const struct mics_nccl_cost cost = cost_of(&topology, MICS_ALL_GATHER, (uint64_t)64 << 30);
    const double bytes = (double)((uint64_t)64 << 30);

    CHECK_NEAR(cost.time.latency_s, (8.4 + 224 * 8 + 31 * (14 + 2 * 5)) * us, 1e-12);
    CHECK_NEAR(cost.time.transfer_s, 255. / 256 * bytes / (192e9 * .937 * .937 * .937), 1e-6);
}

static void groups_with_one_rank_per_node_gather_by_trees(void)
{
    const struct mics_topology topology = a100(16);
    const struct mics_nccl_cost cost =
        mics_nccl_cost(&topology, MICS_ALL_GATHER, (struct mics_span){16, 1, 8}, 1 << 20);

    CHECK_STR(cost.algorithm, "PAT");
    CHECK_NEAR(cost.time.latency_s, (8 + 4 * (14 + 10) / 3.5 + 16 * 2.8) * us, 1e-12);
    CHECK_NEAR(cost.time.transfer_s, (1 << 20) / (.75 * 192e9 / 8), 1e-9);
}

static void early_efa_forces_simple(void)
{
    struct mics_topology *p4d = NULL;
    const struct mics_topology later = p5(2);

    CHECK_INT(mics_topology_parse("p4d.24xlarge:2", &p4d, NULL), MICS_OK);
    if (!p4d)
        return;
    const struct mics_nccl_cost early = cost_of(p4d, MICS_ALL_REDUCE, 8);

    CHECK_STR(early.algorithm, "tree Simple");
    CHECK_NEAR(early.time.latency_s, (8.4 + 2 * (7 * 4 + 14 + 2 * 20)) * us, 1e-12);
    CHECK_STR(cost_of(&later, MICS_ALL_REDUCE, 8).algorithm, "tree LL");
    mics_topology_free(p4d);
}

/* Such instances have no switch that reduces; of GPUs that do, it takes what others' take. */
static void newer_gpus_under_an_early_name_reduce_in_the_switch(void)
{
    const struct mics_topology plain = h100(1);
    struct mics_topology named = h100(1);

    strcpy(named.name, "p4d.24xlarge");
    const struct mics_nccl_cost cost = cost_of(&named, MICS_ALL_REDUCE, 48 << 20);
    CHECK_STR(cost.algorithm, "NVLS");
    CHECK_NEAR(cost.time.transfer_s, cost_of(&plain, MICS_ALL_REDUCE, 48 << 20).time.transfer_s,
               1e-12);
}

static void more_bytes_never_take_less_time(void)
{
    struct mics_topology (*const machines[])(uint32_t) = {a100, h100, b200, p5};

    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        for (uint32_t nodes = 1; nodes <= 64; nodes *= 2)
            for (int c = 0; c < MICS_COLLECTIVE_COUNT; c++) {
                const struct mics_topology topology = machines[i](nodes);
                double last = 0;

                for (double bytes = 1; bytes < 1e13; bytes *= 1.1) {
                    const struct mics_collective_time time =
                        cost_of(&topology, (enum mics_collective)c, (uint64_t)bytes).time;

                    CHECK(time.latency_s + time.transfer_s >= last);
                    last = time.latency_s + time.transfer_s;
                }
            }
}

static double slowdown_of(const struct mics_topology *topology, uint32_t multiprocessors,
                          enum mics_collective collective, uint64_t bytes)
{
    return mics_nccl_slowdown(topology, multiprocessors, collective,
                              (struct mics_span){topology->nodes, topology->per_node, 1}, bytes);
}

/* 24 channels of 108 and of 132 multiprocessors; 2 bytes of memory per byte that is sent. */
static void a_gather_takes_multiprocessors_and_memory_bandwidth(void)
{
    const struct mics_topology a = a100(1), h = h100(1);

    CHECK_NEAR(slowdown_of(&a, 108, MICS_ALL_GATHER, (uint64_t)16 << 30),
               1 - (1 - 24. / 108) * (1 - 2 * 240. / 1800), 1e-3);
    CHECK_NEAR(slowdown_of(&h, 132, MICS_ALL_GATHER, (uint64_t)16 << 30),
               1 - (1 - 24. / 132) * (1 - 2 * 360. / 3000), 1e-3);
    CHECK_NEAR(slowdown_of(&a, 108, MICS_ALL_REDUCE, 8), 1. / 108, 1e-4);
}

static void described_clusters_do_not_use_nccl(void)
{
    struct mics_topology *described = NULL, *known = NULL;

    CHECK_INT(mics_topology_parse("node:4 gpu:8", &described, NULL), MICS_OK);
    CHECK_INT(mics_topology_parse("dgx-h100:4", &known, NULL), MICS_OK);
    CHECK(described && !mics_nccl_is_used(described));
    CHECK(known && mics_nccl_is_used(known));
    mics_topology_free(described);
    mics_topology_free(known);
}

int main(void)
{
    TAP_RUN(few_bytes_go_by_ll);
    TAP_RUN(many_bytes_go_by_simple);
    TAP_RUN(pairs_exchange_over_links_and_cards_at_the_same_time);
    TAP_RUN(the_switch_reduces_from_hopper_on);
    TAP_RUN(the_switch_takes_longer_for_small_chunks);
    TAP_RUN(a_tree_stores_and_forwards);
    TAP_RUN(an_algorithm_can_be_demanded);
    TAP_RUN(a_tree_saves_latency_between_many_nodes);
    TAP_RUN(a_ring_of_many_nodes_is_slower);
    TAP_RUN(groups_with_one_rank_per_node_gather_by_trees);
    TAP_RUN(early_efa_forces_simple);
    TAP_RUN(newer_gpus_under_an_early_name_reduce_in_the_switch);
    TAP_RUN(more_bytes_never_take_less_time);
    TAP_RUN(a_gather_takes_multiprocessors_and_memory_bandwidth);
    TAP_RUN(described_clusters_do_not_use_nccl);
    return tap_done();
}
