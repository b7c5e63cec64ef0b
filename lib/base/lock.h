/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock.h - a folder that one process at a time uses, on any file system.
 *
 * The first method that the file system supports is taken: flock() on the folder; a lock of the
 * file FOLDER/.lock, which belongs to the open file; or the file FOLDER/.lock-owner itself, which
 * names host, process and its start. The system drops the first two when a process dies. An
 * owner's file that a dead process of this host has left is replaced; about one of another host the
 * user must decide.
 */
#ifndef MICS_BASE_LOCK_H
#define MICS_BASE_LOCK_H

#include "base/err.h"
#include "base/file.h"

enum mics_lock_method { MICS_LOCK_FLOCK, MICS_LOCK_FILE, MICS_LOCK_OWNER };

struct mics_lock {
    int fd; /* -1: not held, or by an owner's file */
    enum mics_lock_method method;
    struct mics_temporary *owner; /* the owner's file, removed if a signal ends the process */
    char path[MICS_PATH_MAX];     /* of that file; empty: none */
};

#define MICS_LOCK_NONE ((struct mics_lock){.fd = -1})

/* Lock a folder, with `first` or a method after it (MICS_LOCK_FLOCK, but for tests). MICS_ERR_IO:
 * another process has the lock. */
enum mics_status mics_lock_folder(const char *folder, enum mics_lock_method first,
                                  struct mics_lock *out, struct mics_err *err);

/* MICS_LOCK_NONE is fine. */
void mics_unlock(struct mics_lock *lock);

#endif
