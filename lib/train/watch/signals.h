/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals.h - requests to save and to stop that reach a rank as signals.
 *
 * SIGUSR1: save and continue. SIGTERM, SIGINT, SIGUSR2: save at the end of the step and stop
 * (mpirun forwards SIGUSR2 to its ranks, but kills them on SIGTERM). The handlers only set flags;
 * all ranks agree on them once a step. A second SIGTERM or SIGINT ends the process at once.
 *
 * The launcher also sends SIGTERM when another rank has died, and then the ranks cannot agree any
 * more. So a rank that was asked to stop and does not reach the end of the agreed step within a
 * grace period exits with status 1 and saves nothing.
 *
 * The state belongs to the process: one run at a time.
 */
#ifndef MICS_TRAIN_WATCH_SIGNALS_H
#define MICS_TRAIN_WATCH_SIGNALS_H

#include "base/err.h"

#include <stdbool.h>

enum mics_request { MICS_REQUEST_SAVE = 1, MICS_REQUEST_STOP = 2 };

/* Note requests to save from now on, for a run that has not begun yet. Call it before MPI is
 * started: without a handler the signal ends the process. */
enum mics_status mics_signals_catch_save(struct mics_err *err);

/* Catch all of them. `reports`: print one line on standard error when the grace period ends.
 * `program`, which begins that line, must outlive the run. */
enum mics_status mics_signals_install(const char *program, bool reports, struct mics_err *err);

/* Was SIGTERM or SIGINT caught, which may also mean that another rank has died? */
bool mics_signals_terminated(void);

/* Request a stop as SIGUSR2 does. Any thread. */
void mics_signals_request_stop(void);

/* The pending requests, or-ed together. */
unsigned mics_signals_requests(void);
/* The request to save has been met. */
void mics_signals_clear_save(void);

/* From now on a request to stop must be met within `seconds` (rounded up, at least 1). */
void mics_signals_set_grace(double seconds);
/* Suspend the grace period while the ranks, having agreed, validate and save ... */
void mics_signals_hold_grace(void);
/* ... and restart it, for a request that came in the meantime too. */
void mics_signals_resume_grace(void);

#endif
