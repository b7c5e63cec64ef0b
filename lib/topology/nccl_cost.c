/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_cost.c - NCCL's model of its own collectives.
 *
 * Constants without another source are those of ncclTunerConstantsDefaults and ncclTopoTuneModel()
 * in NVIDIA/nccl 5067397c, src/graph/tuning.cc, read on 2026-11-22; for hosts with Intel's
 * processors, where they differ. Latencies are in microseconds, bandwidths in GB/s there and here.
 *
 * What is not from there:
 *   - Rings and trees are limited by the slowest link, rather than by the bandwidths that NCCL's
 *     search for channels finds. On two nodes a tree sends each byte once in each direction, a ring
 *     twice; on more nodes both send it twice.
 *   - NVLink SHARP: a GPU sends S to the switch, which adds it up, and S / k of the result.
 *   - The factors for medium sizes of trees are used for NVLink SHARP too, as NCCL does for its
 *     tree on Blackwell: its chunks shrink with the size in the same range (src/enqueue.cc).
 *   - From 256 ranks on a ring's latency is four times NCCL's: all-gathers of 2 GB on 32 nodes
 *     (nccl issue 1218) take 3.6 ms longer than the model, which has 1.2 ms of latency there.
 */
#include "topology/nccl_cost.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

enum generation { VOLTA, AMPERE, HOPPER, BLACKWELL, GENERATIONS };
enum algorithm { TREE, RING, ALGORITHMS };
enum protocol { LL, LL128, SIMPLE, PROTOCOLS };
enum medium { NVLINK, PCI, NET, MEDIA };
enum { MAX_CHANNELS = 64 };
enum scale { NODES_1, NODES_2, NODES_MORE, SCALES };

static const double base_us[ALGORITHMS][PROTOCOLS] = {{6.8, 14, 8.4}, {6.6, 14, 8.4}};

static const double hop_us[MEDIA][ALGORITHMS][PROTOCOLS] = {
    [NVLINK] = {{.6, 1.25, 4}, {.6, 1.9, 3.4}},
    [PCI] = {{1, 1.9, 4}, {1, 2.5, 5.7}},
    [NET] = {{5, 8.5, 14}, {2.7, 4, 14}},
};

/* Launching a step between nodes; three times as long for Simple. */
static const double net_overhead_us = 1;

static const double nvls_us = 25, nvls_tree_net_us = 20.9, pat_base_us = 8, pat_rank_us = 2.8;

/* GB/s of LL: on one node by the GPU, on several by the processor. */
static const double ll_max[GENERATIONS] = {39, 87.7, 141, 282};
static const double ll_max_nodes[SCALES] = {[NODES_2] = 39, [NODES_MORE] = 20.4};

/* GB/s of one channel. */
static const double ring_ll128_max[GENERATIONS] = {20, 20, 36.7, 40};
static const double tree_ll128_max[GENERATIONS][SCALES] = {
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}};
static const double tree_max[GENERATIONS][SCALES] = {
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}};

/* Part of NVLink's bandwidth, and ranks of a node from which NVLink SHARP is used: 5 on an H200, 6
 * on a B200 (stas00/ml-engineering, network). */
static const double nvls_efficiency[GENERATIONS] = {0, 0, .85, .74};
static const uint32_t nvls_least_ranks[GENERATIONS] = {0, 0, 5, 6};

/* Part of a tree's bandwidth at 64 B, 128 B, ... 512 MB. */
enum { CORRECTIONS = 24 };
static const double tree_correction[PROTOCOLS][CORRECTIONS] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
};

/* A channel is used for this many bytes at least: 512 threads of 64 bytes each. */
static const double channel_bytes = 512 * 64;

/* AWS's network. Its plug-in adds 20 us to a hop, and once more to that of Simple, which flushes:
 * 20 to 40 us in published runs (its own figures for NCCL's tuner are 35 to 150 us). It forces
 * Simple where the cards may deliver the parts of a message in another order: before P5 (aws/
 * aws-ofi-nccl issue 76 and pull request 280). */
static const double efa_hop_us = 20;
static const struct {
    const char *prefix; /* of the instance's name */
    bool simple_only;
} efa_instances[] = {{"p3dn.", true}, {"p4d.", true},   {"p4de.", true}, {"p5.", false},
                     {"p5e.", false}, {"p5en.", false}, {"p6-", false}};

bool mics_nccl_is_used(const struct mics_topology *topology)
{
    return strncmp(topology->device, "NVIDIA", 6) == 0;
}

