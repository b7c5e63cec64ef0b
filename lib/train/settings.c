/* SPDX-License-Identifier: Apache-2.0 */
#include "train/settings.h"

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
};

/* From 1 at the end of the warm-up (progress 0) to 0 at the last step (progress 1). */
static double decay(enum mics_lr_kind kind, double progress)
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
    return mics_err_set(err, MICS_ERR_ARG, "'%s' is not one of constant, linear, cosine", text);
}

#define MAX_INTEGER 0x1p53 /* JSON's safe range: a double represents every integer below */

enum type { INTEGER, REAL, SCHEDULE };

/* `min` and `max` of numbers. */
static const struct setting {
    const char *name;
    enum type type;
    size_t offset;
    double min, max;
} table[] = {
    {"steps", INTEGER, offsetof(struct mics_settings, steps), 1, 1e12},
    {"seed", INTEGER, offsetof(struct mics_settings, seed), 0, MAX_INTEGER},
    {"lr", REAL, offsetof(struct mics_settings, lr), 0, 1e9},
    {"min-lr", REAL, offsetof(struct mics_settings, min_lr), 0, 1e9},
    {"lr-schedule", SCHEDULE, offsetof(struct mics_settings, lr_schedule), 0, 0},
    {"warmup", INTEGER, offsetof(struct mics_settings, warmup), 0, 1e12},
    {"beta1", REAL, offsetof(struct mics_settings, beta1), 0, 0.999999},
    {"beta2", REAL, offsetof(struct mics_settings, beta2), 0, 0.999999},
    {"eps", REAL, offsetof(struct mics_settings, eps), 1e-15, 1},
    {"momentum", REAL, offsetof(struct mics_settings, momentum), 0, 0.999999},
    {"weight-decay", REAL, offsetof(struct mics_settings, weight_decay), 0, 1e6},
    {"clip", REAL, offsetof(struct mics_settings, clip), 0, 1e9},
    {"val-fraction", REAL, offsetof(struct mics_settings, val_fraction), 0, 0.5},
    {"val-every", INTEGER, offsetof(struct mics_settings, val_every), 0, 1e12},
    {"val-batches", INTEGER, offsetof(struct mics_settings, val_batches), 0, 1e9},
};

#define COUNT (sizeof table / sizeof *table)

struct mics_settings mics_settings_default(void)
{
    return (struct mics_settings){
        .steps = 600,
        .seed = 1,
        .lr = 3e-3,
        .min_lr = -1,
        .lr_schedule = MICS_LR_COSINE,
        .warmup = -1,
        .beta1 = -1,
        .beta2 = -1,
        .eps = -1,
        .momentum = -1,
        .weight_decay = 0.1,
        .clip = -1,
        .val_fraction = 0.05,
        .val_every = 100,
        .val_batches = 8,
    };
}

static void *field(struct mics_settings *settings, const struct setting *setting)
{
    return (char *)settings + setting->offset;
}

enum mics_status mics_settings_set(struct mics_settings *settings, const char *name,
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

enum mics_status mics_settings_check_optimizer(const char *name, enum mics_optimizer optimizer,
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

static void set_default(double *setting, double value)
{
    if (*setting < 0)
        *setting = value;
}

static void resolve_optimizer(struct mics_settings *settings, enum mics_optimizer optimizer)
{
    const struct mics_optimizer_row *row = mics_optimizer_get(optimizer);

    set_default(&settings->beta1, row->defaults.beta1);
    set_default(&settings->beta2, row->defaults.beta2);
    set_default(&settings->eps, row->defaults.eps);
    set_default(&settings->momentum, row->defaults.momentum);
}

enum mics_status mics_settings_resolve(struct mics_settings *settings,
                                       const struct mics_plan_choice *choice, struct mics_err *err)
{
    if (settings->min_lr < 0)
        settings->min_lr = settings->lr / 10;
    if (settings->warmup < 0)
        settings->warmup = (int64_t)mics_min_u64(settings->steps / 10, 100);
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

static json_t *value_of(const struct mics_settings *settings, const struct setting *setting)
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

json_t *mics_settings_to_json(const struct mics_settings *settings)
{
    json_t *object = json_object();
    char key[32];

    for (size_t i = 0; object && i < COUNT; i++) {
        if (json_object_set_new(object, key_of(&table[i], key, sizeof key),
                                value_of(settings, &table[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static enum mics_status read_setting(const struct mics_cursor *cursor,
                                     const struct setting *setting, struct mics_settings *settings,
                                     struct mics_err *err)
{
    const char *text = NULL;
    enum mics_status status;
    char key[32];

    key_of(setting, key, sizeof key);
    switch (setting->type) {
    case INTEGER:
        return mics_cursor_u64(cursor, key, (uint64_t)setting->min, (uint64_t)setting->max,
                               field(settings, setting), err);
    case REAL:
        return mics_cursor_double(cursor, key, setting->min, setting->max, field(settings, setting),
                                  err);
    case SCHEDULE:
        break;
    }
    status = mics_cursor_string(cursor, key, &text, err);
    if (status == MICS_OK && parse_lr_kind(text, field(settings, setting), NULL) != MICS_OK)
        status = mics_cursor_fail(cursor, key, err, "unknown schedule");
    return status;
}

enum mics_status mics_settings_from_json(const json_t *value, struct mics_settings *settings,
                                         struct mics_err *err)
{
    const struct mics_cursor cursor = mics_cursor_root(value);
    struct mics_settings read = {0};
    enum mics_status status = MICS_OK;

    if (!json_is_object(value))
        return mics_err_set(err, MICS_ERR_FORMAT, "settings: expected a map");
    for (size_t i = 0; status == MICS_OK && i < COUNT; i++)
        status = read_setting(&cursor, &table[i], &read, err);
    if (status == MICS_OK)
        *settings = read;
    return status;
}

struct mics_lr mics_settings_lr(const struct mics_settings *settings)
{
    return (struct mics_lr){.kind = settings->lr_schedule,
                            .peak = settings->lr,
                            .floor = settings->min_lr,
                            .warmup = (uint64_t)settings->warmup,
                            .steps = settings->steps};
}

struct mics_optimizer_settings mics_settings_optimizer(const struct mics_settings *settings)
{
    return (struct mics_optimizer_settings){.beta1 = (float)settings->beta1,
                                            .beta2 = (float)settings->beta2,
                                            .eps = (float)settings->eps,
                                            .momentum = (float)settings->momentum,
                                            .weight_decay = (float)settings->weight_decay,
                                            .clip = (float)settings->clip};
}
