/* SPDX-License-Identifier: Apache-2.0 */
/* bench_ops.h - one case on one rank: enqueue it, give it data, count what is wrong afterwards. */
#ifndef MICS_BENCH_OPS_H
#define MICS_BENCH_OPS_H

#include "bench/place.h"

struct mics_bench_case {
    const struct mics_bench
        *bench; /* whose buffer holds `recv`, then `send`: each the whole array */
    const struct mics_bench_place *place;
    const struct mics_bench_place *partition, *replication; /* of sync */
    enum mics_bench_op op;
    enum mics_bench_algo algo;
    bool in_place;
    uint32_t segments; /* of a hierarchy: 1, or the place's */
    uint64_t count;    /* elements of one of the place's ranks; all of them are the array */
    uint32_t micro_steps;
};

/* Elements of the array. */
uint64_t mics_bench_case_elements(const struct mics_bench_case *c);

/* One operation on the bench's stream. */
void mics_bench_enqueue(const struct mics_bench_case *c);

/* Run it once on fresh data, and count this rank's wrong elements. Collective. */
enum mics_status mics_bench_check(const struct mics_bench_case *c, uint64_t salt, uint64_t *wrong,
                                  struct mics_err *err);

/* For this file's other half, bench_sync.c. */
void mics_bench_enqueue_sync(const struct mics_bench_case *c);
enum mics_status mics_bench_check_sync(const struct mics_bench_case *c, uint64_t salt,
                                       uint64_t *wrong, struct mics_err *err);
float *mics_bench_recv(const struct mics_bench_case *c); /* device memory */
float *mics_bench_send(const struct mics_bench_case *c);
/* The same place in the mirror; and copies of `count` elements from there, and back, on the stream. */
float *mics_bench_mirror(const struct mics_bench_case *c, const float *place);
void mics_bench_upload(const struct mics_bench_case *c, float *place, uint64_t count);
void mics_bench_download(const struct mics_bench_case *c, const float *place, uint64_t count);

#endif
