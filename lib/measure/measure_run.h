/* SPDX-License-Identifier: Apache-2.0 */
/* measure_run.h - cases of a benchmark: run and check one, measure it, or measure all that a
 * request names. */
#ifndef MICS_MEASURE_MEASURE_RUN_H
#define MICS_MEASURE_MEASURE_RUN_H

#include "measure/measure_group.h"

/* One case, measured; the same on all ranks. Times are of one operation. */
struct mics_bench_row {
    enum mics_bench_op op;
    enum mics_bench_algo algo;
    enum mics_bench_group group;
    bool in_place;
    uint32_t nodes, per_node, groups; /* of one group, and groups side by side */
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

/* bytes / time, and that times what a rank's link must carry of the array: (m - 1) / m of m ranks,
 * twice for an all-reduce (nccl-tests, PERFORMANCE.md); of sync it is algbw. Bytes/s; 0 where no
 * time was measured. */
double mics_bench_algbw(const struct mics_bench_row *row);
double mics_bench_busbw(const struct mics_bench_row *row);

/* What is measured: one operation by one algorithm in one group, of one size. */
struct mics_bench_case {
    /* Its buffer holds the arrays `recv` and `send`, one after the other. */
    const struct mics_bench *bench;
    struct mics_bench_comms *comms;
    struct mics_executor *partition; /* of sync: the world cut into partition groups */
    enum mics_bench_op op;
    enum mics_bench_algo algo;
    bool in_place;
    uint32_t segments; /* of hierarchical collectives, else 1 */
    uint64_t count;    /* elements of one of the group's ranks; those of all ranks are the array */
    uint32_t micro_steps;                /* of sync */
    struct mics_exchange_replay *replay; /* set by mics_bench_case_open(); NULL: all_to_all */
};

/* Make what is enqueued. Collective over the world. */
enum mics_status mics_bench_case_open(struct mics_bench_case *c, struct mics_err *err);
void mics_bench_case_close(struct mics_bench_case *c); /* the stream must be idle */

/* Elements of the array. */
uint64_t mics_bench_case_elements(const struct mics_bench_case *c);

/* The data: the rank with key r holds at element e a(e) + b(r) c(e), whole numbers from 1 to 69. So
 * sums over up to 100000 ranks are exact in fp32, and the sum over the keys [first, first + count)
 * has a closed form. */
float mics_bench_value(uint64_t key, uint64_t element, uint64_t salt);
double mics_bench_sum(uint64_t first, uint64_t count, uint64_t element, uint64_t salt);

/* data[count] = the values of `key` for elements from `element` on. */
void mics_bench_fill(float *data, uint64_t count, uint64_t key, uint64_t element, uint64_t salt);
/* How many of data[count] are not that, or not the sum over `keys` keys from `key` on. */
uint64_t mics_bench_count_wrong(const float *data, uint64_t count, uint64_t key, uint64_t element,
                                uint64_t salt);
uint64_t mics_bench_count_wrong_sums(const float *data, uint64_t count, uint64_t key, uint64_t keys,
                                     uint64_t element, uint64_t salt);

/* The buffer_bytes for mics_bench_init(). MICS_ERR_INFEASIBLE: more than an address space holds. */
enum mics_status mics_bench_buffer_bytes(const struct mics_bench_request *request,
                                         const struct mics_world *world, uint64_t *bytes,
                                         struct mics_err *err);

/* Time an open case: set the times, the slowest rank and, if asked to check, `wrong`. Collective
 * over the world; the result is the same on all ranks. */
enum mics_status mics_bench_measure(const struct mics_bench_case *c,
                                    const struct mics_bench_request *request,
                                    struct mics_bench_row *row, struct mics_err *err);

struct mics_bench_result {
    char device[64], transport[16]; /* "host", "NVIDIA H200"; backend of the communicators */
    size_t count, capacity;
    struct mics_bench_row *rows;
};

/* Called on every rank after each row, in order. May be NULL. */
typedef void mics_bench_observer(void *context, const struct mics_bench_row *row);

/* Measure all cases of the request that exist in this world: by group, operation, size and
 * algorithm. Groups of one rank, MPI's own collectives without MPI, and hierarchies of one stage
 * are left out. On success *out is the caller's, to mics_bench_result_fini(). MICS_ERR_INFEASIBLE:
 * no case is left. */
enum mics_status mics_bench_run(const struct mics_bench *bench,
                                const struct mics_bench_request *request,
                                mics_bench_observer *observer, void *context,
                                struct mics_bench_result *out, struct mics_err *err);
void mics_bench_result_fini(struct mics_bench_result *result);

/* A new row at the end, zeroed. NULL: no memory. */
struct mics_bench_row *mics_bench_result_add(struct mics_bench_result *result);

#endif
