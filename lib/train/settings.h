/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - the settings of a training run besides the plan and the data.
 *
 * One table names them. The command line ("--lr-schedule=cosine") and checkpoints ("lr_schedule")
 * are read and written by it. A resumed run has the settings of its checkpoint, except those of the
 * command line.
 *
 * The learning rate rises linearly over `warmup` steps to its peak, reached at step `warmup`. Then
 * it is constant, or falls to its floor, linearly or along half a cosine (Loshchilov and Hutter,
 * "SGDR", 2017), which it reaches at step `steps`.
 */
#ifndef MICS_TRAIN_SETTINGS_H
#define MICS_TRAIN_SETTINGS_H

#include "engine/engine.h"

#include <jansson.h>

enum mics_lr_kind { MICS_LR_CONSTANT, MICS_LR_LINEAR, MICS_LR_COSINE };

struct mics_lr {
    enum mics_lr_kind kind;
    double peak, floor;
    uint64_t warmup, steps;
};

/* The learning rate of step >= 1. */
double mics_lr_at(const struct mics_lr *lr, uint64_t step);

struct mics_settings {
    uint64_t steps; /* in total, over all runs of a training */
    uint64_t seed;
    double lr, min_lr; /* min_lr < 0: a tenth of lr, until resolved */
    enum mics_lr_kind lr_schedule;
    int64_t warmup; /* steps; < 0: a tenth of `steps` but at most 100, until resolved */
    double beta1, beta2, eps, momentum; /* < 0: as the optimizer's row says, until resolved */
    double weight_decay;
    double clip; /* < 0: as planned, until resolved */
    double val_fraction;
    uint64_t val_every, val_batches; /* 0: none */
};

struct mics_settings mics_settings_default(void);

/* Set one by its name on the command line, without dashes. MICS_ERR_ARG quotes the value. */
enum mics_status mics_settings_set(struct mics_settings *settings, const char *name,
                                   const char *text, struct mics_err *err);

/* Can a setting, by its name, be chosen for this optimizer? MICS_ERR_ARG: its updates ignore it. */
enum mics_status mics_settings_check_optimizer(const char *name, enum mics_optimizer optimizer,
                                               struct mics_err *err);

/* Replace the negative defaults. MICS_ERR_ARG: clipping disagrees with the plan, whose schedule has
 * a barrier for it or has not. */
enum mics_status mics_settings_resolve(struct mics_settings *settings,
                                       const struct mics_plan_choice *choice, struct mics_err *err);

json_t *mics_settings_to_json(const struct mics_settings *settings); /* NULL: out of memory */
/* MICS_ERR_FORMAT unless every setting is there, of its type and in its range. */
enum mics_status mics_settings_from_json(const json_t *value, struct mics_settings *settings,
                                         struct mics_err *err);

struct mics_lr mics_settings_lr(const struct mics_settings *settings);
struct mics_optimizer_settings mics_settings_optimizer(const struct mics_settings *settings);

#endif
