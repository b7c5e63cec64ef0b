/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train_settings.h"

#include "base/num.h"
#include "base/units.h"
#include "doc/cursor.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const lr_names[] = {
    [MICS_LR_CONSTANT] = "constant",
    [MICS_LR_LINEAR] = "linear",
    [MICS_LR_COSINE] = "cosine",
    [MICS_LR_WSD] = "wsd",
};

/* From 1 where the decay begins (progress 0) to 0 at the last step (progress 1). */
static double decay(enum mics_lr_kind kind, double progress)
{
    switch (kind) {
    case MICS_LR_LINEAR:
        return 1 - progress;
    case MICS_LR_COSINE:
        return 0.5 * (1 + cos(acos(-1.0) * progress));
    case MICS_LR_WSD:
        return 1 - sqrt(progress);
    case MICS_LR_CONSTANT:
        break;
    }
    return 1;
}

/* The last step at the peak of a rate that decays. */
static uint64_t decay_begin(const struct mics_lr *lr)
{
    if (lr->kind != MICS_LR_WSD)
        return lr->warmup;
    return mics_max_u64(lr->warmup, lr->steps > lr->decay ? lr->steps - lr->decay : 0);
}

double mics_lr_at(const struct mics_lr *lr, uint64_t step)
{
    const uint64_t begin = decay_begin(lr);
    double progress;

    if (step < lr->warmup)
        return lr->peak * (double)step / (double)lr->warmup;
    if (lr->kind == MICS_LR_CONSTANT)
        return lr->peak;
    if (step >= lr->steps)
        return lr->floor;
    if (step <= begin)
        return lr->peak;
    progress = (double)(step - begin) / (double)(lr->steps - begin);
    return lr->floor + (lr->peak - lr->floor) * decay(lr->kind, progress);
}

static enum mics_status parse_lr_kind(const char *text, enum mics_lr_kind *out,
                                      struct mics_err *err)
{
    for (size_t i = 0; i < sizeof lr_names / sizeof *lr_names; i++) {
        if (strcmp(text, lr_names[i]) == 0) {
            *out = (enum mics_lr_kind)i;
            return MICS_OK;
        }
    }
    return mics_err_set(err, MICS_ERR_ARG, "'%s' is not one of constant, linear, cosine, wsd",
                        text);
}

/* Range of fp16's loss scale. No model needs a larger one: fp16 has no smaller gradients than
 * 2^-24. */
#define MIN_SCALE 0x1p-32
#define MAX_SCALE 0x1p48

#define MAX_INTEGER 0x1p53 /* JSON's safe range: a double represents every integer below */

enum type { INTEGER, REAL, SCHEDULE };

/* `min` and `max` of numbers. `optional`: one that is negative is not written, and need not be
 * there. */
static const struct setting {
    const char *name;
    enum type type;
    size_t offset;
    double min, max;
    bool optional;
} table[] = {
    {"steps", INTEGER, offsetof(struct mics_train_settings, steps), 1, 1e12, false},
    {"seed", INTEGER, offsetof(struct mics_train_settings, seed), 0, MAX_INTEGER, false},
    {"lr", REAL, offsetof(struct mics_train_settings, lr), 0, 1e9, false},
    {"min-lr", REAL, offsetof(struct mics_train_settings, min_lr), 0, 1e9, false},
    {"lr-schedule", SCHEDULE, offsetof(struct mics_train_settings, lr_schedule), 0, 0, false},
    {"warmup", INTEGER, offsetof(struct mics_train_settings, warmup), 0, 1e12, false},
    {"lr-decay", INTEGER, offsetof(struct mics_train_settings, lr_decay), 1, 1e12, true},
    {"beta1", REAL, offsetof(struct mics_train_settings, beta1), 0, 0.999999, false},
    {"beta2", REAL, offsetof(struct mics_train_settings, beta2), 0, 0.999999, false},
    {"eps", REAL, offsetof(struct mics_train_settings, eps), 1e-15, 1, false},
    {"momentum", REAL, offsetof(struct mics_train_settings, momentum), 0, 0.999999, false},
    {"weight-decay", REAL, offsetof(struct mics_train_settings, weight_decay), 0, 1e6, false},
    {"clip", REAL, offsetof(struct mics_train_settings, clip), 0, 1e9, false},
    {"mask-rate", REAL, offsetof(struct mics_train_settings, mask_rate), 1e-4, 0.9999, true},
    {"val-fraction", REAL, offsetof(struct mics_train_settings, val_fraction), 0, 0.5, false},
    {"val-every", INTEGER, offsetof(struct mics_train_settings, val_every), 0, 1e12, false},
    {"val-batches", INTEGER, offsetof(struct mics_train_settings, val_batches), 0, 1e9, false},
    {"loss-scale", REAL, offsetof(struct mics_train_settings, loss_scale), 0, MAX_SCALE, true},
    {"initial-loss-scale", REAL, offsetof(struct mics_train_settings, initial_loss_scale),
     MIN_SCALE, MAX_SCALE, true},
    {"min-loss-scale", REAL, offsetof(struct mics_train_settings, min_loss_scale), MIN_SCALE,
     MAX_SCALE, true},
    {"loss-scale-factor", REAL, offsetof(struct mics_train_settings, loss_scale_factor), 2, 65536,
     true},
    {"loss-scale-window", INTEGER, offsetof(struct mics_train_settings, loss_scale_window), 1, 1e9,
     true},
    {"hysteresis", INTEGER, offsetof(struct mics_train_settings, hysteresis), 1, 1e9, true},
};

