/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_kernels.c - which operations and sizes are measured, with which arguments, and how.
 *
 * The buffer is cut into PIECES arrays. They are zero, apart from tokens, scalars and blocks, and
 * stay finite: time does not depend on the values.
 *
 * What the caches hold is as in training. The other stages have used them since parameters were
 * used last, and gradients that products are added to: each launch of a product takes the next ones
 * of as many as the buffer holds. What the forward pass keeps, the backward pass reads and the
 * optimizer updates are the next of as many as a piece holds. What the operation before has just
 * written, and gradients of activations, which a stage writes over those of another, are the same
 * in all launches.
 */
#include "measure/measure_kernels.h"

#include "base/clock.h"
#include "base/num.h"
#include "device/launch.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECES = 8,
    MANY = 2, /* index of the first piece of MANY_PIECES with parameters or their gradients */
    MANY_PIECES = 4,
    VECTORS = 6, /* index of the piece with vectors of a row, and statistics of rows */
    SMALL = 7,   /* of the piece with tokens and scalars */
    WIDTH = 512, /* of rows */
    VOCABULARY = 1024,
    HEAD = 64,
    LAUNCHES = 3, /* for each point, if they take no more than LONGEST times its part */
    LONGEST = 10,
    MAX_REPEATS = 100000,
    MAX_SERIES = 128,
    PRODUCT_SMALL = 96,
    PRODUCT_MEDIUM = 256,
    PRODUCT_LARGE = 768,
    LENGTH_SMALL = 128,
    LENGTH_LARGE = 512,
    HEAD_SMALL = 32,
    HEAD_LARGE = 128,
    HEADS = 4,
    SOURCES = 1,          /* index of the first piece with arrays that are summed */
    PARTS = 4,            /* of which there are at most so many */
    PASS_SMALL = 32 << 10 /* elements; the large pass fills half of a piece in fp32 */
};

/* Seconds of launches enqueued as one batch. */
static const double batch_s = 1e-3;

/* One launch: an operation with its form, type and sizes, as struct mics_kernel_shape. */
struct launch {
    const struct mics_bench *bench;
    struct mics_kernel_shape shape;
    uint64_t count; /* of launches before */
};

static uint64_t piece_bytes(const struct mics_bench *bench)
{
    return bench->buffer_bytes / PIECES / 4096 * 4096;
}

static void *piece(const struct launch *launch, int index)
{
    return (char *)launch->bench->buffer + (uint64_t)index * piece_bytes(launch->bench);
}

/* Vector `index` of WIDTH numbers or fewer. */
static void *vector(const struct launch *launch, int index)
{
    return (char *)piece(launch, VECTORS) + (size_t)index * WIDTH * sizeof(float);
}

/* Statistics of rows, after the vectors: one or two numbers of each. */
static float *statistics(const struct launch *launch, int index)
{
    float *first = (float *)vector(launch, 8);

    return first + (uint64_t)index * piece_bytes(launch->bench) / 2 / sizeof(float) / 4;
}

/* The next of the arrays of `bytes` that fit into `pieces` from `first` on. */
static void *next_of(const struct launch *launch, int first, uint64_t pieces, uint64_t bytes)
{
    const uint64_t each = mics_round_up(bytes, 4096);
    const uint64_t room = mics_max_u64(pieces * piece_bytes(launch->bench) / each, 1);

    return (char *)piece(launch, first) + launch->count % room * each;
}

/* The next matrix of parameters, or of gradients, of `count` elements. */
static void *next_matrix(const struct launch *launch, uint64_t count)
{
    return next_of(launch, MANY, MANY_PIECES, count * mics_dtype_bytes(launch->shape.dtype));
}

/* The next array of `count` elements in a piece. */
static void *next_array(const struct launch *launch, int index, double count)
{
    return next_of(launch, index, 1, (uint64_t)count * mics_dtype_bytes(launch->shape.dtype));
}

/* The same in fp32, whatever the type of the operation. */
static void *next_f32(const struct launch *launch, int index)
{
    return next_of(launch, index, 1, (uint64_t)launch->shape.m * sizeof(float));
}

