/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activations.c - where a stage keeps its activations, and what it costs in floating-point
 * operations and memory traffic.
 *
 * With selective recomputation a block saves 2C + W + A + hidden numbers per token: its input, the
 * results of products and of attention (qkv, attention, the middle of the residual stream,
 * `hidden`), and the statistics of the norms. The outputs of both norms and of the activation, and
 * with norms of heads what attention takes, need one pass over memory each to compute again, where
 * a product takes some C times the arithmetic. Without recomputation they are saved too: 2C + F
 * more, and W with norms of heads. Their inputs are needed in either case, for their gradients.
 * With full recomputation a block saves its input only, C. Evaluation uses the areas of training,
 * so that it fits the same arena.
 *
 * Costs are counted in the order of block.c and embed_head.c. Caches are left out: an operand is
 * read once by each operation that needs it.
 */
#include "model/activation_layout.h"
#include "model/decoder/decoder.h"

static struct mics_norm_stats take_stats(const struct mics_model *model,
                                         struct mics_activation_cursor *from, uint64_t rows)
{
    struct mics_norm_stats stats = {NULL, NULL};

    if (model->family->norm == MICS_NORM_LAYER)
        stats.mean = mics_activation_take_floats(from, rows);
    stats.rstd = mics_activation_take_floats(from, rows);
    return stats;
}

static void report(struct mics_stage_bytes *bytes, const struct mics_activation_cursor *saved,
                   const struct mics_activation_cursor *scratch)
{
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = saved->used, .scratch = scratch->used};
}

struct mics_block_activations mics_block_activations_of(const struct mics_model *model,
                                                        const struct mics_batch *batch, void *saved,
                                                        void *scratch,
                                                        struct mics_stage_bytes *bytes)
{
    const struct mics_decoder_sizes s = mics_decoder_sizes_of(model, batch);
    const bool all = batch->recompute == MICS_RECOMPUTE_NONE;
    const bool qk_norm = mics_decoder_has(model, MICS_BLOCK_Q_NORM);
    const uint64_t R = s.rows, widest = mics_max_u64(s.F, s.C);
    const enum mics_dtype dtype = batch->dtype;
    struct mics_activation_cursor keep = {.base = saved}, work = {.base = scratch};
    struct mics_activation_cursor *const kept =
        batch->recompute == MICS_RECOMPUTE_FULL ? &work : &keep;
    struct mics_block_activations areas = {0};

    areas.in = mics_activation_take_typed(&keep, R * s.C, dtype);
    areas.norm_1 = take_stats(model, kept, R);
    areas.qkv = mics_activation_take_typed(kept, R * s.W, dtype);
    areas.lse = mics_activation_take_floats(kept, R * s.H);
    areas.attention = mics_activation_take_typed(kept, R * s.A, dtype);
    areas.middle = mics_activation_take_typed(kept, R * s.C, dtype);
    areas.norm_2 = take_stats(model, kept, R);
    areas.hidden = mics_activation_take_typed(kept, R * s.hidden, dtype);
    areas.wide_a =
        mics_activation_take_typed(&work, R * mics_max_u64(all ? s.C : widest, s.A), dtype);
    areas.wide_b =
        mics_activation_take_typed(&work, R * mics_max_u64(all ? s.F : widest, s.W), dtype);
    areas.normed_1 = all ? mics_activation_take_typed(&keep, R * s.C, dtype) : areas.wide_b;
    areas.normed_2 = all ? mics_activation_take_typed(&keep, R * s.C, dtype) : areas.wide_b;
    areas.activated = all ? mics_activation_take_typed(&keep, R * s.F, dtype) : areas.wide_a;
    areas.delta = mics_activation_take_floats(&work, R * s.H);
    areas.attended = areas.qkv;
    if (qk_norm) {
        areas.qk_rstd = mics_activation_take_floats(kept, R * (s.H + s.H_kv));
        areas.attended = mics_activation_take_typed(all ? &keep : &work, R * s.W, dtype);
    }
    if (model->family->parallel_residual)
        areas.grad_out = mics_activation_take_typed(&work, R * s.C, dtype);
    report(bytes, &keep, &work);
    return areas;
}

