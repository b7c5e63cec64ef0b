/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.h - one function on a thread of its own, or on as many threads as there are processors
 * for this process.
 */
#ifndef MICS_BASE_THREADS_H
#define MICS_BASE_THREADS_H

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* One function call at a time on a thread, which blocks all signals. A task is reusable: start,
 * wait, start again. All zeros is a task that was never started. */
struct mics_background_task {
    pthread_t thread;
    bool started;
    atomic_bool busy;
    enum mics_status (*run)(void *context, struct mics_err *err);
    void *context;
    enum mics_status status; /* result of run() */
    struct mics_err err;
};

/* Call run(context) on a new thread. The task must not be running. If the thread cannot be created,
 * mics_background_task_wait() returns MICS_ERR_NOMEM. */
void mics_background_task_start(struct mics_background_task *task,
                                enum mics_status (*run)(void *context, struct mics_err *err),
                                void *context);

/* Is run() still executing? Any thread may ask. */
bool mics_background_task_busy(const struct mics_background_task *task);

/* Wait for the thread to end and return the result of run(). A result is returned once; without a
 * task to wait for, MICS_OK. */
enum mics_status mics_background_task_wait(struct mics_background_task *task, struct mics_err *err);

/* Processors per process, 1 to 16, if `host_ranks` processes (0 counts as 1) share those that this
 * process may use (mics_processors()). */
unsigned mics_workers_max(uint32_t host_ranks);

/* Run work(context) on mics_workers_max() threads, one of them the calling thread. If a thread
 * cannot be started, fewer run. Returns when all have ended. */
void mics_workers_run(void *(*work)(void *context), void *context, uint32_t host_ranks);

/* Ask for short time slices for the calling thread, which mostly waits: where the kernel knows
 * slices of threads (Linux 6.12 and later), it then runs soon after it is woken even if others
 * compute on all cores. Its share of them stays the same, and it needs no privileges. */
void mics_thread_shorten_slices(void);

#endif