static struct mics_args_scalars *scalars(const struct launch *launch)
{
    return piece(launch, SMALL);
}

static int32_t *tokens(const struct launch *launch)
{
    return (int32_t *)(scalars(launch) + 1);
}

static void launch_product(const struct launch *launch)
{
    const struct mics_kernel_shape *s = &launch->shape;
    const bool trans_a = s->form & 2, trans_b = s->form & 1;
    const uint32_t m = (uint32_t)s->m, n = (uint32_t)s->n, k = (uint32_t)s->k;
    void *const kept = next_array(launch, 1, s->m * s->k);
    void *const warm = piece(launch, 0);
    void *const cold = next_matrix(launch, trans_a ? (uint64_t)m * n : (uint64_t)k * n);
    void *const activations = trans_b ? warm : next_array(launch, 0, s->m * s->n);
    void *const out = trans_a ? cold : activations;

    mics_launch_matmul(launch->bench->compute, &(struct mics_args_matmul){
                                                   .out = out,
                                                   .a = trans_a ? kept : piece(launch, 1),
                                                   .b = trans_a ? warm : cold,
                                                   /* as gradients of parameters are computed */
                                                   .add = trans_a ? out : NULL,
                                                   .m = m,
                                                   .n = n,
                                                   .k = k,
                                                   .lda = trans_a ? m : k,
                                                   .ldb = trans_b ? k : n,
                                                   .ldout = n,
                                                   .trans_a = trans_a,
                                                   .trans_b = trans_b,
                                                   .dtype = s->dtype,
                                                   .out_dtype = s->dtype,
                                               });
}

static void launch_attention(const struct launch *launch)
{
    const struct mics_kernel_shape *s = &launch->shape;
    const uint32_t H = (uint32_t)s->m, T = (uint32_t)s->n, D = (uint32_t)s->k;
    const double elements = s->m * s->n * s->k;

    if (s->kernel == MICS_K_ATTENTION)
        mics_launch_attention(launch->bench->compute,
                              &(struct mics_args_attention){
                                  next_array(launch, 0, elements), statistics(launch, 0),
                                  piece(launch, 1), 1, T, H, H, D, true, s->dtype, NULL, 0});
    else
        mics_launch_attention_grad(launch->bench->compute,
                                   &(struct mics_args_attention_grad){
                                       piece(launch, 0), statistics(launch, 1), piece(launch, 1),
                                       next_array(launch, 2, elements),
                                       next_array(launch, 3, 3 * elements), statistics(launch, 0),
                                       1, T, H, H, D, true, s->dtype, NULL, 0});
}

/* Norms. */
static void launch_norm(const struct launch *launch)
{
    struct mics_stream *stream = launch->bench->compute;
    const enum mics_dtype dtype = launch->shape.dtype;
    const uint32_t rows = (uint32_t)(launch->shape.m / WIDTH);
    void *a = piece(launch, 0), *b = piece(launch, 1);
    void *out = next_array(launch, 0, launch->shape.m);
    void *kept = next_array(launch, 2, launch->shape.m);
    void *weight = vector(launch, 0), *bias = vector(launch, 1);
    void *grad_weight = vector(launch, 2), *grad_bias = vector(launch, 3);
    float *mean = statistics(launch, 0), *rstd = statistics(launch, 1);

    switch (launch->shape.kernel) {
    case MICS_K_LAYERNORM:
        mics_launch_layernorm(stream,
                              &(struct mics_args_layernorm){out, mean, rstd, b, weight, bias, rows,
                                                            WIDTH, 1e-5f, dtype});
        return;
    case MICS_K_LAYERNORM_GRAD:
        mics_launch_layernorm_grad(
            stream, &(struct mics_args_layernorm_grad){a, grad_weight, grad_bias, b, kept, weight,
                                                       mean, rstd, rows, WIDTH, dtype, dtype});
        return;
    case MICS_K_RMSNORM:
        mics_launch_rmsnorm(
            stream, &(struct mics_args_rmsnorm){out, rstd, b, weight, rows, WIDTH, 1e-5f, dtype});
        return;
    case MICS_K_RMSNORM_GRAD:
        mics_launch_rmsnorm_grad(stream,
                                 &(struct mics_args_rmsnorm_grad){a, grad_weight, b, kept, weight,
                                                                  rstd, rows, WIDTH, dtype, dtype});
        return;
    case MICS_K_QK_NORM: /* WIDTH = (6 + 2) heads of HEAD */
        mics_launch_qk_norm(stream,
                            &(struct mics_args_qk_norm){out, statistics(launch, 0), b, weight, bias,
                                                        rows, 6, 1, HEAD, HEAD, 1e-5f, dtype});
        return;
    default:
        mics_launch_qk_norm_grad(
            stream, &(struct mics_args_qk_norm_grad){a, grad_weight, grad_bias, kept, weight, bias,
                                                     statistics(launch, 0), rows, 6, 1, HEAD, HEAD,
                                                     dtype, dtype});
    }
}

