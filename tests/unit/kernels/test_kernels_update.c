/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers against plain loops in double, and the cases in which they change nothing. */
#include "host/numbers.h"
#include "host/pool.h"
#include "kernel_cases.h"
#include "kernels.h"

enum { COUNT = 9001 };

static const struct mics_args_scalars ordinary = {.targets = 50,
                                                  .squared_norm = 90000}; /* norm 6 */

/* Parameters and state of one optimizer; grad is large enough to matter. */
struct state {
    float *param, *m, *v, *grad;
};

static struct state make_state(void)
{
    struct state s = {random_floats(COUNT, 1), random_floats(COUNT, 2), random_floats(COUNT, 3),
                      random_floats(COUNT, 4)};

    for (int i = 0; i < COUNT; i++) {
        s.v[i] = s.v[i] * s.v[i];
        s.grad[i] *= 100;
    }
    return s;
}

static void free_state(struct state *s)
{
    free(s->param);
    free(s->m);
    free(s->v);
    free(s->grad);
}

static bool same_state(const struct state *a, const struct state *b)
{
    return memcmp(a->param, b->param, COUNT * sizeof(float)) == 0 &&
           memcmp(a->m, b->m, COUNT * sizeof(float)) == 0 &&
           memcmp(a->v, b->v, COUNT * sizeof(float)) == 0;
}

/* An update of all elements, of which the first 4111 decay. */
static struct mics_args_update update_of(enum mics_optimizer optimizer, const struct state *s,
                                         const struct mics_args_scalars *scalars)
{
    const bool second = mics_optimizer_states(optimizer) > 1;

    return (struct mics_args_update){.optimizer = optimizer,
                                     .step = 3,
                                     .param = s->param,
                                     .state = {s->m, second ? s->v : NULL},
                                     .grad = s->grad,
                                     .scalars = scalars,
                                     .count = COUNT,
                                     .decay_count = 4111,
                                     .lr = 0.01f,
                                     .settings = {.beta1 = 0.9f,
                                                  .beta2 = 0.95f,
                                                  .eps = 1e-8f,
                                                  .momentum = 0.9f,
                                                  .weight_decay = 0.1f,
                                                  .clip = 1.0f}};
}

static double scale_of(const struct mics_args_scalars *scalars, double clip)
{
    double norm = sqrt(scalars->squared_norm) / scalars->targets;

    return 1 / scalars->targets * (clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1);
}

/* One element by its definition in ops.h; g is the scaled gradient, decay 0.1 or 0. */
static void update_one(const struct mics_args_update *args, double g, double decay, double *param,
                       double *m, double *v)
{
    const double lr = 0.01, u = 0.9 * *m + 0.1 * g;

    switch (args->optimizer) {
    case MICS_OPT_ADAMW:
        *m = u;
        *v = 0.95 * *v + 0.05 * g * g;
        *param -= lr * (*m / (1 - pow(0.9, args->step)) /
                            (sqrt(*v / (1 - pow(0.95, args->step))) + 1e-8) +
                        decay * *param);
        break;
    case MICS_OPT_SGD:
        *m = 0.9 * *m + g + decay * *param;
        *param -= lr * *m;
        break;
    case MICS_OPT_LION:
        *m = 0.95 * *m + 0.05 * g;
        *param -= lr * ((u > 0) - (u < 0) + decay * *param);
        break;
    case MICS_OPT_COUNT:
        break;
    }
}

static void check_update(enum mics_optimizer optimizer, uint64_t count, uint64_t decay_count,
                         float clip, uint32_t step)
{
    struct state s = make_state();
    struct mics_args_update args = update_of(optimizer, &s, &ordinary);
    double *param = zero_doubles(COUNT), *m = zero_doubles(COUNT), *v = zero_doubles(COUNT);

    args.count = count;
    args.decay_count = decay_count;
    args.settings.clip = clip;
    args.step = step;
    for (uint64_t i = 0; i < COUNT; i++) {
        param[i] = s.param[i];
        m[i] = s.m[i];
        v[i] = s.v[i];
        if (i < count)
            update_one(&args, s.grad[i] * scale_of(&ordinary, clip), i < decay_count ? 0.1 : 0,
                       &param[i], &m[i], &v[i]);
    }
    mics_host_update(pools[count % POOLS], &args);
    CHECK_CLOSE(s.param, param, COUNT, 1e-6);
    CHECK_CLOSE(s.m, m, COUNT, 1e-6);
    CHECK_CLOSE(s.v, v, COUNT, 1e-6);
    free_state(&s);
    free(param);
    free(m);
    free(v);
}

