/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on bf16 and fp16. Each is run on numbers that the type holds, once as such and once in
 * fp32, where the other tests have compared it with loops in double: the results agree within one
 * rounding, 2^-8 of the value in bf16 and 2^-11 in fp16, and what is stored in fp32 within 1e-5.
 */
#include "host/numbers.h"
#include "host/pool.h"
#include "kernels.h"

static const uint32_t sizes[] = {0, 1, 31, 32, 33, 130};

/* The type of two bytes that is tested. */
static enum mics_dtype half = MICS_BF16;

static enum mics_storage_dtype storage(void)
{
    return half == MICS_F16 ? MICS_STORAGE_F16 : MICS_STORAGE_BF16;
}

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The same numbers twice: in fp32, and as `type`. */
struct both {
    float *wide;
    void *typed;
    size_t count;
    enum mics_dtype type;
};

static struct both make(size_t count, uint64_t seed, enum mics_dtype type)
{
    struct both b = {random_floats(count, seed), calloc(count + 1, 4), count, type};

    if (type == half) {
        mics_numbers_from_f32(storage(), b.wide, b.typed, count);
        mics_numbers_to_f32(storage(), b.typed, b.wide, count);
    } else {
        memcpy(b.typed, b.wide, count * sizeof(float));
    }
    return b;
}

static void drop(struct both *all, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(all[i].wide);
        free(all[i].typed);
    }
}

/* The largest error in units of what is allowed; `slack`: of the sums before the rounding. */
static double excess(const struct both *b, double slack)
{
    float *got = malloc((b->count + 1) * sizeof(float));
    double worst = 0;

    if (b->type == half)
        mics_numbers_to_f32(storage(), b->typed, got, b->count);
    else
        memcpy(got, b->typed, b->count * sizeof(float));
    for (size_t i = 0; i < b->count; i++) {
        /* A sum that is beyond fp16. */
        if (b->type == MICS_F16 && fabs(b->wide[i]) > 65600 &&
            got[i] == copysign(INFINITY, b->wide[i]))
            continue;
        const double want = b->wide[i], unit = half == MICS_F16 ? 0x1p-11 : 0x1p-8;
        const double rounding = b->type == half ? fmax(fabs(want), 0x1p-13) * unit : 0;
        const double error = fabs(got[i] - want) / (rounding + slack * fmax(1, fabs(want)));

        worst = error <= worst ? worst : isnan(error) ? INFINITY : error;
    }
    free(got);
    return worst;
}

#define CHECK_ROUNDED(b)      CHECK_NEAR(excess(&(b), 1e-5), 0, 1)
#define CHECK_NEARLY(b, bits) CHECK_NEAR(excess(&(b), bits), 0, 1)

/* Array i of `t`, in fp32 or typed. */
#define PICK(i) (typed ? t[i].typed : (void *)t[i].wide)

/* The types of activations and of gradients of parameters, two bits. */
static enum mics_dtype type_of(unsigned bits, unsigned at)
{
    return bits >> at & 1 ? half : MICS_F32;
}

static void gelu_is_rounded_once(void)
{
    static const size_t counts[] = {0, 1, 15, 16, 17, 4095, 4097, 40000};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct mics_pool *pool = pools[i % POOLS];
        struct both t[] = {make(counts[i], 1, half), make(counts[i], 2, half),
                           make(counts[i], 3, half), make(counts[i], 4, half)};
        struct mics_args_gelu gelu = {.out = t[2].wide, .in = t[0].wide, .count = counts[i]};
        struct mics_args_gelu_grad grad = {
            .grad_in = t[3].wide, .in = t[0].wide, .grad_out = t[3].wide, .count = counts[i]};

        mics_host_gelu(pool, &gelu);
        gelu.out = t[2].typed;
        gelu.in = t[0].typed;
        gelu.dtype = half;
        mics_host_gelu(pool, &gelu);
        CHECK_ROUNDED(t[2]);
        mics_host_gelu_grad(pool, &grad);
        grad.grad_in = t[3].typed;
        grad.grad_out = t[3].typed;
        grad.in = t[0].typed;
        grad.dtype = half;
        mics_host_gelu_grad(pool, &grad);
        CHECK_ROUNDED(t[3]);
        drop(t, 4);
    }
}