/* Other operations on rows. */
static void launch_rows(const struct launch *launch)
{
    struct mics_stream *stream = launch->bench->compute;
    const enum mics_dtype dtype = launch->shape.dtype;
    const uint32_t rows = (uint32_t)(launch->shape.m / WIDTH);
    void *a = piece(launch, 0), *b = piece(launch, 2), *c = piece(launch, 4);
    void *out = next_array(launch, 0, launch->shape.m);
    void *kept = next_array(launch, 2, 2 * launch->shape.m); /* of a gate and its value */

    switch (launch->shape.kernel) {
    case MICS_K_BIAS_GRAD:
        mics_launch_bias_grad(
            stream, &(struct mics_args_bias_grad){vector(launch, 2), a, rows, WIDTH, dtype, dtype});
        return;
    case MICS_K_SWIGLU:
        mics_launch_swiglu(stream, &(struct mics_args_swiglu){out, b, rows, WIDTH, dtype});
        return;
    case MICS_K_SWIGLU_GRAD:
        mics_launch_swiglu_grad(stream,
                                &(struct mics_args_swiglu_grad){a, kept, c, rows, WIDTH, dtype});
        return;
    case MICS_K_ROPE:
        mics_launch_rope(stream, &(struct mics_args_rope){.data = a,
                                                          .B = 1,
                                                          .T = rows,
                                                          .heads = WIDTH / HEAD,
                                                          .D = HEAD,
                                                          .stride = WIDTH,
                                                          .base = 1e4f,
                                                          .dtype = dtype});
        return;
    case MICS_K_EMBEDDING:
        mics_launch_embedding(stream, &(struct mics_args_embedding){out, tokens(launch), b, c, 1,
                                                                    rows, WIDTH, dtype, NULL});
        return;
    case MICS_K_EMBEDDING_GRAD:
        mics_launch_embedding_grad(
            stream, &(struct mics_args_embedding_grad){b, c, tokens(launch), a, 1, rows, WIDTH,
                                                       VOCABULARY, dtype, dtype});
        return;
    default:
        mics_launch_cross_entropy(
            stream, &(struct mics_args_cross_entropy){a, tokens(launch), &scalars(launch)->loss_sum,
                                                      rows, WIDTH, 0, true, dtype, NULL, NULL});
    }
}

/* Rows in the order of experts, one for each token; the tokens are any order. */
static void launch_experts(const struct launch *launch)
{
    struct mics_stream *stream = launch->bench->compute;
    const enum mics_dtype dtype = launch->shape.dtype;
    const uint32_t rows = (uint32_t)(launch->shape.m / WIDTH);
    const uint32_t *const order = (const uint32_t *)tokens(launch);
    void *a = piece(launch, 0), *b = piece(launch, 2), *c = piece(launch, 4);
    void *out = next_array(launch, 0, launch->shape.m);
    void *kept = next_array(launch, 2, 2 * launch->shape.m); /* of a gate and its value */
    float *weights = statistics(launch, 0), *grad_weights = statistics(launch, 1);

    switch (launch->shape.kernel) {
    case MICS_K_GATHER_ROWS:
        mics_launch_gather_rows(
            stream, &(struct mics_args_gather_rows){out, b, order, rows, 1, WIDTH, dtype});
        return;
    case MICS_K_COMBINE_ROWS:
        mics_launch_combine_rows(
            stream, &(struct mics_args_combine_rows){out, b, NULL, order, rows, 1, WIDTH, dtype});
        return;
    case MICS_K_EXPERT_SWIGLU:
        mics_launch_expert_swiglu(stream, &(struct mics_args_expert_swiglu){
                                              out, b, weights, order, rows, WIDTH, dtype, false});
        return;
    default:
        mics_launch_expert_swiglu_grad(
            stream, &(struct mics_args_expert_swiglu_grad){a, grad_weights, kept, c, weights, order,
                                                           rows, WIDTH, dtype, false});
    }
}