static void check_optimizer(enum mics_optimizer optimizer)
{
    static const uint64_t counts[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, COUNT};

    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (unsigned j = 0; j <= i; j++) {
            check_update(optimizer, counts[i], counts[j], 1.0f, 1);
            check_update(optimizer, counts[i], counts[j], 0.0f, 2);
            check_update(optimizer, counts[i], counts[j], 100.0f, 1000);
        }
    for (unsigned i = 0; i < LENGTH(update_cases); i++)
        check_update(optimizer, update_cases[i].count, update_cases[i].decay_count, 1.0f, 7);
}

static void adamw_agrees_with_its_definition(void)
{
    check_optimizer(MICS_OPT_ADAMW);
}

static void sgd_agrees_with_its_definition(void)
{
    check_optimizer(MICS_OPT_SGD);
}

static void lion_agrees_with_its_definition(void)
{
    check_optimizer(MICS_OPT_LION);
}

/* Nothing but the decay moves a parameter whose direction is 0. */
static void lion_has_a_direction_of_0(void)
{
    struct state s = make_state(), before = make_state();
    struct mics_args_update args = update_of(MICS_OPT_LION, &s, &ordinary);

    memset(s.m, 0, COUNT * sizeof(float));
    memset(s.grad, 0, COUNT * sizeof(float));
    s.grad[COUNT - 1] = -1e-30f; /* not too small to count */
    mics_host_update(pools[1], &args);
    for (uint64_t i = 0; i + 1 < COUNT; i++) {
        const double kept = i < args.decay_count ? 1 - 0.01 * 0.1 : 1;

        CHECK_NEAR(s.param[i], kept * before.param[i], 1e-7 * fabs(before.param[i]));
        CHECK(s.m[i] == 0);
    }
    CHECK_NEAR(s.param[COUNT - 1], before.param[COUNT - 1] + 0.01, 1e-7);
    free_state(&s);
    free_state(&before);
}

/* Whether every optimizer leaves its state as it was (`same`), or none does. */
static bool all_leave(const struct mics_args_scalars *scalars, float clip, bool same)
{
    bool all = true;

    for (int i = 0; i < MICS_OPT_COUNT; i++) {
        struct state s = make_state(), kept = make_state();
        struct mics_args_update args = update_of((enum mics_optimizer)i, &s, scalars);

        args.settings.clip = clip;
        mics_host_update(pools[1], &args);
        all = all && same_state(&s, &kept) == same;
        free_state(&s);
        free_state(&kept);
    }
    return all;
}

static void a_norm_or_loss_that_is_not_finite_skips_the_update_when_clipping(void)
{
    CHECK(all_leave(&(struct mics_args_scalars){.targets = 1, .squared_norm = NAN}, 1, true));
    CHECK(all_leave(&(struct mics_args_scalars){.targets = 1, .squared_norm = INFINITY}, 1, true));
    CHECK(all_leave(&(struct mics_args_scalars){.targets = 1, .squared_norm = NAN}, 0, false));
    CHECK(all_leave(
        &(struct mics_args_scalars){.targets = 1, .squared_norm = 1, .loss_sum = INFINITY}, 1,
        true));
    CHECK(all_leave(&(struct mics_args_scalars){.targets = 1, .squared_norm = 1, .loss_sum = NAN},
                    1, true));
    CHECK(all_leave(&ordinary, 1, false));
}

static void without_targets_nothing_is_updated(void)
{
    CHECK(all_leave(&(struct mics_args_scalars){.targets = 0, .squared_norm = 1}, 1, true));
    CHECK(all_leave(&(struct mics_args_scalars){.targets = 0, .squared_norm = 1}, 0, true));
}

/* The copy is the rounded parameters, whether they were updated or not. */
static void check_copy(enum mics_optimizer optimizer, const struct mics_args_scalars *scalars,
                       uint64_t count)
{
    struct state s = make_state();
    struct mics_args_update args = update_of(optimizer, &s, scalars);
    uint16_t *copy = malloc((COUNT + 1) * 2), *want = malloc((COUNT + 1) * 2);

    memset(copy, 0xab, (COUNT + 1) * 2);
    memset(want, 0xab, (COUNT + 1) * 2);
    args.count = count;
    args.copy = copy;
    mics_host_update(pools[1], &args);
    mics_numbers_from_f32(MICS_STORAGE_BF16, s.param, want, count);
    CHECK_SAME_BITS(copy, want, COUNT + 1);
    free(copy);
    free(want);
    free_state(&s);
}

