/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy: the loss, its gradient in place, masked targets. */
#include "host/pool.h"
#include "kernel_cases.h"
#include "kernels.h"

/* The loss of one row; its gradient into grad[V]. */
static double reference_row(const float *logits, uint32_t V, int32_t target, double *grad)
{
    double max = -INFINITY, sum = 0;

    for (uint32_t v = 0; v < V; v++)
        max = fmax(max, logits[v]);
    for (uint32_t v = 0; v < V; v++)
        sum += exp(logits[v] - max);
    for (uint32_t v = 0; v < V; v++)
        grad[v] = exp(logits[v] - max) / sum - (v == (uint32_t)target);
    return max + log(sum) - logits[target];
}

static int32_t *make_targets(uint32_t rows, uint32_t V)
{
    int32_t *targets = malloc((rows + 1) * sizeof(*targets));

    if (!targets)
        abort();
    for (uint32_t i = 0; i < rows; i++)
        targets[i] = case_target(i, rows, V);
    return targets;
}

static void losses_and_gradients_agree_with_plain_loops(void)
{
    for (size_t at = 0; at < LENGTH(loss_cases); at++) {
        const struct loss_case s = loss_cases[at];
        size_t count = (size_t)s.rows * s.V;
        float *logits = random_floats(count, 1), *first = NULL;
        double *grad = zero_doubles(count), want = 2, loss[POOLS];
        int32_t *targets = make_targets(s.rows, s.V);

        for (size_t i = 0; i < count; i++)
            logits[i] *= 12;
        for (uint32_t i = 0; i < s.rows; i++)
            if (targets[i] >= 0 && (uint32_t)targets[i] < s.V)
                want += reference_row(logits + (size_t)i * s.V, s.V, targets[i],
                                      grad + (size_t)i * s.V);
        for (unsigned i = 0; i < POOLS; i++) {
            float *got = copy_floats(logits, count);

            loss[i] = 2; /* it is added to */
            mics_host_cross_entropy(pools[i],
                                    &(struct mics_args_cross_entropy){.logits = got,
                                                                      .targets = targets,
                                                                      .loss_sum = &loss[i],
                                                                      .rows = s.rows,
                                                                      .V = s.V,
                                                                      .grad = true});
            CHECK_CLOSE(got, grad, count, 1e-6);
            CHECK(loss[i] == loss[0]);
            if (i == 0)
                first = copy_floats(got, count);
            CHECK_SAME_BITS(got, first, count);
            free(got);
        }
        CHECK_NEAR(loss[0] / want, 1, 1e-6);
        free(first);
        free(logits);
        free(grad);
        free(targets);
    }
}

/* The target has the largest logit in rows 0 and 1, with another one in the latter; 3 and 4 have no
 * target. */
static void rows_whose_target_is_the_likeliest_are_counted(void)
{
    enum { ROWS = 5, V = 70 };
    const int32_t targets[ROWS] = {69, 3, 0, -1, V};
    const struct mics_args_cross_entropy args = {
        .targets = targets, .rows = ROWS, .V = V, .loss_sum = &(double){0}};

    for (int grad = 0; grad < 2; grad++)
        for (unsigned i = 0; i < POOLS; i++) {
            float logits[ROWS * V] = {0};
            struct mics_args_cross_entropy counting = args;
            double hits = 5;

            logits[69] = logits[V + 3] = logits[V + 40] = logits[2 * V + 1] = 1;
            counting.logits = logits;
            counting.grad = grad;
            counting.hits = &hits;
            mics_host_cross_entropy(pools[i], &counting);
            CHECK(hits == 7);
        }
}

static void gaps_between_rows_are_left_alone(void)
{
    enum { ROWS = 5, V = 37, LD = 40 };
    const int32_t targets[ROWS] = {3, -1, 36, 0, 9};
    float *wide = random_floats((size_t)ROWS * LD, 5), *kept = copy_floats(wide, (size_t)ROWS * LD);
    float close[ROWS * V];
    double with_gaps = 0, without = 0;

    for (size_t i = 0; i < ROWS; i++)
        memcpy(close + i * V, wide + i * LD, V * sizeof(float));
    mics_host_cross_entropy(pools[1], &(struct mics_args_cross_entropy){.logits = wide,
                                                                        .targets = targets,
                                                                        .loss_sum = &with_gaps,
                                                                        .rows = ROWS,
                                                                        .V = V,
                                                                        .ld = LD,
                                                                        .grad = true});
    mics_host_cross_entropy(pools[1], &(struct mics_args_cross_entropy){.logits = close,
                                                                        .targets = targets,
                                                                        .loss_sum = &without,
                                                                        .rows = ROWS,
                                                                        .V = V,
                                                                        .grad = true});
    CHECK(with_gaps == without && without > 0);
    for (size_t i = 0; i < ROWS; i++) {
        CHECK_SAME_BITS(wide + i * LD, close + i * V, V);
        CHECK_SAME_BITS(wide + i * LD + V, kept + i * LD + V, LD - V);
    }
    free(wide);
    free(kept);
}