static void launch_update(const struct launch *launch)
{
    const enum mics_optimizer optimizer = (enum mics_optimizer)launch->shape.form;
    struct mics_args_update update = {
        .optimizer = optimizer,
        .step = 1,
        .param = next_f32(launch, 0),
        .copy = launch->shape.dtype == MICS_BF16 ? next_array(launch, 4, launch->shape.m) : NULL,
        .grad = next_f32(launch, 3),
        .scalars = scalars(launch),
        .count = (uint64_t)launch->shape.m,
        .lr = 1e-3f,
        .settings = {.beta1 = .9f, .beta2 = .95f, .eps = 1e-8f, .momentum = .9f, .clip = 1},
    };

    for (uint32_t i = 0; i < mics_optimizer_states(optimizer); i++)
        update.state[i] = next_f32(launch, 1 + (int)i);
    mics_launch_update(launch->bench->compute, &update);
}

static void launch_outer_update(const struct launch *launch)
{
    mics_launch_outer_update(
        launch->bench->compute,
        &(struct mics_args_outer_update){
            .param = next_f32(launch, 0),
            .anchor = next_f32(launch, 1),
            .momentum = next_f32(launch, 2),
            .copy = launch->shape.dtype == MICS_F32 ? NULL : next_array(launch, 4, launch->shape.m),
            .copy_f16 = launch->shape.dtype == MICS_F16,
            .delta = next_f32(launch, 3),
            .count = (uint64_t)launch->shape.m,
            .scale = 1,
            .lr = .7f,
            .mu = .9f,
        });
}

/* Operations on `m` elements, or bytes. */
static void launch_flat(const struct launch *launch)
{
    struct mics_stream *stream = launch->bench->compute;
    const enum mics_dtype dtype = launch->shape.dtype;
    const uint64_t count = (uint64_t)launch->shape.m;
    void *a = piece(launch, 0), *b = piece(launch, 1);
    void *out = next_array(launch, 0, launch->shape.m);
    void *kept = next_array(launch, 2, launch->shape.m);

    switch (launch->shape.kernel) {
    case MICS_K_ZERO:
        mics_launch_zero(
            stream, &(struct mics_args_zero){next_matrix(launch, count / sizeof(float)), count});
        return;
    case MICS_K_COPY: /* of bytes */
        mics_launch_copy(stream, &(struct mics_args_copy){next_of(launch, 0, 1, count),
                                                          next_of(launch, 1, 1, count), count});
        return;
    case MICS_K_CAST:
        mics_launch_cast(
            stream, &(struct mics_args_cast){next_f32(launch, 0), kept, count, MICS_F32, dtype});
        return;
    case MICS_K_ACCUMULATE:
        mics_launch_accumulate(
            stream, &(struct mics_args_accumulate){next_f32(launch, 0), kept, count, dtype});
        return;
    case MICS_K_GELU:
        mics_launch_gelu(stream, &(struct mics_args_gelu){out, b, count, dtype, false});
        return;
    case MICS_K_GELU_GRAD:
        mics_launch_gelu_grad(stream,
                              &(struct mics_args_gelu_grad){a, kept, b, count, dtype, false});
        return;
    case MICS_K_SQUARED_NORM:
        mics_launch_squared_norm(
            stream, &(struct mics_args_squared_norm){.sum = &scalars(launch)->step_targets,
                                                     .in = next_f32(launch, 0),
                                                     .count = count});
        return;
    case MICS_K_DIFFERENCE:
        mics_launch_difference(
            stream, &(struct mics_args_difference){next_f32(launch, 0), next_f32(launch, 1),
                                                   next_f32(launch, 2), count, 1});
        return;
    case MICS_K_OUTER_UPDATE:
        launch_outer_update(launch);
        return;
    default:
        launch_update(launch);
    }
}

