/* SPDX-License-Identifier: Apache-2.0 */
/*
 * background_task.h - one function call at a time on a thread of its own.
 *
 * The thread blocks all signals. A task is reusable: start, wait, start again. All zeros is a task
 * that was never started.
 */
#ifndef MICS_BASE_BACKGROUND_TASK_H
#define MICS_BASE_BACKGROUND_TASK_H

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

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

#endif