struct mics_head_activations mics_head_activations_of(const struct mics_model *model,
                                                      const struct mics_batch *batch, void *saved,
                                                      void *scratch, struct mics_stage_bytes *bytes)
{
    const uint32_t V = model->config.vocab_size;
    const uint64_t R = (uint64_t)batch->B * batch->T, C = model->config.n_embd;
    struct mics_activation_cursor keep = {.base = saved}, work = {.base = scratch};
    struct mics_head_activations areas = {.rows = mics_head_chunk_rows(V, R, batch->dtype),
                                          .columns = mics_padded_vocab(V)};

    areas.in = mics_activation_take_typed(&keep, R * C, batch->dtype);
    areas.norm = take_stats(model, &work, areas.rows);
    areas.normed = mics_activation_take_typed(&work, areas.rows * C, batch->dtype);
    areas.grad_normed = mics_activation_take_typed(&work, areas.rows * C, batch->dtype);
    areas.logits =
        mics_activation_take_typed(&work, (uint64_t)areas.rows * areas.columns, batch->dtype);
    report(bytes, &keep, &work);
    return areas;
}

void mics_decoder_stage_bytes(const struct mics_model *model, const struct mics_batch *batch,
                              uint32_t stage, struct mics_stage_bytes *out)
{
    switch (model->stages[stage].kind) {
    case MICS_STAGE_EMBED: /* its input are the tokens, which the caller keeps */
        *out = (struct mics_stage_bytes){0};
        break;
    case MICS_STAGE_BLOCK:
        mics_block_activations_of(model, batch, NULL, NULL, out);
        break;
    case MICS_STAGE_HEAD:
        mics_head_activations_of(model, batch, NULL, NULL, out);
        break;
    }
}

/* What was counted, with the bytes of a number, and of one of a gradient of parameters. */
struct count {
    double flops, bytes, size, grad_size;
};

/* Numbers that a norm moves for each element: in and out; its gradient takes the gradient of the
 * output and the input, and reads and writes the gradient of the input. */
#define NORM      2.0
#define NORM_GRAD 4.0

/* out[m, n] = a[m, k] b[k, n]; `add`: as much is read and added. */
static void add_matmul(struct count *count, double m, double n, double k, bool add)
{
    count->flops += 2 * m * n * k;
    count->bytes += count->size * (m * k + k * n + (add ? 2 : 1) * m * n);
}

/* A pass over memory: numbers read and written. */
static void add_pass(struct count *count, double numbers)
{
    count->bytes += count->size * numbers;
}

/* The gradient of a matrix [m, n], from k rows: added to what is there. */
static void add_matrix_grad(struct count *count, double m, double n, double k)
{
    count->flops += 2 * m * n * k;
    count->bytes += count->size * (m * k + k * n) + count->grad_size * 2 * m * n;
}

/* The gradients of a linear layer: weight, input, and the bias if there is one. */
static void add_linear_grad(struct count *count, double rows, double in, double out, bool bias)
{
    add_matrix_grad(count, in, out, rows);
    add_matmul(count, rows, in, out, false);
    if (bias)
        add_pass(count, rows * out);
}

/* Which passes over memory a family's blocks have. */
struct pieces {
    bool gelu, rotary, qk_norm, parallel, qkv_bias, out_bias, fc_bias, down_bias;
};

static struct pieces pieces_of(const struct mics_model *model)
{
    const struct mics_family *family = model->family;

    return (struct pieces){
        .gelu = family->mlp == MICS_MLP_GELU,
        .rotary = mics_family_is_rotary(family),
        .qk_norm = mics_decoder_has(model, MICS_BLOCK_Q_NORM),
        .parallel = family->parallel_residual,
        .qkv_bias = mics_decoder_has(model, MICS_BLOCK_QKV_BIAS) ||
                    mics_decoder_has(model, MICS_BLOCK_Q_BIAS),
        .out_bias = mics_decoder_has(model, MICS_BLOCK_OUT_BIAS),
        .fc_bias = mics_decoder_has(model, MICS_BLOCK_FC_BIAS),
        .down_bias = mics_decoder_has(model, MICS_BLOCK_DOWN_BIAS),
    };
}

/* qkv -> attended. */
static void add_heads(struct count *count, const struct mics_decoder_sizes *s,
                      const struct pieces *has)
{
    if (has->qk_norm)
        add_pass(count, NORM * s->rows * s->W);
    if (has->rotary)
        add_pass(count, 2.0 * s->rows * (s->H + s->H_kv) * s->D);
}

static void add_to_hidden(struct count *count, const struct mics_decoder_sizes *s, double T,
                          const struct pieces *has)
{
    const double R = s->rows, C = s->C, A = s->A, W = s->W;

    add_pass(count, NORM * R * C);
    add_matmul(count, R, W, C, false);
    add_heads(count, s, has);
    count->flops += 2 * R * T * A; /* two products of 2 R T A, half of each masked */
    add_pass(count, R * (W + A));
    add_matmul(count, R, C, A, true); /* added to the residual stream */
    add_pass(count, NORM * R * C);
    add_matmul(count, R, s->hidden, C, false);
}