/* Sums of m elements of n arrays. */
static void launch_sum_blocks(const struct launch *launch)
{
    struct mics_args_sum_blocks args = {.dst = piece(launch, 0),
                                        .src = piece(launch, SOURCES),
                                        .count = (uint64_t)launch->shape.m,
                                        .stride = piece_bytes(launch->bench),
                                        .parts = (uint32_t)launch->shape.n};

    mics_sum_blocks_set_form(launch->shape.form, launch->shape.dtype, &args);
    mics_launch_sum_blocks(launch->bench->compute, &args);
}

/* What is measured: one row for an operation, or for one form of it. */
static const struct measured {
    enum mics_kernel kernel;
    uint32_t form;
    void (*launch)(const struct launch *launch);
    bool f32_only; /* its arguments have no type */
} table[] = {
    {MICS_K_ZERO, 0, launch_flat, true},
    {MICS_K_COPY, 0, launch_flat, true},
    {MICS_K_CAST, 0, launch_flat, false},
    {MICS_K_ACCUMULATE, 0, launch_flat, false},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_INT8_PLAIN, launch_sum_blocks, false},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_INT4_PLAIN, launch_sum_blocks, false},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_PLAIN_INT8, launch_sum_blocks, false},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_PLAIN_INT4, launch_sum_blocks, false},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_INT8_INT8, launch_sum_blocks, true},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_INT4_INT8, launch_sum_blocks, true},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_INT4_INT4, launch_sum_blocks, true},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_PLAIN_INT8_RANDOM, launch_sum_blocks, false},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_PLAIN_INT4_RANDOM, launch_sum_blocks, false},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_INT8_INT8_RANDOM, launch_sum_blocks, true},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_INT4_INT8_RANDOM, launch_sum_blocks, true},
    {MICS_K_SUM_BLOCKS, MICS_BLOCKS_INT4_INT4_RANDOM, launch_sum_blocks, true},
    {MICS_K_MATMUL, 0, launch_product, false}, /* a b */
    {MICS_K_MATMUL, 1, launch_product, false}, /* a b' */
    {MICS_K_MATMUL, 2, launch_product, false}, /* out += a' b */
    {MICS_K_BIAS_GRAD, 0, launch_rows, false},
    {MICS_K_LAYERNORM, 0, launch_norm, false},
    {MICS_K_LAYERNORM_GRAD, 0, launch_norm, false},
    {MICS_K_RMSNORM, 0, launch_norm, false},
    {MICS_K_RMSNORM_GRAD, 0, launch_norm, false},
    {MICS_K_GELU, 0, launch_flat, false},
    {MICS_K_GELU_GRAD, 0, launch_flat, false},
    {MICS_K_SWIGLU, 0, launch_rows, false},
    {MICS_K_SWIGLU_GRAD, 0, launch_rows, false},
    {MICS_K_QK_NORM, 0, launch_norm, false},
    {MICS_K_QK_NORM_GRAD, 0, launch_norm, false},
    {MICS_K_ROPE, 0, launch_rows, false},
    {MICS_K_ATTENTION, 0, launch_attention, false},
    {MICS_K_ATTENTION_GRAD, 0, launch_attention, false},
    {MICS_K_EMBEDDING, 0, launch_rows, false},
    {MICS_K_EMBEDDING_GRAD, 0, launch_rows, false},
    {MICS_K_CROSS_ENTROPY, 0, launch_rows, false},
    {MICS_K_SQUARED_NORM, 0, launch_flat, true},
    {MICS_K_UPDATE, MICS_OPT_ADAMW, launch_flat, false},
    {MICS_K_UPDATE, MICS_OPT_SGD, launch_flat, false},
    {MICS_K_UPDATE, MICS_OPT_LION, launch_flat, false},
    {MICS_K_DIFFERENCE, 0, launch_flat, true},
    {MICS_K_OUTER_UPDATE, 0, launch_flat, false},
    {MICS_K_GATHER_ROWS, 0, launch_experts, false},
    {MICS_K_COMBINE_ROWS, 0, launch_experts, false},
    {MICS_K_EXPERT_SWIGLU, 0, launch_experts, false},
    {MICS_K_EXPERT_SWIGLU_GRAD, 0, launch_experts, false},
};

