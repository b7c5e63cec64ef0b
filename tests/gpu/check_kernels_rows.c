/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's operations on rows against the host's: norms and their gradients, sums of columns,
 * gated units, rotary positions. */
#include "check.h"

/* Rows of every way to share them: aligned and not, within a warp, a team, a block, and wider. */
static const struct {
    uint32_t rows, C;
    unsigned shift;
} shapes[] = {
    {0, 32, 0},    {1, 1, 0},     {5, 31, 0},   {33, 32, 0},   {7, 33, 0},   {64, 96, 1},
    {2, 768, 0},   {2, 1600, 0},  {9, 1000, 0}, {2, 4097, 0},  {1, 5120, 0}, {40, 64, 0},
    {2, 12288, 0}, {2, 8192, 1},  {600, 8, 0},  {20, 768, 0},  {31, 256, 0}, {1, 32768, 0},
    {300, 1, 0},   {13, 1280, 0}, {3, 8192, 0}, {2, 40000, 0},
};

struct norm {
    struct array in, weight, bias, out, mean, rstd;
};

static struct norm norm_new(size_t at_shape, enum mics_dtype dtype)
{
    const uint32_t rows = shapes[at_shape].rows, C = shapes[at_shape].C;
    const unsigned shift = shapes[at_shape].shift;
    const size_t count = (size_t)rows * C;
    struct norm n = {
        .in = array_random(dtype, count, 3, 1, shift),
        .weight = array_random(dtype, C, 2, 3, shift),
        .bias = array_random(dtype, C, 2, 4, shift),
        .out = array_output(dtype, count, shift),
        .mean = array_output(MICS_F32, rows, 0),
        .rstd = array_output(MICS_F32, rows, 0),
    };

    return n;
}

static void norm_free(struct norm *n)
{
    ARRAYS_FREE(&n->in, &n->weight, &n->bias, &n->out, &n->mean, &n->rstd);
}

static void layernorm_agrees(void)
{
    for (size_t s = 0; s < LENGTH(shapes); s++)
        for (size_t d = 0; d < LENGTH(dtypes); d++) {
            struct norm n = norm_new(s, dtypes[d]);
            struct mics_args_layernorm args = {.out = n.out.device,
                                               .mean = n.mean.device,
                                               .rstd = n.rstd.device,
                                               .in = n.in.device,
                                               .weight = n.weight.device,
                                               .bias = n.bias.device,
                                               .rows = shapes[s].rows,
                                               .C = shapes[s].C,
                                               .eps = 1e-5f,
                                               .dtype = dtypes[d]};

            RUN(layernorm, &args, &n.out, &n.mean, &n.rstd);
            args = (struct mics_args_layernorm){.out = n.out.values,
                                                .mean = n.mean.values,
                                                .rstd = n.rstd.values,
                                                .in = n.in.values,
                                                .weight = n.weight.values,
                                                .bias = n.bias.values,
                                                .rows = shapes[s].rows,
                                                .C = shapes[s].C,
                                                .eps = 1e-5f};
            mics_host_layernorm(pool, &args);
            CHECK_ARRAY(&n.out, n.out.values, 4e-6);
            CHECK_ARRAY(&n.mean, n.mean.values, 1e-6);
            CHECK_ARRAY(&n.rstd, n.rstd.values, 4e-6);
            norm_free(&n);
        }
}

static void rmsnorm_agrees(void)
{
    for (size_t s = 0; s < LENGTH(shapes); s++)
        for (size_t d = 0; d < LENGTH(dtypes); d++) {
            struct norm n = norm_new(s, dtypes[d]);
            struct mics_args_rmsnorm args = {.out = n.out.device,
                                             .rstd = n.rstd.device,
                                             .in = n.in.device,
                                             .weight = n.weight.device,
                                             .rows = shapes[s].rows,
                                             .C = shapes[s].C,
                                             .eps = 1e-5f,
                                             .dtype = dtypes[d]};

            RUN(rmsnorm, &args, &n.out, &n.rstd);
            args = (struct mics_args_rmsnorm){.out = n.out.values,
                                              .rstd = n.rstd.values,
                                              .in = n.in.values,
                                              .weight = n.weight.values,
                                              .rows = shapes[s].rows,
                                              .C = shapes[s].C,
                                              .eps = 1e-5f};
            mics_host_rmsnorm(pool, &args);
            CHECK_ARRAY(&n.out, n.out.values, 4e-6);
            CHECK_ARRAY(&n.rstd, n.rstd.values, 4e-6);
            norm_free(&n);
        }
}

