/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watchdog.h - ends a job that makes no progress.
 *
 * From the first step on (startup_watchdog.h: before it) the watchdog of each rank polls, in a
 * thread of its own, the progress of the engine, the state of the communicators (NCCL reports
 * errors beside its streams) and the processes of its node. When one of them fails, it works out
 * from the heartbeats which rank or node is to blame and calls the program's `on_fault`, which must
 * end the job. While rank 0 generates a sample, no progress is expected. It does not block on
 * another rank or take part in a collective.
 */
#ifndef MICS_TRAIN_WATCH_WATCHDOG_H
#define MICS_TRAIN_WATCH_WATCHDOG_H

#include "train/run.h"
#include "train/watch/flight.h"

struct mics_watchdog;

struct mics_watchdog_options {
    const struct mics_world *world;
    const struct mics_engine *engine;
    const struct mics_run *run;
    struct mics_flight *flight; /* its writing begins before anything is reported; NULL: none is */
    double timeout_s; /* > 0; ten times that for a writer of a checkpoint that writes nothing */
    /* Called once, in the watchdog's thread. `reports`: this rank is to print the error of the
     * job. */
    void (*on_fault)(void *context, bool reports, const struct mics_err *err);
    void *context;
};

/* Collective over the world. Everything that `options` points to outlives the watchdog. */
enum mics_status mics_watchdog_start(const struct mics_watchdog_options *options,
                                     struct mics_watchdog **out, struct mics_err *err);
/* From now on the exit of this rank's process is not a fault. Any thread; NULL is fine. */
void mics_watchdog_expect_exit(struct mics_watchdog *watchdog);
/* Expect the exit of this rank, and stop its watchdog. NULL is fine. */
void mics_watchdog_stop(struct mics_watchdog *watchdog);

#endif