enum { TABLE_ROWS = sizeof table / sizeof *table };

static_assert(2 * TABLE_ROWS <= MAX_SERIES, "one series for each row and type");

static void add_point(struct mics_kernel_rates *rates, double m, double n, double k)
{
    rates->points[rates->count++] = (struct mics_kernel_point){.m = m, .n = n, .k = k};
}

/* Whether what is summed is in blocks. Of other arrays only one is ever converted. */
static bool sums_blocks(const struct mics_kernel_rates *rates)
{
    struct mics_args_sum_blocks args;

    mics_sum_blocks_set_form(rates->form, rates->dtype, &args);
    return mics_dtype_is_blocks(args.src_dtype);
}

/* The sizes, of which the larger ones fit into the pieces of the buffer. */
static void choose_points(const struct mics_bench *bench, struct mics_kernel_rates *rates)
{
    const double bytes = (double)piece_bytes(bench);
    const double width = fmin(PRODUCT_LARGE, floor(sqrt(bytes / sizeof(float)) / 64) * 64);
    const double heads =
        fmax(1, fmin(HEADS, floor(bytes / (3.0 * LENGTH_LARGE * HEAD_LARGE * sizeof(float)))));
    const bool attention =
        rates->kernel == MICS_K_ATTENTION || rates->kernel == MICS_K_ATTENTION_GRAD;

    rates->count = 0;
    if (rates->kernel != MICS_K_MATMUL && !attention) {
        add_point(rates, PASS_SMALL, 1, 1);
        add_point(rates, floor(bytes / 2 / sizeof(float) / WIDTH) * WIDTH, 1, 1);
        if (rates->kernel == MICS_K_SUM_BLOCKS && sums_blocks(rates))
            for (int i = 0; i < 2; i++)
                add_point(rates, rates->points[i].m, PARTS, 1);
        return;
    }
    for (int i = 0; i < 4 && attention; i++)
        add_point(rates, heads, i & 1 ? LENGTH_LARGE : LENGTH_SMALL,
                  i & 2 ? HEAD_LARGE : HEAD_SMALL);
    const double widths[] = {PRODUCT_SMALL, fmin(PRODUCT_MEDIUM, width), width};
    const int count = width > PRODUCT_MEDIUM ? 3 : 2;

    for (int i = 0; i < count * count * count && !attention; i++)
        add_point(rates, widths[i % count], widths[i / count % count], widths[i / (count * count)]);
}

/* The part of a window at its begin, and at its end, in which launches are not counted. Ranks that
 * share cores begin and end it at different times, and are faster while fewer compute. */
static const double edge = 0.2;

/* Launch batches of `repeats` for `window_s`, or one; *seconds: of one launch. */
static enum mics_status time_window(struct launch *launch, const struct measured *row,
                                    uint32_t repeats, double window_s, double *seconds,
                                    struct mics_err *err)
{
    const struct mics_bench *bench = launch->bench;
    const double begin = mics_now_s();
    uint64_t count = 0; /* of those that are counted */
    double from_s = 0, to_s = 0, passed_s = 0;
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && (count == 0 || passed_s < window_s)) {
        for (uint32_t i = 0; i < repeats; i++, launch->count++)
            row->launch(launch);
        status = bench->device->ops->stream_sync(bench->compute, err);
        if (passed_s >= edge * window_s && (count == 0 || passed_s < (1 - edge) * window_s)) {
            from_s = count == 0 ? passed_s : from_s;
            count += repeats;
            to_s = mics_now_s() - begin;
        }
        passed_s = mics_now_s() - begin;
    }
    *seconds = (to_s - from_s) / (double)count;
    return status;
}

/* What ranks measured. */
struct ranks {
    double *seconds; /* [ranks] at the present point */
    double *nodes;   /* [nodes] mean of a node's ranks over the mean of all, summed over points */
    uint32_t points;
};