/* GELU is of the stored numbers `pre`, [m, n] with rows of ld: what `out` shall be, and to the bit
 * what the operation GELU makes of them where the types are alike. */
static void expect_gelu(const struct both *pre, struct both *out, uint32_t m, uint32_t n,
                        uint32_t ld)
{
    const size_t each = mics_dtype_bytes(pre->type);
    struct both gelu = make(pre->count, 1, pre->type), stored = make(pre->count, 2, MICS_F32);
    struct mics_args_gelu op = {
        .out = gelu.typed, .in = pre->typed, .count = pre->count, .dtype = pre->type};

    mics_host_gelu(pools[0], &op);
    for (size_t i = 0; i < m && pre->type == out->type; i++)
        CHECK(memcmp((char *)gelu.typed + i * ld * each, (char *)out->typed + i * ld * each,
                     n * each) == 0);
    memcpy(stored.wide, pre->typed, pre->count * each);
    if (pre->type == half)
        mics_numbers_to_f32(storage(), pre->typed, stored.wide, pre->count);
    op = (struct mics_args_gelu){.out = gelu.wide, .in = stored.wide, .count = pre->count};
    mics_host_gelu(pools[0], &op);
    for (size_t i = 0; i < m; i++)
        memcpy(out->wide + i * ld, gelu.wide + i * ld, n * sizeof(float));
    drop(&gelu, 1);
    drop(&stored, 1);
}

static void check_product(uint32_t m, uint32_t n, uint32_t k, unsigned flags, unsigned types)
{
    const enum mics_dtype type = type_of(types, 0), out_type = type_of(types, 1);
    const uint32_t gap = flags % 3, lda = (flags & 1 ? m : k) + gap,
                   ldb = (flags & 2 ? k : n) + gap;
    const uint32_t ld = n + gap;
    struct both t[] = {make((size_t)(m + k + 1) * (m + k + 4), 1, type),
                       make((size_t)(n + k + 1) * (n + k + 4), 2, type),
                       make(n, 3, type),
                       make((size_t)m * ld, 4, out_type),
                       make((size_t)m * ld, 5, type),
                       make((size_t)m * ld, 6, type)};
    struct mics_args_matmul args = {.m = m,
                                    .n = n,
                                    .k = k,
                                    .lda = lda + (lda == 0),
                                    .ldb = ldb + (ldb == 0),
                                    .ldout = ld,
                                    .trans_a = flags & 1,
                                    .trans_b = flags & 2};

    for (unsigned typed = 0; typed < 2; typed++) {
        args.a = PICK(0);
        args.b = PICK(1);
        args.bias = flags & 4 ? PICK(2) : NULL;
        args.out = PICK(3);
        args.add = flags & 8 ? PICK(3) : NULL;
        args.pre_gelu = flags & 16 ? PICK(4) : NULL;
        args.gelu_of = (flags & 48) == 32 ? PICK(5) : NULL;
        args.dtype = typed ? type : MICS_F32;
        args.out_dtype = typed ? out_type : MICS_F32;
        mics_host_matmul(pools[typed ? flags % POOLS : 0], &args);
    }
    CHECK_NEARLY(t[4], 3e-5);
    if (args.pre_gelu)
        expect_gelu(&t[4], &t[3], m, n, ld);
    CHECK_NEARLY(t[3], 3e-5);
    drop(t, 6);
}

