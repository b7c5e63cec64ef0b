/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_settings.c - learning rates and settings. */
#include "tap.h"

#include "train/train_settings.h"

static struct mics_lr schedule(enum mics_lr_kind kind)
{
    return (struct mics_lr){.kind = kind, .peak = 1.0, .floor = 0.1, .warmup = 10, .steps = 110};
}

static void the_warm_up_is_a_straight_line_to_the_peak(void)
{
    for (int kind = MICS_LR_CONSTANT; kind <= MICS_LR_WSD; kind++) {
        struct mics_lr lr = schedule((enum mics_lr_kind)kind);

        CHECK_NEAR(mics_lr_at(&lr, 1), 0.1, 1e-12);
        CHECK_NEAR(mics_lr_at(&lr, 5), 0.5, 1e-12);
        CHECK_NEAR(mics_lr_at(&lr, 10), 1.0, 1e-12);
    }
}

static void a_constant_rate_does_not_change(void)
{
    struct mics_lr lr = schedule(MICS_LR_CONSTANT);

    CHECK_NEAR(mics_lr_at(&lr, 11), 1.0, 0);
    CHECK_NEAR(mics_lr_at(&lr, 100000), 1.0, 0);
}

static void a_linear_rate_falls_to_the_floor_and_stays_there(void)
{
    struct mics_lr lr = schedule(MICS_LR_LINEAR);

    CHECK_NEAR(mics_lr_at(&lr, 60), 0.55, 1e-12);
    CHECK_NEAR(mics_lr_at(&lr, 110), 0.1, 1e-12);
    CHECK_NEAR(mics_lr_at(&lr, 500), 0.1, 1e-12);
}

static void a_cosine_is_half_way_in_the_middle(void)
{
    struct mics_lr lr = schedule(MICS_LR_COSINE);

    CHECK_NEAR(mics_lr_at(&lr, 35), 0.1 + 0.9 * 0.5 * (1 + sqrt(0.5)), 1e-12);
    CHECK_NEAR(mics_lr_at(&lr, 60), 0.55, 1e-12);
    CHECK_NEAR(mics_lr_at(&lr, 110), 0.1, 1e-12);
    for (uint64_t step = 10; step < 110; step++)
        CHECK(mics_lr_at(&lr, step) > mics_lr_at(&lr, step + 1));
}

static void a_stable_rate_falls_in_the_last_steps_only(void)
{
    struct mics_lr lr = schedule(MICS_LR_WSD);

    lr.decay = 16;
    CHECK_NEAR(mics_lr_at(&lr, 11), 1.0, 0);
    CHECK_NEAR(mics_lr_at(&lr, 94), 1.0, 0);
    CHECK_NEAR(mics_lr_at(&lr, 95), 0.1 + 0.9 * 0.75, 1e-12);
    CHECK_NEAR(mics_lr_at(&lr, 98), 0.1 + 0.9 * 0.5, 1e-12);
    CHECK_NEAR(mics_lr_at(&lr, 103), 0.1 + 0.9 * 0.25, 1e-12);
    CHECK_NEAR(mics_lr_at(&lr, 110), 0.1, 1e-12);
    lr.decay = 500; /* begins after the warm-up */
    CHECK_NEAR(mics_lr_at(&lr, 10), 1.0, 0);
    CHECK_NEAR(mics_lr_at(&lr, 35), 0.1 + 0.9 * 0.5, 1e-12);
}

static void without_warm_up_the_first_step_has_nearly_the_peak(void)
{
    struct mics_lr lr = schedule(MICS_LR_COSINE);

    lr.warmup = 0;
    CHECK(mics_lr_at(&lr, 1) < 1.0 && mics_lr_at(&lr, 1) > 0.99);
    lr.steps = 1;
    CHECK_NEAR(mics_lr_at(&lr, 1), 0.1, 1e-12);
}

