/* SPDX-License-Identifier: Apache-2.0 */
#include "train/lr.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {
    [MICS_LR_CONSTANT] = "constant",
    [MICS_LR_LINEAR] = "linear",
    [MICS_LR_COSINE] = "cosine",
};

/* 1 at the end of the warm-up, 0 at the last step. */
static double height(enum mics_lr_kind kind, double progress)
{
    switch (kind) {
    case MICS_LR_LINEAR:
        return 1 - progress;
    case MICS_LR_COSINE:
        return 0.5 * (1 + cos(acos(-1.0) * progress));
    case MICS_LR_CONSTANT:
        break;
    }
    return 1;
}

double mics_lr_at(const struct mics_lr *lr, uint64_t step)
{
    double progress;

    if (step < lr->warmup)
        return lr->peak * (double)step / (double)lr->warmup;
    if (lr->kind == MICS_LR_CONSTANT)
        return lr->peak;
    if (step >= lr->steps)
        return lr->floor;
    progress = (double)(step - lr->warmup) / (double)(lr->steps - lr->warmup);
    return lr->floor + (lr->peak - lr->floor) * height(lr->kind, progress);
}

const char *mics_lr_name(enum mics_lr_kind kind)
{
    return names[kind];
}

enum mics_status mics_lr_parse(const char *text, enum mics_lr_kind *out, struct mics_err *err)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum mics_lr_kind)i;
            return MICS_OK;
        }
    }
    return mics_err_set(err, MICS_ERR_ARG, "'%s' is not one of constant, linear, cosine", text);
}
