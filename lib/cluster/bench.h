/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - a rank's place to measure: a device, a stream, memory.
 *
 * All that is measured goes through the same tables as training does, so its overheads are those of
 * training. Every function here is collective over the world.
 */
#ifndef MICS_CLUSTER_BENCH_H
#define MICS_CLUSTER_BENCH_H

#include "machine/world.h"

#include <stdint.h>

struct mics_bench {
    struct mics_world *world; /* the caller's */
    struct mics_device *device;
    struct mics_stream *stream;
    struct mics_comm *comm; /* the world's ranks, for memory of the device */
    void *buffer;           /* device memory, zeroed */
    uint64_t buffer_bytes;  /* the same on all ranks; a multiple of 4096 */
    uint32_t threads;       /* of this rank */
    uint64_t memory_bytes;  /* that one rank may use: the least of all ranks */
    double begun_s;         /* on this rank's clock */
};

/* *bench is the caller's storage; after a failure nothing is left in it. The buffer has what the measurements here
 * need, up to 64 MiB, and at least `buffer_bytes`. MICS_ERR_INFEASIBLE: more than half of a rank's memory. */
enum mics_status mics_bench_init(struct mics_bench *bench, struct mics_world *world,
                                 uint64_t buffer_bytes, struct mics_err *err);
void mics_bench_fini(struct mics_bench *bench);

/* Seconds since mics_bench_init() on this rank. */
double mics_bench_elapsed_s(const struct mics_bench *bench);

/* What one rank computes. Rates from the median time and from the best. */
struct mics_rates {
    double flops, best_flops;             /* FLOP/s, f32 matrix products */
    double memory_rate, best_memory_rate; /* bytes/s read and written by a copy */
};

/* All ranks at once, as in training: about `seconds` for each of the two. out[world->size] is the same on
 * all ranks. */
enum mics_status mics_bench_rates(const struct mics_bench *bench, double seconds,
                                  struct mics_rates *out, struct mics_err *err);

#endif