/* What both norms' gradients work on; mean and rstd are those of the host. */
struct norm_grad {
    struct array in, grad_out, weight, grad_in, grad_weight, grad_bias, mean, rstd;
};

static struct norm_grad norm_grad_new(size_t at_shape, enum mics_dtype dtype,
                                      enum mics_dtype grad_dtype)
{
    const uint32_t rows = shapes[at_shape].rows, C = shapes[at_shape].C;
    const unsigned shift = shapes[at_shape].shift;
    const size_t count = (size_t)rows * C;
    struct norm_grad n = {
        .in = array_random(dtype, count, 3, 1, shift),
        .grad_out = array_random(dtype, count, 1, 2, shift),
        .weight = array_random(dtype, C, 2, 3, shift),
        .grad_in = array_random(dtype, count, 1, 4, shift),
        .grad_weight = array_random(grad_dtype, C, 1, 5, shift),
        .grad_bias = array_random(grad_dtype, C, 1, 6, shift),
        .mean = array_random(MICS_F32, rows, 0.1f, 7, 0),
        .rstd = array_random(MICS_F32, rows, 0.5f, 8, 0),
    };

    return n;
}

static void norm_grad_free(struct norm_grad *n)
{
    ARRAYS_FREE(&n->in, &n->grad_out, &n->weight, &n->grad_in, &n->grad_weight, &n->grad_bias,
                &n->mean, &n->rstd);
}

static void layernorms_gradients_agree(void)
{
    for (size_t s = 0; s < LENGTH(shapes); s++)
        for (size_t d = 0; d < (shapes[s].C > 5000 ? 1 : 4); d++) {
            const uint32_t rows = shapes[s].rows, C = shapes[s].C;
            const enum mics_dtype dtype = dtypes[d / 2], grad_dtype = dtypes[d % 2];
            struct norm_grad n = norm_grad_new(s, dtype, grad_dtype);
            const struct mics_args_layernorm_grad args = {n.grad_in.device,
                                                          n.grad_weight.device,
                                                          n.grad_bias.device,
                                                          n.grad_out.device,
                                                          n.in.device,
                                                          n.weight.device,
                                                          n.mean.device,
                                                          n.rstd.device,
                                                          rows,
                                                          C,
                                                          dtype,
                                                          grad_dtype};

            few_multiprocessors(s % 2);
            RUN(layernorm_grad, &args, &n.grad_in, &n.grad_weight, &n.grad_bias);
            mics_host_layernorm_grad(pool, &(struct mics_args_layernorm_grad){
                                               n.grad_in.values, n.grad_weight.values,
                                               n.grad_bias.values, n.grad_out.values, n.in.values,
                                               n.weight.values, n.mean.values, n.rstd.values, rows,
                                               C, MICS_F32, MICS_F32});
            CHECK_ARRAY(&n.grad_in, n.grad_in.values, 4e-6);
            CHECK_ARRAY(&n.grad_weight, n.grad_weight.values, 2e-5);
            CHECK_ARRAY(&n.grad_bias, n.grad_bias.values, 2e-5);
            norm_grad_free(&n);
        }
}

static void rmsnorms_gradients_agree(void)
{
    for (size_t s = 0; s < LENGTH(shapes); s++)
        for (size_t d = 0; d < (shapes[s].C > 5000 ? 1 : 4); d++) {
            const uint32_t rows = shapes[s].rows, C = shapes[s].C;
            const enum mics_dtype dtype = dtypes[d / 2], grad_dtype = dtypes[d % 2];
            struct norm_grad n = norm_grad_new(s, dtype, grad_dtype);
            const struct mics_args_rmsnorm_grad args = {n.grad_in.device,
                                                        n.grad_weight.device,
                                                        n.grad_out.device,
                                                        n.in.device,
                                                        n.weight.device,
                                                        n.rstd.device,
                                                        rows,
                                                        C,
                                                        dtype,
                                                        grad_dtype};

            few_multiprocessors(s % 2);
            RUN(rmsnorm_grad, &args, &n.grad_in, &n.grad_weight);
            mics_host_rmsnorm_grad(pool, &(struct mics_args_rmsnorm_grad){
                                             n.grad_in.values, n.grad_weight.values,
                                             n.grad_out.values, n.in.values, n.weight.values,
                                             n.rstd.values, rows, C, MICS_F32, MICS_F32});
            CHECK_ARRAY(&n.grad_in, n.grad_in.values, 4e-6);
            CHECK_ARRAY(&n.grad_weight, n.grad_weight.values, 2e-5);
            norm_grad_free(&n);
        }
}

