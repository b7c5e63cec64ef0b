/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer.h - the optimizers, one row each.
 *
 * Planner, engine, checkpoints, settings and messages derive from the row. To add an optimizer: its
 * enumerator and name here, its row in optimizer.c, its update in host/update.c and cuda/update.cu,
 * their tests, and the manual.
 */
#ifndef MICS_KERNELS_OPTIMIZER_H
#define MICS_KERNELS_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

enum mics_optimizer { MICS_OPT_ADAMW, MICS_OPT_SGD, MICS_OPT_LION, MICS_OPT_COUNT };

/* All names, in that order, as an option's values are written. */
#define MICS_OPTIMIZER_NAMES "adamw|sgd|lion"

/* No optimizer keeps more states of an element. */
#define MICS_OPTIMIZER_STATES_MAX 2

/* What an update is computed with, apart from the learning rate. An optimizer ignores what is not
 * its own. */
struct mics_optimizer_settings {
    float beta1, beta2; /* AdamW, Lion */
    float eps;          /* AdamW */
    float momentum;     /* SGD */
    float weight_decay;
    float clip; /* largest norm of the mean gradient; 0: no clipping */
};

struct mics_optimizer_row {
    const char *name;  /* in plans and on the command line */
    const char *title; /* in messages */
    uint32_t states;   /* fp32 values kept per element, 1 to MICS_OPTIMIZER_STATES_MAX */
    double flops;      /* of an update, per element, as the planner counts them */
    struct {
        double beta1, beta2, eps, momentum;
    } defaults; /* of settings that are not given; all are set, and recorded with a run */
    const char *ignored[4]; /* the names of those of them that the update does not use, then NULL */
};

const struct mics_optimizer_row *mics_optimizer_get(enum mics_optimizer optimizer);

/* false: there is no optimizer of this name. */
bool mics_optimizer_parse(const char *name, enum mics_optimizer *out);

static inline const char *mics_optimizer_name(enum mics_optimizer optimizer)
{
    return mics_optimizer_get(optimizer)->name;
}

static inline uint32_t mics_optimizer_states(enum mics_optimizer optimizer)
{
    return mics_optimizer_get(optimizer)->states;
}

#endif