#define COUNT (sizeof table / sizeof *table)

struct mics_train_settings mics_train_settings_default(void)
{
    return (struct mics_train_settings){
        .steps = 600,
        .seed = 1,
        .lr = -1,
        .min_lr = -1,
        .lr_schedule = MICS_LR_COSINE,
        .warmup = -1,
        .lr_decay = -1,
        .beta1 = -1,
        .beta2 = -1,
        .eps = -1,
        .momentum = -1,
        .weight_decay = 0.1,
        .clip = -1,
        .mask_rate = -1,
        .val_fraction = 0.05,
        .val_every = 100,
        .val_batches = 8,
        .loss_scale = -1,
        .initial_loss_scale = -1,
        .min_loss_scale = -1,
        .loss_scale_factor = -1,
        .loss_scale_window = -1,
        .hysteresis = -1,
    };
}

static void *field(struct mics_train_settings *settings, const struct setting *setting)
{
    return (char *)settings + setting->offset;
}

enum mics_status mics_train_settings_set(struct mics_train_settings *settings, const char *name,
                                         const char *text, struct mics_err *err)
{
    for (size_t i = 0; i < COUNT; i++) {
        const struct setting *setting = &table[i];

        if (strcmp(name, setting->name) != 0)
            continue;
        switch (setting->type) {
        case INTEGER:
            return mics_parse_u64(text, (uint64_t)setting->min, (uint64_t)setting->max,
                                  field(settings, setting), err);
        case REAL:
            return mics_parse_double(text, setting->min, setting->max, field(settings, setting),
                                     err);
        case SCHEDULE:
            return parse_lr_kind(text, field(settings, setting), err);
        }
    }
    return mics_err_set(err, MICS_ERR_ARG, "'%s' is not a setting", name);
}

bool mics_train_settings_has(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(name, table[i].name) == 0)
            return true;
    return false;
}

/* Is it an optional setting that is not set? */
static bool is_absent(const struct mics_train_settings *settings, const struct setting *setting)
{
    const void *value = (const char *)settings + setting->offset;

    return setting->optional &&
           (setting->type == REAL ? *(const double *)value < 0 : *(const int64_t *)value < 0);
}

/* Do the optimizer's updates use a setting? */
static enum mics_status check_optimizer(const char *name, enum mics_optimizer optimizer,
                                        struct mics_err *err)
{
    const struct mics_optimizer_row *row = mics_optimizer_get(optimizer);

    for (const char *const *ignored = row->ignored; *ignored; ignored++)
        if (strcmp(name, *ignored) == 0)
            return mics_err_set(err, MICS_ERR_ARG,
                                "--%s: the plan's optimizer is %s, which does not use it", name,
                                row->name);
    return MICS_OK;
}

enum mics_status mics_train_settings_override(struct mics_train_settings *settings,
                                              const struct mics_train_setting_override *overrides,
                                              size_t count, enum mics_optimizer optimizer,
                                              struct mics_err *err)
{
    const double lr = settings->lr, min_lr = settings->min_lr;
    bool has_lr = false, has_min_lr = false, has_decay = false;
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < count; i++) {
        const char *name = overrides[i].name;

        has_lr |= strcmp(name, "lr") == 0;
        has_min_lr |= strcmp(name, "min-lr") == 0;
        has_decay |= strcmp(name, "lr-decay") == 0;
        status = mics_train_settings_set(settings, name, overrides[i].text, err);
        if (status == MICS_OK)
            status = check_optimizer(name, optimizer, err);
    }
    if (has_lr && !has_min_lr) /* exactly as it was if lr is */
        settings->min_lr = lr > 0 ? min_lr * (settings->lr / lr) : -1;
    if (status != MICS_OK || settings->lr_schedule == MICS_LR_WSD)
        return status;
    settings->lr_decay = -1;
    return has_decay ? mics_err_set(err, MICS_ERR_ARG, "--lr-decay: goes with --lr-schedule=wsd")
                     : MICS_OK;
}

