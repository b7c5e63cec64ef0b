/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtures of experts against plain loops in double: rows in the order of experts and back,
 * products, the activation. */
#include "host/onednn.h"
#include "host/products.h"
#include "mixture.h"

/* Arrays of either type from random numbers, and the same widened. */
static void *narrowed(float *wide, size_t count, enum mics_dtype dtype)
{
    void *out = array_of_u32(count);

    for (size_t i = 0; i < count; i++) {
        mics_store_as(out, i, wide[i], dtype);
        wide[i] = mics_load_as(out, i, dtype);
    }
    return out;
}

/* The largest error beyond rounding to the type. */
static double array_error(const void *got, const double *want, size_t count, enum mics_dtype dtype)
{
    double worst = 0;

    for (size_t i = 0; i < count; i++) {
        const double x = (double)mics_load_as(got, i, dtype), scale = fmax(1, fabs(want[i]));
        const double error = isnan(x) && isnan(want[i]) ? 0 : fabs(x - want[i]) / scale;

        worst = error <= worst ? worst : isnan(error) ? INFINITY : error;
    }
    return fmax(0, worst - (dtype == MICS_BF16 ? BF16_HALF : 0));
}

static void check_moves(const struct mixture *m, enum mics_dtype dtype)
{
    const uint32_t C = m->is.C, k = m->is.k, rows = m->is.rows;
    const size_t in_count = (size_t)rows * C, count = (size_t)m->N * C;
    float *wide = random_floats(in_count, 6), *wide_sorted = random_floats(count, 7);
    void *in = narrowed(wide, in_count, dtype), *sorted = narrowed(wide_sorted, count, dtype);
    void *out = array_of_u32(count), *sum = array_of_u32(in_count);
    double *want = zero_doubles(count), *want_sum = zero_doubles(in_count);

    for (size_t i = 0; i < count; i++) {
        want[i] = (double)wide[m->order[i / C] / k * C + i % C];
        want_sum[m->order[i / C] / k * C + i % C] += (double)wide_sorted[i];
    }
    mics_host_gather_rows(pools[2],
                          &(struct mics_args_gather_rows){out, in, m->order, rows, k, C, dtype});
    CHECK_NEAR(array_error(out, want, count, dtype), 0, 0);
    struct mics_args_combine_rows args = {sum, sorted, NULL, m->position, rows, k, C, dtype};
    mics_host_combine_rows(pools[2], &args);
    CHECK_NEAR(array_error(sum, want_sum, in_count, dtype), 0, 2e-6);
    for (size_t i = 0; i < in_count; i++)
        want_sum[i] += (double)wide[i];
    args.add = args.out = in;
    mics_host_combine_rows(pools[1], &args);
    CHECK_NEAR(array_error(in, want_sum, in_count, dtype), 0, 2e-6);
    void *all[] = {wide, wide_sorted, in, sorted, out, sum, want, want_sum};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* Of sorted rows times a router's weights, or, where all tokens share one expert, of rows in order
 * times the logistic function of numbers. */
static void check_swiglu(const struct mixture *m, enum mics_dtype dtype, bool shared)
{
    const uint32_t *const order = shared ? NULL : m->order;
    const uint32_t F = m->is.F, N = m->N;
    const size_t count = (size_t)N * F;
    float *wide = random_floats(2 * count, 8), *wide_grad = random_floats(count, 9);
    void *in = narrowed(wide, 2 * count, dtype), *grad = narrowed(wide_grad, count, dtype);
    void *out = array_of_u32(count);
    float *grad_weights = random_floats(N, 1);
    double *want = zero_doubles(count), *want_in = zero_doubles(2 * count);
    double *want_weights = zero_doubles(N);
    float *logits = random_floats(N, 10);
    const float *const weights = shared ? logits : m->weights;

    for (size_t i = 0; i < count; i++) {
        const size_t slot = shared ? i / F : m->order[i / F];
        const double w = shared ? 1 / (1 + exp(-(double)logits[slot])) : 1;
        const size_t gate_at = i / F * 2 * F + i % F;
        const double gate = (double)wide[gate_at], up = (double)wide[gate_at + F];
        const double s = 1 / (1 + exp(-gate)), g = (double)wide_grad[i];
        const double weight = shared ? w : (double)m->weights[slot];

        want[i] = weight * gate * s * up;
        want_in[gate_at] = weight * g * up * s * (1 + gate * (1 - s));
        want_in[gate_at + F] = weight * g * gate * s;
        want_weights[slot] += g * gate * s * up * (shared ? w * (1 - w) : 1);
    }
    mics_host_expert_swiglu(
        pools[2], &(struct mics_args_expert_swiglu){out, in, weights, order, N, F, dtype, shared});
    CHECK_NEAR(array_error(out, want, count, dtype), 0, 2e-6);
    mics_host_expert_swiglu_grad(
        pools[2], &(struct mics_args_expert_swiglu_grad){in, grad_weights, in, grad, weights, order,
                                                         N, F, dtype, shared});
    CHECK_NEAR(array_error(in, want_in, 2 * count, dtype), 0, 2e-6);
    CHECK_CLOSE(grad_weights, want_weights, N, 1e-5);
    void *all[] = {wide,         wide_grad, in,      grad,         out,
                   grad_weights, want,      want_in, want_weights, logits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void rows_are_gathered_activated_and_combined_as_by_plain_loops(void)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_of(&expert_cases[i]);

        check_moves(&m, MICS_F32);
        check_moves(&m, MICS_BF16);
        for (int shared = 0; shared < 2; shared++) {
            check_swiglu(&m, MICS_F32, shared);
            check_swiglu(&m, MICS_BF16, shared);
        }
        free_mixture(&m);
    }
}

/* Rounds -------------------------------------------------------------------------------------- */

enum { ROUND_RANKS = 4, ROUND_EXPERTS = 8, ROUND_ROWS = 30, ROUND_K = 2, ROUND_SLOTS = 10 };
enum { ROUND_N = ROUND_ROWS * ROUND_K, ROUND_Q = ROUND_RANKS * ROUND_SLOTS };

/* What a rank has, and what a round makes of it. */
struct round_rank {
    int32_t experts[ROUND_N];
    uint32_t order[ROUND_N], position[ROUND_N], times_sent[ROUND_N];
    uint32_t row[ROUND_Q], assignment[ROUND_Q], received[ROUND_Q];
    uint32_t received_offsets[ROUND_EXPERTS / ROUND_RANKS + 1], active;
};

/* The experts of each rank's tokens: on rank 0 all are the first two, on rank 1 the last two, so
 * that the rounds have more rows than a buffer. */
static void route_ranks(struct round_rank *ranks, uint32_t *offsets)
{
    for (uint32_t s = 0; s < ROUND_RANKS; s++) {
        const int32_t spread = s < 2 ? 2 : ROUND_EXPERTS;

        for (uint32_t i = 0; i < ROUND_N; i++)
            ranks[s].experts[i] =
                (s == 1 ? ROUND_EXPERTS - 2 : 0) + (int32_t)(i * 7 + i / 5 * s) % spread;
        mics_host_sort_experts(pools[0], &(struct mics_args_sort_experts){
                                             offsets + s * (ROUND_EXPERTS + 1), ranks[s].order,
                                             ranks[s].position, ranks[s].experts, ROUND_ROWS,
                                             ROUND_EXPERTS, ROUND_K, 0});
    }
}

static uint32_t count_sent(struct round_rank *rank)
{
    uint32_t sent = 0;

    for (uint32_t slot = 0; slot < ROUND_Q; slot++) {
        const uint32_t at = rank->assignment[slot];

        CHECK_INT(at == MICS_NO_ROW, rank->row[slot] == MICS_NO_ROW);
        if (at == MICS_NO_ROW)
            continue;
        CHECK_INT(rank->order[rank->row[slot]], at);
        CHECK_INT(rank->experts[at] / (ROUND_EXPERTS / ROUND_RANKS), slot / ROUND_SLOTS);
        rank->times_sent[at]++;
        sent++;
    }
    return sent;
}

/* Rank d lists the slots that the others have filled for it, expert by expert. */
static void check_received(const struct round_rank *ranks, uint32_t d)
{
    const uint32_t experts = ROUND_EXPERTS / ROUND_RANKS;
    const struct round_rank *rank = &ranks[d];
    uint32_t filled = 0;

    for (uint32_t e = 0; e < experts; e++)
        for (uint32_t i = rank->received_offsets[e]; i < rank->received_offsets[e + 1]; i++) {
            const uint32_t slot = rank->received[i], s = slot / ROUND_SLOTS;
            const uint32_t at = ranks[s].assignment[d * ROUND_SLOTS + slot % ROUND_SLOTS];

            CHECK(at != MICS_NO_ROW && ranks[s].experts[at] == (int32_t)(d * experts + e));
            CHECK(i == rank->received_offsets[e] || slot > rank->received[i - 1]);
        }
    for (uint32_t s = 0; s < ROUND_RANKS; s++)
        for (uint32_t i = 0; i < ROUND_SLOTS; i++)
            filled += ranks[s].assignment[d * ROUND_SLOTS + i] != MICS_NO_ROW;
    CHECK_INT(rank->received_offsets[experts], filled);
    for (uint32_t i = filled; i < ROUND_Q; i++)
        CHECK(rank->received[i] == MICS_NO_ROW);
}

static void each_row_travels_to_its_expert_in_one_of_the_rounds(void)
{
    static struct round_rank ranks[ROUND_RANKS];
    uint32_t offsets[ROUND_RANKS * (ROUND_EXPERTS + 1)];
    const uint32_t rounds = ROUND_N / ROUND_SLOTS + 1;

    route_ranks(ranks, offsets);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t sent = 0;

        for (uint32_t s = 0; s < ROUND_RANKS; s++) {
            struct round_rank *r = &ranks[s];

            mics_host_dispatch_round(pools[0],
                                     &(struct mics_args_dispatch_round){
                                         r->row, r->assignment, r->received_offsets, r->received,
                                         &r->active, offsets, r->order, ROUND_RANKS, s,
                                         ROUND_EXPERTS, ROUND_SLOTS, round});
            sent += count_sent(r);
        }
        for (uint32_t d = 0; d < ROUND_RANKS; d++) {
            check_received(ranks, d);
            CHECK_INT(ranks[d].active, sent > 0);
        }
        CHECK_INT(sent > 0, round + 1 < rounds);
    }
    for (uint32_t s = 0; s < ROUND_RANKS; s++)
        for (uint32_t i = 0; i < ROUND_N; i++)
            CHECK_INT(ranks[s].times_sent[i], 1);
}