static void add_block_forward(struct count *count, const struct mics_decoder_sizes *s, double T,
                              const struct pieces *has)
{
    const double R = s->rows, F = s->F;

    add_to_hidden(count, s, T, has);
    add_pass(count, has->gelu ? R * F : 3 * R * F); /* GELU's product writes both sides of it */
    add_matmul(count, R, s->C, F, true);
}

static void add_block_backward(struct count *count, const struct mics_decoder_sizes *s, double T,
                               const struct pieces *has, enum mics_recompute recompute)
{
    const double R = s->rows, C = s->C, F = s->F, A = s->A, W = s->W;

    if (recompute == MICS_RECOMPUTE_FULL)
        add_to_hidden(count, s, T, has);
    if (recompute == MICS_RECOMPUTE_SELECTIVE && has->qk_norm)
        add_heads(count, s, has);
    if (recompute != MICS_RECOMPUTE_NONE) { /* the activation and both norms */
        add_pass(count, (has->gelu ? 2 : 3) * R * F);
        add_pass(count, 2 * NORM * R * C);
    }
    if (has->parallel)
        add_pass(count, 2 * R * C);
    add_linear_grad(count, R, F, C, has->down_bias);
    add_pass(count, (has->gelu ? 1 : 5) * R * F); /* the derivative of the activation */
    add_linear_grad(count, R, C, s->hidden, has->fc_bias);
    add_pass(count, NORM_GRAD * R * C);

    add_linear_grad(count, R, A, C, has->out_bias);
    count->flops += 5 * R * T * A; /* five products: the scores are computed again */
    add_pass(count, 2 * R * (A + W));
    if (has->rotary)
        add_pass(count, 2.0 * R * (s->H + s->H_kv) * s->D);
    if (has->qk_norm)
        add_pass(count, 3.0 * R * (s->H + s->H_kv) * s->D);
    add_linear_grad(count, R, C, W, has->qkv_bias);
    add_pass(count, NORM_GRAD * R * C);
}

/* The head: norm, product with [V, C] and its padding, loss, a chunk of rows at a time, and when
 * training their gradients, which are part of its forward. */
static void add_head(struct count *count, const struct mics_model *model,
                     const struct mics_batch *batch)
{
    const uint32_t rows = batch->B * batch->T;
    const uint32_t chunk = mics_head_activations_of(model, batch, NULL, NULL, NULL).rows;
    const double R = rows, C = model->config.n_embd,
                 V = mics_padded_vocab(model->config.vocab_size);
    const double more = (rows + chunk - 1) / chunk - 1; /* chunks after the first */

    add_pass(count, NORM * R * C);
    add_matmul(count, R, V, C, false);
    add_pass(count, more * V * C); /* the matrix is read for every chunk */
    add_pass(count, (batch->train ? 2 : 1) * R * model->config.vocab_size);
    if (!batch->train)
        return;
    add_matrix_grad(count, V, C, R);
    add_matmul(count, R, C, V, false);
    count->bytes += more * V * C * (count->size + 2 * count->grad_size);
    add_pass(count, R * C);
    add_pass(count, NORM_GRAD * R * C);
}

void mics_decoder_stage_cost(const struct mics_model *model, const struct mics_batch *batch,
                             uint32_t stage, struct mics_stage_cost *out)
{
    const struct mics_decoder_sizes s = mics_decoder_sizes_of(model, batch);
    const struct pieces has = pieces_of(model);
    const double tables = has.rotary ? 1 : 2; /* of the embedding: tokens, and learned positions */
    struct count forward = {.size = (double)mics_dtype_bytes(batch->dtype),
                            .grad_size = (double)mics_dtype_bytes(batch->grad_dtype)};
    struct count backward = forward;

    switch (model->stages[stage].kind) {
    case MICS_STAGE_EMBED:
        add_pass(&forward, (1 + tables) * s.rows * s.C);
        backward.bytes += (double)s.rows * s.C * (backward.size + 2 * tables * backward.grad_size);
        break;
    case MICS_STAGE_BLOCK:
        add_block_forward(&forward, &s, batch->T, &has);
        add_block_backward(&backward, &s, batch->T, &has, batch->recompute);
        break;
    case MICS_STAGE_HEAD:
        add_head(&forward, model, batch);
        break;
    }
    *out = (struct mics_stage_cost){.forward_flops = forward.flops, .forward_bytes = forward.bytes};
    if (batch->train) {
        out->backward_flops = backward.flops;
        out->backward_bytes = backward.bytes;
    }
}
