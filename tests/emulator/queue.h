/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h - the streams of emulated GPUs: enqueuing operations and running them.
 *
 * Nothing runs when it is enqueued. A stream is a queue of operations that begin in order; an
 * operation may also have to wait for others, of other streams. One operation of a GPU runs at a
 * time, and of those that could be next, the least favourable one that CUDA's rules allow is
 * chosen: see order.h. They are run by the host thread that waits for one of them; if no thread
 * waits or enqueues for a while, by the GPU's own thread, so that a host that is busy elsewhere
 * does not block other ranks. That thread also makes the calls of cudaLaunchHostFunc(), as a driver
 * has a thread for them.
 *
 * An operation that waits for something outside (another rank, a number in memory) is polled, and
 * blocks only its stream. One that fails breaks its GPU: all operations enqueued there are dropped,
 * and every call returns the error until cudaDeviceReset().
 */
#ifndef MICS_TESTS_EMULATOR_QUEUE_H
#define MICS_TESTS_EMULATOR_QUEUE_H

#include "runtime.h"

#include <functional>
#include <memory>
#include <vector>

/* Result of running an operation: it has ended; it has progressed; it waits; it has failed. */
enum class emu_step { DONE, MOVED, STUCK, FAILED };

enum { EMU_DEVICES = 64 };

struct emu_op;
typedef std::shared_ptr<emu_op> emu_op_ref;

/* What is to be enqueued. */
struct emu_work {
    std::function<emu_step()> run;    /* NULL: only a position in the stream */
    std::vector<emu_op_ref> after;    /* these must have ended before it begins; NULL is fine */
    emu_op_ref behind;                /* this one must have begun before */
    void (*call)(void *context) = {}; /* instead of `run`: a function of the host */
    void *context = {};
    unsigned insists_us =
        500; /* if it is first in order but must wait, others are held back for so long */
};

/* Enqueue on a stream (NULL: the legacy default stream of the calling thread's GPU). NULL: refused,
 * because the GPU has failed or a host function made the call; emu_note() gives the reason. */
emu_op_ref emu_enqueue(cudaStream_t stream, emu_work work);
/* Enqueue what runs once and cannot fail or wait. */
emu_op_ref emu_enqueue_plain(cudaStream_t stream, std::function<void()> run);

/* Wait until it has ended or was dropped; NULL is fine. */
void emu_wait(const emu_op_ref &op);
bool emu_is_over(const emu_op_ref &op); /* true for NULL */
double emu_over_ms(const emu_op_ref &op);
/* Put the clock of events forward, as if an operation took longer. */
void emu_let_pass(long ms);

/* The last operation enqueued on a stream; NULL: all have ended. */
emu_op_ref emu_last(cudaStream_t stream);
/* Wait for everything that is enqueued on the calling thread's GPU. */
void emu_wait_for_device(void);

int emu_device_of(cudaStream_t stream);
/* Whether the calling thread's GPU has failed; make all GPUs work again. */
bool emu_is_broken(void);
void emu_repair(void);

/* A stream; `blocking`: it is ordered with the legacy default stream. It is freed when all enqueued
 * operations have ended. */
cudaStream_t emu_stream_open(bool blocking);
void emu_stream_close(cudaStream_t stream);

/* How many waits for events there were on the stream's GPU since its first stream was opened, with
 * this one. */
uint64_t emu_count_wait(cudaStream_t stream);

/* Is the calling thread in a function of the host that a stream has called? */
bool emu_in_call(void);

#endif
