/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - what a rank measures with: a device, a stream, communicators and a buffer.
 *
 * Measurements use the same device and communicator tables as training, so they have its overheads.
 * Every function here is collective over the world, except those of struct mics_stream_hold.
 */
#ifndef MICS_MEASURE_BENCH_H
#define MICS_MEASURE_BENCH_H

#include "comm/job_device.h"

#include <pthread.h>
#include <stdint.h>

struct mics_bench {
    struct mics_world *world;      /* the caller's */
    struct mics_job_device chosen; /* owns `device` */
    struct mics_device *device;
    struct mics_stream *stream;  /* of high priority, as those of communication in training */
    struct mics_stream *compute; /* of products and passes over memory */
    struct mics_event *idle;     /* the end of what is enqueued on the stream */
    struct mics_comm *comm;      /* the world's ranks, for device memory */
    void *buffer;                /* device memory, zeroed */
    void *mirror;          /* the buffer if the host can access it, else pinned memory for copies */
    uint64_t buffer_bytes; /* the same on all ranks; a multiple of 4096 */
    uint32_t threads;      /* of this rank */
    uint64_t memory_bytes; /* that one rank may use: the minimum over ranks */
    uint64_t own_memory_bytes;     /* that this rank may use */
    enum mics_dtype product_dtype; /* bf16 if all ranks multiply it in hardware; else fp16, fp32 */
    bool onednn;                   /* hosts: some rank multiplies bf16 by oneDNN */
    uint64_t free_bytes; /* of a GPU before the measurements, the minimum too; 0 on the host */
    double begun_s;      /* on this rank's clock */
};

/* *bench is the caller's storage; after a failure nothing is left in it. The buffer has at least
 * `buffer_bytes`, and as much as the measurements declared here need: up to 64 MiB, 256 MiB on a
 * GPU. MICS_ERR_INFEASIBLE: that is more than half of a rank's memory; MICS_ERR_UNSUPPORTED: there
 * is no device of this kind. */
enum mics_status mics_bench_init(struct mics_bench *bench, struct mics_world *world,
                                 enum mics_device_kind kind, uint64_t buffer_bytes,
                                 struct mics_err *err);
void mics_bench_fini(struct mics_bench *bench);

/* Wait until `stream` is idle. A failure of a communicator may hang the stream for ever: it is
 * detected here and the stream is cancelled. Spins, because callers read clocks before and
 * after. */
enum mics_status mics_bench_wait(const struct mics_bench *bench, struct mics_err *err);

/* A GPU's model, or the name of the device: for messages and documents. */
const char *mics_bench_device_name(const struct mics_bench *bench);

/* Seconds since mics_bench_init() on this rank. */
double mics_bench_elapsed_s(const struct mics_bench *bench);

/* Rates of one rank, from its usual time and from its best. */
struct mics_rates {
    double flops, best_flops;             /* FLOP/s, matrix products of product_dtype */
    double memory_rate, best_memory_rate; /* bytes/s read and written by a copy */
};

/* Measure all ranks at once, as they work in training, for about `seconds` each. out[world->size]
 * is the same on all ranks. */
enum mics_status mics_bench_rates(const struct mics_bench *bench, double seconds,
                                  struct mics_rates *out, struct mics_err *err);

/* Copies between a GPU and pinned host memory, all ranks at once: bytes/s of each rank,
 * [world->size], the same on all ranks. 0 if the device is the host. */
enum mics_status mics_bench_host_copy_rates(const struct mics_bench *bench, double *from_host,
                                            double *to_host, struct mics_err *err);
/* Those of the slowest rank. */
enum mics_status mics_bench_host_copies(const struct mics_bench *bench, double *from_host,
                                        double *to_host, struct mics_err *err);

/* Holds a stream until enough is enqueued behind it, so that a small operation is timed without its
 * launch. The caller's storage; must live until the stream has passed it. */
struct mics_stream_hold {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    bool released;
};

/* What is enqueued on the stream from now on waits for the release. */
void mics_stream_hold_init(struct mics_stream_hold *hold, struct mics_stream *stream);
void mics_stream_hold_release(struct mics_stream_hold *hold); /* once or more */
void mics_stream_hold_fini(struct mics_stream_hold *hold);

#endif
