/* SPDX-License-Identifier: Apache-2.0 */
/* step_names.h - the entries of a run's folder that are checkpoints, or were to be. */
#ifndef MICS_CKPT_STEP_NAMES_H
#define MICS_CKPT_STEP_NAMES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum mics_step_kind {
    MICS_STEP_FINAL,     /* step-000400 */
    MICS_STEP_TEMPORARY, /* step-000400.tmp.TAG, latest.tmp.TAG, shared.tmp.TAG */
};

struct mics_step_name {
    uint64_t step; /* 0 of what has none */
    char name[64];
};

struct mics_step_names {
    struct mics_step_name *items; /* by step */
    size_t count, capacity;
};

enum mics_status mics_step_names_read(const char *folder, enum mics_step_kind kind,
                                      struct mics_step_names *out, struct mics_err *err);
void mics_step_names_free(struct mics_step_names *names); /* of zeros is fine */

#endif
