/* SPDX-License-Identifier: Apache-2.0 */
/* bench_run.h - measure cases: one, or all that a request names. */
#ifndef MICS_BENCH_RUN_H
#define MICS_BENCH_RUN_H

#include "bench/ops.h"

/* The bytes that mics_bench_init() must be asked for. MICS_ERR_INFEASIBLE: more than fit into memory addresses. */
enum mics_status mics_bench_buffer_bytes(const struct mics_bench_request *request,
                                         const struct mics_world *world, uint64_t *bytes,
                                         struct mics_err *err);

/* Time one case; fills times, slowest rank, and `wrong` when asked to check. Collective over the world; the same on all
 * ranks. */
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

/* Everything that makes sense on this world of what the request names: group by group, operation by operation, size by
 * size. Groups of one rank, MPI without MPI, and hierarchies of one stage are left out. On success *out is the
 * caller's, to mics_bench_result_fini(). MICS_ERR_INFEASIBLE: nothing is left. */
enum mics_status mics_bench_run(const struct mics_bench *bench,
                                const struct mics_bench_request *request,
                                mics_bench_observer *observer, void *context,
                                struct mics_bench_result *out, struct mics_err *err);
void mics_bench_result_fini(struct mics_bench_result *result);

/* A new row at the end, zeroed. NULL: no memory. */
struct mics_bench_row *mics_bench_result_add(struct mics_bench_result *result);

#endif
