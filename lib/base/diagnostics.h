/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diagnostics.h - everything that is wrong with an input, not only the first error.
 *
 * A checker reports each problem when it finds it, goes on, and fails at the end with their number.
 */
#ifndef MICS_BASE_DIAGNOSTICS_H
#define MICS_BASE_DIAGNOSTICS_H

#include "base/err.h"

#include <stdint.h>

struct mics_diagnostics {
    void (*report)(void *context, const char *text); /* NULL: problems are only counted */
    void *context;
    uint64_t count;
};

/* Count one problem and report its text, one line of at most 511 bytes. */
void mics_diagnostics_add(struct mics_diagnostics *diagnostics, const char *fmt, ...)
    MICS_PRINTF(2, 3);

/* MICS_OK if `count` is still `before`; else MICS_ERR_FORMAT, "`what`: N problems". */
enum mics_status mics_diagnostics_status(const struct mics_diagnostics *diagnostics,
                                         uint64_t before, const char *what, struct mics_err *err);

#endif
