/* SPDX-License-Identifier: Apache-2.0 */
/* The norms of heads on the host against plain loops in double precision, and with any number of
 * threads. */
#include "host/vector.h"
#include "kernel_cases.h"
#include "kernels.h"
#include "tap.h"

#include <math.h>

#define EPS 1e-5

struct heads {
    struct head_case dims;
    size_t count, normed; /* elements in all; of queries and keys in a row */
    float *in, *grad, *q, *k, *grad_q, *grad_k, *out, *rstd;
    double *want_out, *want_grad, *want_q, *want_k;
};

/* out = x w / rms; the gradient of x is rstd (g w - x' mean(g w x')), that of w is the sum of g
 * x'. */
static void reference_head(struct heads *t, size_t at, uint32_t D, const float *weight,
                           double *want_weight)
{
    double square = 0, mean = 0;

    for (uint32_t c = 0; c < D; c++)
        square += (double)t->in[at + c] * t->in[at + c] / D;
    const double rstd = 1 / sqrt(square + EPS);
    for (uint32_t c = 0; c < D; c++)
        mean += (double)t->grad[at + c] * weight[c] * t->in[at + c] * rstd / D;
    for (uint32_t c = 0; c < D; c++) {
        const double x = t->in[at + c] * rstd;

        t->want_out[at + c] = x * weight[c];
        t->want_grad[at + c] = rstd * ((double)t->grad[at + c] * weight[c] - x * mean);
        want_weight[c] += t->grad[at + c] * x;
    }
}

/* Numbers that bf16 holds, so that both types have the same reference. */
static float *random_halves(size_t count, uint64_t seed)
{
    float *out = random_floats(count, seed);

    for (size_t i = 0; i < count; i++)
        out[i] = mics_bf16_widen(mics_bf16_round(out[i]));
    return out;
}

static struct heads heads_new(struct head_case dims)
{
    const size_t width = (size_t)dims.H * dims.D + 2 * (size_t)dims.H_kv * dims.D_kv;
    struct heads t = {.dims = dims, .count = dims.rows * width, .normed = dims.H + dims.H_kv};

    t.in = random_halves(t.count, 1);
    t.grad = random_halves(t.count, 2);
    t.q = random_halves(dims.D, 3);
    t.k = random_halves(dims.D_kv, 4);
    t.grad_q = random_halves(dims.D, 5);
    t.grad_k = random_halves(dims.D_kv, 6);
    t.out = random_floats(t.count, 7);
    t.rstd = random_floats(dims.rows * t.normed, 8);
    t.want_out = zero_doubles(t.count);
    t.want_grad = zero_doubles(t.count);
    t.want_q = zero_doubles(dims.D);
    t.want_k = zero_doubles(dims.D_kv);
    for (uint32_t c = 0; c < dims.D; c++)
        t.want_q[c] = t.grad_q[c];
    for (uint32_t c = 0; c < dims.D_kv; c++)
        t.want_k[c] = t.grad_k[c];
    for (size_t i = 0; i < t.count; i++) { /* values stay */
        t.want_out[i] = t.in[i];
        t.want_grad[i] = t.grad[i];
    }
    for (size_t row = 0; row < dims.rows; row++) {
        for (uint32_t h = 0; h < dims.H; h++)
            reference_head(&t, row * width + h * dims.D, dims.D, t.q, t.want_q);
        for (uint32_t h = 0; h < dims.H_kv; h++)
            reference_head(&t, row * width + dims.H * dims.D + h * dims.D_kv, dims.D_kv, t.k,
                           t.want_k);
    }
    return t;
}

static void heads_free(struct heads *t)
{
    free(t->in);
    free(t->grad);
    free(t->q);
    free(t->k);
    free(t->grad_q);
    free(t->grad_k);
    free(t->out);
    free(t->rstd);
    free(t->want_out);
    free(t->want_grad);
    free(t->want_q);
    free(t->want_k);
}

/* An array as `dtype`, in new memory, and back. */
static void *narrow(const float *from, size_t count, enum mics_dtype dtype)
{
    void *out = malloc((count + 1) * sizeof(float));

    for (size_t i = 0; i < count; i++)
        mics_store_as(out, i, from[i], dtype);
    return out;
}

static void widen(void *from, float *to, size_t count, enum mics_dtype dtype)
{
    for (size_t i = 0; i < count; i++)
        to[i] = mics_load_as(from, i, dtype);
    free(from);
}

static void run(struct heads *t, enum mics_dtype dtype, struct mics_pool *pool)
{
    const struct head_case dims = t->dims;
    void *in = narrow(t->in, t->count, dtype), *out = narrow(t->out, t->count, dtype);
    void *grad = narrow(t->grad, t->count, dtype), *q = narrow(t->q, dims.D, dtype);
    void *k = narrow(t->k, dims.D_kv, dtype), *grad_q = narrow(t->grad_q, dims.D, dtype);
    void *grad_k = narrow(t->grad_k, dims.D_kv, dtype);

    mics_host_qk_norm(pool,
                      &(struct mics_args_qk_norm){out, t->rstd, in, q, k, dims.rows, dims.H,
                                                  dims.H_kv, dims.D, dims.D_kv, (float)EPS, dtype});
    mics_host_qk_norm_grad(
        pool, &(struct mics_args_qk_norm_grad){grad, grad_q, grad_k, in, q, k, t->rstd, dims.rows,
                                               dims.H, dims.H_kv, dims.D, dims.D_kv, dtype, dtype});
    widen(out, t->out, t->count, dtype);
    widen(grad, t->grad, t->count, dtype);
    widen(grad_q, t->grad_q, dims.D, dtype);
    widen(grad_k, t->grad_k, dims.D_kv, dtype);
    free(in);
    free(q);
    free(k);
}

static void check(struct head_case dims, enum mics_dtype dtype, double tolerance)
{
    struct heads first = heads_new(dims);

    run(&first, dtype, pools[0]);
    CHECK_CLOSE(first.out, first.want_out, first.count, tolerance);
    CHECK_CLOSE(first.grad, first.want_grad, first.count, 2 * tolerance);
    CHECK_CLOSE(first.grad_q, first.want_q, dims.D, 2 * tolerance);
    CHECK_CLOSE(first.grad_k, first.want_k, dims.D_kv, 2 * tolerance);
    for (unsigned i = 1; i < POOLS; i++) {
        struct heads t = heads_new(dims);

        run(&t, dtype, pools[i]);
        CHECK_SAME_BITS(t.out, first.out, t.count);
        CHECK_SAME_BITS(t.grad, first.grad, t.count);
        CHECK_SAME_BITS(t.grad_q, first.grad_q, dims.D);
        CHECK_SAME_BITS(t.grad_k, first.grad_k, dims.D_kv);
        heads_free(&t);
    }
    heads_free(&first);
}

static void norms_of_heads_and_their_gradients_agree_with_plain_loops(void)
{
    for (size_t i = 0; i < LENGTH(head_cases); i++)
        check(head_cases[i], MICS_F32, 1e-5);
}

static void in_bf16_they_are_off_by_one_rounding(void)
{
    for (size_t i = 0; i < LENGTH(head_cases); i++)
        check(head_cases[i], MICS_BF16, 1.0 / 256);
}

int main(void)
{
    open_pools();
    TAP_RUN(norms_of_heads_and_their_gradients_agree_with_plain_loops);
    TAP_RUN(in_bf16_they_are_off_by_one_rounding);
    return close_pools();
}
