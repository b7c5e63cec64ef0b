/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's optimizers against the host's. */
#include "check.h"
#include "operation_update.h"

/* Without clipping, and with a norm far above the limit and below. */
static void check_optimizer(enum mics_optimizer optimizer)
{
    static const double squares[] = {1e-3, 1e6, 1e-3};

    for (size_t c = 0; c < LENGTH(update_cases); c++)
        for (int clip = 0; clip < 3; clip++)
            update_case(&gpu, optimizer, &update_cases[c],
                        (struct mics_args_scalars){.targets = 8, .squared_norm = squares[clip]},
                        clip ? 1.0f : 0.0f);
}

static void adamw_agrees_with_and_without_clipping(void)
{
    check_optimizer(MICS_OPT_ADAMW);
}

static void sgd_agrees_with_and_without_clipping(void)
{
    check_optimizer(MICS_OPT_SGD);
}

static void lion_agrees_with_and_without_clipping(void)
{
    check_optimizer(MICS_OPT_LION);
}

static void nothing_changes_without_targets_or_with_a_norm_or_loss_that_is_not_finite(void)
{
    static const struct mics_args_scalars bad[] = {
        {.targets = 0, .squared_norm = 1},
        {.targets = 0, .squared_norm = NAN},
        {.targets = 4, .squared_norm = NAN},
        {.targets = 4, .squared_norm = INFINITY},
        {.targets = 4, .loss_sum = INFINITY, .squared_norm = 1},
        {.targets = 4, .loss_sum = NAN, .squared_norm = 1},
    };

    for (size_t c = 0; c < LENGTH(update_cases); c++)
        for (size_t i = 0; i < LENGTH(bad); i++)
            update_case(&gpu, (enum mics_optimizer)((c + i) % MICS_OPT_COUNT), &update_cases[c],
                        bad[i], 1);
}

static void without_clipping_a_norm_that_is_not_finite_is_ignored(void)
{
    for (int optimizer = 0; optimizer < MICS_OPT_COUNT; optimizer++)
        update_case(&gpu, (enum mics_optimizer)optimizer, &update_cases[5],
                    (struct mics_args_scalars){.targets = 4, .squared_norm = NAN}, 0);
}

/* Cut at any place, a vector is updated to the same bits. */
static void an_elements_update_does_not_depend_on_its_place(void)
{
    enum { CUT = 1237 };

    for (int i = 0; i < MICS_OPT_COUNT; i++) {
        const enum mics_optimizer optimizer = (enum mics_optimizer)i;
        const struct update_case c = {.count = 5000, .decay_count = 2501, .copy = true};
        struct mics_args_update args[3];
        struct slice s;

        case_begin(&gpu, 0, "cut %d", i);
        s = slice_new(&gpu, optimizer, &c,
                      (struct mics_args_scalars){.targets = 8, .squared_norm = 1e6}, MICS_BF16);
        args[0] = args[1] = args[2] = update_of(optimizer, &s, 1, true);
        args[1].count = CUT;
        args[2].param += CUT;
        for (uint32_t state = 0; state < mics_optimizer_states(optimizer); state++)
            args[2].state[state] += CUT;
        args[2].grad += CUT;
        args[2].copy += CUT;
        args[2].count -= CUT;
        args[2].decay_count -= CUT;
        CHECK_INT(mics_cuda_update(&gpu.at, &args[0]), cudaSuccess);
        case_keep(&gpu, true);
        CHECK_INT(mics_cuda_update(&gpu.at, &args[1]), cudaSuccess);
        CHECK_INT(mics_cuda_update(&gpu.at, &args[2]), cudaSuccess);
        case_compare(&gpu);
        CHECK(memcmp(s.param.got, s.param.begin, array_bytes(&s.param)) != 0);
        for (size_t n = 0; n < gpu.count; n++)
            gpu.noted[n].written = true;
        case_end(&gpu);
    }
}

static void the_loss_scale_equals_the_hosts(void)
{
    loss_scale_cases(&gpu);
}

int main(void)
{
    open_gpu();
    TAP_RUN(adamw_agrees_with_and_without_clipping);
    TAP_RUN(sgd_agrees_with_and_without_clipping);
    TAP_RUN(lion_agrees_with_and_without_clipping);
    TAP_RUN(nothing_changes_without_targets_or_with_a_norm_or_loss_that_is_not_finite);
    TAP_RUN(without_clipping_a_norm_that_is_not_finite_is_ignored);
    TAP_RUN(an_elements_update_does_not_depend_on_its_place);
    TAP_RUN(the_loss_scale_equals_the_hosts);
    return close_gpu();
}
