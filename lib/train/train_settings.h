/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train_settings.h - the settings of a training run besides the plan and the data.
 *
 * One table names them. The command line ("--lr-schedule=cosine") and checkpoints ("lr_schedule")
 * are read and written by it. A resumed run has the settings of its checkpoint, except those of the
 * command line.
 *
 * The learning rate rises linearly over `warmup` steps to its peak, reached at step `warmup`. Then
 * it is constant, or falls to its floor, which it reaches at step `steps`: linearly, along half a
 * cosine (Loshchilov and Hutter, "SGDR", 2017), or, warm-up-stable-decay, only in the last `decay`
 * steps, as one minus a square root (Haegele et al., "Scaling Laws and Compute-Optimal Training
 * Beyond Fixed Training Durations", 2024).
 *
 * The peak's default depends on N, the number of parameters: 6e-4 (125e6 / N)^(1/3), rounded to two
 * digits, and at most 3e-3. It agrees with the models of GPT-3 at both ends (Brown et al.,
 * "Language Models are Few-Shot Learners", 2020, table 2.1: 6e-4 for 125M, 6e-5 for 175B), and is
 * at most 1.4 times theirs between them.
 */
#ifndef MICS_TRAIN_TRAIN_SETTINGS_H
#define MICS_TRAIN_TRAIN_SETTINGS_H

#include "engine/engine.h"

#include <jansson.h>

enum mics_lr_kind { MICS_LR_CONSTANT, MICS_LR_LINEAR, MICS_LR_COSINE, MICS_LR_WSD };

struct mics_lr {
    enum mics_lr_kind kind;
    double peak, floor;
    uint64_t warmup, steps;
    uint64_t decay; /* steps of MICS_LR_WSD; what the warm-up leaves if that is less */
};

/* The learning rate of step >= 1. */
double mics_lr_at(const struct mics_lr *lr, uint64_t step);

struct mics_train_settings {
    uint64_t steps; /* in total, over all runs of a training */
    uint64_t seed;
    double lr;     /* the peak; < 0: by the model's size, until resolved */
    double min_lr; /* at most lr; < 0: a tenth of lr, until resolved */
    enum mics_lr_kind lr_schedule;
    int64_t warmup; /* steps; < 0: a tenth of `steps` but at most 100, until resolved */
    int64_t
        lr_decay; /* steps of MICS_LR_WSD, of others < 0; < 0: a fifth of `steps`, until resolved */
    double beta1, beta2, eps, momentum; /* < 0: as the optimizer's row says, until resolved */
    double weight_decay;
    double clip;      /* < 0: as planned, until resolved */
    double mask_rate; /* of a model that predicts masked tokens, of others < 0; < 0: 0.15, until
                         resolved */
    double val_fraction;
    uint64_t val_every, val_batches; /* 0: none */
    /* Only for plans in fp16, else < 0; < 0 is also the default until it is resolved. Scales and
     * their factor are powers of two. loss_scale > 0 is static, and the other settings are not
     * used. */
    double loss_scale, initial_loss_scale, min_loss_scale, loss_scale_factor;
    int64_t loss_scale_window, hysteresis;
};

struct mics_train_settings mics_train_settings_default(void);

/* Set one by its name on the command line, without dashes. MICS_ERR_ARG quotes the value. */
enum mics_status mics_train_settings_set(struct mics_train_settings *settings, const char *name,
                                         const char *text, struct mics_err *err);

/* Is there a setting of this name? */
bool mics_train_settings_has(const char *name);

/* A setting from the command line. */
struct mics_train_setting_override {
    const char *name, *text;
};

/* Set those of the command line, for a training with `optimizer`, in `settings`, which are the
 * defaults or a checkpoint's. If lr is among them and min_lr is not, the latter keeps its ratio to
 * lr. MICS_ERR_ARG: a value is not valid, or the optimizer or the schedule ignores the setting. */
enum mics_status mics_train_settings_override(struct mics_train_settings *settings,
                                              const struct mics_train_setting_override *overrides,
                                              size_t count, enum mics_optimizer optimizer,
                                              struct mics_err *err);

/* Those of the loss scale become the defaults: a run goes on in another type. */
void mics_train_settings_drop_loss_scale(struct mics_train_settings *settings);

/* Replace the negative defaults, for a model of `params` parameters. MICS_ERR_ARG: min_lr exceeds
 * lr; clipping disagrees with the plan, whose schedule has a barrier for it or has not; or the loss
 * scale of a plan that is not in fp16 is set, or is no power of two. */
enum mics_status mics_train_settings_resolve(struct mics_train_settings *settings,
                                             const struct mics_plan_choice *choice, uint64_t params,
                                             struct mics_err *err);

json_t *
mics_train_settings_to_json(const struct mics_train_settings *settings); /* NULL: out of memory */
/* MICS_ERR_FORMAT unless every setting is there, of its type and in its range; lr_decay,
 * mask_rate and those of the loss scale may be absent. */
enum mics_status mics_train_settings_from_json(const json_t *value,
                                               struct mics_train_settings *settings,
                                               struct mics_err *err);

struct mics_lr mics_train_settings_lr(const struct mics_train_settings *settings);
struct mics_optimizer_settings
mics_train_settings_optimizer(const struct mics_train_settings *settings);
struct mics_loss_scale_settings
mics_train_settings_loss_scale(const struct mics_train_settings *settings);

#endif