/* The default of lr for a model of `params` parameters. */
static double default_lr(uint64_t params)
{
    const double rate = 6e-4 * cbrt(125e6 / (double)mics_max_u64(params, 1));
    char rounded[32];

    snprintf(rounded, sizeof rounded, "%.1e", fmin(rate, 3e-3));
    return strtod(rounded, NULL);
}

static void set_default(double *setting, double value)
{
    if (*setting < 0)
        *setting = value;
}

static enum mics_status resolve_lr(struct mics_train_settings *settings, uint64_t params,
                                   struct mics_err *err)
{
    set_default(&settings->lr, default_lr(params));
    set_default(&settings->min_lr, settings->lr / 10);
    if (settings->warmup < 0)
        settings->warmup = (int64_t)mics_min_u64(settings->steps / 10, 100);
    if (settings->lr_decay < 0 && settings->lr_schedule == MICS_LR_WSD)
        settings->lr_decay = (int64_t)mics_max_u64(settings->steps / 5, 1);
    if (settings->min_lr <= settings->lr)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "--min-lr=%g exceeds --lr=%g", settings->min_lr,
                        settings->lr);
}

static void resolve_optimizer(struct mics_train_settings *settings, enum mics_optimizer optimizer)
{
    const struct mics_optimizer_row *row = mics_optimizer_get(optimizer);

    set_default(&settings->beta1, row->defaults.beta1);
    set_default(&settings->beta2, row->defaults.beta2);
    set_default(&settings->eps, row->defaults.eps);
    set_default(&settings->momentum, row->defaults.momentum);
}

void mics_train_settings_drop_loss_scale(struct mics_train_settings *settings)
{
    settings->loss_scale = settings->initial_loss_scale = settings->min_loss_scale =
        settings->loss_scale_factor = -1;
    settings->loss_scale_window = settings->hysteresis = -1;
}

/* Is a row of the table one of the loss scale? */
static bool is_of_loss_scale(const struct setting *setting)
{
    return setting->optional && (strstr(setting->name, "loss-scale") != NULL ||
                                 strcmp(setting->name, "hysteresis") == 0);
}

static enum mics_status check_powers(const struct mics_train_settings *settings,
                                     struct mics_err *err)
{
    int exponent;

    for (size_t i = 0; i < COUNT; i++) {
        if (!is_of_loss_scale(&table[i]) || table[i].type != REAL)
            continue;
        const double value = *(const double *)((const char *)settings + table[i].offset);

        if (value > 0 && frexp(value, &exponent) != 0.5)
            return mics_err_set(err, MICS_ERR_ARG, "--%s=%.10g: expected a power of two",
                                table[i].name, value);
    }
    return MICS_OK;
}

/* The defaults are those of DeepSpeed's fp16. */
static enum mics_status resolve_loss_scale(struct mics_train_settings *settings,
                                           enum mics_dtype dtype, struct mics_err *err)
{
    for (size_t i = 0; i < COUNT && dtype != MICS_F16; i++)
        if (is_of_loss_scale(&table[i]) && !is_absent(settings, &table[i]))
            return mics_err_set(err, MICS_ERR_ARG,
                                "--%s: the plan is in %s; only losses in fp16 are scaled",
                                table[i].name, mics_dtype_name(dtype));
    if (dtype != MICS_F16)
        return MICS_OK;
    set_default(&settings->loss_scale, 0);
    set_default(&settings->initial_loss_scale, 65536);
    set_default(&settings->min_loss_scale, 1);
    set_default(&settings->loss_scale_factor, 2);
    if (settings->loss_scale_window < 0)
        settings->loss_scale_window = 1000;
    if (settings->hysteresis < 0)
        settings->hysteresis = 2;
    if (settings->initial_loss_scale < settings->min_loss_scale)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--initial-loss-scale=%.10g: below --min-loss-scale=%.10g",
                            settings->initial_loss_scale, settings->min_loss_scale);
    return check_powers(settings, err);
}

enum mics_status mics_train_settings_resolve(struct mics_train_settings *settings,
                                             const struct mics_plan_choice *choice, uint64_t params,
                                             struct mics_err *err)
{
    enum mics_status status = resolve_lr(settings, params, err);