/* A group of m ranks on q nodes, k on each. */
struct group {
    double m, q, k, bytes;
    enum mics_collective collective;
    enum generation generation;
    enum scale scale;
    enum medium inside;
    double link, net; /* GB/s: of a GPU inside the node; of a node, the group's part */
    double card_us;   /* that the network adds to a hop */
    double channels, nvls_channels; /* nvls_channels 0: no NVLink SHARP */
    bool can_use_ll, can_use_ll128;
};

static enum generation generation_of(const struct mics_topology *topology)
{
    const double link = topology->per_node > 1 ? topology->node_link.bandwidth_bytes : 0;
    static const struct {
        const char *name;
        enum generation generation;
    } known[] = {{"V100", VOLTA},   {"A100", AMPERE},    {"A800", AMPERE},
                 {"H100", HOPPER},  {"H200", HOPPER},    {"H800", HOPPER},
                 {"GH200", HOPPER}, {"B200", BLACKWELL}, {"B300", BLACKWELL}};

    /* Often asked: only where a word begins. */
    for (const char *word = topology->device; *word;
         word += strcspn(word, " -"), word += *word != 0)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (*word == *known[i].name && !strncmp(word, known[i].name, strlen(known[i].name)))
                return known[i].generation;
    /* By what a GPU reaches over its links: A100 240 GB/s, H100 360, B200 720. */
    return link >= 550e9 ? BLACKWELL : link >= 300e9 || link == 0 ? HOPPER : AMPERE;
}

struct mics_nccl_node mics_nccl_node_from_topology(const struct mics_topology *topology)
{
    const double link = topology->per_node > 1 ? topology->node_link.bandwidth_bytes : 0;
    const double net = topology->nodes > 1 ? topology->net_link.bandwidth_bytes : 0;
    const double ring_rate = 20e9, card_rate = 12.5e9, slowest_nvls = 300e9;
    const enum generation generation = generation_of(topology);
    const double rings = fmax(1, ceil(0.99 * link / ring_rate));
    struct mics_nccl_node node = {.per_node = topology->per_node, .hopper = generation >= HOPPER};

    /* Two per 20 GB/s: V100 12, A100 and H100 24, B200 32, PCI Express 2. */
    node.channels = 2 * (uint32_t)fmin(generation == BLACKWELL ? 16 : 12, rings);
    if (node.hopper && link >= slowest_nvls)
        node.nvls_channels = generation == BLACKWELL ? 32 : 16;
    node.cards = (uint32_t)fmin(topology->per_node, fmax(1, ceil(net / card_rate)));
    return node;
}

/* Across nodes NCCL has two channels per card that is close to the ranks; from Hopper on four, if
 * there are at most 4 such cards. */
uint32_t mics_nccl_channels(const struct mics_nccl_node *node, uint32_t nodes, uint32_t per_node)
{
    const uint64_t cards = mics_max_u64(1, (uint64_t)node->cards * per_node / node->per_node);

    if (nodes == 1)
        return node->channels;
    return (uint32_t)mics_min_u64(MAX_CHANNELS, cards * (node->hopper && cards <= 4 ? 4 : 2));
}

static void set_channels(struct group *group, const struct mics_topology *topology)
{
    const struct mics_nccl_node node = mics_nccl_node_from_topology(topology);

    group->channels = mics_nccl_channels(&node, (uint32_t)group->q, (uint32_t)group->k);
    group->nvls_channels = node.nvls_channels;
    /* Before Hopper LL128 goes only between a GPU and a card below the same switch. */
    group->can_use_ll128 = group->can_use_ll && group->inside == NVLINK &&
                           (group->q == 1 || node.hopper || node.cards >= node.per_node);
}

static struct group make_group(const struct mics_topology *topology,
                               enum mics_collective collective, struct mics_span span, double bytes)
{
    const double slowest_nvlink = 60; /* faster than 16 lanes of PCI Express 5 */
    struct group group = {.m = (double)span.nodes * span.per_node,
                          .q = span.nodes,
                          .k = span.per_node,
                          .bytes = bytes,
                          .collective = collective,
                          .generation = generation_of(topology),
                          .scale = span.nodes <= 2 ? (enum scale)(span.nodes - 1) : NODES_MORE,
                          .link = topology->node_link.bandwidth_bytes * 1e-9,
                          .net = topology->net_link.bandwidth_bytes * 1e-9 / span.sharing,
                          .card_us = topology->net_link.latency_s * 1e6,
                          .can_use_ll = true};