/* A window on all ranks at once. *seconds: at the mean of all ranks' rates, because what ranks that
 * share cores lose others win. The exchange is the barrier before the next window. */
static enum mics_status time_ranks(struct launch *launch, const struct measured *row,
                                   uint32_t repeats, double window_s, struct ranks *ranks,
                                   double *seconds, struct mics_err *err)
{
    const struct mics_world *world = launch->bench->world;
    double own = 0, sum = 0;
    enum mics_status status = time_window(launch, row, repeats, window_s, &own, err);

    if (status == MICS_OK)
        status = mics_comm_all_gather_now(world->comm, &own, ranks->seconds, sizeof own, err);
    for (uint32_t i = 0; i < world->size && status == MICS_OK; i++)
        sum += 1 / fmax(ranks->seconds[i], 1e-11);
    *seconds = world->size / sum;
    return status;
}

/* Add the present point to what is known of each node. */
static void compare_nodes(const struct mics_world *world, double mean_s, struct ranks *ranks)
{
    ranks->points++;
    for (uint32_t node = 0, i = 0; node < world->node_count; node++) {
        const uint32_t count = world->ranks_of_node[node];

        for (uint32_t end = i + count; i < end; i++)
            ranks->nodes[node] += ranks->seconds[i] / mean_s / count;
    }
}

/* How much longer the slowest node takes than the mean of all, over all points: at a single one
 * nodes differ by chance, most where their ranks share cores. */
static double slowest_node(const struct mics_world *world, const struct ranks *ranks)
{
    double slowest = 0;

    for (uint32_t node = 0; node < world->node_count; node++)
        slowest = fmax(slowest, ranks->nodes[node] / ranks->points);
    return slowest;
}

/* All ranks compute for the same time, rather than the same number of launches, so that those that
 * share cores share them until the end. The first launch makes what a library keeps of a product,
 * the next warms caches. Long launches get more than `seconds`, but not without limit. */
static enum mics_status time_point(struct launch *launch, const struct measured *row,
                                   double seconds, struct ranks *ranks, double *out,
                                   struct mics_err *err)
{
    double warm_s = 0;
    enum mics_status status = MICS_OK;

    if (launch->bench->device->has_bf16 && launch->shape.dtype == MICS_BF16)
        status = time_window(launch, row, 1, 0, &warm_s, err);
    if (status == MICS_OK)
        status = time_ranks(launch, row, 1, 0, ranks, &warm_s, err);
    const uint32_t repeats = (uint32_t)fmax(1, fmin(MAX_REPEATS, batch_s / fmax(warm_s, 1e-9)));
    const double wanted_s = fmin(LAUNCHES * warm_s, LONGEST * seconds);

    if (status == MICS_OK)
        status = time_ranks(launch, row, repeats, fmax(seconds, wanted_s), ranks, out, err);
    if (status == MICS_OK)
        compare_nodes(launch->bench->world, *out, ranks);
    return status;
}

/* Blocks of zeros are written in less time: every byte of what is summed becomes `byte`, 0x3f for
 * numbers of each type. */
static void fill_sources(const struct launch *launch, int byte)
{
    if (launch->shape.kernel == MICS_K_SUM_BLOCKS)
        memset(piece(launch, SOURCES), byte, PARTS * piece_bytes(launch->bench));
}

static enum mics_status time_series(const struct mics_bench *bench, const struct measured *row,
                                    double seconds, struct ranks *ranks,
                                    struct mics_kernel_rates *rates, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < rates->count && status == MICS_OK; i++) {
        struct mics_kernel_point *point = &rates->points[i];
        struct launch launch = {
            .bench = bench,
            .shape = {rates->kernel, rates->form, rates->dtype, point->m, point->n, point->k}};

        fill_sources(&launch, 0x3f);
        status = time_point(&launch, row, seconds, ranks, &point->seconds, err);
        fill_sources(&launch, 0);
    }
    return status;
}

static const struct measured *row_of(const struct mics_kernel_rates *rates)
{
    const struct measured *row = table;

    while (row->kernel != rates->kernel || row->form != rates->form)
        row++;
    return row;
}

