/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - what a cluster is made of: the document mics.topology in memory.
 *
 * Nodes are alike (a plan needs that), so a topology of 1,024 nodes is as small as one of two. Costs
 * are classes, not pairs: a link inside a node, and a link between nodes.
 *
 * The document, version 1; everything after a '?' may be absent:
 *
 *     kind "mics.topology", v 1, name, source, nodes, per_node,
 *     device {name, flops_per_s, flops_dtype ("f32", "bf16", "f16"), memory_bandwidth_bytes_per_s,
 *             memory_bytes, ? free_bytes, ? cores, ? peak_flops_per_s, ? from_host_bytes_per_s,
 *             ? to_host_bytes_per_s}
 *     links {node LINK (needed when per_node > 1), net LINK (needed when nodes > 1)}
 *     ? collectives [{collective ("all_gather", "reduce_scatter", "all_reduce"), nodes, per_node,
 *                     LINK's members, ? points [[bytes, seconds], ...]}]
 *     ? exchanges: see races.h
 *     ? hosts [name of each node]
 *     ? declared_nodes: a node is what MICS_NODE_RANKS said, not a machine
 *     ? machine {processor, packages, numa_nodes, cores, threads, cache_bytes [L1d, L2, L3],
 *                memory_bytes, ? gpus, ? gpus_error: see gpu_info.h}: one node, as hwloc sees it
 *     ? outliers [{what ("flops", "memory_bandwidth": of a rank; "node_link", "net_link": seconds
 *                  of a message), where, host, value, median, times_slower}]
 *     ? bad_nodes [index of each node that should be left out]
 *     LINK = {latency_s, bandwidth_bytes_per_s, ? samples, ? spread}
 */
#ifndef MICS_TOPOLOGY_TOPOLOGY_H
#define MICS_TOPOLOGY_TOPOLOGY_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define MICS_TOPOLOGY_KIND    "mics.topology"
#define MICS_TOPOLOGY_VERSION 1
#define MICS_MAX_NODES        65536
#define MICS_MAX_PER_NODE     1024

/* Of a GPU's memory, not planned: fragments of 2 MiB, what varies between runs, and of nvidia-smi's
 * total what the driver keeps from CUDA: 621 MiB of an A100-SXM4-40GB (bottlerocket-os/bottlerocket
 * pull request 3873), 729 MiB of a B200 (pytorch/ao pull request 4002), more than this. */
#define MICS_GPU_RESERVE_BYTES ((uint64_t)512 << 20)

/* What one rank may use: of the free bytes of a probed GPU, of all bytes of a catalogue's GPU. */
static inline uint64_t mics_gpu_memory_limit(uint64_t bytes)
{
    return bytes > MICS_GPU_RESERVE_BYTES ? bytes - MICS_GPU_RESERVE_BYTES : 0;
}

/* time = alpha + bytes / beta */
struct mics_link {
    double latency_s;       /* alpha, one message */
    double bandwidth_bytes; /* beta, bytes per second, one way, for one rank alone */
    uint32_t samples;       /* measurements behind it; 0: declared, not measured */
    double spread;          /* median absolute deviation of measured / fitted - 1 */
};

enum mics_collective {
    MICS_ALL_GATHER,
    MICS_REDUCE_SCATTER,
    MICS_ALL_REDUCE,
    MICS_COLLECTIVE_COUNT
};

/* A measured collective on a group of `nodes` x `per_node` ranks: seconds for S total bytes are
 * alpha + S / beta. */
struct mics_collective_cost {
    enum mics_collective collective;
    uint32_t nodes, per_node;
    struct mics_link cost;
};

const char *mics_collective_name(enum mics_collective collective); /* "all_gather" */

/* Is it one of "f32", "bf16", "f16"? */
bool mics_topology_dtype_is_known(const char *dtype);

enum { MICS_RACE_POINTS = 48 };

struct mics_race_point {
    double bytes, flat_s, staged_s;
};

struct mics_race {
    enum mics_collective collective;
    uint32_t nodes, per_node; /* of the group */
    uint32_t segments;        /* of the hierarchical exchange; the flat one has none */
    uint32_t count;           /* 1 or more */
    struct mics_race_point points[MICS_RACE_POINTS];
};

struct mics_topology {
    char name[64];            /* catalogue name, "synthetic" or the first host */
    char source[16];          /* "measured", "catalogue", "synthetic", "nccl" */
    uint32_t nodes, per_node; /* world_size = nodes * per_node */

    char device[64]; /* "host", "NVIDIA H100", ... of one rank */
    double flops;    /* FLOP/s that one rank sustains in large matrix products, in `flops_dtype` */
    char flops_dtype[8];     /* "f32", "bf16", "f16" */
    double memory_bandwidth; /* bytes/s of one rank */
    uint64_t memory_bytes;   /* that one rank may use */
    uint32_t cores;          /* host cores of one rank; 0 unknown */

    struct mics_link node_link; /* between two ranks of a node */
    struct mics_link
        net_link; /* between two nodes, the whole card(s) of a node: the ranks of a node share it */

    uint32_t cost_count;
    struct mics_collective_cost *costs; /* measured; may be NULL */

    uint32_t race_count;
    struct mics_race *races; /* flat against hierarchical, measured; may be NULL */

    json_t *doc; /* the document that it came from, or NULL: unknown keys live on there */
};

void mics_topology_free(struct mics_topology *topology); /* NULL is fine */

/* Check everything and build. The topology keeps a reference to `doc`. */
enum mics_status mics_topology_from_doc(json_t *doc, struct mics_topology **out,
                                        struct mics_err *err);
/* A new document, with all that topology->doc holds and the fields above. */
enum mics_status mics_topology_to_doc(const struct mics_topology *topology, json_t **out,
                                      struct mics_err *err);

/* Set "collectives" of a document to these costs. */
enum mics_status mics_topology_set_costs(json_t *doc, const struct mics_collective_cost *costs,
                                         uint32_t count, struct mics_err *err);

/* An array as above. *out is the caller's. */
enum mics_status mics_races_to_doc(const struct mics_race *races, uint32_t count, json_t **out,
                                   struct mics_err *err);

/* "p4d.24xlarge:16" (catalogue name, number of nodes; 1 without) or the synthetic grammar
 * "node:4 gpu:8 flops:312T mem:40G membw:1.5TB/s link:300GB/s,3us net:400gbit,20us". */
enum mics_status mics_topology_parse(const char *text, struct mics_topology **out,
                                     struct mics_err *err);

#endif
