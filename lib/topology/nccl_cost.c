/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_cost.c - how long NCCL's collectives take.
 *
 * Latency + bytes / bandwidth for each algorithm and protocol, as in NCCL's own model, plus what
 * that model leaves out: the time that chunks take from rank to rank. Constants without another
 * source are those of ncclTunerConstantsDefaults and ncclTopoTuneModel() in NVIDIA/nccl 5067397c,
 * src/graph/tuning.cc, read on 2026-11-22; for hosts with Intel's processors, where they differ.
 * Latencies are in microseconds, bandwidths in GB/s there and here.
 *
 * What is not from there:
 *   - Rings and trees are limited by the slowest link, rather than by the bandwidths that NCCL's
 *     search for channels finds. On two nodes a tree sends each byte once in each direction, a ring
 *     twice; on more nodes both send it twice.
 *   - NVLink SHARP: a GPU sends S to the switch, which adds it up, and S / k of the result.
 *   - A tree forwards whole chunks: the first one reaches the last rank after as many chunk times
 *     as there are hops. Sizes of chunks and channels are those of calcCollChunking() in
 *     src/enqueue.cc and of src/init.cc. NCCL has a table of factors for medium sizes instead.
 *   - Constants marked "calibrated" come from published output of nccl-tests. bench/nccl_curves.c
 *     has these points and their sources in a table of their own; they are not the points by which
 *     the predictions are judged.
 */
#include "topology/nccl_cost.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

enum generation { VOLTA, AMPERE, HOPPER, BLACKWELL, GENERATIONS };
enum algorithm { TREE, RING, ALGORITHMS };
enum protocol { LL, LL128, SIMPLE, PROTOCOLS };
enum resource { NVLINK, PCI, NET, MEDIA };
enum { MAX_CHANNELS = 64 };
enum scale { NODES_1, NODES_2, NODES_MORE, SCALES };

static const double base_us[ALGORITHMS][PROTOCOLS] = {{6.8, 14, 8.4}, {6.6, 14, 8.4}};

/* Calibrated: collectives of few bytes on a node of B200 take this much longer than the model. */
static const double blackwell_base_us = 8;

/* Calibrated: a ring's step inside a node with Simple, which signals after each slice, where NCCL
 * counts 3.4 us (PCI Express 5.7). All-reduces and reduce-scatters of 8 A100 exceed the time of
 * their bytes by 6 to 11 us per step, gathers of 8 B200 by 7 to 9, all-reduces of 4 H100 by 5 to
 * 12. With LL128 A100 need the same, H100 and B200 NCCL's 1.9 us. */
#define STEP_US 8.

static const double hop_us[MEDIA][ALGORITHMS][PROTOCOLS] = {
    [NVLINK] = {{.6, 1.25, 4}, {.6, 1.9, STEP_US}},
    [PCI] = {{1, 1.9, 4}, {1, 2.5, STEP_US}},
    [NET] = {{5, 8.5, 14}, {2.7, 4, 14}},
};

/* Launching a step between nodes; three times as long for Simple. */
static const double net_overhead_us = 1;

/* Calibrated: 28 us more than NCCL's 25 on Blackwell. */
static const double nvls_us[GENERATIONS] = {0, 0, 25, 53};
static const double nvls_tree_net_us = 20.9, pat_base_us = 8, pat_rank_us = 2.8;

/* GB/s of LL: on one node by the GPU, on several by the processor. Calibrated for A100, by
 * all-reduces of 512 KiB and 1 MiB: 41, where NCCL has 87.7. */
static const double ll_max[GENERATIONS] = {39, 41, 141, 282};
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

/* NVLink SHARP synchronises all GPUs for each chunk, which costs as much time as these bytes.
 * Calibrated by the steps in the curves of a node where NCCL doubles the chunk. The efficiency is
 * that of chunks of 128 KiB, NCCL's default. */
static const double nvls_sync_bytes[GENERATIONS] = {0, 0, 9 * 1024., 29 * 1024.};
static const double nvls_default_chunk = 128 * 1024.;

/* Calibrated: part of its bandwidth that a ring keeps when the number of nodes doubles, from 4 on.
 * A reduce-scatter on 4, 8, ... 128 nodes of 8 H100 reaches 360, 345, 320, 300, 280, 260 GB/s (nccl
 * issue 1229, size not stated). */
static const double ring_kept = .937, ring_kept_from_nodes = 4;

/* Part of NVLink's bandwidth that messages between all pairs reach. Assumed: of 8 H100 that gather
 * at 361 GB/s. */
static const double pairs_share = .8;