    group.inside = group.link > slowest_nvlink || group.k == 1 ? NVLINK : PCI;
    for (size_t i = 0; i < sizeof efa_instances / sizeof *efa_instances; i++)
        if (strncmp(topology->name, efa_instances[i].prefix, strlen(efa_instances[i].prefix)) ==
            0) {
            group.card_us = efa_hop_us;
            group.can_use_ll = !efa_instances[i].simple_only;
        }
    set_channels(&group, topology);
    return group;
}

/* One way to do it. */
struct option {
    const char *name;
    double latency_us, transfer_us;
    double channels, memory_bytes; /* that it reads and writes on each GPU */
};

static double transfer_us(double bytes, double gb_per_s)
{
    return bytes * 1e-3 / gb_per_s;
}

static double net_hop_us(const struct group *group, enum algorithm algorithm,
                         enum protocol protocol)
{
    /* With one rank on a node a ring's latency is not hidden. */
    const enum algorithm like = group->k == 1 ? TREE : algorithm;

    return hop_us[NET][like][protocol] + (protocol == SIMPLE ? 2 : 1) * group->card_us;
}

static double ring_bandwidth(const struct group *group, enum protocol protocol)
{
    const double slowest =
        fmin(group->k > 1 ? group->link : INFINITY, group->q > 1 ? group->net : INFINITY);

    if (protocol == LL)
        return fmin(slowest / 2,
                    group->q > 1 ? ll_max_nodes[group->scale] : ll_max[group->generation]);
    if (protocol == LL128)
        return fmin(.92 * slowest, group->channels * ring_ll128_max[group->generation]);
    return slowest;
}

/* Bytes that a ring reads and writes for each byte that a rank sends: an all-gather reads what it
 * sends and writes what it receives; a reduction also reads what it adds to. */
static double memory_per_byte(enum mics_collective collective)
{
    static const double factors[MICS_COLLECTIVE_COUNT] = {
        [MICS_ALL_GATHER] = 2, [MICS_REDUCE_SCATTER] = 3, [MICS_ALL_REDUCE] = 2.5};

    return factors[collective];
}

static struct option ring(const struct group *group, enum protocol protocol)
{
    static const char *const names[PROTOCOLS] = {"ring LL", "ring LL128", "ring Simple"};
    const double rounds = group->collective == MICS_ALL_REDUCE ? 2 : 1;
    const double sent = rounds * (group->m - 1) / group->m * group->bytes;
    double inside_us = hop_us[group->inside][RING][protocol];
    double latency;

    if (group->q > 1)
        inside_us = fmax(inside_us, net_overhead_us * (protocol == SIMPLE ? 3 : 1));
    latency = (group->m - group->q) * inside_us +
              (group->q - 1) * (net_hop_us(group, RING, protocol) -
                                (protocol == SIMPLE ? 2 : 1) * group->card_us);
    if (group->m >= 256)
        latency *= 4;
    latency += (group->q - 1) * (protocol == SIMPLE ? 2 : 1) * group->card_us;
    latency = base_us[RING][protocol] + rounds * latency;
    if (group->collective == MICS_ALL_REDUCE && group->q > 1 && protocol == SIMPLE &&
        group->bytes / (group->channels * group->m) >= 64)
        latency *= group->generation == VOLTA ? 1.9 : 1.4; /* NCCL: "plateau effect of ring" */
    return (struct option){names[protocol], latency,
                           transfer_us(sent, ring_bandwidth(group, protocol)), group->channels,
                           sent * memory_per_byte(group->collective)};
}

/* Between two sizes of the table in proportion to the logarithm, so that more bytes never take less
 * time. */
static double correction(double bytes, enum protocol protocol)
{
    const double x = log2(fmax(bytes, 64) / 64);
    const int i = (int)x;

    if (i >= CORRECTIONS)
        return 1;
    const double next = i + 1 < CORRECTIONS ? tree_correction[protocol][i + 1] : 1;
    return tree_correction[protocol][i] + (x - i) * (next - tree_correction[protocol][i]);
}

/* GB/s of an all-reduce that goes up and down a tree of nodes. */
static double tree_net_bandwidth(const struct group *group)
{
    return group->q == 1 ? INFINITY : group->q == 2 ? group->net : group->net / 2;
}

/* In a node a chain. Bandwidths are of what a GPU sends, which is twice the bytes. */
static struct option tree(const struct group *group, enum protocol protocol)
{
    static const char *const names[PROTOCOLS] = {"tree LL", "tree LL128", "tree Simple"};
    const double slowest =
        2 * fmin(group->k > 1 ? group->link / 2 : INFINITY, tree_net_bandwidth(group));
    double sent = fmin(.92 * slowest, group->channels * tree_max[group->generation][group->scale]);