static void without_gradient_the_logits_stay(void)
{
    const struct loss_case s = {.rows = 7, .V = 100};
    float *logits = random_floats(700, 2), *kept = copy_floats(logits, 700);
    int32_t *targets = make_targets(s.rows, s.V);
    double loss = 0, with = 0;

    mics_host_cross_entropy(pools[1], &(struct mics_args_cross_entropy){.logits = logits,
                                                                        .targets = targets,
                                                                        .loss_sum = &loss,
                                                                        .rows = s.rows,
                                                                        .V = s.V,
                                                                        .grad = false});
    CHECK_SAME_BITS(logits, kept, 700);
    mics_host_cross_entropy(pools[1], &(struct mics_args_cross_entropy){.logits = logits,
                                                                        .targets = targets,
                                                                        .loss_sum = &with,
                                                                        .rows = s.rows,
                                                                        .V = s.V,
                                                                        .grad = true});
    CHECK(loss == with && loss > 0);
    free(logits);
    free(kept);
    free(targets);
}

static void masked_rows_count_nothing_even_with_nan(void)
{
    float logits[3 * 3] = {NAN, 1, 2, 0, 0, 0, 5, NAN, 1};
    int32_t targets[3] = {-1, 1, 3};
    double loss = 0;

    mics_host_cross_entropy(pools[0], &(struct mics_args_cross_entropy){.logits = logits,
                                                                        .targets = targets,
                                                                        .loss_sum = &loss,
                                                                        .rows = 3,
                                                                        .V = 3,
                                                                        .grad = true});
    CHECK_NEAR(loss, log(3), 1e-7);
    for (int i = 0; i < 9; i++)
        CHECK_NEAR(logits[i], i / 3 != 1 ? 0 : i == 4 ? -2.0 / 3 : 1.0 / 3, 1e-7);
}

static void nan_and_infinity_give_a_loss_that_is_not_a_number(void)
{
    static const float bad[] = {NAN, INFINITY};

    for (unsigned at = 0; at < 2; at++)
        for (unsigned place = 0; place < 40; place += 13) {
            float logits[40] = {0};
            int32_t target = 2;
            double loss = 0;

            logits[place] = bad[at];
            mics_host_cross_entropy(pools[0], &(struct mics_args_cross_entropy){.logits = logits,
                                                                                .targets = &target,
                                                                                .loss_sum = &loss,
                                                                                .rows = 1,
                                                                                .V = 40,
                                                                                .grad = true});
            CHECK(isnan(loss));
            CHECK(isnan(logits[place]));
        }
}

static void large_logits_do_not_overflow(void)
{
    float logits[2] = {30000, 29999};
    int32_t target = 0;
    double loss = 0;

    mics_host_cross_entropy(pools[0], &(struct mics_args_cross_entropy){.logits = logits,
                                                                        .targets = &target,
                                                                        .loss_sum = &loss,
                                                                        .rows = 1,
                                                                        .V = 2,
                                                                        .grad = true});
    CHECK_NEAR(loss, log(1 + exp(-1)), 1e-6);
}

/* By a power of two, so the gradient is that of the unscaled loss to the bit; the loss is not
 * scaled. */
static void gradients_are_scaled_and_the_loss_is_not(void)
{
    enum { ROWS = 7, V = 133 };
    const double scale = 0x1p9;
    float *plain = random_floats((size_t)ROWS * V, 1), *scaled = copy_floats(plain, ROWS * V);
    int32_t *targets = make_targets(ROWS, V);
    double loss[2] = {0};

    for (int i = 0; i < 2; i++)
        mics_host_cross_entropy(pools[i],
                                &(struct mics_args_cross_entropy){.logits = i ? scaled : plain,
                                                                  .targets = targets,
                                                                  .loss_sum = &loss[i],
                                                                  .rows = ROWS,
                                                                  .V = V,
                                                                  .grad = true,
                                                                  .grad_scale = i ? &scale : NULL});
    for (int i = 0; i < ROWS * V; i++)
        plain[i] *= 0x1p9f;
    CHECK_SAME_BITS(scaled, plain, ROWS * V);
    CHECK(loss[0] == loss[1]);
    free(plain);
    free(scaled);
    free(targets);
}

int main(void)
{
    open_pools();
    TAP_RUN(losses_and_gradients_agree_with_plain_loops);
    TAP_RUN(rows_whose_target_is_the_likeliest_are_counted);
    TAP_RUN(gaps_between_rows_are_left_alone);
    TAP_RUN(without_gradient_the_logits_stay);
    TAP_RUN(masked_rows_count_nothing_even_with_nan);
    TAP_RUN(nan_and_infinity_give_a_loss_that_is_not_a_number);
    TAP_RUN(large_logits_do_not_overflow);
    TAP_RUN(gradients_are_scaled_and_the_loss_is_not);
    return close_pools();
}