/* A channel is used for this many bytes at least: 512 threads of 64 bytes each. */
static const double channel_bytes = 512 * 64;

/* AWS's network. Its plug-in adds some time to a hop, and once more to that of Simple, which
 * flushes: all-reduces of 8 bytes on 2 nodes (its own figures for NCCL's tuner are 35 to 150 us,
 * without parts). It forces Simple where the cards may deliver the parts of a message in another
 * order: before P5 (aws/aws-ofi-nccl issue 76 and pull request 280). It sets the size of chunks:
 * NCCL_BUFFSIZE / 8 of Simple, NCCL_NVLS_CHUNKSIZE (aws/aws-ofi-nccl 2daf7d30,
 * src/platform-aws.cpp). Before P5 a card reaches 340 of 400 Gbit/s (HuggingFaceM4/IDEFICS on
 * several p4d: stas00/ml-engineering), NCCL counts 384. */
struct efa {
    const char *prefix; /* of the instance's name */
    double hop_us, rate_share, simple_chunk, nvls_chunk;
    bool simple_only;
};
static const struct efa efa_instances[] = {
    {"p3dn.", 20, 340. / 384, 512 * 1024., 0, true},
    {"p4d.", 20, 340. / 384, 1024 * 1024., 0, true},
    {"p4de.", 20, 340. / 384, 1024 * 1024., 0, true},
    {"p5.", 20, 1, 1024 * 1024., 512 * 1024., false},
    {"p5e.", 20, 1, 1024 * 1024., 512 * 1024., false},
    {"p5en.", 10, 1, 1024 * 1024., 512 * 1024., false},
    {"p6-", 10, 1, 1024 * 1024., 512 * 1024., false},
};

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
    enum resource inside;
    double link, net; /* GB/s: of a GPU inside the node; of a node, the group's part */
    double card_us;   /* that the network adds to a hop */
    double channels, nvls_channels;  /* nvls_channels 0: no NVLink SHARP */
    double simple_chunk, nvls_chunk; /* bytes, the largest */
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
    const double slowest_nvlink = 60;             /* faster than 16 lanes of PCI Express 5 */
    const double largest_tree_chunk = 64 * 1024.; /* of NVLink SHARP, on 4 nodes or more */
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
                          .simple_chunk = 512 * 1024.,
                          .nvls_chunk = span.nodes < 4 ? nvls_default_chunk : largest_tree_chunk,
                          .can_use_ll = true};

    group.inside = group.link > slowest_nvlink || group.k == 1 ? NVLINK : PCI;
    for (size_t i = 0; i < sizeof efa_instances / sizeof *efa_instances; i++) {
        const struct efa *efa = &efa_instances[i];

        if (strncmp(topology->name, efa->prefix, strlen(efa->prefix)) != 0)
            continue;
        group.card_us = efa->hop_us;
        group.net *= efa->rate_share;
        group.simple_chunk = efa->simple_chunk;
        if (efa->nvls_chunk > 0) /* else before NVLink SHARP */
            group.nvls_chunk = efa->nvls_chunk;
        group.can_use_ll = !efa->simple_only;
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

static double start_us(const struct group *group, enum algorithm algorithm, enum protocol protocol)
{
    return base_us[algorithm][protocol] + (group->generation == BLACKWELL ? blackwell_base_us : 0);
}

static double ring_bandwidth(const struct group *group, enum protocol protocol)
{
    const double doublings = log2(fmax(1, group->q / ring_kept_from_nodes));
    const double net = group->net * pow(ring_kept, doublings);
    const double slowest =
        fmin(group->k > 1 ? group->link : INFINITY, group->q > 1 ? net : INFINITY);

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
    static const double factors[MICS_COLLECTIVE_COUNT] = {[MICS_ALL_GATHER] = 2,
                                                          [MICS_REDUCE_SCATTER] = 3,
                                                          [MICS_ALL_REDUCE] = 2.5,
                                                          [MICS_ALL_TO_ALL] = 2};

    return factors[collective];
}

static struct option ring(const struct group *group, enum protocol protocol)
{
    static const char *const names[PROTOCOLS] = {"ring LL", "ring LL128", "ring Simple"};
    const double rounds = group->collective == MICS_ALL_REDUCE ? 2 : 1;
    const double sent = rounds * (group->m - 1) / group->m * group->bytes;
    double inside_us = hop_us[group->inside][RING][protocol];
    double latency;

    if (group->generation == AMPERE && protocol == LL128)
        inside_us = STEP_US;
    if (group->q > 1)
        inside_us = fmax(inside_us, net_overhead_us * (protocol == SIMPLE ? 3 : 1));
    latency =
        (group->m - group->q) * inside_us + (group->q - 1) * net_hop_us(group, RING, protocol);
    latency = start_us(group, RING, protocol) + rounds * latency;
    if (group->collective == MICS_ALL_REDUCE && group->q > 1 && protocol == SIMPLE &&
        group->bytes / (group->channels * group->m) >= 64)
        latency *= group->generation == VOLTA ? 1.9 : 1.4; /* NCCL: "plateau effect of ring" */
    return (struct option){names[protocol], latency,
                           transfer_us(sent, ring_bandwidth(group, protocol)), group->channels,
                           sent * memory_per_byte(group->collective)};
}

/* GB/s of an all-reduce that goes up and down a tree of nodes. */
static double tree_net_bandwidth(const struct group *group)
{
    return group->q == 1 ? INFINITY : group->q == 2 ? group->net : group->net / 2;
}

/* Hops between nodes on the way up. */
static double tree_levels(const struct group *group)
{
    return ceil(log2(group->q));
}

/* Bytes that a channel of a tree forwards at a time. */
static double tree_chunk(const struct group *group, enum protocol protocol)
{
    const double ll_chunk = 32 * 1024., ll128_chunk = 576000; /* an eighth of NCCL's buffers */
    const double share = group->bytes / group->channels;
    double chunk = protocol == LL ? ll_chunk : group->simple_chunk;

    if (protocol == LL128) {
        const double steps = (1 + log2(group->q) + .1 * group->k) / group->k;

        for (chunk = ll128_chunk; share / chunk < 64 * steps && chunk > 131072;)
            chunk /= 2;
        while (share / chunk < 16 * steps && chunk > 32768)
            chunk /= 2;
    }
    return fmin(chunk, share);
}

/* Until the first chunk has gone up and down: inside a node at the rate of a channel, between
 * nodes at a channel's part of the cards. */
static double tree_fill_us(const struct group *group, enum protocol protocol)
{
    static const double net_share[PROTOCOLS] = {.5, .92, 1};
    const double chunk = tree_chunk(group, protocol);
    const double inside = protocol == LL      ? ll_max[group->generation] / group->channels
                          : protocol == LL128 ? tree_ll128_max[group->generation][NODES_1]
                                              : tree_max[group->generation][NODES_1];
    const double net = tree_net_bandwidth(group) * net_share[protocol] / group->channels;

    return 2 * ((group->k - 1) * transfer_us(chunk, fmin(inside, group->link)) +
                tree_levels(group) * transfer_us(chunk, net));
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
                           start_us(group, TREE, protocol) +
                               2 * ((group->k - 1) * hop_us[group->inside][TREE][protocol] +
                                    tree_levels(group) * net_hop_us(group, TREE, protocol)),
                           transfer_us(2 * group->bytes, sent) + tree_fill_us(group, protocol),
                           group->channels, 2 * group->bytes * memory_per_byte(MICS_ALL_REDUCE)};
}

