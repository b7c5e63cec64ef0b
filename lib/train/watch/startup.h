/* SPDX-License-Identifier: Apache-2.0 */
/*
 * startup.h - ends a job that does not get as far as its first step.
 *
 * Before there is an engine the watchdog has nothing to look at. So the start says itself what it is doing, and when it
 * has been doing the same for too long, a thread calls the program's `fault`, which must end the job.
 */
#ifndef MICS_TRAIN_WATCH_STARTUP_H
#define MICS_TRAIN_WATCH_STARTUP_H

#include "base/err.h"

#include <math.h>

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