static void an_update_leaves_a_copy_in_bf16(void)
{
    static const uint64_t counts[] = {0, 1, 16, 4097, COUNT};

    for (int o = 0; o < MICS_OPT_COUNT; o++)
        for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            check_copy((enum mics_optimizer)o, &ordinary, counts[i]);
            check_copy((enum mics_optimizer)o, &(struct mics_args_scalars){.targets = 0},
                       counts[i]);
        }
}

/* Update in two pieces, cut anywhere: as a shard's boundary would. */
static void where_a_vector_is_cut_changes_no_bit(void)
{
    for (int o = 0; o < MICS_OPT_COUNT; o++)
        for (uint64_t cut = 1; cut < COUNT; cut = cut * 3 + 2) {
            struct state whole = make_state(), parts = make_state();
            const struct state second = {parts.param + cut, parts.m + cut, parts.v + cut,
                                         parts.grad + cut};
            struct mics_args_update args = update_of((enum mics_optimizer)o, &whole, &ordinary);
            struct mics_args_update part = update_of((enum mics_optimizer)o, &parts, &ordinary);

            mics_host_update(pools[2], &args);
            part.count = cut;
            part.decay_count = cut < args.decay_count ? cut : args.decay_count;
            mics_host_update(pools[0], &part);
            part = update_of((enum mics_optimizer)o, &second, &ordinary);
            part.count = COUNT - cut;
            part.decay_count = args.decay_count > cut ? args.decay_count - cut : 0;
            mics_host_update(pools[1], &part);
            CHECK(same_state(&whole, &parts));
            free_state(&whole);
            free_state(&parts);
        }
}

static void without_clipping_nan_reaches_the_parameter(void)
{
    for (int o = 0; o < MICS_OPT_COUNT; o++) {
        struct state s = make_state();
        struct mics_args_update args = update_of((enum mics_optimizer)o, &s, &ordinary);

        s.grad[5] = s.grad[COUNT - 1] = NAN;
        args.settings.clip = 0;
        mics_host_update(pools[1], &args);
        CHECK(isnan(s.param[5]) && isnan(s.param[COUNT - 1]) && !isnan(s.param[6]));
        free_state(&s);
    }
}

/* The names that options show are those of the rows, in order. */
static void optimizers_are_found_by_name(void)
{
    char names[64] = "";
    enum mics_optimizer found;

    for (int i = 0; i < MICS_OPT_COUNT; i++) {
        const char *name = mics_optimizer_name((enum mics_optimizer)i);

        CHECK(mics_optimizer_parse(name, &found) && found == (enum mics_optimizer)i);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? "|" : "", name);
        CHECK(mics_optimizer_states(found) >= 1 &&
              mics_optimizer_states(found) <= MICS_OPTIMIZER_STATES_MAX);
    }
    CHECK(strcmp(names, MICS_OPTIMIZER_NAMES) == 0);
    CHECK(!mics_optimizer_parse("adam", &found));
}

/* Window 3, hysteresis 2, between 1/4 and 16, worked out by hand: '.' a step without overflow, 'x'
 * one with. */
static void the_loss_scale_moves_as_by_hand(void)
{
    static const char steps[] = "...x.xx..xxxx...x...";
    static const double after[] = {4,  4,   8,   8,   8,   4,  2,  2,  2,  1,
                                   .5, .25, .25, .25, .25, .5, .5, .5, .5, 1};
    struct mics_loss_scale state = {.factor = 4, .patience = 2};
    uint64_t overflows = 0;

    for (size_t i = 0; steps[i]; i++) {
        const double before = state.factor;
        struct mics_args_scalars scalars = {
            .targets = 5,
            .loss_sum = steps[i] == 'x' && i % 2 ? (double)NAN : 1,
            .squared_norm = steps[i] == 'x' && i % 2 == 0 ? (double)INFINITY : 1};

        mics_host_loss_scale(pools[0], &(struct mics_args_loss_scale){.state = &state,
                                                                      .scalars = &scalars,
                                                                      .step = 2,
                                                                      .min = .25,
                                                                      .max = 16,
                                                                      .window = 3,
                                                                      .hysteresis = 2,
                                                                      .counts = true});
        CHECK(scalars.skipped == (i == 12 ? (double)INFINITY : steps[i] == 'x'));
        CHECK(scalars.squared_norm ==
              (steps[i] == 'x' && i % 2 == 0 ? (double)INFINITY : 1 / (before * before)));
        overflows += steps[i] == 'x';
        CHECK(state.used == before && state.factor == after[i]);
        CHECK_INT(state.overflow, steps[i] == 'x');
        CHECK_INT(state.at_minimum, i == 12);
        CHECK(state.overflows == overflows);
    }
}