/* Are these the products by which two measurements, some time apart, are compared? */
static bool is_repeated(const struct mics_bench *bench, const struct mics_kernel_rates *rates)
{
    const enum mics_dtype dtype = bench->product_dtype == MICS_BF16 ? MICS_BF16 : MICS_F32;

    return rates->kernel == MICS_K_MATMUL && rates->form == 0 && rates->dtype == dtype;
}

/* Measure a series once more: its times become the mean. *drift: by which part of the shorter one
 * the two times differ, the geometric mean over its sizes. */
static enum mics_status repeat_series(const struct mics_bench *bench, double seconds,
                                      struct ranks *ranks, struct mics_kernel_rates *rates,
                                      double *drift, struct mics_err *err)
{
    struct mics_kernel_rates again = *rates;
    double sum = 0;
    enum mics_status status = time_series(bench, row_of(rates), seconds, ranks, &again, err);

    for (uint32_t i = 0; i < rates->count && status == MICS_OK; i++) {
        sum += log(again.points[i].seconds / rates->points[i].seconds) / rates->count;
        rates->points[i].seconds = (rates->points[i].seconds + again.points[i].seconds) / 2;
    }
    *drift = expm1(fabs(sum));
    return status;
}

/* Tokens spread over the vocabulary; scalars with which an update changes parameters. */
static void fill_small(const struct mics_bench *bench)
{
    const struct launch launch = {.bench = bench};
    const uint64_t room = (piece_bytes(bench) - sizeof(struct mics_args_scalars)) / sizeof(int32_t);

    memset(bench->buffer, 0, bench->buffer_bytes);
    *scalars(&launch) = (struct mics_args_scalars){.targets = 1, .squared_norm = 1};
    for (uint64_t i = 0; i < room; i++)
        tokens(&launch)[i] = (int32_t)(i * 0x9e3779b97f4a7c15u >> 54) % WIDTH;
}

enum mics_status mics_bench_kernel_rates(const struct mics_bench *bench, double seconds,
                                         struct mics_kernel_rates **out, uint32_t *count,
                                         double *drift, struct mics_err *err)
{
    struct mics_kernel_rates *list = calloc(MAX_SERIES, sizeof *list);
    struct ranks ranks = {.seconds = calloc(bench->world->size, sizeof *ranks.seconds),
                          .nodes = calloc(bench->world->node_count, sizeof *ranks.nodes)};
    uint32_t series = 0, points = 0;
    enum mics_status status = list && ranks.seconds && ranks.nodes ? MICS_OK : mics_err_nomem(err);

    fill_small(bench);
    for (int i = 0; i < 2 * TABLE_ROWS && status == MICS_OK; i++) {
        const struct measured *row = &table[i / 2];
        struct mics_kernel_rates *rates = &list[series];

        if (row->f32_only && i % 2)
            continue;
        *rates = (struct mics_kernel_rates){
            .kernel = row->kernel, .form = row->form, .dtype = i % 2 ? MICS_BF16 : MICS_F32};
        choose_points(bench, rates);
        points += (is_repeated(bench, rates) ? 2 : 1) * rates->count;
        series++;
    }
    for (uint32_t i = 0; i < series && status == MICS_OK; i++)
        status = time_series(bench, row_of(&list[i]), seconds / points, &ranks, &list[i], err);
    for (uint32_t i = 0; i < series && status == MICS_OK; i++)
        if (is_repeated(bench, &list[i]))
            status = repeat_series(bench, seconds / points, &ranks, &list[i], drift, err);
    for (uint32_t i = 0; i < series && status == MICS_OK; i++) {
        for (uint32_t k = 0; k < list[i].count; k++)
            list[i].points[k].seconds *= slowest_node(bench->world, &ranks);
        mics_kernel_rates_fit(&list[i]);
    }
    memset(bench->buffer, 0, bench->buffer_bytes);
    free(ranks.seconds);
    free(ranks.nodes);
    if (status != MICS_OK) {
        free(list);
        return status;
    }
    *out = list;
    *count = series;
    return MICS_OK;
}
