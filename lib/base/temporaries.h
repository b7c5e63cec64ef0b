/* SPDX-License-Identifier: Apache-2.0 */
/*
 * temporaries.h - the list of temporary files that a dying process removes.
 *
 * Any thread may add and drop; mics_file_discard_all() may interrupt any of them, as a signal handler.
 */
#ifndef MICS_BASE_TEMPORARIES_H
#define MICS_BASE_TEMPORARIES_H

#include <stdbool.h>

struct mics_temporary;

/* Remember `path` (of a file, or of a folder whose files are added after it), a string from malloc(), which the list owns from now on. NULL: out of memory, and
 * the path is still the caller's. */
struct mics_temporary *mics_temporary_add(char *path);

/* Forget it and free the path. The file itself is not touched. */
void mics_temporary_drop(struct mics_temporary *temporary);

/* Is this path in the list? */
bool mics_temporary_known(const char *path);

#endif
