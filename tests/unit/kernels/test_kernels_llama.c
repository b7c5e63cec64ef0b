/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that only Llama has, root mean square norms, SwiGLU and rotary positions, in both
 * types. */
#include "host/pool.h"
#include "host/vector.h"
#include "kernel_cases.h"
#include "kernels.h"
#include "rope.h"

#define EPS 1e-5

/* Half a unit in the last place of a bf16, relative: what storing a result costs. */
#define BF16_HALF 0.00390625

/* An array of either type, and the same numbers in fp32: what a reference reads. */
struct array {
    void *data;
    float *wide;
    size_t count;
    enum mics_dtype dtype;
};

static void narrow(struct array *array)
{
    for (size_t i = 0; i < array->count; i++) {
        mics_store_as(array->data, i, array->wide[i], array->dtype);
        array->wide[i] = mics_load_as(array->data, i, array->dtype);
    }
}

static struct array make_array(size_t count, uint64_t seed, enum mics_dtype dtype)
{
    struct array array = {.data = malloc((count + 1) * mics_dtype_bytes(dtype)),
                          .wide = random_floats(count, seed),
                          .count = count,
                          .dtype = dtype};

    if (!array.data)
        abort();
    narrow(&array);
    return array;
}

/* Bring `wide` up to date with what a kernel wrote. */
static const float *widen(struct array *array)
{
    for (size_t i = 0; i < array->count; i++)
        array->wide[i] = mics_load_as(array->data, i, array->dtype);
    return array->wide;
}

static void free_array(struct array *array)
{
    free(array->data);
    free(array->wide);
}

/* The largest error beyond the type's own rounding. */
#define CHECK_ARRAY(got, want, tolerance)                                                          \
    CHECK_CLOSE(widen(got), want, (got)->count,                                                    \
                (got)->dtype == MICS_BF16 ? 1.05 * BF16_HALF + (tolerance) : (tolerance))

struct norm {
    struct array in, weight, grad, out, grad_in, grad_weight;
    float *rstd;
    double *want_out, *want_in, *want_weight;
};

/* One row in double: out, and the gradient of sum(grad * out) by in and weight. */
static void reference_row(struct norm *t, uint32_t C, size_t at)
{
    const float *in = t->in.wide + at, *grad = t->grad.wide + at, *weight = t->weight.wide;
    double square = 0, along = 0, rstd;

    for (uint32_t c = 0; c < C; c++)
        square += (double)in[c] * in[c] / C;
    rstd = 1 / sqrt(square + EPS);
    for (uint32_t c = 0; c < C; c++) {
        t->want_out[at + c] = in[c] * rstd * weight[c];
        t->want_weight[c] += grad[c] * in[c] * rstd;
        along += grad[c] * weight[c] * in[c] * rstd / C;
    }
    for (uint32_t c = 0; c < C; c++)
        t->want_in[at + c] += rstd * (grad[c] * weight[c] - in[c] * rstd * along);
}

static struct norm make_norm(uint32_t rows, uint32_t C, enum mics_dtype dtype,
                             enum mics_dtype grad_dtype)
{
    const size_t count = (size_t)rows * C;
    struct norm t = {make_array(count, 1, dtype), make_array(C, 2, dtype),
                     make_array(count, 3, dtype), make_array(count, 4, dtype),
                     make_array(count, 5, dtype), make_array(C, 6, grad_dtype),
                     random_floats(rows, 7),      zero_doubles(count),
                     zero_doubles(count),         zero_doubles(C)};

    for (size_t i = 0; i < count; i++)
        t.want_in[i] = t.grad_in.wide[i];
    for (uint32_t c = 0; c < C; c++)
        t.want_weight[c] = t.grad_weight.wide[c];
    for (size_t at = 0; at < count; at += C)
        reference_row(&t, C, at);
    return t;
}

static void free_norm(struct norm *t)
{
    struct array *arrays[] = {&t->in, &t->weight, &t->grad, &t->out, &t->grad_in, &t->grad_weight};

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free_array(arrays[i]);
    free(t->rstd);
    free(t->want_out);
    free(t->want_in);
    free(t->want_weight);
}

