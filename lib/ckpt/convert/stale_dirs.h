/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stale_dirs.h - folders that killed runs left beside the place where they were to go.
 *
 * A folder in the making is called NAME.tmp.PID, and who makes it holds a lock on it: one that can be locked is
 * nobody's. Where the file system has no locks nothing is removed.
 */
#ifndef MICS_CKPT_CONVERT_STALE_DIRS_H
#define MICS_CKPT_CONVERT_STALE_DIRS_H

#include "base/err.h"

/* Hold the lock of a folder until *lock is closed; -1 where there are none. */
enum mics_status mics_leftover_hold(const char *folder, int *lock, struct mics_err *err);

/* Remove the folders NAME.tmp.PID in `parent` that nobody holds. */
enum mics_status mics_leftovers_remove(const char *parent, const char *name, struct mics_err *err);

#endif
