/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.h - a data file that is cut short while it is mapped.
 *
 * Reading past its new end is SIGBUS. With the guard that is one line on standard error, naming the
 * file, and exit status 1; a SIGBUS from elsewhere ends the process as usual.
 */
#ifndef MICS_DATA_GUARD_H
#define MICS_DATA_GUARD_H

#include "data/corpus.h"

/* Guard one corpus of the process; it and `program`, which begins the line, must stay. */
enum mics_status mics_data_guard(const char *program, const struct mics_corpus *corpus,
                                 struct mics_err *err);

#endif
