/* SPDX-License-Identifier: Apache-2.0 */
/*
 * startup_watchdog.h - ends a job that does not reach its first step.
 *
 * A thread limits the time of each phase that the program announces, and reports a rank that
 * stopped to answer. It does not block on another rank or take part in a collective.
 */
#ifndef MICS_TRAIN_WATCH_STARTUP_WATCHDOG_H
#define MICS_TRAIN_WATCH_STARTUP_WATCHDOG_H

#include "comm/world.h"

#include <math.h>

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
