/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diagnostics.h - all that is wrong with an input, not only the first thing.
 *
 * Who checks tells each problem as it is found, and fails at the end with their number.
 */
#ifndef MICS_BASE_DIAGNOSTICS_H
#define MICS_BASE_DIAGNOSTICS_H

#include "base/err.h"

#include <stdint.h>

struct mics_problems {
    void (*tell)(void *context, const char *text); /* NULL: only count */
    void *context;
    uint64_t count;
};

void mics_problem(struct mics_problems *problems, const char *fmt, ...) MICS_PRINTF(2, 3);

/* MICS_OK unless there were more than `before`; else MICS_ERR_FORMAT, "`what`: N problems". */
enum mics_status mics_problems_end(const struct mics_problems *problems, uint64_t before,
                                   const char *what, struct mics_err *err);

#endif
