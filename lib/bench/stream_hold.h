/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_hold.h - hold a stream until enough is enqueued behind it, so that a small operation is timed without its launch.
 *
 * The gate belongs to the caller, and must stay until the stream is past it.
 */
#ifndef MICS_BENCH_STREAM_HOLD_H
#define MICS_BENCH_STREAM_HOLD_H

#include "device/device.h"

#include <pthread.h>

struct mics_bench_gate {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t opened;
    bool open;
};

/* What is enqueued on the stream from now on waits until the gate is opened. */
void mics_bench_gate_close(struct mics_bench_gate *gate, struct mics_stream *stream);
/* Once or more. */
void mics_bench_gate_open(struct mics_bench_gate *gate);
/* After the stream is past it, or was never told to wait. */
void mics_bench_gate_fini(struct mics_bench_gate *gate);

#endif
