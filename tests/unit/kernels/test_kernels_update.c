/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers against plain loops in double, and when they leave everything as it is. */
#include "host/numbers.h"
#include "host/pool.h"
#include "kernels.h"

enum { COUNT = 9001 };

static const struct mics_op_scalars ordinary = {.targets = 50, .squared_norm = 90000}; /* norm 6 */

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

static struct mics_op_adamw adamw_of(const struct state *s, const struct mics_op_scalars *scalars)
{
    return (struct mics_op_adamw){.param = s->param,
                                  .m = s->m,
                                  .v = s->v,
                                  .grad = s->grad,
                                  .scalars = scalars,
                                  .count = COUNT,
                                  .decay_count = 4111,
                                  .lr = 0.01f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .eps = 1e-8f,
                                  .weight_decay = 0.1f,
                                  .clip = 1.0f,
                                  .step = 3};
}

static struct mics_op_sgd sgd_of(const struct state *s, const struct mics_op_scalars *scalars)
{
    return (struct mics_op_sgd){.param = s->param,
                                .momentum = s->m,
                                .grad = s->grad,
                                .scalars = scalars,
                                .count = COUNT,
                                .decay_count = 4111,
                                .lr = 0.01f,
                                .mu = 0.9f,
                                .weight_decay = 0.1f,
                                .clip = 1.0f};
}

static double scale_of(const struct mics_op_scalars *scalars, double clip)
{
    double norm = sqrt(scalars->squared_norm) / scalars->targets;

    return 1 / scalars->targets * (clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1);
}

static void check_adamw(uint64_t count, uint64_t decay_count, float clip, uint32_t step)
{
    struct state s = make_state();
    struct mics_op_adamw args = adamw_of(&s, &ordinary);
    double *param = zero_doubles(COUNT), *m = zero_doubles(COUNT), *v = zero_doubles(COUNT);

    args.count = count;
    args.decay_count = decay_count;
    args.clip = clip;
    args.step = step;
    for (uint64_t i = 0; i < COUNT; i++) {
        double g = s.grad[i] * scale_of(&ordinary, clip), decay = i < decay_count ? 0.1 * 0.01 : 0;

        param[i] = s.param[i];
        m[i] = s.m[i];
        v[i] = s.v[i];
        if (i >= count)
            continue;
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.95 * v[i] + 0.05 * g * g;
        param[i] -= decay * param[i] + 0.01 * m[i] / (1 - pow(0.9, step)) /
                                           (sqrt(v[i] / (1 - pow(0.95, step))) + 1e-8);
    }
    mics_host_adamw(pools[count % POOLS], &args);
    CHECK_CLOSE(s.param, param, COUNT, 1e-6);
    CHECK_CLOSE(s.m, m, COUNT, 1e-6);
    CHECK_CLOSE(s.v, v, COUNT, 1e-6);
    free_state(&s);
    free(param);
    free(m);
    free(v);
}

static void adamw_agrees_with_its_definition(void)
{
    static const uint64_t counts[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, COUNT};

    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (unsigned j = 0; j <= i; j++) {
            check_adamw(counts[i], counts[j], 1.0f, 1);
            check_adamw(counts[i], counts[j], 0.0f, 2);
            check_adamw(counts[i], counts[j], 100.0f, 1000);
        }
}

static void check_sgd(uint64_t count, uint64_t decay_count, float clip)
{
    struct state s = make_state();
    struct mics_op_sgd args = sgd_of(&s, &ordinary);
    double *param = zero_doubles(COUNT), *momentum = zero_doubles(COUNT);

    args.count = count;
    args.decay_count = decay_count;
    args.clip = clip;
    for (uint64_t i = 0; i < COUNT; i++) {
        double g = s.grad[i] * scale_of(&ordinary, clip);

        param[i] = s.param[i];
        momentum[i] = s.m[i];
        if (i >= count)
            continue;
        momentum[i] = 0.9 * momentum[i] + g + (i < decay_count ? 0.1 * param[i] : 0);
        param[i] -= 0.01 * momentum[i];
    }
    mics_host_sgd(pools[count % POOLS], &args);
    CHECK_CLOSE(s.param, param, COUNT, 1e-6);
    CHECK_CLOSE(s.m, momentum, COUNT, 1e-6);
    free_state(&s);
    free(param);
    free(momentum);
}

static void sgd_agrees_with_its_definition(void)
{
    static const uint64_t counts[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, COUNT};

    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (unsigned j = 0; j <= i; j++) {
            check_sgd(counts[i], counts[j], 1.0f);
            check_sgd(counts[i], counts[j], 0.0f);
        }
}

/* Whether both optimizers leave their state as it was. */
static bool nothing_changes(const struct mics_op_scalars *scalars, float clip)
{
    struct state s = make_state(), kept = make_state();
    struct mics_op_adamw adamw = adamw_of(&s, scalars);
    struct mics_op_sgd sgd = sgd_of(&s, scalars);
    bool same;

    adamw.clip = sgd.clip = clip;
    mics_host_adamw(pools[1], &adamw);
    same = same_state(&s, &kept);
    mics_host_sgd(pools[1], &sgd);
    same = same == same_state(&s, &kept) && same;
    free_state(&s);
    free_state(&kept);
    return same;
}