/* One row of sums would fill the workspace. */
static void rows_that_are_too_long_for_sums_are_refused(void)
{
    const struct mics_args_layernorm_grad args = {
        .rows = 1, .C = MICS_CUDA_WORKSPACE_BYTES / 8 + 8, .grad_bias = &at, .dtype = MICS_BF16};
    const struct mics_args_rmsnorm_grad grad = {
        .rows = 1, .C = MICS_CUDA_WORKSPACE_BYTES / 4 + 1, .dtype = MICS_F32};

    CHECK_INT(mics_cuda_layernorm_grad(&at, &args), cudaErrorInvalidValue);
    CHECK_INT(mics_cuda_rmsnorm_grad(&at, &grad), cudaErrorInvalidValue);
}

static void sums_of_columns_agree(void)
{
    for (size_t s = 0; s < LENGTH(shapes); s++)
        for (size_t d = 0; d < (shapes[s].C > 5000 ? 1 : 4); d++) {
            const uint32_t rows = shapes[s].rows, n = shapes[s].C;
            const enum mics_dtype dtype = dtypes[d / 2], grad_dtype = dtypes[d % 2];
            struct array from = array_random(dtype, (size_t)rows * n, 1, 1, shapes[s].shift);
            struct array sum = array_random(grad_dtype, n, 1, 2, 0);

            few_multiprocessors(s % 2);
            RUN(bias_grad,
                (&(struct mics_args_bias_grad){sum.device, from.device, rows, n, dtype,
                                               grad_dtype}),
                &sum);
            mics_host_bias_grad(pool, &(struct mics_args_bias_grad){sum.values, from.values, rows,
                                                                    n, MICS_F32, MICS_F32});
            CHECK_ARRAY(&sum, sum.values, 2e-5);
            ARRAYS_FREE(&from, &sum);
        }
}

static void gated_units_agree(void)
{
    for (size_t s = 0; s < LENGTH(shapes); s++)
        for (size_t d = 0; d < LENGTH(dtypes); d++) {
            const uint32_t rows = shapes[s].rows, F = shapes[s].C;
            const size_t count = (size_t)rows * F;
            struct array in = array_random(dtypes[d], 2 * count, 6, 1, shapes[s].shift);
            struct array grad = array_random(dtypes[d], count, 1, 2, shapes[s].shift);
            struct array out = array_output(dtypes[d], count, shapes[s].shift);
            struct array grad_in = array_output(dtypes[d], 2 * count, shapes[s].shift);
            struct mics_args_swiglu args = {out.device, in.device, rows, F, dtypes[d]};
            struct mics_args_swiglu_grad slope = {grad_in.device, in.device, grad.device,
                                                  rows,           F,         dtypes[d]};

            RUN(swiglu, &args, &out);
            RUN(swiglu_grad, &slope, &grad_in);
            mics_host_swiglu(pool,
                             &(struct mics_args_swiglu){out.values, in.values, rows, F, MICS_F32});
            mics_host_swiglu_grad(pool,
                                  &(struct mics_args_swiglu_grad){grad_in.values, in.values,
                                                                  grad.values, rows, F, MICS_F32});
            CHECK_ARRAY(&out, out.values, 2e-6);
            CHECK_ARRAY(&grad_in, grad_in.values, 4e-6);
            slope.grad_in = in.device;
            RUN(swiglu_grad, &slope, &in); /* in place */
            CHECK(memcmp(in.got, grad_in.got, array_bytes(&in)) == 0);
            ARRAYS_FREE(&in, &grad, &out, &grad_in);
        }
}

