/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lr.h - the learning rate of each step.
 *
 * It rises in a straight line over `warmup` steps to `peak`, reached at step `warmup`; then it stays
 * (constant), falls in a straight line (linear), or along half a cosine (Loshchilov and Hutter, "SGDR", 2017)
 * to `floor`, reached at step `steps` and kept after it.
 */
#ifndef MICS_TRAIN_LR_H
#define MICS_TRAIN_LR_H

#include "base/err.h"

#include <stdint.h>

enum mics_lr_kind { MICS_LR_CONSTANT, MICS_LR_LINEAR, MICS_LR_COSINE };

struct mics_lr {
    enum mics_lr_kind kind;
    double peak, floor;
    uint64_t warmup, steps;
};

/* Of step >= 1. */
double mics_lr_at(const struct mics_lr *lr, uint64_t step);

const char *mics_lr_name(enum mics_lr_kind kind); /* "cosine" */
/* MICS_ERR_ARG, naming those that there are. */
enum mics_status mics_lr_parse(const char *text, enum mics_lr_kind *out, struct mics_err *err);

#endif
