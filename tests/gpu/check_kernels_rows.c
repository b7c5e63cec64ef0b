/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's operations on rows against the host's: norms and their gradients, sums of columns,
 * gated units, rotary positions. */
#include "check.h"
#include "operation_rows.h"

static void check_norms(bool layer)
{
    for (size_t i = 0; i < LENGTH(row_cases); i++)
        for (size_t d = 0; d < LENGTH(dtypes) && row_cases[i].suites & GPU; d++)
            if (!tap_leaves_out(2))
                norm_case(&gpu, layer, &row_cases[i], dtypes[d]);
}

static void layernorm_agrees(void)
{
    check_norms(true);
}

static void rmsnorm_agrees(void)
{
    check_norms(false);
}

/* How many pairs of types of activations and of gradients a case of sums has. */
static size_t type_pairs(const struct row_case *c)
{
    return !(c->suites & GPU) ? 0 : c->C > 5000 ? 1 : 2 * LENGTH(dtypes);
}

static void check_norms_gradients(bool layer)
{
    for (size_t i = 0; i < LENGTH(row_cases); i++)
        for (size_t d = 0; d < type_pairs(&row_cases[i]); d++)
            if (!tap_leaves_out(5))
                norm_grad_case(&gpu, layer, &row_cases[i], dtypes[d / 2],
                               grad_type(dtypes[d / 2], d % 2));
}

static void layernorms_gradients_agree(void)
{
    check_norms_gradients(true);
}

static void rmsnorms_gradients_agree(void)
{
    check_norms_gradients(false);
}

/* One row of sums would fill the workspace. */
static void rows_that_are_too_long_for_sums_are_refused(void)
{
    const struct mics_args_layernorm_grad args = {.rows = 1,
                                                  .C = MICS_CUDA_WORKSPACE_BYTES / 8 + 8,
                                                  .grad_bias = &gpu.at,
                                                  .dtype = MICS_BF16};
    const struct mics_args_rmsnorm_grad grad = {
        .rows = 1, .C = MICS_CUDA_WORKSPACE_BYTES / 4 + 1, .dtype = MICS_F32};

    CHECK_INT(mics_cuda_layernorm_grad(&gpu.at, &args), cudaErrorInvalidValue);
    CHECK_INT(mics_cuda_rmsnorm_grad(&gpu.at, &grad), cudaErrorInvalidValue);
}

static void sums_of_columns_agree(void)
{
    for (size_t i = 0; i < LENGTH(row_cases); i++)
        for (size_t d = 0; d < type_pairs(&row_cases[i]); d++)
            if (!tap_leaves_out(5))
                bias_grad_case(&gpu, &row_cases[i], dtypes[d / 2], grad_type(dtypes[d / 2], d % 2));
}

static void gated_units_agree(void)
{
    for (size_t i = 0; i < LENGTH(row_cases); i++)
        for (size_t d = 0; d < LENGTH(dtypes) && row_cases[i].suites & GPU; d++) {
            if (tap_leaves_out(2))
                continue;
            swiglu_case(&gpu, &row_cases[i], dtypes[d]);
            swiglu_grad_case(&gpu, &row_cases[i], dtypes[d], false);
            swiglu_grad_case(&gpu, &row_cases[i], dtypes[d], true);
        }
}

static void norms_of_heads_and_their_gradients_agree(void)
{
    for (size_t i = 0; i < LENGTH(head_cases); i++)
        for (size_t d = 0; d < 2 * LENGTH(dtypes); d++)
            if (!tap_leaves_out(5))
                qk_norm_case(&gpu, &head_cases[i], dtypes[d / 2], d % 2 ? dtypes[d / 2] : MICS_F32);
}

static void rotary_positions_agree_and_turn_back(void)
{
    for (size_t i = 0; i < LENGTH(rope_cases); i++)
        for (size_t d = 0; d < 2 * LENGTH(dtypes); d++)
            if (!tap_leaves_out(5))
                rope_case(&gpu, &rope_cases[i], dtypes[d / 2], d % 2);
}

static void odd_and_too_wide_heads_are_refused(void)
{
    struct mics_args_rope args = {.B = 1, .T = 1, .heads = 1, .D = 3, .stride = 3, .base = 10000};

    CHECK_INT(mics_cuda_rope(&gpu.at, &args), cudaErrorInvalidValue);
    args.D = args.stride = 258;
    CHECK_INT(mics_cuda_rope(&gpu.at, &args), cudaErrorInvalidValue);
}

int main(void)
{
    open_gpu();
    TAP_RUN(layernorm_agrees);
    TAP_RUN(rmsnorm_agrees);
    TAP_RUN(layernorms_gradients_agree);
    TAP_RUN(rmsnorms_gradients_agree);
    TAP_RUN(rows_that_are_too_long_for_sums_are_refused);
    TAP_RUN(sums_of_columns_agree);
    TAP_RUN(gated_units_agree);
    TAP_RUN(norms_of_heads_and_their_gradients_agree);
    TAP_RUN(rotary_positions_agree_and_turn_back);
    TAP_RUN(odd_and_too_wide_heads_are_refused);
    return close_gpu();
}