static void norms_of_heads_and_their_gradients_agree(void)
{
    static const struct {
        uint32_t rows, H, H_kv, D, D_kv;
    } cases[] = {{0, 1, 1, 8, 8},      {1, 1, 1, 1, 1},      {33, 3, 1, 64, 64},
                 {5, 4, 2, 128, 128},  {700, 2, 1, 7, 7},    {2, 2, 2, 256, 256},
                 {9, 5, 5, 33, 33},    {3, 64, 8, 96, 96},   {700, 1, 1, 2048, 2048},
                 {3, 1, 1, 2048, 512}, {2, 1, 1, 257, 1},    {0, 1, 1, 300, 300},
                 {5, 2, 3, 6, 10},     {2, 1, 1, 8192, 8192}};

    for (size_t c = 0; c < LENGTH(cases); c++)
        for (size_t d = 0; d < 2 * LENGTH(dtypes); d++) {
            const enum mics_dtype dtype = dtypes[d / 2], grad_dtype = d % 2 ? dtype : MICS_F32;
            const uint32_t rows = cases[c].rows, H = cases[c].H, H_kv = cases[c].H_kv;
            const uint32_t D = cases[c].D, D_kv = cases[c].D_kv;
            const size_t count = (size_t)rows * (H * D + 2 * H_kv * D_kv);
            struct array in = array_random(dtype, count, 3, 1, 0);
            struct array grad = array_random(dtype, count, 1, 2, 0);
            struct array q = array_random(dtype, D, 2, 3, 0);
            struct array k = array_random(dtype, D_kv, 2, 4, 0);
            struct array grad_q = array_random(grad_dtype, D, 1, 5, 0);
            struct array grad_k = array_random(grad_dtype, D_kv, 1, 6, 0);
            struct array out = array_output(dtype, count, 0);
            struct array rstd = array_output(MICS_F32, (size_t)rows * (H + H_kv), 0);
            struct mics_args_qk_norm args = {out.device, rstd.device, in.device, q.device,
                                             k.device,   rows,        H,         H_kv,
                                             D,          D_kv,        1e-5f,     dtype};
            struct mics_args_qk_norm_grad slope = {
                grad.device, grad_q.device, grad_k.device, in.device, q.device,
                k.device,    rstd.device,   rows,          H,         H_kv,
                D,           D_kv,          dtype,         grad_dtype};

            RUN(qk_norm, &args, &out, &rstd);
            RUN(qk_norm_grad, &slope, &grad, &grad_q, &grad_k);
            args = (struct mics_args_qk_norm){out.values, rstd.values, in.values, q.values,
                                              k.values,   rows,        H,         H_kv,
                                              D,          D_kv,        1e-5f,     MICS_F32};
            mics_host_qk_norm(pool, &args);
            slope = (struct mics_args_qk_norm_grad){
                grad.values, grad_q.values, grad_k.values, in.values, q.values,
                k.values,    rstd.values,   rows,          H,         H_kv,
                D,           D_kv,          MICS_F32,      MICS_F32};
            mics_host_qk_norm_grad(pool, &slope);
            CHECK_ARRAY(&out, out.values, 4e-6);
            CHECK_ARRAY(&rstd, rstd.values, 4e-6);
            CHECK_ARRAY(&grad, grad.values, 1e-5);
            CHECK_ARRAY(&grad_q, grad_q.values, 2e-5);
            CHECK_ARRAY(&grad_k, grad_k.values, 2e-5);
            ARRAYS_FREE(&in, &grad, &q, &k, &grad_q, &grad_k, &out, &rstd);
        }
}

static void rotary_positions_agree_and_turn_back(void)
{
    const struct {
        uint32_t B, T, heads, D, stride;
    } cases[] = {{0, 3, 1, 2, 2},  {1, 1, 1, 2, 2},     {2, 33, 3, 64, 192},  {1, 32, 5, 128, 1024},
                 {3, 7, 2, 6, 31}, {1, 3, 2, 256, 512}, {2, 4097, 1, 16, 16}, {1, 31, 4, 34, 140}};
    static const struct mics_rope_scaling scalings[] = {
        {.kind = MICS_ROPE_PLAIN},
        {.kind = MICS_ROPE_LLAMA3,
         .original_positions = 512,
         .factor = 8,
         .low_freq_factor = 1,
         .high_freq_factor = 4},
        {.kind = MICS_ROPE_LINEAR, .factor = 3},
    };

    for (size_t c = 0; c < LENGTH(cases); c++)
        for (size_t d = 0; d < 2 * LENGTH(dtypes); d++) {
            const enum mics_dtype dtype = dtypes[d / 2];
            const size_t count = (size_t)cases[c].B * cases[c].T * cases[c].stride;
            struct array data = array_random(dtype, count, 2, c + 1, 0);
            struct mics_args_rope args = {data.device, cases[c].B,      cases[c].T, cases[c].heads,
                                          cases[c].D,  cases[c].stride, 10000,      d % 2,
                                          dtype,       scalings[c % 3]};

            RUN(rope, &args, &data);
            args.data = data.values;
            args.dtype = MICS_F32;
            mics_host_rope(pool, &args);
            CHECK_ARRAY(&data, data.values, 4e-6);
            array_free(&data);
        }
}

static void odd_and_too_wide_heads_are_refused(void)
{
    struct mics_args_rope args = {.B = 1, .T = 1, .heads = 1, .D = 3, .stride = 3, .base = 10000};

    CHECK_INT(mics_cuda_rope(&at, &args), cudaErrorInvalidValue);
    args.D = args.stride = 258;
    CHECK_INT(mics_cuda_rope(&at, &args), cudaErrorInvalidValue);
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