static void run_norm(struct norm *t, uint32_t rows, uint32_t C, struct mics_pool *pool)
{
    mics_host_rmsnorm(pool, &(struct mics_args_rmsnorm){.out = t->out.data,
                                                        .rstd = t->rstd,
                                                        .in = t->in.data,
                                                        .weight = t->weight.data,
                                                        .rows = rows,
                                                        .C = C,
                                                        .eps = (float)EPS,
                                                        .dtype = t->in.dtype});
    mics_host_rmsnorm_grad(pool,
                           &(struct mics_args_rmsnorm_grad){.grad_in = t->grad_in.data,
                                                            .grad_weight = t->grad_weight.data,
                                                            .grad_out = t->grad.data,
                                                            .in = t->in.data,
                                                            .weight = t->weight.data,
                                                            .rstd = t->rstd,
                                                            .rows = rows,
                                                            .C = C,
                                                            .dtype = t->in.dtype,
                                                            .grad_dtype = t->grad_weight.dtype});
}

static void check_norm(uint32_t rows, uint32_t C, enum mics_dtype dtype, enum mics_dtype grad_dtype)
{
    struct norm first = make_norm(rows, C, dtype, grad_dtype);

    run_norm(&first, rows, C, pools[0]);
    CHECK_ARRAY(&first.out, first.want_out, 1e-5);
    CHECK_ARRAY(&first.grad_in, first.want_in, 2e-5);
    CHECK_ARRAY(&first.grad_weight, first.want_weight, 2e-5);
    for (unsigned i = 1; i < POOLS; i++) {
        struct norm t = make_norm(rows, C, dtype, grad_dtype);

        run_norm(&t, rows, C, pools[i]);
        CHECK_SAME_BITS(widen(&t.out), first.out.wide, t.out.count);
        CHECK_SAME_BITS(widen(&t.grad_in), first.grad_in.wide, t.out.count);
        CHECK_SAME_BITS(widen(&t.grad_weight), first.grad_weight.wide, C);
        free_norm(&t);
    }
    free_norm(&first);
}

static void rmsnorm_and_its_gradient_agree_with_plain_loops(void)
{
    for (size_t i = 0; i < LENGTH(edge_sizes); i++)
        for (size_t j = 0; j < LENGTH(edge_sizes); j++)
            check_norm(edge_sizes[i], edge_sizes[j], MICS_F32, MICS_F32);
    for (size_t i = 0; i < LENGTH(row_cases); i++)
        check_norm(row_cases[i].rows, row_cases[i].C, MICS_F32, MICS_F32);
}

static void rmsnorm_in_bf16_is_off_by_one_rounding(void)
{
    for (size_t i = 0; i < LENGTH(edge_sizes); i++)
        for (size_t j = 0; j < LENGTH(edge_sizes); j++) {
            check_norm(edge_sizes[i], edge_sizes[j], MICS_BF16, MICS_F32);
            check_norm(edge_sizes[i], edge_sizes[j], MICS_BF16, MICS_BF16);
        }
    for (size_t i = 0; i < LENGTH(row_cases); i++)
        check_norm(row_cases[i].rows, row_cases[i].C, MICS_BF16, MICS_BF16);
}

