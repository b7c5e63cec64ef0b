/* SPDX-License-Identifier: Apache-2.0 */
/* Products of few rows and attention over cached rows, against the operations of training. */
#include "tap.h"

#include "host/decode.h"
#include "host/kernels.h"

#include <stdlib.h>

static float *numbers(size_t count, uint32_t seed)
{
    float *made = malloc(count * sizeof *made);

    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        made[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
    return made;
}

static void check_close(const float *got, const float *want, size_t count, double tolerance)
{
    double worst = 0;

    for (size_t i = 0; i < count; i++)
        worst = fmax(worst, fabs((double)got[i] - want[i]));
    CHECK(worst <= tolerance);
}

static void check_product(struct mics_pool *pool, uint32_t m, uint32_t n, uint32_t k)
{
    float *a = numbers((size_t)m * k, 1), *b = numbers((size_t)n * k, 2), *bias = numbers(n, 3);
    float *add = numbers((size_t)m * n, 4), *got = numbers((size_t)m * n, 5);
    float *want = numbers((size_t)m * n, 6);
    struct mics_args_matmul args = {.out = got,
                                    .a = a,
                                    .b = b,
                                    .bias = bias,
                                    .add = add,
                                    .m = m,
                                    .n = n,
                                    .k = k,
                                    .lda = k,
                                    .ldb = k,
                                    .ldout = n,
                                    .trans_b = true};

    mics_host_skinny_matmul(pool, &args);
    args.out = want;
    mics_host_matmul(pool, &args);
    check_close(got, want, (size_t)m * n, 1e-6 * (k + 8));
    /* One row alone gives the same bits. */
    args.out = want;
    args.a = a + (size_t)(m - 1) * k;
    args.add = add + (size_t)(m - 1) * n;
    args.m = 1;
    mics_host_skinny_matmul(pool, &args);
    CHECK(memcmp(want, got + (size_t)(m - 1) * n, n * sizeof *got) == 0);
    free(a);
    free(b);
    free(bias);
    free(add);
    free(got);
    free(want);
}

static void products_of_few_rows_are_those_of_many(void)
{
    struct mics_pool *pool = mics_pool_new(3);

    for (uint32_t m = 1; m <= MICS_SKINNY_ROWS; m += 3) {
        check_product(pool, m, 1, 1);
        check_product(pool, m, 70, 33);
        check_product(pool, m, 513, 96);
        check_product(pool, m, 300, 771);
    }
    mics_pool_free(pool);
}

/* T rows, with the keys and values of all in the cache: row t sees t + 1 of them. */
static void check_attention(struct mics_pool *pool, uint32_t T, uint32_t H, uint32_t H_kv,
                            uint32_t D)
{
    const uint32_t W = (H + 2 * H_kv) * D, width = H_kv * D;
    float *qkv = numbers((size_t)T * W, 7), *keys = numbers((size_t)T * width, 8);
    float *values = numbers((size_t)T * width, 9), *lse = numbers((size_t)T * H, 10);
    float *got = numbers((size_t)T * H * D, 11), *want = numbers((size_t)T * H * D, 12);
    struct mics_kv_cache_rows *cached = calloc(T, sizeof *cached);

    for (uint32_t t = 0; t < T; t++) {
        memcpy(keys + t * width, qkv + (size_t)t * W + H * D, width * sizeof *keys);
        memcpy(values + t * width, qkv + (size_t)t * W + H * D + width, width * sizeof *keys);
        cached[t] = (struct mics_kv_cache_rows){keys, values, t + 1};
    }
    mics_host_kv_cache_attention(
        pool,
        &(struct mics_kv_cache_attention){
            .out = got, .qkv = qkv, .cached = cached, .rows = T, .H = H, .H_kv = H_kv, .D = D});
    mics_host_attention(pool, &(struct mics_args_attention){.out = want,
                                                            .lse = lse,
                                                            .qkv = qkv,
                                                            .B = 1,
                                                            .T = T,
                                                            .H = H,
                                                            .H_kv = H_kv,
                                                            .D = D,
                                                            .causal = true});
    check_close(got, want, (size_t)T * H * D, 2e-6);
    free(qkv);
    free(keys);
    free(values);
    free(lse);
    free(got);
    free(want);
    free(cached);
}

static void attention_over_cached_rows_is_causal_attention(void)
{
    struct mics_pool *pool = mics_pool_new(2);

    check_attention(pool, 1, 1, 1, 2);
    check_attention(pool, 300, 4, 4, 64);
    check_attention(pool, 129, 6, 2, 20);
    check_attention(pool, 140, 4, 1, 256);
    mics_pool_free(pool);
}

static void rows_are_rotated_to_the_positions_that_they_are_given(void)
{
    enum { T = 70, HEADS = 3, D = 24, STRIDE = HEADS * D + 8 };
    struct mics_pool *pool = mics_pool_new(2);
    float *got = numbers((size_t)T * STRIDE, 13), *want = numbers((size_t)T * STRIDE, 13);
    uint32_t positions[T];
    struct mics_args_rope args = {
        .data = got, .B = 1, .T = T, .heads = HEADS, .D = D, .stride = STRIDE, .base = 10000.0f};

    for (uint32_t t = 0; t < T; t++) {
        positions[t] = t * 11 % T;
        memcpy(got + (size_t)t * STRIDE, want + (size_t)positions[t] * STRIDE,
               STRIDE * sizeof *got);
    }
    mics_host_rope_at(pool, &args, positions);
    args.data = want;
    mics_host_rope(pool, &args);
    for (uint32_t t = 0; t < T; t++)
        CHECK(memcmp(got + (size_t)t * STRIDE, want + (size_t)positions[t] * STRIDE,
                     STRIDE * sizeof *got) == 0);
    free(got);
    free(want);
    mics_pool_free(pool);
}

int main(void)
{
    TAP_RUN(products_of_few_rows_are_those_of_many);
    TAP_RUN(attention_over_cached_rows_is_causal_attention);
    TAP_RUN(rows_are_rotated_to_the_positions_that_they_are_given);
    return tap_done();
}
