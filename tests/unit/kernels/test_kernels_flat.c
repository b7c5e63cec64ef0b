/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on long arrays: GELU, norms of gradients. */
#include "host/pool.h"
#include "kernel_cases.h"
#include "kernels.h"

static double gelu(double x, bool exact)
{
    return exact ? 0.5 * x * erfc(-x / sqrt(2))
                 : 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void check_gelu(bool exact)
{
    for (size_t at = 0; at < LENGTH(flat_cases); at++) {
        size_t count = flat_cases[at].count;
        float *in = random_floats(count, 4), *out = random_floats(count, 5);
        double *want = zero_doubles(count);

        for (size_t i = 0; i < count; i++) {
            in[i] *= 9;
            want[i] = gelu(in[i], exact);
        }
        mics_host_gelu(
            pools[at % POOLS],
            &(struct mics_args_gelu){.out = out, .in = in, .count = count, .exact = exact});
        CHECK_CLOSE(out, want, count, 1e-6);
        free(in);
        free(out);
        free(want);
    }
}

static void gelu_agrees_with_its_definition(void)
{
    check_gelu(false);
    check_gelu(true);
}

static void check_gelu_grad(bool exact)
{
    for (size_t at = 0; at < LENGTH(flat_cases); at++) {
        size_t count = flat_cases[at].count;
        float *in = random_floats(count, 6), *grad = random_floats(count, 7);
        double *want = zero_doubles(count), step = 1e-5;

        for (size_t i = 0; i < count; i++) {
            in[i] *= 9;
            want[i] =
                grad[i] * (gelu(in[i] + step, exact) - gelu(in[i] - step, exact)) / (2 * step);
        }
        mics_host_gelu_grad(
            pools[at % POOLS],
            &(struct mics_args_gelu_grad){
                .grad_in = grad, .in = in, .grad_out = grad, .count = count, .exact = exact});
        CHECK_CLOSE(grad, want, count, 4e-6);
        free(in);
        free(grad);
        free(want);
    }
}

static void gelus_gradient_is_its_slope(void)
{
    check_gelu_grad(false);
    check_gelu_grad(true);
}

static void gelu_of_a_large_number_is_the_number_or_zero(void)
{
    float in[4] = {1e18f, -1e18f, 3e38f, -300.0f}, out[4], ones[4] = {1, 1, 1, 1};

    for (int exact = 0; exact < 2; exact++) {
        mics_host_gelu(pools[0],
                       &(struct mics_args_gelu){.out = out, .in = in, .count = 4, .exact = exact});
        CHECK(out[0] == 1e18f && out[1] == 0 && out[2] == 3e38f && out[3] == 0);
        mics_host_gelu_grad(
            pools[0], &(struct mics_args_gelu_grad){
                          .grad_in = out, .in = in, .grad_out = ones, .count = 4, .exact = exact});
        CHECK(out[0] == 1 && out[1] == 0 && out[2] == 1 && out[3] == 0);
    }
}

static void nan_passes_through_gelu_and_its_gradient(void)
{
    float in[40] = {0}, ones[40] = {0}, out[40];

    in[3] = in[38] = NAN;
    for (int exact = 0; exact < 2; exact++) {
        mics_host_gelu(pools[0],
                       &(struct mics_args_gelu){.out = out, .in = in, .count = 40, .exact = exact});
        CHECK(isnan(out[3]) && isnan(out[38]) && out[4] == 0);
        mics_host_gelu_grad(
            pools[0], &(struct mics_args_gelu_grad){
                          .grad_in = out, .in = in, .grad_out = ones, .count = 40, .exact = exact});
        CHECK(isnan(out[3]) && isnan(out[38]) && out[4] == 0);
    }
}

static void an_elements_gelu_does_not_depend_on_its_position(void)
{
    enum { COUNT = 77 };
    float *in = random_floats(COUNT, 8), whole[COUNT], one;

    mics_host_gelu(pools[0], &(struct mics_args_gelu){.out = whole, .in = in, .count = COUNT});
    for (unsigned i = 0; i < COUNT; i++) {
        mics_host_gelu(pools[0], &(struct mics_args_gelu){.out = &one, .in = in + i, .count = 1});
        CHECK_SAME_BITS(&one, whole + i, 1);
    }
    free(in);
}

static void squares_are_summed_in_double(void)
{
    for (size_t at = 0; at < LENGTH(flat_cases); at++) {
        size_t count = flat_cases[at].count;
        float *in = random_floats(count, 9);
        double want = 0.5, got[POOLS];

        for (size_t i = 0; i < count; i++)
            want += (double)in[i] * in[i];
        for (unsigned i = 0; i < POOLS; i++) {
            got[i] = 0.5;
            mics_host_squared_norm(pools[i], &(struct mics_args_squared_norm){
                                                 .sum = &got[i], .in = in, .count = count});
            CHECK(got[i] == got[0]);
        }
        CHECK_NEAR(got[0] / want, 1, 1e-13);
        free(in);
    }
}

static void a_long_array_is_summed_group_by_group(void)
{
    const size_t count = ((size_t)1 << 22) + 5;
    float *in = random_floats(count, 10);
    double want = 0, got[POOLS] = {0};

    for (size_t i = 0; i < count; i++) {
        in[i] = (float)(i % 7);
        want += (double)in[i] * in[i];
    }
    for (unsigned i = 0; i < POOLS; i++)
        mics_host_squared_norm(
            pools[i], &(struct mics_args_squared_norm){.sum = &got[i], .in = in, .count = count});
    CHECK(got[0] == want && got[1] == want && got[2] == want);
    free(in);
}

static void a_norm_neither_overflows_nor_hides_nan(void)
{
    float in[3] = {3e38f, 0, 1};
    double sum = 0, check = 7;
    const struct mics_args_squared_norm check_only = {
        .sum = &check, .in = in, .count = 3, .check_only = true};

    mics_host_squared_norm(pools[0],
                           &(struct mics_args_squared_norm){.sum = &sum, .in = in, .count = 3});
    CHECK_NEAR(sum / 9e76, 1, 1e-6);
    mics_host_squared_norm(pools[0], &check_only);
    CHECK(check == 7);
    in[1] = INFINITY;
    mics_host_squared_norm(pools[0],
                           &(struct mics_args_squared_norm){.sum = &sum, .in = in, .count = 3});
    CHECK(isinf(sum));
    mics_host_squared_norm(pools[0], &check_only);
    CHECK(isnan(check));
    in[2] = NAN;
    mics_host_squared_norm(pools[0],
                           &(struct mics_args_squared_norm){.sum = &sum, .in = in, .count = 3});
    CHECK(isnan(sum));
}

int main(void)
{
    open_pools();
    TAP_RUN(gelu_agrees_with_its_definition);
    TAP_RUN(gelus_gradient_is_its_slope);
    TAP_RUN(gelu_of_a_large_number_is_the_number_or_zero);
    TAP_RUN(nan_passes_through_gelu_and_its_gradient);
    TAP_RUN(an_elements_gelu_does_not_depend_on_its_position);
    TAP_RUN(squares_are_summed_in_double);
    TAP_RUN(a_long_array_is_summed_group_by_group);
    TAP_RUN(a_norm_neither_overflows_nor_hides_nan);
    return close_pools();
}