/* d(sum of grad * out) / d(one input), by the reference's own outputs. */
static void rmsnorms_reference_agrees_with_differences(void)
{
    enum { C = 7 };

    for (uint32_t i = 0; i < C; i++) {
        struct norm t = make_norm(1, C, MICS_F32, MICS_F32);
        const double want = t.want_in[i] - t.grad_in.wide[i], kept = t.in.wide[i];
        double sums[2] = {0, 0}, at[2];

        for (int side = 0; side < 2; side++) {
            t.in.wide[i] = (float)(kept + (side ? 1.0 : -1.0) / 512);
            at[side] = t.in.wide[i];
            reference_row(&t, C, 0);
            for (uint32_t c = 0; c < C; c++)
                sums[side] += t.grad.wide[c] * t.want_out[c];
        }
        CHECK_NEAR((sums[1] - sums[0]) / (at[1] - at[0]), want, 1e-4);
        free_norm(&t);
    }
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double silu_slope(double x)
{
    const double s = 1 / (1 + exp(-x));

    return s + x * s * (1 - s);
}

/* The gradient is written to a separate array, or over the input. */
static void check_swiglu(uint32_t rows, uint32_t F, enum mics_dtype dtype, bool in_place)
{
    const size_t count = (size_t)rows * F;
    struct array in = make_array(2 * count, 11, dtype), grad = make_array(count, 12, dtype);
    struct array out = make_array(count, 13, dtype), grad_in = make_array(2 * count, 14, dtype);
    double *want = zero_doubles(count), *want_grad = zero_doubles(2 * count);

    for (size_t i = 0; i < 2 * count; i++)
        in.wide[i] *= 9;
    narrow(&in);
    for (size_t i = 0; i < count; i++) {
        const size_t gate_at = i / F * 2 * F + i % F, up_at = gate_at + F;
        const double gate = in.wide[gate_at], up = in.wide[up_at], g = grad.wide[i];

        want[i] = silu(gate) * up;
        want_grad[gate_at] = g * up * silu_slope(gate);
        want_grad[up_at] = g * silu(gate);
    }
    struct array *to = in_place ? &in : &grad_in;

    mics_host_swiglu(pools[rows % POOLS],
                     &(struct mics_args_swiglu){out.data, in.data, rows, F, dtype});
    mics_host_swiglu_grad(pools[rows % POOLS], &(struct mics_args_swiglu_grad){
                                                   to->data, in.data, grad.data, rows, F, dtype});
    CHECK_ARRAY(&out, want, 2e-6);
    CHECK_ARRAY(to, want_grad, 4e-6);
    free_array(&in);
    free_array(&grad);
    free_array(&out);
    free_array(&grad_in);
    free(want);
    free(want_grad);
}

static void swiglu_and_its_gradient_agree_with_their_definition(void)
{
    for (size_t i = 0; i < LENGTH(edge_sizes); i++)
        for (size_t j = 0; j < LENGTH(edge_sizes); j++)
            for (unsigned k = 0; k < 4; k++)
                check_swiglu(edge_sizes[i], edge_sizes[j], k / 2 ? MICS_BF16 : MICS_F32, k % 2);
    for (size_t i = 0; i < LENGTH(row_cases); i++)
        check_swiglu(row_cases[i].rows, row_cases[i].C, MICS_F32, true);
}

static void swiglu_of_large_gates_is_their_product_or_zero(void)
{
    float in[4] = {200, -200, 3, 3}, out[2], grad[2] = {1, 1};

    mics_host_swiglu(pools[0], &(struct mics_args_swiglu){out, in, 1, 2, MICS_F32});
    CHECK(out[0] == 600 && out[1] == 0);
    mics_host_swiglu_grad(pools[0], &(struct mics_args_swiglu_grad){in, in, grad, 1, 2, MICS_F32});
    CHECK(in[0] == 3 && in[1] == 0 && in[2] == 200 && in[3] == 0);
}

static struct mics_args_rope rope_of(const struct rope_case *c, struct array *data, bool inverse)
{
    return (struct mics_args_rope){.data = data->data,
                                   .B = c->B,
                                   .T = c->T,
                                   .heads = c->heads,
                                   .D = c->D,
                                   .stride = c->stride,
                                   .base = c->base,
                                   .inverse = inverse,
                                   .dtype = data->dtype,
                                   .scaling = rope_scalings[c->scaling]};
}

/* By the rotation of complex numbers; the fp32 frequency is part of the definition. */
static double *turned(const struct rope_case *c, const float *data)
{
    double *want = zero_doubles((size_t)c->B * c->T * c->stride);

    for (size_t i = 0; i < (size_t)c->B * c->T * c->stride; i++) {
        const size_t at = i % c->stride, t = i / c->stride % c->T, d = at % c->D;
        const size_t half = c->D / 2, k = d % half;
        const struct mics_args_rope scaled = {
            .D = c->D, .base = c->base, .scaling = rope_scalings[c->scaling]};
        const float frequency = c->scaling ? mics_rope_frequency(&scaled, (uint32_t)k)
                                           : (float)pow((double)c->base, -2.0 * (double)k / c->D);
        const double angle = (float)t * frequency;

        if (at >= (size_t)c->heads * c->D)
            want[i] = data[i];
        else if (d < half)
            want[i] = data[i] * cos(angle) - data[i + half] * sin(angle);
        else
            want[i] = data[i] * cos(angle) + data[i - half] * sin(angle);
    }
    return want;
}

static void rope_rotates_pairs_of_the_first_heads_by_their_position(void)
{
    for (size_t i = 0; i < 2 * LENGTH(rope_cases); i++) {
        const struct rope_case *c = &rope_cases[i / 2];
        const size_t count = (size_t)c->B * c->T * c->stride;
        struct array data = make_array(count, 21, i % 2 ? MICS_BF16 : MICS_F32);
        double *want = turned(c, data.wide);
        const struct mics_args_rope rope = rope_of(c, &data, false);

        mics_host_rope(pools[i % POOLS], &rope);
        CHECK_ARRAY(&data, want, 1e-6);
        free(want);
        free_array(&data);
    }
}

static void rope_backwards_undoes_rope(void)
{
    for (size_t i = 0; i < LENGTH(rope_cases); i++) {
        const struct rope_case *c = &rope_cases[i];
        const size_t count = (size_t)c->B * c->T * c->stride;
        struct array data = make_array(count, 22, MICS_F32),
                     rotated = make_array(count, 22, MICS_F32);
        const struct mics_args_rope there = rope_of(c, &rotated, false),
                                    back = rope_of(c, &rotated, true);

        mics_host_rope(pools[0], &there);
        if (c->T > 1 && count > 0)
            CHECK(memcmp(rotated.data, data.data, count * sizeof(float)) != 0);
        mics_host_rope(pools[2], &back);
        for (size_t at = 0; at < count; at++)
            CHECK_NEAR(((float *)rotated.data)[at], data.wide[at], 1e-6);
        free_array(&data);
        free_array(&rotated);
    }
}

/* The purpose of rotary positions: dot products depend only on distances. */
static void products_of_rotated_vectors_depend_on_their_distance_only(void)
{
    enum { D = 32, T = 40 };
    struct array q = make_array(D, 23, MICS_F32), k = make_array(D, 24, MICS_F32);
    struct array data = make_array(2 * T * D, 25, MICS_F32);
    double products[2] = {0, 0};

    for (size_t t = 0; t < T; t++) {
        memcpy((float *)data.data + 2 * t * D, q.data, D * sizeof(float));
        memcpy((float *)data.data + (2 * t + 1) * D, k.data, D * sizeof(float));
    }
    const struct mics_args_rope rope = rope_of(
        &(struct rope_case){.B = 1, .T = T, .heads = 2, .D = D, .stride = 2 * D, .base = 1e4f},
        &data, false);

    mics_host_rope(pools[1], &rope);
    for (size_t d = 0; d < D; d++)
        for (int i = 0; i < 2; i++)
            products[i] += (double)((float *)data.data)[2 * (i ? 35 : 9) * D + d] *
                           ((float *)data.data)[(2 * (i ? 29 : 3) + 1) * D + d];
    CHECK_NEAR(products[0], products[1], 1e-5);
    free_array(&q);
    free_array(&k);
    free_array(&data);
}

/* Numbers by the three cases of transformers' _compute_llama3_parameters (modeling_rope_utils.py,
 * version 4.45), in double: of Llama 3.1 (head 128, by 8) and of Llama 3.2 (head 64, by 32); and by
 * the definition of a linear scaling. */
static void frequencies_are_scaled_as_llama_3_has_them(void)
{
    static const struct mics_rope_scaling by_8 = {.kind = MICS_ROPE_LLAMA3,
                                                  .original_positions = 8192,
                                                  .factor = 8,
                                                  .low_freq_factor = 1,
                                                  .high_freq_factor = 4};
    static const struct mics_rope_scaling by_32 = {.kind = MICS_ROPE_LLAMA3,
                                                   .original_positions = 8192,
                                                   .factor = 32,
                                                   .low_freq_factor = 1,
                                                   .high_freq_factor = 4};
    static const struct mics_rope_scaling linear = {.kind = MICS_ROPE_LINEAR, .factor = 4};
    static const struct {
        const struct mics_rope_scaling *scaling;
        uint32_t D, i;
        float base;
        double frequency;
    } want[] = {
        {&by_8, 128, 0, 5e5f, 1},
        {&by_8, 128, 28, 5e5f, 3.211445995e-03}, /* as it was */
        {&by_8, 128, 29, 5e5f, 2.166570764e-03}, /* in between */
        {&by_8, 128, 30, 5e5f, 1.371893568e-03},
        {&by_8, 128, 34, 5e5f, 1.785078128e-04},
        {&by_8, 128, 35, 5e5f, 9.556212354e-05}, /* an eighth */
        {&by_8, 128, 63, 5e5f, 3.068925989e-07},
        {&by_32, 64, 14, 5e5f, 3.211445995e-03},
        {&by_32, 64, 15, 5e5f, 1.290547928e-03},
        {&by_32, 64, 17, 5e5f, 9.708287803e-05},
        {&by_32, 64, 18, 5e5f, 1.946163818e-05},
        {&by_32, 64, 31, 5e5f, 9.418306725e-08},
        {&linear, 16, 0, 1e4f, 0.25},
        {&linear, 16, 3, 1e4f, 7.905694150e-03},
        {&linear, 16, 7, 1e4f, 7.905694150e-05},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct mics_args_rope rope = {
            .D = want[i].D, .base = want[i].base, .scaling = *want[i].scaling};

        CHECK_NEAR(mics_rope_frequency(&rope, want[i].i), want[i].frequency,
                   2e-7 * want[i].frequency);
    }
}

/* Numbers of transformers' _compute_yarn_parameters (modeling_rope_utils.py, version 5.24), which
 * has them in fp32. */
static void frequencies_are_scaled_as_yarn_has_them(void)
{
    static const struct {
        struct mics_rope_scaling scaling;
        float frequency[8];
    } want[] = {
        {{.original_positions = 1000, .factor = 4, .beta_fast = 32, .beta_slow = 1, .truncate = 1},
         {1, 0.316227764f, 0.0812500045f, 0.0197642371f, 0.00437500002f, 0.000790569466f,
          0.000250000012f, 7.90569466e-05f}},
        {{.original_positions = 250, .factor = 4, .beta_fast = 32, .beta_slow = 1, .truncate = 1},
         {1, 0.25693506f, 0.0625f, 0.0138349654f, 0.00249999994f, 0.000790569466f, 0.000250000012f,
          7.90569466e-05f}},
        {{.original_positions = 250, .factor = 4, .beta_fast = 16, .beta_slow = 2},
         {1, 0.288820654f, 0.0498090014f, 0.00790569466f, 0.00249999994f, 0.000790569466f,
          0.000250000012f, 7.90569466e-05f}},
        {{.original_positions = 250, .factor = 4, .beta_fast = 32, .beta_slow = 1},
         {1, 0.252349317f, 0.0548854023f, 0.00947764516f, 0.00249999994f, 0.000790569466f,
          0.000250000012f, 7.90569466e-05f}},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct mics_args_rope rope = {.D = 16, .base = 1e4f, .scaling = want[i].scaling};

        rope.scaling.kind = MICS_ROPE_YARN;
        for (uint32_t pair = 0; pair < 8; pair++)
            CHECK_NEAR(mics_rope_frequency(&rope, pair), want[i].frequency[pair],
                       1e-6 * (double)want[i].frequency[pair]);
    }
}

/* Position 1 turns (1, 0) by the frequency itself. */
static void positions_are_rotated_by_the_scaled_frequencies(void)
{
    enum { D = 128 };
    float data[2 * D] = {0};
    struct mics_args_rope rope = {.data = data, .B = 1, .T = 2, .heads = 1, .D = D, .stride = D};

    rope.base = 5e5f;
    rope.scaling = (struct mics_rope_scaling){.kind = MICS_ROPE_LLAMA3,
                                              .original_positions = 8192,
                                              .factor = 8,
                                              .low_freq_factor = 1,
                                              .high_freq_factor = 4};
    for (uint32_t i = 0; i < D / 2; i++)
        data[D + i] = 1;
    mics_host_rope(pools[1], &rope);
    for (uint32_t i = 0; i < D / 2; i++) {
        const double angle = mics_rope_frequency(&rope, i);

        CHECK_NEAR(data[D + i], cos(angle), 1e-7);
        CHECK_NEAR(data[D + D / 2 + i], sin(angle), 1e-7);
    }
}

static void zero_rows_are_allowed(void)
{
    float none = 5;

    mics_host_rmsnorm(pools[0], &(struct mics_args_rmsnorm){.out = &none, .C = 4});
    mics_host_rmsnorm_grad(pools[0], &(struct mics_args_rmsnorm_grad){.grad_in = &none});
    mics_host_swiglu(pools[0], &(struct mics_args_swiglu){.out = &none, .F = 3});
    mics_host_swiglu_grad(pools[0], &(struct mics_args_swiglu_grad){.grad_in = &none, .F = 3});
    mics_host_rope(pools[0], &(struct mics_args_rope){.data = &none, .T = 3, .heads = 2, .D = 2});
    CHECK(none == 5);
}

int main(void)
{
    open_pools();
    TAP_RUN(rmsnorm_and_its_gradient_agree_with_plain_loops);
    TAP_RUN(rmsnorm_in_bf16_is_off_by_one_rounding);
    TAP_RUN(rmsnorms_reference_agrees_with_differences);
    TAP_RUN(swiglu_and_its_gradient_agree_with_their_definition);
    TAP_RUN(swiglu_of_large_gates_is_their_product_or_zero);
    TAP_RUN(rope_rotates_pairs_of_the_first_heads_by_their_position);
    TAP_RUN(rope_backwards_undoes_rope);
    TAP_RUN(products_of_rotated_vectors_depend_on_their_distance_only);
    TAP_RUN(frequencies_are_scaled_as_llama_3_has_them);
    TAP_RUN(frequencies_are_scaled_as_yarn_has_them);
    TAP_RUN(positions_are_rotated_by_the_scaled_frequencies);
    TAP_RUN(zero_rows_are_allowed);
    return close_pools();
}
