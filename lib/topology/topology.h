/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - the hardware of a cluster: the document mics.topology in memory.
 *
 * All nodes are alike, so a topology of 1,024 nodes is as small as one of two. What is known of
 * single nodes is in the document only; node_sets.h makes topologies of alike nodes from it.
 * Costs belong to classes, not to pairs: a link inside a node, and a link between nodes.
 *
 * The document, version 1; what follows a '?' may be absent:
 *
 *     kind "mics.topology", v 1, name, source, nodes, per_node,
 *     device {name, flops_per_s, flops_dtype ("f32", "bf16", "f16"), memory_bandwidth_bytes_per_s,
 *             memory_bytes, ? free_bytes, ? cores, ? peak_flops_per_s, ? from_host_bytes_per_s,
 *             ? to_host_bytes_per_s, ? host_link {name, bytes_per_s}, ? process_bytes,
 *             ? integrated (the GPU's memory is the host's), ? tf32 (fp32 products use it),
 *             ? onednn (a host multiplies bf16 by it; default: true),
 *             ? gpu_rates {sms, f32_flops_per_s, tf32_flops_per_s, bf16_flops_per_s,
 *                          f16_flops_per_s, product_overhead_s, attention ("A100", "H100"),
 *                          attention_factor, ? pytorch_efficiency}: see struct mics_gpu_rates,
 *             ? kernel_rates [{kernel ("matmul"), ? form ("nn"), dtype ("f32", "bf16"),
 *                              points [[m, n, k, seconds], ...]}]: see kernel_rates.h,
 *             ? drift}
 *     ? profile ("mics", "pytorch"): the software that kernels are priced for
 *     links {node LINK (needed when per_node > 1), net LINK (needed when nodes > 1)}
 *     ? collectives [{collective ("all_gather", "reduce_scatter", "all_reduce", "all_to_all"),
 *                     nodes, per_node, LINK's members, ? points [[bytes, seconds], ...],
 *                     ? beside_compute [[bytes, seconds alone, seconds while all ranks compute,
 *                                        part of computation's speed lost meanwhile], ...]}]
 *     ? stragglers [[seconds that ranks compute without waiting for each other,
 *                    seconds that the last is then behind the mean], ...]: on hosts
 *     ? exchanges [{collective ("all_gather", "reduce_scatter"), nodes, per_node, segments,
 *                   points [[bytes, flat seconds, hierarchical seconds], ...],
 *                   ? hierarchical_from_bytes, ? hierarchical_to_bytes}]
 *                  bytes are of the whole array and increase; the last two are the first and the
 *                  last size at which hierarchical is faster, null: at none
 *     ? hosts [name of each node]
 *     ? declared_nodes: a node is what MICS_NODE_RANKS says, not a machine
 *     ? machine {processor, packages, numa_nodes, cores, threads, cache_bytes [L1d, L2, L3],
 *                memory_bytes, ? gpus, ? gpus_error: see gpu_info.h}: one node, as hwloc sees it
 *     ? outliers [{what ("flops", "memory_bandwidth": of a rank; "node_link", "net_link": seconds
 *                  of a message), where, host, value, median, times_slower}]
 *     ? bad_nodes [index of each node that should be left out]
 *     ? node_classes, other_parts: where nodes differ, see node_members.h
 *     LINK = {latency_s, bandwidth_bytes_per_s, ? samples, ? spread}
 */
#ifndef MICS_TOPOLOGY_TOPOLOGY_H
#define MICS_TOPOLOGY_TOPOLOGY_H

#include "topology/kernel_rates.h"

#include <stdbool.h>
#include <stdint.h>

#define MICS_TOPOLOGY_KIND    "mics.topology"
#define MICS_TOPOLOGY_VERSION 1
#define MICS_MAX_NODES        65536
#define MICS_MAX_PER_NODE     1024

/* GPU memory that is not planned: fragments of 2 MiB, what varies between runs, and what the driver
 * keeps from CUDA of the total of nvidia-smi: 621 MiB of an A100-SXM4-40GB (bottlerocket-os/
 * bottlerocket pull request 3873), 729 MiB of a B200 (pytorch/ao pull request 4002), which is more
 * than this. */
#define MICS_GPU_RESERVE_BYTES ((uint64_t)512 << 20)

/* Bytes that one rank may use, of the free bytes of a probed GPU or of all bytes of a
 * catalogue's. */
static inline uint64_t mics_gpu_memory_limit(uint64_t bytes)
{
    return bytes > MICS_GPU_RESERVE_BYTES ? bytes - MICS_GPU_RESERVE_BYTES : 0;
}

/* time = alpha + bytes / beta */
struct mics_link {
    double latency_s;       /* alpha, of one message */
    double bandwidth_bytes; /* beta, bytes per second, one way, used by one rank alone */
    uint32_t samples;       /* measurements; 0: declared, not measured */
    double spread;          /* median absolute deviation of measured / fitted - 1 */
};

enum mics_collective {
    MICS_ALL_GATHER,
    MICS_REDUCE_SCATTER,
    MICS_ALL_REDUCE,
    MICS_ALL_TO_ALL,
    MICS_COLLECTIVE_COUNT
};

const char *mics_collective_name(enum mics_collective collective); /* "all_gather" */

/* A collective of one size, measured while nothing else runs and while all ranks compute, and the
 * part of computation's speed that is lost meanwhile, 0 to 1. */
struct mics_overlap_point {
    double bytes, alone_s, overlap_s, slowdown;
};

enum { MICS_OVERLAP_POINTS = 4 };

/* After ranks have computed for so long without waiting for each other, the last of them is behind
 * the mean by so much. */
struct mics_straggler_point {
    double computing_s, behind_s;
};

enum { MICS_STRAGGLER_POINTS = 4 };

enum { MICS_COLLECTIVE_POINTS = 48 };

struct mics_collective_point {
    double bytes, seconds;
};

/* A measured collective on a group of `nodes` x `per_node` ranks, for arrays of S bytes in total:
 * the fit alpha + S / beta seconds, and what was measured. S of an all_to_all: what a rank sends,
 * its own block included. */
struct mics_collective_cost {
    enum mics_collective collective;
    uint32_t nodes, per_node;
    struct mics_link cost;
    uint32_t point_count;                                        /* may be 0 */
    struct mics_collective_point points[MICS_COLLECTIVE_POINTS]; /* by increasing bytes */
    uint32_t overlap_count;                                      /* 0: not measured */
    struct mics_overlap_point overlap[MICS_OVERLAP_POINTS];      /* by increasing bytes */
};

enum { MICS_ALGORITHM_POINTS = 48 };

struct mics_algorithm_point {
    double bytes, flat_s, hierarchical_s;
};

/* The flat and the hierarchical algorithm of a collective, measured on the same ranks in one
 * run. */
struct mics_algorithm_timing {
    enum mics_collective collective;
    uint32_t nodes, per_node; /* of the group */
    uint32_t segments;        /* of the hierarchical algorithm; the flat one has none */
    uint32_t count;           /* of points, 1 or more */
    struct mics_algorithm_point points[MICS_ALGORITHM_POINTS]; /* by increasing bytes */
};

/* What kernels of one GPU reach; 0: unknown. */
struct mics_gpu_rates {
    uint32_t sms;                /* multiprocessors; 0: none of the others is known */
    double f32, tf32, bf16, f16; /* FLOP/s that large products sustain */
    double product_overhead_s;   /* of every product */
    char attention[16];          /* the GPU whose figures of FlashAttention-2 apply, ... */
    double attention_factor;     /* ... and its part of them */
    double pytorch_efficiency;   /* what eager PyTorch reaches of fused kernels, 0 to 1 */
};

/* The software that is predicted: this trainer, or eager PyTorch. */
enum mics_profile { MICS_PROFILE_MICS, MICS_PROFILE_PYTORCH, MICS_PROFILE_COUNT };

struct mics_topology {
    char name[64];            /* catalogue name, "synthetic" or the first host */
    char source[16];          /* "measured", "catalogue", "synthetic", "nccl" */
    uint32_t nodes, per_node; /* world_size = nodes * per_node */

    char device[64]; /* of one rank: "host", "NVIDIA H100", ... */
    double flops;    /* FLOP/s that one rank sustains in large matrix products, in `flops_dtype` */
    char flops_dtype[8];     /* "f32", "bf16", "f16" */
    double memory_bandwidth; /* bytes/s of one rank */
    uint64_t memory_bytes;   /* that one rank may use */
    bool integrated;         /* a GPU whose memory is the host's */
    uint32_t cores;          /* host cores of one rank; 0: unknown */
    /* Host memory of a rank's process when it has joined the job: libraries and MPI. 0: unknown. */
    uint64_t process_bytes;
    bool onednn;                 /* where flops_dtype is bf16: a host multiplies it by oneDNN */
    struct mics_gpu_rates rates; /* of a GPU */
    bool tf32;                   /* a GPU multiplies fp32 matrices in TF32 */
    enum mics_profile profile;

    uint32_t kernel_rate_count;
    struct mics_kernel_rates *kernel_rates; /* measured; may be NULL */
    /* By which part of the shorter time two measurements of the same products differ that were some
     * seconds apart; 0: unknown. */
    double drift;

    struct mics_link node_link; /* between two ranks of a node */
    struct mics_link net_link;  /* between two nodes: all cards of a node, shared by its ranks */

    uint32_t cost_count;
    struct mics_collective_cost *costs; /* measured; may be NULL */

    uint32_t straggler_count;                                      /* 0: not measured */
    struct mics_straggler_point stragglers[MICS_STRAGGLER_POINTS]; /* by increasing computing_s */

    uint32_t algorithm_timing_count;
    struct mics_algorithm_timing *algorithm_timings; /* measured; may be NULL */

    json_t *doc; /* the document that it came from, with its unknown keys; or NULL */
};

void mics_topology_free(struct mics_topology *topology); /* NULL is fine */

/* Do ranks compute on the host's cores? */
bool mics_topology_is_host(const struct mics_topology *topology);

/* Bytes/s of copies from host memory to the device, or `to_host`: what was measured, as
 * device.from_host_bytes_per_s and to_host_bytes_per_s of the document; else the catalogue's, as
 * device.host_link {name, bytes_per_s}; else MICS_HOST_COPY_RATE. Where ranks compute on the host,
 * each byte is read and written there. */
#define MICS_HOST_COPY_RATE 25e9 /* assumed: what PCIe 4.0 with 16 lanes reaches, one way */
double mics_topology_host_copy_rate(const struct mics_topology *topology, bool to_host);
/* Where that is from: "measured", "PCIe 5.0 x16", "PCIe 4.0 x16, assumed", or for ranks that
 * compute on the host "host memory". Belongs to the topology. */
const char *mics_topology_host_copy_source(const struct mics_topology *topology, bool to_host);

/* Do these copies take the links that collectives inside nodes use? So it is where GPUs have no
 * link among each other that is faster than PCIe 5.0 with 16 lanes. */
bool mics_topology_host_copies_share_links(const struct mics_topology *topology);

/* Are there figures of attention for this name, as in struct mics_gpu_rates? */
bool mics_gpu_attention_is_known(const char *gpu);

/* Is it one of "f32", "bf16", "f16"? */
bool mics_topology_dtype_is_known(const char *dtype);

/* Check the document completely and read it. *out belongs to the caller and keeps a reference to
 * `doc`. MICS_ERR_FORMAT: the path of the wrong value, and why. */
enum mics_status mics_topology_from_doc(json_t *doc, struct mics_topology **out,
                                        struct mics_err *err);
/* A new document with all that topology->doc holds and the fields above. *out belongs to the
 * caller. */
enum mics_status mics_topology_to_doc(const struct mics_topology *topology, json_t **out,
                                      struct mics_err *err);

/* Set "collectives" of a document. */
enum mics_status mics_topology_set_costs(json_t *doc, const struct mics_collective_cost *costs,
                                         uint32_t count, struct mics_err *err);

/* Set "stragglers" of a document. */
enum mics_status mics_topology_set_stragglers(json_t *doc,
                                              const struct mics_straggler_point *points,
                                              uint32_t count, struct mics_err *err);

/* The value of "exchanges" for a document. *out belongs to the caller. */
enum mics_status mics_algorithm_timings_to_doc(const struct mics_algorithm_timing *timings,
                                               uint32_t count, json_t **out, struct mics_err *err);

/* "p4d.24xlarge:16" (a catalogue name, and the number of nodes; 1 without), or a description such
 * as "node:4 gpu:8 flops:312T mem:40G membw:1.5TB/s link:300GB/s,3us net:400gbit,20us" (parse.c).
 * *out belongs to the caller. MICS_ERR_ARG: the message quotes what is wrong. */
enum mics_status mics_topology_parse(const char *text, struct mics_topology **out,
                                     struct mics_err *err);

/* The same with the names of this catalogue instead of the built-in one. */
struct mics_catalogue;
enum mics_status mics_topology_parse_in(const struct mics_catalogue *catalogue, const char *text,
                                        struct mics_topology **out, struct mics_err *err);

#endif