/* With chunks of this size, which NCCL uses from `from` bytes on. */
static double nvls_transfer_us(const struct group *group, double chunk, double from)
{
    const double bytes = fmax(group->bytes, from), pieces = group->nvls_channels * group->k;
    const double sync = nvls_sync_bytes[group->generation];
    const double reached = (1 + sync / nvls_default_chunk) / (1 + sync / chunk);
    const double inside = group->link * nvls_efficiency[group->generation] * group->k /
                          (group->k + 1) * fmin(1, reached);
    const double net = tree_net_bandwidth(group);

    return transfer_us(bytes, fmin(inside, net)) +
           2 * tree_levels(group) * transfer_us(fmin(chunk, bytes / pieces), net / pieces);
}

/* All-reduce by the switch of a node, between nodes by a tree. NCCL's chunks shrink where they are
 * fewer than so many for each channel and rank. Just above such a size it may take less time than
 * just below; the prediction below it is then that of the size, so that more bytes never take less
 * time. */
static struct option nvls(const struct group *group)
{
    static const struct shrink {
        double count, chunk;
    } node[] = {{64, 65536}, {8, 32768}, {2, 16384}, {0, 0}},
      tree[] = {{32, 262144}, {16, 131072}, {4, 65536}, {1, 32768}, {0, 0}};
    double chunk = group->nvls_chunk, transfer = INFINITY;

