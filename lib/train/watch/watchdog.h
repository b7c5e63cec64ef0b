/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watchdog.h - ends a job that does not get on.
 *
 * A thread of each rank looks at what the engine finishes. When that has been nothing for a time-out, when a
 * communicator has failed beside its streams (NCCL's do), or when a process on the same node is gone, it finds
 * out who is to blame, as far as signs of life tell, and calls the program's `fault`, which must end the job. It
 * waits for nobody and takes part in no collective.
 */
#ifndef MICS_TRAIN_WATCH_WATCHDOG_H
#define MICS_TRAIN_WATCH_WATCHDOG_H

#include "base/err.h"
#include "train/run.h"

#include <math.h>

struct mics_watchdog;

struct mics_watchdog_options {
    const struct mics_world *world;
    const struct mics_engine *engine;
    const struct mics_run *run;
    double timeout_s; /* > 0; while a checkpoint is written, ten times that */
    /* In the watchdog's thread, once. `speaks`: this rank is the one that tells people. */
    void (*fault)(void *context, bool speaks, const struct mics_err *err);
    void *context;
};

/* Collective over the world. All that the options name outlives the watchdog. */
enum mics_status mics_watchdog_start(const struct mics_watchdog_options *options,
                                     struct mics_watchdog **out, struct mics_err *err);
/* From now on this rank may end without being missed. Any thread; NULL is fine. */
void mics_watchdog_excuse(struct mics_watchdog *watchdog);
/* Excuse this rank, and stop watching. NULL is fine. */
void mics_watchdog_stop(struct mics_watchdog *watchdog);

/*
 * startup.h - ends a job that does not get as far as its first step.
 *
 * Before there is an engine the watchdog has nothing to look at. So the start says itself what it is doing, and when it
 * has been doing the same for too long, a thread calls the program's `fault`, which must end the job.
 */

struct mics_startup;

/* In the thread's own time, once. `err` tells how long what took. */
typedef void mics_startup_fault(void *context, const struct mics_err *err);

/* How many time-outs something may take. */
#define MICS_STARTUP_USUAL   2.0  /* processes start and connect on a machine that may be busy */
#define MICS_STARTUP_FILES   10.0 /* what reads or writes much */
#define MICS_STARTUP_FOREVER INFINITY /* what waits for somebody else's program */

/* `doing` ("joining the other ranks") is of the usual patience; the text must stay, here as below. timeout_s > 0. */
enum mics_status mics_startup_begin(double timeout_s, const char *doing, mics_startup_fault *fault,
                                    void *context, struct mics_startup **out, struct mics_err *err);
/* From now on the start is at something else, which may take `patience` time-outs. One thread; NULL is fine. */
void mics_startup_at(struct mics_startup *startup, const char *doing, double patience);
/* The start is over. NULL is fine. */
void mics_startup_end(struct mics_startup *startup);

#endif