/* Rows without a place stay as they are. */
static void rows_are_scattered_to_where_they_were_gathered_from(void)
{
    const uint32_t order[] = {2, MICS_NO_ROW, 0, 3};
    const float in[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    float gathered[12] = {0}, back[12] = {0};

    mics_host_gather_rows(pools[2],
                          &(struct mics_args_gather_rows){gathered, in, order, 4, 1, 3, MICS_F32});
    CHECK(gathered[0] == 7 && gathered[3] == 0 && gathered[6] == 1 && gathered[11] == 12);
    mics_host_scatter_rows(pools[2],
                           &(struct mics_args_scatter_rows){back, gathered, order, 4, 3, MICS_F32});
    for (int i = 0; i < 12; i++)
        CHECK(back[i] == (i / 3 == 1 ? 0 : in[i]));
}

/* Products -------------------------------------------------------------------------------------*/

static uint32_t expert_of_row(const struct mixture *m, uint32_t i)
{
    return (uint32_t)m->experts[m->order[i]];
}

/* method < 0: that of mics_host_grouped_matmul(). */
static void multiply(struct mics_pool *pool, const struct mics_args_grouped_matmul *args,
                     int method)
{
    if (method < 0)
        mics_host_grouped_matmul(pool, args);
    else
        mics_host_grouped_matmul_with_method(pool, args, (enum mics_product_method)method);
}

static void multiply_grad(struct mics_pool *pool, const struct mics_args_grouped_matmul_grad *args,
                          int method)
{
    if (method < 0)
        mics_host_grouped_matmul_grad(pool, args);
    else
        mics_host_grouped_matmul_grad_with_method(pool, args, (enum mics_product_method)method);
}

static void check_product(const struct mixture *m, enum mics_dtype dtype, bool trans_b, int method)
{
    const uint32_t N = m->N, n = m->is.F, k = m->is.C, E = m->is.E;
    const uint64_t stride = expert_stride((uint64_t)n * k);
    const size_t count = (size_t)N * n;
    float *wide_a = random_floats((size_t)N * k, 6), *wide_b = random_floats(E * stride, 7);
    void *a = narrowed(wide_a, (size_t)N * k, dtype), *b = narrowed(wide_b, E * stride, dtype);
    void *outs[2] = {array_of_u32(count), array_of_u32(count)};
    double *want = zero_doubles(count);
    struct mics_args_grouped_matmul args = {.a = a,
                                            .b = b,
                                            .offsets = m->offsets,
                                            .stride = stride,
                                            .rows = N,
                                            .E = E,
                                            .n = n,
                                            .k = k,
                                            .trans_b = trans_b,
                                            .dtype = dtype};

    for (size_t i = 0; i < count; i++) {
        const float *of_b = wide_b + expert_of_row(m, (uint32_t)(i / n)) * stride;

        for (uint32_t x = 0; x < k; x++)
            want[i] += (double)wide_a[i / n * k + x] *
                       (double)of_b[trans_b ? i % n * k + x : x * n + i % n];
    }
    for (unsigned i = 0; i < 2; i++) {
        args.out = memset(outs[i], 0xff, count * sizeof(float));
        multiply(pools[2 * i], &args, method);
    }
    CHECK_NEAR(array_error(outs[0], want, count, dtype), 0, 3e-5);
    CHECK_SAME_BITS((char *)outs[1], (char *)outs[0], count * mics_dtype_bytes(dtype));
    void *all[] = {wide_a, wide_b, a, b, outs[0], outs[1], want};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void check_product_grad(const struct mixture *m, enum mics_dtype dtype,
                               enum mics_dtype grad_dtype, bool add, int method)
{
    const uint32_t N = m->N, rows = m->is.C, n = m->is.F, E = m->is.E;
    const uint64_t stride = expert_stride((uint64_t)rows * n);
    const size_t count = (size_t)E * stride, bytes = count * mics_dtype_bytes(grad_dtype);
    float *wide_a = random_floats((size_t)N * rows, 6), *wide_b = random_floats((size_t)N * n, 7);
    float *wide_out = random_floats(count, 8);
    void *a = narrowed(wide_a, (size_t)N * rows, dtype),
         *b = narrowed(wide_b, (size_t)N * n, dtype);
    void *first = narrowed(wide_out, count, grad_dtype), *outs[2];
    double *want = zero_doubles(count);
    struct mics_args_grouped_matmul_grad args = {.a = a,
                                                 .b = b,
                                                 .offsets = m->offsets,
                                                 .stride = stride,
                                                 .rows = N,
                                                 .E = E,
                                                 .m = rows,
                                                 .n = n,
                                                 .add = add,
                                                 .dtype = dtype,
                                                 .grad_dtype = grad_dtype};

    for (size_t i = 0; i < count; i++) /* what is between matrices stays */
        want[i] = add || i % stride >= (uint64_t)rows * n ? (double)wide_out[i] : 0;
    for (uint32_t i = 0; i < N; i++)
        for (size_t x = 0; x < (size_t)rows * n; x++)
            want[expert_of_row(m, i) * stride + x] +=
                (double)wide_a[i * rows + x / n] * (double)wide_b[i * n + x % n];
    for (unsigned i = 0; i < 2; i++) {
        args.out = outs[i] = memcpy(array_of_u32(count), first, bytes);
        multiply_grad(pools[2 * i], &args, method);
    }
    CHECK_NEAR(array_error(outs[0], want, count, grad_dtype), 0, 3e-5);
    CHECK_SAME_BITS((char *)outs[1], (char *)outs[0], bytes);
    void *all[] = {wide_a, wide_b, wide_out, a, b, first, outs[0], outs[1], want};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* All forms and types by one method, or those in fp32. */
static void check_products(int method, bool in_bf16)
{
    for (size_t i = 0; i < EXPERT_CASES; i++) {
        struct mixture m = mixture_of(&expert_cases[i]);

        for (unsigned t = 0; t < 8; t++) {
            const enum mics_dtype dtype = t & 1 ? MICS_BF16 : MICS_F32;
            const enum mics_dtype grad_dtype = t & 2 ? MICS_BF16 : MICS_F32;

            if (!in_bf16 && (t & 3))
                continue;
            if (!(t & 2))
                check_product(&m, dtype, t & 4, method);
            check_product_grad(&m, dtype, grad_dtype, t & 4, method);
        }
        free_mixture(&m);
    }
}

static void experts_products_agree_with_plain_loops(void)
{
    check_products(-1, true);
}

static void experts_products_by_our_own_and_by_openblas_agree_with_plain_loops(void)
{
    check_products(MICS_PRODUCT_OWN, true);
    check_products(MICS_PRODUCT_OPENBLAS, false);
}

/* In parts whose number of rows is a power of two. */
static void experts_products_by_onednn_agree_with_plain_loops(void)
{
    if (!mics_onednn_is_built())
        TAP_SKIP("built without oneDNN");
    check_products(MICS_PRODUCT_ONEDNN, false);
}

/* Experts of very different sizes: their pieces have the bits of one thread, and of a product. */
static void a_product_of_an_expert_has_the_bits_of_an_ordinary_one(void)
{
    enum { E = 5, N = 900, WIDE = 200, K = 450, STRIDE = 90048 };
    static const uint32_t offsets[E + 1] = {0, 3, 3, 700, 701, N};
    float *a = random_floats(N * K, 1), *b = random_floats((size_t)E * STRIDE, 2);
    float *out = random_floats(N * WIDE, 3), *want = random_floats(N * WIDE, 4);
    struct mics_args_grouped_matmul args = {.out = out,
                                            .a = a,
                                            .b = b,
                                            .offsets = offsets,
                                            .stride = STRIDE,
                                            .rows = N,
                                            .E = E,
                                            .n = WIDE,
                                            .k = K,
                                            .trans_b = true,
                                            .dtype = MICS_F32};

    mics_host_grouped_matmul_with_method(pools[2], &args, MICS_PRODUCT_OWN);
    for (uint32_t e = 0; e < E; e++)
        mics_host_matmul_with_method(pools[1],
                                     &(struct mics_args_matmul){.out = want + offsets[e] * WIDE,
                                                                .a = a + offsets[e] * K,
                                                                .b = b + (size_t)e * STRIDE,
                                                                .m = offsets[e + 1] - offsets[e],
                                                                .n = WIDE,
                                                                .k = K,
                                                                .lda = K,
                                                                .ldb = K,
                                                                .ldout = WIDE,
                                                                .trans_b = true},
                                     MICS_PRODUCT_OWN);
    CHECK_SAME_BITS(out, want, N * WIDE);
    free(a);
    free(b);
    free(out);
    free(want);
}

int main(void)
{
    open_pools();
    TAP_RUN(rows_are_gathered_activated_and_combined_as_by_plain_loops);
    TAP_RUN(each_row_travels_to_its_expert_in_one_of_the_rounds);
    TAP_RUN(rows_are_scattered_to_where_they_were_gathered_from);
    TAP_RUN(experts_products_agree_with_plain_loops);
    TAP_RUN(experts_products_by_our_own_and_by_openblas_agree_with_plain_loops);
    TAP_RUN(experts_products_by_onednn_agree_with_plain_loops);
    TAP_RUN(a_product_of_an_expert_has_the_bits_of_an_ordinary_one);
    return close_pools();
}