    for (const struct shrink *shrink = group->q > 1 ? tree : node;; shrink++) {
        const double from = shrink->count * group->nvls_channels * group->k * chunk;

        if (chunk <= shrink->chunk)
            continue;
        transfer = fmin(transfer, nvls_transfer_us(group, chunk, from));
        if (group->bytes >= from)
            break;
        chunk = shrink->chunk;
    }
    return (struct option){
        group->q > 1 ? "NVLS tree" : "NVLS",
        nvls_us[group->generation] +
            2 * tree_levels(group) * (nvls_tree_net_us + 2 * group->card_us),
        transfer, group->q > 1 ? fmax(group->channels, group->nvls_channels) : group->nvls_channels,
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

/* All-to-all, by ncclSend() and ncclRecv() between all pairs of ranks. Each of a node's ranks
 * exchanges the pieces of all other nodes over the cards: they cannot be pooled as for a ring. */
static struct option pairs(const struct group *group)
{
    const double inside = (group->k - 1) / group->m * group->bytes;
    const double outside = group->k * (group->m - group->k) / group->m * group->bytes;
    double latency = start_us(group, RING, SIMPLE), transfer = 0;

    if (group->k > 1) {
        latency += hop_us[group->inside][RING][SIMPLE];
        transfer = transfer_us(inside, pairs_share * group->link);
    }
    if (group->q > 1) {
        latency += net_hop_us(group, RING, SIMPLE) +
                   (group->m - group->k) * 3 * net_overhead_us; /* of each message */
        transfer = fmax(transfer, transfer_us(outside, group->net));
    }
    return (struct option){"pairs", latency, transfer, group->channels,
                           (inside + outside / group->k) * memory_per_byte(MICS_ALL_TO_ALL)};
}

/* Unless it is not of `algorithm`; NULL: any. */
static void take_faster(struct option *best, const char *algorithm, struct option option)
{
    if (algorithm && strncmp(option.name, algorithm, strlen(algorithm)) != 0)
        return;
    if (!best->name ||
        option.latency_us + option.transfer_us < best->latency_us + best->transfer_us)
        *best = option;
}

static bool can_use(const struct group *group, enum protocol protocol)
{
    return protocol == SIMPLE || (protocol == LL ? group->can_use_ll : group->can_use_ll128);
}

static struct option fastest(const struct group *group, const char *algorithm)
{
    const bool reduces = group->collective == MICS_ALL_REDUCE;
    struct option best = {0};

    if (group->collective == MICS_ALL_TO_ALL)
        return pairs(group);
    for (int p = 0; p < PROTOCOLS; p++) {
        if (!can_use(group, (enum protocol)p))
            continue;
        take_faster(&best, algorithm, ring(group, (enum protocol)p));
        if (reduces)
            take_faster(&best, algorithm, tree(group, (enum protocol)p));
    }
    if (reduces && group->nvls_channels > 0 && group->k >= nvls_least_ranks[group->generation])
        take_faster(&best, algorithm, nvls(group));
    if (!reduces && group->q > 1 && group->k == 1)
        take_faster(&best, algorithm, pat(group));
    return best;
}

struct mics_nccl_cost mics_nccl_cost_of(const struct mics_topology *topology,
                                        enum mics_collective collective, struct mics_span span,
                                        uint64_t bytes, const char *algorithm)
{
    const struct group group = make_group(topology, collective, span, (double)bytes);
    const struct option option = fastest(&group, algorithm);

    return (struct mics_nccl_cost){.time = {option.latency_us * 1e-6, option.transfer_us * 1e-6},
                                   .algorithm = option.name};
}

struct mics_nccl_cost mics_nccl_cost(const struct mics_topology *topology,
                                     enum mics_collective collective, struct mics_span span,
                                     uint64_t bytes)
{
    return mics_nccl_cost_of(topology, collective, span, bytes, NULL);
}

/* NCCL occupies a multiprocessor per channel, and takes a part of the memory's bandwidth from the
 * others. Measured: matrix products 30 to 40 % slower on an H100 (pytorch issue 179937), 43 %,
 * attention 45 % and passes over memory 60 % on an A100 (nccl issue 1428). */
double mics_nccl_slowdown(const struct mics_topology *topology, uint32_t multiprocessors,
                          enum mics_collective collective, struct mics_span span, uint64_t bytes)
{
    const struct group group = make_group(topology, collective, span, (double)bytes);
    const struct option option = fastest(&group, NULL);
    const double channels = fmax(1, fmin(option.channels, ceil(group.bytes / channel_bytes)));
    const double seconds = (option.latency_us + option.transfer_us) * 1e-6;
    const double memory = option.memory_bytes / seconds / topology->memory_bandwidth;

    return 1 - fmax(0, 1 - channels / multiprocessors) * (1 - fmin(memory, 1));
}
