/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diagnostics.h - everything that is wrong with an input, not only the first error.
 *
 * A checker adds each problem when it finds it, goes on, and fails at the end. A single problem is
 * the error itself; of several, each is reported, and the error is their number.
 */
#ifndef MICS_BASE_DIAGNOSTICS_H
#define MICS_BASE_DIAGNOSTICS_H

#include "base/err.h"

#include <stdint.h>

struct mics_diagnostics {
    void (*report)(void *context, const char *text); /* NULL: the error names the first problem */
    void *context;
    uint64_t count;
    char first[512]; /* problem; reported when a second one is added */
    char note[512];  /* what the user should know although it is no problem; empty: nothing */
};

/* Count one problem: one line of at most 511 bytes. */
void mics_diagnostics_add(struct mics_diagnostics *diagnostics, const char *fmt, ...)
    MICS_PRINTF(2, 3);

/* MICS_OK if `count` is still `before`; else MICS_ERR_FORMAT with the only problem, or "`what`: N
 * problems". */
enum mics_status mics_diagnostics_status(const struct mics_diagnostics *diagnostics,
                                         uint64_t before, const char *what, struct mics_err *err);

#endif
