/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watchdog.h - ends a job that makes no progress.
 *
 * Before the first step the start-up watchdog limits the time of each phase that the program
 * announces, and reports a rank that stopped to answer. From then on the watchdog of each rank
 * polls, in a thread of its own, the progress of the engine, the state of the communicators (NCCL
 * reports errors beside its streams) and the processes of its node. When one of them fails, it
 * works out from the heartbeats which rank or node is to blame and calls the program's `on_fault`,
 * which must end the job. Neither watchdog blocks on another rank or takes part in a collective.
 */
#ifndef MICS_TRAIN_WATCH_WATCHDOG_H
#define MICS_TRAIN_WATCH_WATCHDOG_H

#include "train/run.h"

#include <math.h>

struct mics_watchdog;

struct mics_watchdog_options {
    const struct mics_world *world;
    const struct mics_engine *engine;
    const struct mics_run *run;
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

struct mics_startup_watchdog;

/* The limit of a phase, in time-outs. */
#define MICS_STARTUP_LIMIT_DEFAULT 2.0      /* processes start and connect on a busy machine */
#define MICS_STARTUP_LIMIT_IO      10.0     /* reads or writes many bytes */
#define MICS_STARTUP_LIMIT_NONE    INFINITY /* waits for another program */

/* Called once, in the watchdog's thread. `err` names the phase and its limit, or the silent rank.
 * */
typedef void mics_startup_on_fault(void *context, const struct mics_err *err);

/* Start in the phase `phase` ("joining the other ranks") with the default limit. Phase names must
 * outlive the watchdog. timeout_s > 0. */
enum mics_status mics_startup_watchdog_start(double timeout_s, const char *phase,
                                             mics_startup_on_fault *on_fault, void *context,
                                             struct mics_startup_watchdog **out,
                                             struct mics_err *err);
/* The next phase begins; it may take `limit` time-outs. One thread; NULL is fine. */
void mics_startup_watchdog_set_phase(struct mics_startup_watchdog *startup, const char *phase,
                                     double limit);
/* The ranks have joined: from now on a rank whose heartbeats end for a time-out, at least 3 s, is
 * reported, in whatever phase. `world` must outlive the watchdog; NULL `startup` is fine. */
void mics_startup_watchdog_join(struct mics_startup_watchdog *startup,
                                const struct mics_world *world);
/* NULL is fine. */
void mics_startup_watchdog_stop(struct mics_startup_watchdog *startup);

#endif
