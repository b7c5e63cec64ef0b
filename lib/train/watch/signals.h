/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals.h - wishes that reach a rank as signals.
 *
 * SIGUSR1: save and go on. SIGTERM, SIGINT: save at the end of the step and stop. They only set flags; all
 * ranks agree on them once a step. A second SIGTERM or SIGINT ends the process at once.
 *
 * The death of a peer also arrives as SIGTERM, from the launcher, and then no agreement can come about: so
 * a rank that was asked to stop and does not reach the end of the agreed step within a
 * time of grace exits with status 1, starting nothing.
 *
 * The state is the process's: one run at a time.
 */
#ifndef MICS_TRAIN_WATCH_SIGNALS_H
#define MICS_TRAIN_WATCH_SIGNALS_H

#include "base/err.h"

#include <stdbool.h>

enum mics_wish { MICS_WISH_SAVE = 1, MICS_WISH_STOP = 2 };

/* `speaks`: write one line on standard error when the time of grace is over. `program` begins it and must
 * stay. */
enum mics_status mics_signals_install(const char *program, bool speaks, struct mics_err *err);

/* What was asked for so far, or-ed together. */
unsigned mics_signals_wishes(void);
/* SIGUSR1 was heeded. */
void mics_signals_saved(void);

/* From now on a request to stop must be met within `seconds` (rounded up, at least 1). */
void mics_signals_set_grace(double seconds);
/* No limit holds from here on (the ranks agree, and are saving) ... until here, where the time of a
 * request that came meanwhile begins. */
void mics_signals_hold(void);
void mics_signals_release(void);

#endif