static void a_norm_that_is_not_finite_skips_the_update_when_clipping(void)
{
    CHECK(nothing_changes(&(struct mics_op_scalars){.targets = 1, .squared_norm = NAN}, 1));
    CHECK(nothing_changes(&(struct mics_op_scalars){.targets = 1, .squared_norm = INFINITY}, 1));
    CHECK(!nothing_changes(&(struct mics_op_scalars){.targets = 1, .squared_norm = NAN}, 0));
    CHECK(!nothing_changes(&ordinary, 1));
}

static void without_targets_nothing_is_updated(void)
{
    CHECK(nothing_changes(&(struct mics_op_scalars){.targets = 0, .squared_norm = 1}, 1));
    CHECK(nothing_changes(&(struct mics_op_scalars){.targets = 0, .squared_norm = 1}, 0));
}

/* The copy is the rounded parameters, whether they were updated or not. */
static void check_copy(const struct mics_op_scalars *scalars, uint64_t count)
{
    struct state s = make_state(), other = make_state();
    struct mics_op_adamw adamw = adamw_of(&s, scalars);
    struct mics_op_sgd sgd = sgd_of(&other, scalars);
    uint16_t *copy = malloc((COUNT + 1) * 2), *want = malloc((COUNT + 1) * 2);

    memset(copy, 0xab, (COUNT + 1) * 2);
    memset(want, 0xab, (COUNT + 1) * 2);
    adamw.count = sgd.count = count;
    adamw.copy = sgd.copy = copy;
    mics_host_adamw(pools[1], &adamw);
    mics_numbers_from_f32(MICS_STORAGE_BF16, s.param, want, count);
    CHECK_SAME_BITS(copy, want, COUNT + 1);
    mics_host_sgd(pools[2], &sgd);
    mics_numbers_from_f32(MICS_STORAGE_BF16, other.param, want, count);
    CHECK_SAME_BITS(copy, want, COUNT + 1);
    free(copy);
    free(want);
    free_state(&s);
    free_state(&other);
}

static void an_update_leaves_a_copy_in_bf16(void)
{
    static const uint64_t counts[] = {0, 1, 16, 4097, COUNT};

    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        check_copy(&ordinary, counts[i]);
        check_copy(&(struct mics_op_scalars){.targets = 0}, counts[i]);
    }
}

/* Update in two pieces, cut anywhere: as a shard's boundary would. */
static void where_a_vector_is_cut_changes_no_bit(void)
{
    for (uint64_t cut = 1; cut < COUNT; cut = cut * 3 + 2) {
        struct state whole = make_state(), parts = make_state();
        struct mics_op_adamw args = adamw_of(&whole, &ordinary), part = adamw_of(&parts, &ordinary);

        mics_host_adamw(pools[2], &args);
        part.count = cut;
        part.decay_count = cut < args.decay_count ? cut : args.decay_count;
        mics_host_adamw(pools[0], &part);
        part = adamw_of(
            &(struct state){parts.param + cut, parts.m + cut, parts.v + cut, parts.grad + cut},
            &ordinary);
        part.count = COUNT - cut;
        part.decay_count = args.decay_count > cut ? args.decay_count - cut : 0;
        mics_host_adamw(pools[1], &part);
        CHECK(same_state(&whole, &parts));
        free_state(&whole);
        free_state(&parts);
    }
}

static void where_a_vector_is_cut_changes_no_bit_of_sgd(void)
{
    for (uint64_t cut = 1; cut < COUNT; cut = cut * 3 + 2) {
        struct state whole = make_state(), parts = make_state();
        struct mics_op_sgd args = sgd_of(&whole, &ordinary), part = sgd_of(&parts, &ordinary);

        mics_host_sgd(pools[2], &args);
        part.count = cut;
        part.decay_count = cut < args.decay_count ? cut : args.decay_count;
        mics_host_sgd(pools[0], &part);
        part.param += cut;
        part.momentum += cut;
        part.grad += cut;
        part.count = COUNT - cut;
        part.decay_count = args.decay_count > cut ? args.decay_count - cut : 0;
        mics_host_sgd(pools[1], &part);
        CHECK(same_state(&whole, &parts));
        free_state(&whole);
        free_state(&parts);
    }
}

static void without_clipping_nan_reaches_the_parameter(void)
{
    struct state s = make_state();
    struct mics_op_adamw args = adamw_of(&s, &ordinary);

    s.grad[5] = s.grad[COUNT - 1] = NAN;
    args.clip = 0;
    mics_host_adamw(pools[1], &args);
    CHECK(isnan(s.param[5]) && isnan(s.param[COUNT - 1]) && !isnan(s.param[6]));
    free_state(&s);
}

int main(void)
{
    open_pools();
    TAP_RUN(adamw_agrees_with_its_definition);
    TAP_RUN(sgd_agrees_with_its_definition);
    TAP_RUN(a_norm_that_is_not_finite_skips_the_update_when_clipping);
    TAP_RUN(without_targets_nothing_is_updated);
    TAP_RUN(an_update_leaves_a_copy_in_bf16);
    TAP_RUN(where_a_vector_is_cut_changes_no_bit);
    TAP_RUN(where_a_vector_is_cut_changes_no_bit_of_sgd);
    TAP_RUN(without_clipping_nan_reaches_the_parameter);
    return close_pools();
}