static void a_static_loss_scale_stays(void)
{
    struct mics_loss_scale state = {.factor = 8, .patience = 1};

    for (unsigned i = 0; i < 6; i++) {
        struct mics_args_scalars scalars = {.squared_norm = i < 3 ? 1 : (double)INFINITY};

        mics_host_loss_scale(
            pools[0],
            &(struct mics_args_loss_scale){
                .state = &state, .scalars = &scalars, .step = 1, .max = 8, .hysteresis = 1});
        CHECK(state.factor == 8 && state.overflow == (i >= 3) && !state.at_minimum);
    }
}

/* It falls, but a clean one does not let it rise. */
static void a_drain_counts_for_the_loss_scale_only_if_it_overflows(void)
{
    struct mics_loss_scale state = {.factor = 8, .patience = 1, .clean = 2};

    for (unsigned i = 0; i < 4; i++) {
        struct mics_args_scalars scalars = {.squared_norm = i < 3 ? 1 : (double)INFINITY};

        mics_host_loss_scale(pools[0], &(struct mics_args_loss_scale){.state = &state,
                                                                      .scalars = &scalars,
                                                                      .step = 2,
                                                                      .max = 16,
                                                                      .window = 3,
                                                                      .hysteresis = 1,
                                                                      .drains = true});
        CHECK(state.factor == (i < 3 ? 8 : 4) && state.clean == (i < 3 ? 2 : 0));
        CHECK(scalars.skipped == 0);
    }
}

/* Powers of two change no bit: the update of scaled gradients is that of plain ones. */
static void updates_take_the_loss_scale_off_again(void)
{
    for (int optimizer = 0; optimizer < MICS_OPT_COUNT; optimizer++) {
        const struct mics_loss_scale scale = {.factor = 1, .used = 0x1p12};
        struct state a = make_state(), b = make_state();
        struct mics_args_update plain = update_of((enum mics_optimizer)optimizer, &a, &ordinary);
        struct mics_args_update args = update_of((enum mics_optimizer)optimizer, &b, &ordinary);
        uint16_t *copy = calloc(COUNT, sizeof *copy);

        for (int i = 0; i < COUNT; i++)
            b.grad[i] *= 0x1p12f;
        args.loss_scale = &scale;
        args.copy = copy;
        args.copy_f16 = true;
        mics_host_update(pools[0], &plain);
        mics_host_update(pools[1], &args);
        CHECK(same_state(&a, &b));
        for (int i = 0; i < COUNT; i++)
            CHECK(copy[i] == mics_f16_round(b.param[i]));
        free(copy);
        free_state(&a);
        free_state(&b);
    }
}

static void an_overflow_changes_nothing_with_and_without_clipping(void)
{
    for (unsigned clip = 0; clip < 2; clip++) {
        const struct mics_loss_scale scale = {.factor = 1, .used = 2, .overflow = 1};
        struct state s = make_state(), before = make_state();
        struct mics_args_update args = update_of(MICS_OPT_ADAMW, &s, &ordinary);
        uint16_t *copy = calloc(COUNT, sizeof *copy);

        args.settings.clip = (float)clip;
        args.loss_scale = &scale;
        args.copy = copy;
        args.copy_f16 = true;
        mics_host_update(pools[2], &args);
        CHECK(same_state(&s, &before));
        for (int i = 0; i < COUNT; i++)
            CHECK(copy[i] == mics_f16_round(s.param[i]));
        free(copy);
        free_state(&s);
        free_state(&before);
    }
}

int main(void)
{
    open_pools();
    TAP_RUN(adamw_agrees_with_its_definition);
    TAP_RUN(sgd_agrees_with_its_definition);
    TAP_RUN(lion_agrees_with_its_definition);
    TAP_RUN(lion_has_a_direction_of_0);
    TAP_RUN(a_norm_or_loss_that_is_not_finite_skips_the_update_when_clipping);
    TAP_RUN(without_targets_nothing_is_updated);
    TAP_RUN(an_update_leaves_a_copy_in_bf16);
    TAP_RUN(where_a_vector_is_cut_changes_no_bit);
    TAP_RUN(without_clipping_nan_reaches_the_parameter);
    TAP_RUN(optimizers_are_found_by_name);
    TAP_RUN(the_loss_scale_moves_as_by_hand);
    TAP_RUN(a_static_loss_scale_stays);
    TAP_RUN(a_drain_counts_for_the_loss_scale_only_if_it_overflows);
    TAP_RUN(updates_take_the_loss_scale_off_again);
    TAP_RUN(an_overflow_changes_nothing_with_and_without_clipping);
    return close_pools();
}