    if (status == MICS_OK)
        status = resolve_loss_scale(settings, choice->dtype, err);
    if (status != MICS_OK)
        return status;
    resolve_optimizer(settings, choice->optimizer);
    if (settings->clip < 0)
        settings->clip = choice->clip ? 1 : 0;
    if (choice->clip == (settings->clip > 0))
        return MICS_OK;
    return choice->clip
               ? mics_err_set(
                     err, MICS_ERR_ARG,
                     "--clip=0: the plan includes gradient clipping: plan again without it")
               : mics_err_set(
                     err, MICS_ERR_ARG,
                     "--clip=%g: the plan does not include gradient clipping: plan again with it",
                     settings->clip);
}

/* The key in a document: "lr_schedule" for "lr-schedule". */
static const char *key_of(const struct setting *setting, char *buf, size_t size)
{
    snprintf(buf, size, "%s", setting->name);
    for (char *c = buf; *c; c++)
        if (*c == '-')
            *c = '_';
    return buf;
}

static json_t *value_of(const struct mics_train_settings *settings, const struct setting *setting)
{
    const void *value = (const char *)settings + setting->offset;

    switch (setting->type) {
    case INTEGER:
        return json_integer((json_int_t) * (const uint64_t *)value);
    case REAL:
        return json_real(*(const double *)value);
    case SCHEDULE:
        return json_string(lr_names[*(const enum mics_lr_kind *)value]);
    }
    return NULL;
}

json_t *mics_train_settings_to_json(const struct mics_train_settings *settings)
{
    json_t *object = json_object();
    char key[32];

    for (size_t i = 0; object && i < COUNT; i++) {
        if (is_absent(settings, &table[i]))
            continue;
        if (json_object_set_new(object, key_of(&table[i], key, sizeof key),
                                value_of(settings, &table[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static void read_setting(const struct mics_cursor *cursor, const struct setting *setting,
                         struct mics_train_settings *settings)
{
    void *value = field(settings, setting);
    char key[32];

    key_of(setting, key, sizeof key);
    if (setting->optional && !mics_cursor_has(cursor, key))
        return;
    switch (setting->type) {
    case INTEGER:
        *(uint64_t *)value =
            mics_cursor_get_u64(cursor, key, (uint64_t)setting->min, (uint64_t)setting->max);
        break;
    case REAL:
        *(double *)value = mics_cursor_get_double(cursor, key, setting->min, setting->max);
        break;
    case SCHEDULE:
        if (parse_lr_kind(mics_cursor_get_string(cursor, key), value, NULL) != MICS_OK)
            mics_cursor_reject(cursor, key, "unknown schedule");
        break;
    }
}

enum mics_status mics_train_settings_from_json(const json_t *value,
                                               struct mics_train_settings *settings,
                                               struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor cursor = mics_cursor_begin(value, &reading);
    struct mics_train_settings read = {.lr_decay = -1, .mask_rate = -1};

    mics_train_settings_drop_loss_scale(&read);

    if (!json_is_object(value))
        mics_cursor_reject(&cursor, NULL, "settings: expected a map");
    for (size_t i = 0; i < COUNT; i++)
        read_setting(&cursor, &table[i], &read);
    if (reading.status == MICS_OK)
        *settings = read;
    return reading.status;
}

struct mics_lr mics_train_settings_lr(const struct mics_train_settings *settings)
{
    return (struct mics_lr){.kind = settings->lr_schedule,
                            .peak = settings->lr,
                            .floor = settings->min_lr,
                            .warmup = (uint64_t)settings->warmup,
                            .steps = settings->steps,
                            .decay = settings->lr_decay < 0 ? 0 : (uint64_t)settings->lr_decay};
}

struct mics_optimizer_settings
mics_train_settings_optimizer(const struct mics_train_settings *settings)
{
    return (struct mics_optimizer_settings){.beta1 = (float)settings->beta1,
                                            .beta2 = (float)settings->beta2,
                                            .eps = (float)settings->eps,
                                            .momentum = (float)settings->momentum,
                                            .weight_decay = (float)settings->weight_decay,
                                            .clip = (float)settings->clip};
}

struct mics_loss_scale_settings
mics_train_settings_loss_scale(const struct mics_train_settings *settings)
{
    if (settings->loss_scale > 0)
        return (struct mics_loss_scale_settings){.initial = settings->loss_scale,
                                                 .step = 1,
                                                 .min = 0,
                                                 .max = settings->loss_scale,
                                                 .hysteresis = 1};
    return (struct mics_loss_scale_settings){.initial = settings->initial_loss_scale,
                                             .step = settings->loss_scale_factor,
                                             .min = settings->min_loss_scale,
                                             .max = MAX_SCALE,
                                             .window = (uint32_t)settings->loss_scale_window,
                                             .hysteresis = (uint32_t)settings->hysteresis};
}
