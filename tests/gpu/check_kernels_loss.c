/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's cross entropy, and the rows that have a target, against the host's. */
#include "check.h"
#include "operation_tables.h"

static void losses_and_gradients_agree(void)
{
    for (size_t i = 0; i < LENGTH(loss_cases); i++)
        for (size_t d = 0; d < (loss_cases[i].rows > 500 ? 1 : LENGTH(dtypes)); d++)
            if (loss_cases[i].suites & GPU && !loss_cases[i].no_grad)
                cross_entropy_case(&gpu, &loss_cases[i], dtypes[d]);
}

static void without_gradient_the_logits_stay_on_the_gpu(void)
{
    for (size_t i = 0; i < LENGTH(loss_cases); i++)
        for (size_t d = 0; d < LENGTH(dtypes) && loss_cases[i].no_grad; d++)
            cross_entropy_case(&gpu, &loss_cases[i], dtypes[d]);
}

/* The loss of given logits, which their gradient replaces if `grad` is not NULL; `want` is NaN, or
 * what both are. */
static void check_loss(enum mics_dtype dtype, const float *numbers, const int32_t *targets,
                       uint32_t rows, uint32_t V, double want, const float *grad)
{
    double loss = 2;
    struct tensor logits;
    const int32_t *sent;

    case_begin(&gpu, 0, "%ux%u", rows, V);
    logits = case_note(&gpu, array_of(dtype, numbers, (size_t)rows * V, 0));
    sent = case_bytes(&gpu, "targets", targets, rows * sizeof *targets, 0);
    double *const sum = case_bytes(&gpu, "loss_sum", &loss, sizeof loss, 0);
    const struct mics_args_cross_entropy args = {logits.device, sent,  sum,  rows, V, 0,
                                                 true,          dtype, NULL, NULL};
    CASE_DEVICE(&gpu, mics_cuda_cross_entropy(&gpu.at, &args));
    case_expect_double(&gpu, sum, want, 1e-6);
    case_scratch(&gpu, logits.device);
    if (grad)
        CHECK_ARRAY(&logits, grad, 1e-6);
    case_end(&gpu);
}

static void masked_rows_count_nothing_even_with_nan_on_the_gpu(void)
{
    const float numbers[] = {NAN, 1, 2, 0, 0, 0, 5, NAN, 1}, third = 1.0f / 3;
    const float want[] = {0, 0, 0, third, third - 1, third, 0, 0, 0};
    const int32_t targets[] = {-1, 1, 3};

    check_loss(MICS_F32, numbers, targets, 3, 3, 2 + log(3), want);
}

static void nan_and_infinity_give_a_loss_that_is_not_a_number_on_the_gpu(void)
{
    static const float bad[] = {NAN, INFINITY};

    for (size_t i = 0; i < LENGTH(bad); i++)
        for (uint32_t place = 0; place < 40; place += 13) {
            float numbers[40] = {0};

            numbers[place] = bad[i];
            check_loss(dtypes[place % 3], numbers, &(int32_t){2}, 1, 40, NAN, NULL);
        }
}

static void excluded_and_large_logits_neither_overflow_nor_vanish(void)
{
    const float numbers[] = {-INFINITY, 30000, 29999, -INFINITY}, e = 0.26894143f;
    const float want[] = {0, -e, e, 0};

    check_loss(MICS_F32, numbers, &(int32_t){1}, 1, 4, 2 + log(1 + exp(-1)), want);
}

static void rows_with_a_target_are_found_on_the_gpu(void)
{
    for (size_t i = 0; i < LENGTH(select_cases); i++) {
        const struct select_case *c = &select_cases[i];

        if (!(c->suites & GPU))
            continue;
        select_rows_case(&gpu, c, c->most);
        select_rows_case(&gpu, c, c->most / 2); /* less room than some need */
    }
}

int main(void)
{
    open_gpu();
    TAP_RUN(losses_and_gradients_agree);
    TAP_RUN(without_gradient_the_logits_stay_on_the_gpu);
    TAP_RUN(masked_rows_count_nothing_even_with_nan_on_the_gpu);
    TAP_RUN(nan_and_infinity_give_a_loss_that_is_not_a_number_on_the_gpu);
    TAP_RUN(excluded_and_large_logits_neither_overflow_nor_vanish);
    TAP_RUN(rows_with_a_target_are_found_on_the_gpu);
    return close_gpu();
}
