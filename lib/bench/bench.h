/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - a rank's place to measure: a device, a stream, memory.
 *
 * All that is measured goes through the same tables as training does, so its overheads are those of
 * training. Every function here is collective over the world.
 */
#ifndef MICS_BENCH_BENCH_H
#define MICS_BENCH_BENCH_H

#include "comm/job_device.h"

#include <stdint.h>

struct mics_bench {
    struct mics_world *world;  /* the caller's */
    struct mics_job_device chosen; /* where `device` is from */
    struct mics_device *device;
    struct mics_stream *stream;
    struct mics_event *idle; /* the end of what is enqueued on the stream */
    struct mics_comm *comm;  /* the world's ranks, for memory of the device */
    void *buffer;            /* device memory, zeroed */
    void *mirror; /* the buffer as the host sees it: the same, or host memory to copy from and to */
    uint64_t buffer_bytes; /* the same on all ranks; a multiple of 4096 */
    uint32_t threads;      /* of this rank */
    uint64_t memory_bytes; /* that one rank may use: the least of all ranks */
    uint64_t free_bytes; /* of a GPU before the measurements, likewise; 0: the device is the host */
    double begun_s;      /* on this rank's clock */
};

/* *bench is the caller's storage; after a failure nothing is left in it. The buffer has what the measurements here
 * need, up to 64 MiB (256 on a GPU), and at least `buffer_bytes`. MICS_ERR_INFEASIBLE: more than half of a rank's memory;
 * MICS_ERR_UNSUPPORTED: there is no device of this kind. */
enum mics_status mics_bench_init(struct mics_bench *bench, struct mics_world *world,
                                 enum mics_device_kind kind, uint64_t buffer_bytes,
                                 struct mics_err *err);
void mics_bench_fini(struct mics_bench *bench);

/* Until all that is enqueued on the stream is over, with an eye on the communicators: what fails there may hang the stream
 * for ever. Then it is cancelled. Does not sleep, for clocks are read before and after. */
enum mics_status mics_bench_wait(const struct mics_bench *bench, struct mics_err *err);

/* For people: a GPU's model, or the device's kind. */
const char *mics_bench_device_name(const struct mics_bench *bench);

/* Seconds since mics_bench_init() on this rank. */
double mics_bench_elapsed_s(const struct mics_bench *bench);

/* What one rank computes. Rates from the median time and from the best. */
struct mics_rates {
    double flops, best_flops;             /* FLOP/s, matrix products: f32, on a GPU bf16 */
    double memory_rate, best_memory_rate; /* bytes/s read and written by a copy */
};

/* All ranks at once, as in training: about `seconds` for each of the two. out[world->size] is the same on
 * all ranks. */
enum mics_status mics_bench_rates(const struct mics_bench *bench, double seconds,
                                  struct mics_rates *out, struct mics_err *err);

/* Copies between a GPU and pinned memory of the host, bytes/s: the slowest rank, all at once. On the host there are
 * none: both become 0. */
enum mics_status mics_bench_host_copies(const struct mics_bench *bench, double *from_host,
                                        double *to_host, struct mics_err *err);

#endif
