/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h - what mics-bench runs: operations, algorithms, groups and sizes.
 *
 * A size is that of the whole array, as nccl-tests counts it: the output of an all-gather, the
 * input of a reduce-scatter or an all_to_all, the data of an all-reduce on each rank. It is rounded
 * down so that every rank has a multiple of 16 bytes.
 */
#ifndef MICS_MEASURE_REQUEST_H
#define MICS_MEASURE_REQUEST_H

#include "comm/world.h"

#include <jansson.h>

enum mics_bench_op {
    MICS_BENCH_ALL_GATHER,
    MICS_BENCH_REDUCE_SCATTER,
    MICS_BENCH_ALL_REDUCE,
    MICS_BENCH_ALL_TO_ALL, /* out of place only */
    MICS_BENCH_SYNC, /* the gradients of a step: each rank gets its shard's sum over micro-steps */
    MICS_BENCH_OP_COUNT
};

enum mics_bench_algo {
    MICS_BENCH_FLAT,
    MICS_BENCH_HIERARCHICAL,
    MICS_BENCH_MPI, /* MPI's own */
    /* sync: reduce-scatter in the partition group, and at the end all-reduce over the replicas */
    MICS_BENCH_TWO_HOP,
    MICS_BENCH_ONE_HOP, /* sync: an all-reduce over the world in each micro-step */
    MICS_BENCH_ALGO_COUNT
};

enum mics_bench_group {
    MICS_BENCH_WORLD,
    MICS_BENCH_NODE,
    MICS_BENCH_PARTITION,
    MICS_BENCH_REPLICATION,
    MICS_BENCH_NETWORK, /* ranks of equal local rank: a hierarchy's stage between nodes */
    MICS_BENCH_GROUP_COUNT
};

const char *mics_bench_op_name(enum mics_bench_op op);          /* "all_gather" */
const char *mics_bench_algo_name(enum mics_bench_algo algo);    /* "flat" */
const char *mics_bench_group_name(enum mics_bench_group group); /* "world" */

/* Parse "a,b,c" of such names as a set of bits. MICS_ERR_ARG: a word is none of them. */
typedef const char *mics_bench_namer(int index);
const char *mics_bench_op_at(int index); /* NULL after the last; the same for the others */
const char *mics_bench_algo_at(int index);
const char *mics_bench_group_at(int index);
enum mics_status mics_bench_parse_set(const char *text, mics_bench_namer *name_at, unsigned *set,
                                      struct mics_err *err);

enum {
    MICS_BENCH_MAX_ITERS = 10000,
    MICS_BENCH_MAX_MICRO_STEPS = 64,
    MICS_BENCH_MAX_SEGMENTS = 64
};

/* What to run; the same on all ranks. */
struct mics_bench_request {
    unsigned ops, algos, groups; /* sets of bits */
    uint32_t partition;          /* ranks of a partition group; 0: not known */
    uint64_t min_bytes, max_bytes, step_bytes;
    double factor; /* above 1: sizes grow by it, else by step_bytes */
    uint32_t iters, warmup;
    bool check;
    uint32_t segments;    /* of hierarchical collectives of MICS_BENCH_SEGMENT_BYTES or more */
    uint32_t micro_steps; /* of sync */
};

#define MICS_BENCH_SEGMENT_BYTES (256u << 10)

/* The size after `bytes`; 0 after the last. */
uint64_t mics_bench_next_size(const struct mics_bench_request *request, uint64_t bytes);

/* How many sizes there are. */
uint64_t mics_bench_size_count(const struct mics_bench_request *request);

/* Elements of one of `ranks` ranks: whole pieces of 16 bytes, at least one, in each of `segments`
 * segments. */
uint64_t mics_bench_count(uint64_t bytes, uint32_t ranks, uint32_t segments);

/* What a benchmark takes from a plan or a topology. */
struct mics_bench_input {
    uint32_t nodes, per_node; /* 0: there was no document */
    uint32_t partition;       /* ranks of a parameter group; 0: the document has none */
};

/* Read a plan or a topology from a path ("-": standard input). With `topology_only` a plan is
 * refused. *topology becomes the document of the topology, the caller's. MICS_ERR_FORMAT: it has
 * not as many nodes and ranks as the world. */
enum mics_status mics_bench_input_read(const char *file, const struct mics_world *world,
                                       bool topology_only, struct mics_bench_input *out,
                                       json_t **topology, struct mics_err *err);

/* Put the input's partition into a request that names none, and all groups that make sense into one
 * that names none. MICS_ERR_ARG: the partition does not fit the world, or there is none for a group
 * that needs it. The world must be even. */
enum mics_status mics_bench_request_complete(const struct mics_world *world,
                                             const struct mics_bench_input *input,
                                             struct mics_bench_request *request,
                                             struct mics_err *err);

#endif
