/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case.h - what mics-bench runs: operations, algorithms, groups and sizes, and the result of one case.
 *
 * A size is that of the whole array, as nccl-tests counts it: what an all-gather makes, what a reduce-scatter takes,
 * what an all-reduce has on each rank. It is rounded down so that every rank has a multiple of 16 bytes.
 */
#ifndef MICS_BENCH_CASE_H
#define MICS_BENCH_CASE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mics_bench_op {
    MICS_BENCH_ALL_GATHER,
    MICS_BENCH_REDUCE_SCATTER,
    MICS_BENCH_ALL_REDUCE,
    MICS_BENCH_SYNC, /* the gradients of one step of several micro-steps: each rank gets its shard's sum */
    MICS_BENCH_OP_COUNT
};

enum mics_bench_algo {
    MICS_BENCH_FLAT,
    MICS_BENCH_HIERARCHICAL,
    MICS_BENCH_MPI, /* MPI's own */
    MICS_BENCH_TWO_HOP, /* sync: reduce-scatter in the partition group, at the end all-reduce among replicas */
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

/* "a,b,c" of such names as a set of bits, in *set. MICS_ERR_ARG quotes the word and lists the names. */
typedef const char *mics_bench_namer(int index);
const char *mics_bench_op_at(int index); /* NULL after the last; the same for the others */
const char *mics_bench_algo_at(int index);
const char *mics_bench_group_at(int index);
enum mics_status mics_bench_parse_set(const char *text, mics_bench_namer *name_at, unsigned *set,
                                      struct mics_err *err);

enum { MICS_BENCH_MAX_ITERS = 10000, MICS_BENCH_MAX_MICRO_STEPS = 64 };

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

/* Elements of one of `ranks` ranks: whole pieces of 16 bytes in each of `segments` segments, one at least. */
uint64_t mics_bench_count(uint64_t bytes, uint32_t ranks, uint32_t segments);

/* One case, measured; the same on all ranks. Times are of one operation. */
struct mics_bench_row {
    enum mics_bench_op op;
    enum mics_bench_algo algo;
    enum mics_bench_group group;
    bool in_place;
    uint32_t nodes, per_node, groups; /* of one group, and such groups side by side */
    uint32_t segments;
    uint64_t bytes, count; /* whole array; elements of one rank, of an all-reduce of the array */
    uint32_t iters;
    double time_s;   /* mean over iterations, then over ranks: the column of nccl-tests */
    double min_s;    /* least of all ranks */
    double median_s; /* median over ranks of their medians */
    double p99_s;    /* greatest of the ranks' */
    double spread_s; /* median over ranks of the median absolute deviation over iterations */
    uint32_t slowest_rank;
    double slowest_s; /* its median */
    bool checked;
    uint64_t wrong; /* elements, on all ranks together */
};

/* bytes / time, and that times what a rank's link must carry of the array: (m - 1) / m of m ranks, twice for an
 * all-reduce (nccl-tests, PERFORMANCE.md); of sync it is algbw. Bytes/s; 0 where no time was measured. */
double mics_bench_algbw(const struct mics_bench_row *row);
double mics_bench_busbw(const struct mics_bench_row *row);

#endif