static void products_of_all_types_agree(void)
{
    static const uint32_t shapes[][3] = {{1, 1, 1}, {31, 33, 32}, {33, 1, 31},   {7, 300, 270},
                                         {5, 4, 0}, {64, 64, 64}, {270, 65, 40}, {3, 0, 5},
                                         {0, 3, 5}, {513, 70, 20}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (unsigned flags = 0; flags < 48; flags++)
            check_product(shapes[i][0], shapes[i][1], shapes[i][2], flags, 1 + (flags + i) % 3);
    for (unsigned flags = 0; flags < 16; flags++)
        check_product(300, 520, 600, flags, 1 + flags % 3);
}

static void check_bias(uint32_t rows, uint32_t n, unsigned types)
{
    struct both t[] = {make(n, 1, type_of(types, 1)), make((size_t)rows * n, 2, type_of(types, 0))};
    struct mics_args_bias_grad args = {
        .grad_bias = t[0].wide, .grad_out = t[1].wide, .rows = rows, .n = n};

    mics_host_bias_grad(pools[0], &args);
    args.grad_bias = t[0].typed;
    args.grad_out = t[1].typed;
    args.dtype = t[1].type;
    args.grad_dtype = t[0].type;
    mics_host_bias_grad(pools[1 + n % 2], &args);
    CHECK_ROUNDED(t[0]);
    drop(t, 2);
}

static void run_norm(struct both *t, uint32_t rows, uint32_t C, bool typed)
{
    struct mics_args_layernorm args = {.out = PICK(0),
                                       .mean = PICK(7),
                                       .rstd = PICK(8),
                                       .in = PICK(1),
                                       .weight = PICK(3),
                                       .bias = PICK(3),
                                       .rows = rows,
                                       .C = C,
                                       .eps = 1e-5f,
                                       .dtype = typed ? t[0].type : MICS_F32};
    struct mics_args_layernorm_grad grad = {.grad_in = PICK(4),
                                            .grad_weight = PICK(5),
                                            .grad_bias = PICK(6),
                                            .grad_out = PICK(1),
                                            .in = PICK(2),
                                            .weight = PICK(3),
                                            .mean = PICK(7),
                                            .rstd = PICK(8),
                                            .rows = rows,
                                            .C = C,
                                            .dtype = typed ? t[0].type : MICS_F32,
                                            .grad_dtype = typed ? t[5].type : MICS_F32};
    struct mics_pool *pool = pools[typed ? C % POOLS : 0];

    mics_host_layernorm(pool, &args);
    mics_host_layernorm_grad(pool, &grad);
}

static void check_norm(uint32_t rows, uint32_t C, unsigned types)
{
    const enum mics_dtype type = type_of(types, 0), grad_type = type_of(types, 1);
    const size_t count = (size_t)rows * C;
    struct both t[] = {make(count, 1, type),  make(count, 2, type),    make(count, 3, type),
                       make(C, 4, type),      make(count, 5, type),    make(C, 6, grad_type),
                       make(C, 7, grad_type), make(rows, 8, MICS_F32), make(rows, 9, MICS_F32)};

    /* The statistics of another array: the gradient takes any. */
    run_norm(t, rows, C, false);
    run_norm(t, rows, C, true);
    for (unsigned i = 0; i < 9; i++)
        CHECK_NEARLY(t[i], 3e-5);
    drop(t, 9);
}

static void gradients_of_parameters_take_either_type(void)
{
    for (size_t i = 1; i < SIZES; i++)
        for (size_t j = 1; j < SIZES; j++)
            for (unsigned types = 1; types < 4; types++) {
                check_bias(sizes[i], sizes[j], types);
                check_norm(sizes[i], sizes[j], types);
            }
    check_bias(2000, 1200, 3);
    check_bias(0, 33, 3);
    check_norm(3000, 130, 3);
    check_norm(5, 1100, 2);
}

static void check_embedding(uint32_t B, uint32_t T, uint32_t C, unsigned types, bool positions)
{
    enum { V = 11 };
    const enum mics_dtype type = type_of(types, 0), grad_type = type_of(types, 1);
    const double slack = (uint64_t)B * T > 32768 ? 8e-3 : 3e-5; /* beyond, sums are rounded twice */
    struct both t[] = {make((size_t)B * T * C, 1, type), make(V * (size_t)C, 2, type),
                       make((size_t)T * C, 3, type), make(V * (size_t)C, 4, grad_type),
                       make((size_t)T * C, 5, grad_type)};
    int32_t *tokens = malloc(((size_t)B * T + 1) * sizeof *tokens);

    for (uint32_t i = 0; i < B * T; i++)
        tokens[i] = (int32_t)(i * i % V);
    for (unsigned typed = 0; typed < 2; typed++) {
        struct mics_pool *pool = pools[typed ? C % POOLS : 0];

        mics_host_embedding(pool, &(struct mics_args_embedding){.out = PICK(0),
                                                                .tokens = tokens,
                                                                .wte = PICK(1),
                                                                .wpe = positions ? PICK(2) : NULL,
                                                                .B = B,
                                                                .T = T,
                                                                .C = C,
                                                                .dtype = typed ? type : MICS_F32});
    }
    CHECK_ROUNDED(t[0]);
    if (type == half) /* the gradients go on from the same numbers */
        mics_numbers_to_f32(storage(), t[0].typed, t[0].wide, t[0].count);
    for (unsigned typed = 0; typed < 2; typed++)
        mics_host_embedding_grad(
            pools[typed ? C % POOLS : 0],
            &(struct mics_args_embedding_grad){.grad_wte = PICK(3),
                                               .grad_wpe = positions ? PICK(4) : NULL,
                                               .tokens = tokens,
                                               .grad_out = PICK(0),
                                               .B = B,
                                               .T = T,
                                               .C = C,
                                               .V = V,
                                               .dtype = typed ? type : MICS_F32,
                                               .grad_dtype = typed ? grad_type : MICS_F32});
    CHECK_NEARLY(t[3], slack);
    CHECK_NEARLY(t[4], slack);
    free(tokens);
    drop(t, 5);
}

static void embeddings_of_all_types_agree(void)
{
    for (size_t i = 1; i < SIZES; i++)
        for (unsigned types = 1; types < 4; types++) {
            check_embedding(3, 50, sizes[i], types, true);
            check_embedding(2, sizes[i], 33, types, false);
        }
    check_embedding(0, 5, 7, 3, true);
    check_embedding(3, 20000, 2, 3, true); /* more rows than are put in order at a time */
}

static void check_loss(uint32_t rows, uint32_t V, bool grad)
{
    struct both logits = make((size_t)rows * V, 1, half);
    int32_t *targets = malloc((rows + 1) * sizeof *targets);
    double loss[2] = {0};

    for (uint32_t i = 0; i < rows; i++)
        targets[i] = i % 5 == 4 ? -1 : (int32_t)(i * 7 % V);
    for (unsigned typed = 0; typed < 2; typed++)
        mics_host_cross_entropy(
            pools[rows % POOLS],
            &(struct mics_args_cross_entropy){.logits = typed ? logits.typed : logits.wide,
                                              .targets = targets,
                                              .loss_sum = &loss[typed],
                                              .rows = rows,
                                              .V = V,
                                              .grad = grad,
                                              .dtype = typed ? half : MICS_F32});
    CHECK_NEAR(loss[1], loss[0], 1e-5 * (rows + 1));
    CHECK_ROUNDED(logits);
    free(targets);
    drop(&logits, 1);
}

static void losses_of_logits_in_two_bytes_agree(void)
{
    for (size_t i = 0; i < SIZES; i++)
        for (size_t j = 1; j < SIZES; j++) {
            check_loss(sizes[i], sizes[j], true);
            check_loss(sizes[i], sizes[j], false);
        }
    check_loss(3, 3000, true);
}

/* Queries and keys of a size that makes the scores matter. */
static void check_attention(uint32_t T, uint32_t D, uint32_t H, uint32_t H_kv, bool causal,
                            const int32_t *targets)
{
    enum { B = 2 };
    const size_t rows = B * (size_t)T, C = (size_t)H * D, ld = C + 2 * (size_t)H_kv * D;
    struct both t[] = {make(rows * C, 1, half),     make(rows * H, 2, MICS_F32),
                       make(rows * ld, 3, half),    make(rows * ld, 4, half),
                       make(rows * H, 5, MICS_F32), make(rows * C, 6, half)};

    for (unsigned typed = 0; typed < 2; typed++)
        mics_host_attention(pools[T % POOLS],
                            &(struct mics_args_attention){.out = PICK(0),
                                                          .lse = PICK(1),
                                                          .qkv = PICK(2),
                                                          .B = B,
                                                          .T = T,
                                                          .H = H,
                                                          .H_kv = H_kv,
                                                          .D = D,
                                                          .causal = causal,
                                                          .dtype = typed ? half : MICS_F32,
                                                          .targets = targets});
    CHECK_ROUNDED(t[0]);
    CHECK_ROUNDED(t[1]);
    mics_numbers_to_f32(storage(), t[0].typed, t[0].wide, t[0].count);
    for (unsigned typed = 0; typed < 2; typed++)
        mics_host_attention_grad(
            pools[T % POOLS], &(struct mics_args_attention_grad){.grad_qkv = PICK(3),
                                                                 .delta = PICK(4),
                                                                 .grad_out = PICK(5),
                                                                 .out = PICK(0),
                                                                 .qkv = PICK(2),
                                                                 .lse = PICK(1),
                                                                 .B = B,
                                                                 .T = T,
                                                                 .H = H,
                                                                 .H_kv = H_kv,
                                                                 .D = D,
                                                                 .causal = causal,
                                                                 .dtype = typed ? half : MICS_F32,
                                                                 .targets = targets});
    CHECK_NEARLY(t[3], 3e-5);
    CHECK_NEARLY(t[4], 3e-5);
    drop(t, 6);
}

/* Documents of 1, 2, 3, ... tokens. */
static void attention_within_documents_in_two_bytes_is_rounded_once(void)
{
    int32_t targets[2 * 200] = {0};

    for (size_t i = 0, length = 1; i < 2 * 200; i += length++)
        targets[i] = MICS_TARGET_LAST;
    check_attention(31, 16, 2, 2, true, targets);
    check_attention(64, 33, 4, 2, true, targets);
    check_attention(200, 64, 3, 1, true, targets);
}

static void attention_in_two_bytes_is_rounded_once(void)
{
    static const uint32_t lengths[] = {1, 31, 64, 65, 200};

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (unsigned causal = 0; causal < 2; causal++) {
            check_attention(lengths[i], 16, 2, 2, causal, NULL);
            check_attention(lengths[i], 33, 4, 2, causal, NULL);
            check_attention(lengths[i], 64, 3, 1, causal, NULL);
        }
    check_attention(130, 256, 1, 1, true, NULL);
}

static void all_of_it_holds_in_fp16(void)
{
    half = MICS_F16;
    gelu_is_rounded_once();
    products_of_all_types_agree();
    gradients_of_parameters_take_either_type();
    embeddings_of_all_types_agree();
    attention_in_two_bytes_is_rounded_once();
    attention_within_documents_in_two_bytes_is_rounded_once();
    losses_of_logits_in_two_bytes_agree();
    half = MICS_BF16;
}

int main(void)
{
    open_pools();
    TAP_RUN(gelu_is_rounded_once);
    TAP_RUN(products_of_all_types_agree);
    TAP_RUN(gradients_of_parameters_take_either_type);
    TAP_RUN(embeddings_of_all_types_agree);
    TAP_RUN(attention_in_two_bytes_is_rounded_once);
    TAP_RUN(attention_within_documents_in_two_bytes_is_rounded_once);
    TAP_RUN(losses_of_logits_in_two_bytes_agree);
    TAP_RUN(all_of_it_holds_in_fp16);
    return close_pools();
}