    if (protocol == LL)
        sent =
            fmin(sent / 3.8, group->q > 1 ? ll_max_nodes[group->scale] : ll_max[group->generation]);
    if (protocol == LL128)
        sent = fmin(sent * (group->q == 1 ? 7. / 9 : 120. / 128),
                    group->channels * tree_ll128_max[group->generation][group->scale]);
    return (struct option){names[protocol],
                           base_us[TREE][protocol] +
                               2 * ((group->k - 1) * hop_us[group->inside][TREE][protocol] +
                                    ceil(log2(group->q)) * net_hop_us(group, TREE, protocol)),
                           transfer_us(2 * group->bytes, sent * correction(group->bytes, protocol)),
                           group->channels, 2 * group->bytes * memory_per_byte(MICS_ALL_REDUCE)};
}

/* All-reduce by the switch of a node, between nodes by a tree. */
static struct option nvls(const struct group *group)
{
    const double inside =
        group->link * nvls_efficiency[group->generation] * group->k / (group->k + 1);
    const double bandwidth = fmin(inside, tree_net_bandwidth(group));

    return (struct option){
        group->q > 1 ? "NVLS tree" : "NVLS",
        nvls_us + 2 * ceil(log2(group->q)) * (nvls_tree_net_us + 2 * group->card_us),
        transfer_us(group->bytes, bandwidth * correction(group->bytes, SIMPLE)),
        group->q > 1 ? fmax(group->channels, group->nvls_channels) : group->nvls_channels,
        2 * group->bytes};
}

/* All-gather and reduce-scatter of groups with one rank on each node, by binary trees. */
static struct option pat(const struct group *group)
{
    return (struct option){
        "PAT",
        pat_base_us + ceil(log2(group->q)) * net_hop_us(group, TREE, SIMPLE) / 3.5 +
            group->m * pat_rank_us,
        transfer_us(group->bytes, .75 * group->net), group->channels,
        (group->m - 1) / group->m * group->bytes * memory_per_byte(group->collective)};
}

static void take_faster(struct option *best, struct option option)
{
    if (!best->name ||
        option.latency_us + option.transfer_us < best->latency_us + best->transfer_us)
        *best = option;
}

static bool can_use(const struct group *group, enum protocol protocol)
{
    return protocol == SIMPLE || (protocol == LL ? group->can_use_ll : group->can_use_ll128);
}

static struct option fastest(const struct group *group)
{
    const bool reduces = group->collective == MICS_ALL_REDUCE;
    struct option best = {0};

    for (int p = 0; p < PROTOCOLS; p++) {
        if (!can_use(group, (enum protocol)p))
            continue;
        take_faster(&best, ring(group, (enum protocol)p));
        if (reduces)
            take_faster(&best, tree(group, (enum protocol)p));
    }
    if (reduces && group->nvls_channels > 0 && group->k >= nvls_least_ranks[group->generation])
        take_faster(&best, nvls(group));
    if (!reduces && group->q > 1 && group->k == 1)
        take_faster(&best, pat(group));
    return best;
}

struct mics_nccl_cost mics_nccl_cost(const struct mics_topology *topology,
                                     enum mics_collective collective, struct mics_span span,
                                     uint64_t bytes)
{
    const struct group group = make_group(topology, collective, span, (double)bytes);
    const struct option option = fastest(&group);

    return (struct mics_nccl_cost){.time = {option.latency_us * 1e-6, option.transfer_us * 1e-6},
                                   .algorithm = option.name};
}

/* NCCL occupies a multiprocessor per channel, and takes a part of the memory's bandwidth from the
 * others. Measured: matrix products 30 to 40 % slower on an H100 (pytorch issue 179937), 43 %,
 * attention 45 % and passes over memory 60 % on an A100 (nccl issue 1428). */
double mics_nccl_slowdown(const struct mics_topology *topology, uint32_t multiprocessors,
                          enum mics_collective collective, struct mics_span span, uint64_t bytes)
{
    const struct group group = make_group(topology, collective, span, (double)bytes);
    const struct option option = fastest(&group);
    const double channels = fmax(1, fmin(option.channels, ceil(group.bytes / channel_bytes)));
    const double seconds = (option.latency_us + option.transfer_us) * 1e-6;
    const double memory = option.memory_bytes / seconds / topology->memory_bandwidth;

    return 1 - fmax(0, 1 - channels / multiprocessors) * (1 - fmin(memory, 1));
}