static void an_unknown_schedule_is_refused_with_the_valid_names(void)
{
    struct mics_train_settings settings = mics_train_settings_default();
    struct mics_err err = {""};

    CHECK_INT(mics_train_settings_set(&settings, "lr-schedule", "linear", &err), MICS_OK);
    CHECK_INT(settings.lr_schedule, MICS_LR_LINEAR);
    CHECK_INT(mics_train_settings_set(&settings, "lr-schedule", "cos", &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "'cos' is not one of constant, linear, cosine, wsd");
}

static void settings_are_parsed_by_name(void)
{
    struct mics_train_settings settings = mics_train_settings_default();
    struct mics_err err = {""};

    CHECK_INT(mics_train_settings_set(&settings, "lr", "3e-4", &err), MICS_OK);
    CHECK_NEAR(settings.lr, 3e-4, 0);
    CHECK_INT(mics_train_settings_set(&settings, "steps", "12", &err), MICS_OK);
    CHECK_INT(settings.steps, 12);
    CHECK_INT(mics_train_settings_set(&settings, "lr-schedule", "linear", &err), MICS_OK);
    CHECK_INT(settings.lr_schedule, MICS_LR_LINEAR);
}

static void settings_out_of_range_are_refused(void)
{
    static const char *const bad[][2] = {
        {"lr", "-1"},   {"lr", "nan"},    {"lr", "0x1p3"},         {"lr", "1e400"}, {"lr", ""},
        {"steps", "0"}, {"steps", "1.5"}, {"beta1", "1"},          {"lr", "3e-4x"}, {"eps", "0"},
        {"seed", "-1"}, {"clip", "-1"},   {"val-fraction", "0.6"}, {"colour", "1"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mics_train_settings settings = mics_train_settings_default(), before = settings;
        struct mics_err err = {""};

        CHECK_INT(mics_train_settings_set(&settings, bad[i][0], bad[i][1], &err), MICS_ERR_ARG);
        CHECK(err.text[0] != '\0');
        CHECK(memcmp(&settings, &before, sizeof settings) == 0);
    }
}

static void unset_settings_follow_the_plan_and_each_other(void)
{
    struct mics_train_settings settings = mics_train_settings_default();
    struct mics_plan_choice with = {.clip = true}, without = {.clip = false};
    struct mics_err err = {""};

    settings.lr = 0.5;
    settings.steps = 40;
    CHECK_INT(mics_train_settings_resolve(&settings, &with, 1, &err), MICS_OK);
    CHECK_NEAR(settings.min_lr, 0.05, 1e-12);
    CHECK_INT(settings.warmup, 4);
    CHECK_NEAR(settings.clip, 1, 0);
    CHECK_INT(mics_train_settings_resolve(&settings, &without, 1, &err), MICS_ERR_ARG);
    settings.clip = 0;
    CHECK_INT(mics_train_settings_resolve(&settings, &without, 1, &err), MICS_OK);
    CHECK_INT(mics_train_settings_resolve(&settings, &with, 1, &err), MICS_ERR_ARG);
}

static void the_default_rate_is_that_of_gpt3_at_both_ends(void)
{
    static const struct {
        uint64_t params;
        double rate;
    } cases[] = {
        {1, 3e-3},
        {1000000, 3e-3},
        {124439808, 6e-4},
        {1300000000, 2.7e-4},
        {8030261248, 1.5e-4},
        {175000000000, 5.4e-5},
    };
    struct mics_plan_choice choice = {.clip = true};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_train_settings settings = mics_train_settings_default();

        CHECK_INT(mics_train_settings_resolve(&settings, &choice, cases[i].params, NULL), MICS_OK);
        CHECK_NEAR(settings.lr, cases[i].rate, 0);
        CHECK_NEAR(settings.min_lr, cases[i].rate / 10, 0);
    }
}

/* What a run that is resumed with `given` gets, after one with `before`. */
static enum mics_status resume(struct mics_train_settings *settings,
                               const struct mics_train_setting_override *before,
                               size_t before_count, const struct mics_train_setting_override *given,
                               size_t count, struct mics_err *err)
{
    const struct mics_plan_choice choice = {.clip = true};

    *settings = mics_train_settings_default();
    CHECK_INT(mics_train_settings_override(settings, before, before_count, MICS_OPT_ADAMW, err),
              MICS_OK);
    CHECK_INT(mics_train_settings_resolve(settings, &choice, 1, err), MICS_OK);
    if (mics_train_settings_override(settings, given, count, MICS_OPT_ADAMW, err) != MICS_OK)
        return MICS_ERR_ARG;
    return mics_train_settings_resolve(settings, &choice, 1, err);
}

static void the_lowest_rate_follows_the_highest(void)
{
    const struct mics_train_setting_override before[] = {{"lr", "0.003"}, {"min-lr", "0.0001"}};
    const struct mics_train_setting_override same[] = {{"lr", "0.003"}};
    const struct mics_train_setting_override lower[] = {{"lr", "0.00003"}};
    const struct mics_train_setting_override both[] = {{"min-lr", "0.00002"}, {"lr", "0.00003"}};
    const struct mics_train_setting_override above[] = {{"lr", "0.00003"}, {"min-lr", "0.00004"}};
    struct mics_train_settings settings;
    struct mics_err err = {""};

    CHECK_INT(resume(&settings, before, 2, same, 1, &err), MICS_OK);
    CHECK_NEAR(settings.min_lr, 0.0001, 0);
    CHECK_INT(resume(&settings, before, 2, lower, 1, &err), MICS_OK);
    CHECK_NEAR(settings.min_lr, 0.000001, 1e-18);
    CHECK_INT(resume(&settings, before, 1, lower, 1, &err), MICS_OK);
    CHECK_NEAR(settings.min_lr, 0.000003, 1e-18);
    CHECK_INT(resume(&settings, before, 2, both, 2, &err), MICS_OK);
    CHECK_NEAR(settings.min_lr, 0.00002, 0);
    CHECK_INT(resume(&settings, before, 2, above, 2, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "--min-lr=4e-05 exceeds --lr=3e-05");
}

static void the_decay_is_of_its_schedule_only(void)
{
    const struct mics_train_setting_override wsd[] = {{"lr-schedule", "wsd"}};
    const struct mics_train_setting_override short_wsd[] = {{"lr-decay", "7"},
                                                            {"lr-schedule", "wsd"}};
    const struct mics_train_setting_override steps[] = {{"steps", "2000"}};
    const struct mics_train_setting_override cosine[] = {{"lr-schedule", "cosine"}};
    const struct mics_train_setting_override mixed[] = {{"lr-schedule", "cosine"},
                                                        {"lr-decay", "7"}};
    struct mics_train_settings settings;
    struct mics_err err = {""};

    CHECK_INT(resume(&settings, wsd, 1, steps, 1, &err), MICS_OK);
    CHECK_INT(settings.lr_decay, 120); /* of the first run's 600 steps */
    CHECK_INT(resume(&settings, short_wsd, 2, steps, 1, &err), MICS_OK);
    CHECK_INT(settings.lr_decay, 7);
    CHECK_INT(resume(&settings, short_wsd, 2, cosine, 1, &err), MICS_OK);
    CHECK(settings.lr_decay < 0);
    CHECK_INT(resume(&settings, wsd, 1, mixed, 2, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "--lr-decay: goes with --lr-schedule=wsd");
}

/* An option that changes nothing would look as if it had been tried. */
static void settings_that_an_optimizer_ignores_are_refused_for_it(void)
{
    static const struct {
        enum mics_optimizer optimizer;
        const char *name, *text; /* NULL: accepted */
    } cases[] = {
        {MICS_OPT_ADAMW, "beta1", NULL},
        {MICS_OPT_ADAMW, "eps", NULL},
        {MICS_OPT_ADAMW, "momentum", "--momentum: the plan's optimizer is adamw, which does not "},
        {MICS_OPT_SGD, "momentum", NULL},
        {MICS_OPT_SGD, "beta1", "--beta1: the plan's optimizer is sgd, which does not use it"},
        {MICS_OPT_SGD, "beta2", "--beta2: the plan's optimizer is sgd, which does not use it"},
        {MICS_OPT_SGD, "eps", "--eps: the plan's optimizer is sgd, which does not use it"},
        {MICS_OPT_SGD, "lr", NULL},
        {MICS_OPT_LION, "beta2", NULL},
        {MICS_OPT_LION, "weight-decay", NULL},
        {MICS_OPT_LION, "eps", "--eps: the plan's optimizer is lion, which does not use it"},
        {MICS_OPT_LION, "momentum", "--momentum: the plan's optimizer is lion, which does not "},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mics_train_setting_override given = {.name = cases[i].name, .text = "0.5"};
        struct mics_train_settings settings = mics_train_settings_default();
        struct mics_err err = {""};

        CHECK_INT(mics_train_settings_override(&settings, &given, 1, cases[i].optimizer, &err),
                  cases[i].text ? MICS_ERR_ARG : MICS_OK);
        CHECK(strstr(err.text, cases[i].text ? cases[i].text : "") == err.text);
    }
}

static void a_checkpoint_has_the_decay_of_its_schedule(void)
{
    struct mics_train_settings settings = mics_train_settings_default(), back = {0};
    struct mics_plan_choice choice = {.clip = true};
    json_t *json;

    CHECK_INT(mics_train_settings_resolve(&settings, &choice, 1, NULL), MICS_OK);
    json = mics_train_settings_to_json(&settings);
    CHECK(!json_object_get(json, "lr_decay"));
    CHECK_INT(mics_train_settings_from_json(json, &back, NULL), MICS_OK);
    CHECK(back.lr_decay < 0);
    json_decref(json);
    settings.lr_schedule = MICS_LR_WSD;
    CHECK_INT(mics_train_settings_resolve(&settings, &choice, 1, NULL), MICS_OK);
    json = mics_train_settings_to_json(&settings);
    CHECK_INT(mics_train_settings_from_json(json, &back, NULL), MICS_OK);
    CHECK_INT(back.lr_decay, 120);
    CHECK_INT(mics_train_settings_lr(&back).decay, 120);
    json_decref(json);
}

static void settings_survive_a_checkpoint_bit_for_bit(void)
{
    struct mics_train_settings settings = mics_train_settings_default(), back = {0};
    struct mics_plan_choice choice = {.clip = true};
    struct mics_err err = {""};
    json_t *json;

    settings.lr = 1.0 / 3;
    CHECK_INT(mics_train_settings_resolve(&settings, &choice, 1, &err), MICS_OK);
    json = mics_train_settings_to_json(&settings);
    CHECK_INT(mics_train_settings_from_json(json, &back, &err), MICS_OK);
    CHECK(settings.lr - back.lr >= 0 && settings.lr - back.lr <= 0);
    CHECK_INT(back.warmup, settings.warmup);
    CHECK_INT(back.lr_schedule, settings.lr_schedule);
    CHECK_NEAR(back.min_lr, settings.min_lr, 0);
    json_object_set_new(json, "lr_schedule", json_string("zigzag"));
    CHECK_INT(mics_train_settings_from_json(json, &back, &err), MICS_ERR_FORMAT);
    json_object_del(json, "lr_schedule");
    CHECK_INT(mics_train_settings_from_json(json, &back, &err), MICS_ERR_FORMAT);
    json_decref(json);
}

static void a_plan_in_fp16_has_a_loss_scale_and_others_do_not(void)
{
    const struct mics_plan_choice half = {.dtype = MICS_F16, .clip = true};
    const struct mics_plan_choice single = {.dtype = MICS_F32, .clip = true};
    struct mics_train_settings settings = mics_train_settings_default(), read;
    struct mics_loss_scale_settings scale;

    CHECK_INT(mics_train_settings_resolve(&settings, &single, 1000, NULL), MICS_OK);
    CHECK(settings.loss_scale < 0 && settings.hysteresis < 0);
    settings = mics_train_settings_default();
    CHECK_INT(mics_train_settings_resolve(&settings, &half, 1000, NULL), MICS_OK);
    scale = mics_train_settings_loss_scale(&settings);
    CHECK(scale.initial == 65536 && scale.min == 1 && scale.step == 2);
    CHECK(scale.window == 1000 && scale.hysteresis == 2);
    json_t *doc = mics_train_settings_to_json(&settings);
    CHECK_INT(mics_train_settings_from_json(doc, &read, NULL), MICS_OK);
    json_decref(doc);
    CHECK(read.loss_scale == 0 && read.initial_loss_scale == 65536 && read.hysteresis == 2);
    CHECK_INT(mics_train_settings_resolve(&read, &single, 1000, NULL), MICS_ERR_ARG);
    mics_train_settings_drop_loss_scale(&read);
    CHECK_INT(mics_train_settings_resolve(&read, &single, 1000, NULL), MICS_OK);
    CHECK_INT(mics_train_settings_set(&settings, "loss-scale", "0.25", NULL), MICS_OK);
    CHECK_INT(mics_train_settings_resolve(&settings, &half, 1000, NULL), MICS_OK);
    scale = mics_train_settings_loss_scale(&settings);
    CHECK(scale.initial == 0.25 && scale.step == 1 && scale.window == 0 && scale.min == 0);
    CHECK_INT(mics_train_settings_set(&settings, "min-loss-scale", "3", NULL), MICS_OK);
    CHECK_INT(mics_train_settings_resolve(&settings, &half, 1000, NULL), MICS_ERR_ARG);
}

int main(void)
{
    TAP_RUN(the_warm_up_is_a_straight_line_to_the_peak);
    TAP_RUN(a_constant_rate_does_not_change);
    TAP_RUN(a_linear_rate_falls_to_the_floor_and_stays_there);
    TAP_RUN(a_cosine_is_half_way_in_the_middle);
    TAP_RUN(a_stable_rate_falls_in_the_last_steps_only);
    TAP_RUN(without_warm_up_the_first_step_has_nearly_the_peak);
    TAP_RUN(an_unknown_schedule_is_refused_with_the_valid_names);
    TAP_RUN(settings_are_parsed_by_name);
    TAP_RUN(settings_out_of_range_are_refused);
    TAP_RUN(unset_settings_follow_the_plan_and_each_other);
    TAP_RUN(the_default_rate_is_that_of_gpt3_at_both_ends);
    TAP_RUN(the_lowest_rate_follows_the_highest);
    TAP_RUN(the_decay_is_of_its_schedule_only);
    TAP_RUN(settings_that_an_optimizer_ignores_are_refused_for_it);
    TAP_RUN(a_checkpoint_has_the_decay_of_its_schedule);
    TAP_RUN(settings_survive_a_checkpoint_bit_for_bit);
    TAP_RUN(a_plan_in_fp16_has_a_loss_scale_and_others_do_not);
    return tap_done();
}
