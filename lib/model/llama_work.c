/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stages of Llama cost, counted as of GPT-2 in the order of llama_block.c and llama_ends.c. Caches are
 * left out: an operand is read once by each operation that needs it.
 */
#include "model/llama.h"

struct cost {
    double flops, bytes;
};

#define F32 4.0 /* bytes */

/* out[m, n] = a[m, k] b[k, n]; `add`: as much is read and added. */
static void add_matmul(struct cost *cost, double m, double n, double k, bool add)
{
    cost->flops += 2 * m * n * k;
    cost->bytes += F32 * (m * k + k * n + (add ? 2 : 1) * m * n);
}

/* Operations of one pass over memory: numbers read and written. */
static void add_pass(struct cost *cost, double numbers)
{
    cost->bytes += F32 * numbers;
}

static void add_linear_grad(struct cost *cost, double rows, double in, double out)
{
    add_matmul(cost, in, out, rows, true);
    add_matmul(cost, rows, in, out, false);
}

/* Numbers that a norm moves for each of its R C elements: in and out; its gradient takes the gradient
 * of the output and the input, and reads and writes the gradient of the input. */
#define NORM      2.0
#define NORM_GRAD 4.0

/* Numbers that turning queries and keys moves. */
static double rope(const struct mics_llama_sizes *s)
{
    return 2.0 * s->rows * (s->H + s->H_kv) * s->D;
}

static struct cost to_hidden(const struct mics_llama_sizes *s, double T)
{
    const double R = s->rows, C = s->C, F = s->F, A = s->heads_width, W = s->qkv_width;
    struct cost cost = {0};

    add_pass(&cost, NORM * R * C);
    add_matmul(&cost, R, W, C, false);
    add_pass(&cost, rope(s));
    cost.flops += 2 * R * T * A; /* two products of 2 R T A, half of each masked */
    add_pass(&cost, R * (W + A));
    add_matmul(&cost, R, C, A, true); /* added to the residual stream */
    add_pass(&cost, NORM * R * C);
    add_matmul(&cost, R, 2 * F, C, false);
    return cost;
}

static struct cost block_forward(const struct mics_llama_sizes *s, double T)
{
    struct cost cost = to_hidden(s, T);

    add_pass(&cost, 3.0 * s->rows * s->F);
    add_matmul(&cost, s->rows, s->C, s->F, true);
    return cost;
}

static struct cost block_backward(const struct mics_llama_sizes *s, double T, bool recompute)
{
    const double R = s->rows, C = s->C, F = s->F, A = s->heads_width, W = s->qkv_width;
    struct cost cost = {0};

    if (recompute)
        cost = to_hidden(s, T);
    add_pass(&cost, 3 * R * F); /* SwiGLU again */
    add_linear_grad(&cost, R, F, C);
    add_pass(&cost, 5 * R * F);
    add_pass(&cost, NORM * R * C);
    add_linear_grad(&cost, R, C, 2 * F);
    add_pass(&cost, NORM_GRAD * R * C);

    add_linear_grad(&cost, R, A, C);
    cost.flops += 5 * R * T * A; /* five products: the scores are made again */
    add_pass(&cost, 2 * R * (A + W));
    add_pass(&cost, rope(s));
    add_pass(&cost, NORM * R * C);
    add_linear_grad(&cost, R, C, W);
    add_pass(&cost, NORM_GRAD * R * C);
    return cost;
}

/* The head's backward is part of its forward when training. */
static struct cost head(double R, double C, double V, double pieces, bool train)
{
    struct cost cost = {0};

    add_pass(&cost, NORM * R * C);
    add_matmul(&cost, R, V, C, false);
    add_pass(&cost, (pieces - 1) * V * C); /* the matrix is read for every piece */
    add_pass(&cost, (train ? 2 : 1) * R * V);
    if (!train)
        return cost;
    add_matmul(&cost, V, C, R, true);
    add_matmul(&cost, R, C, V, false);
    add_pass(&cost, (pieces - 1) * 3 * V * C);
    add_pass(&cost, R * C);
    add_pass(&cost, NORM_GRAD * R * C);
    return cost;
}

static struct cost head_of(const struct mics_model *model, const struct mics_batch *batch)
{
    const uint32_t rows = batch->B * batch->T;
    const uint32_t at_once = mics_llama_head_carve(model, batch, NULL, NULL, NULL).rows;

    return head(rows, model->config.n_embd, model->config.vocab_size,
                (rows + at_once - 1) / at_once, batch->train);
}

void mics_llama_work(const struct mics_model *model, const struct mics_batch *batch, uint32_t stage,
                     struct mics_stage_work *out)
{
    const struct mics_llama_sizes s = mics_llama_sizes_of(model, batch);
    struct cost there = {0}, back = {0};

    switch (model->stages[stage].kind) {
    case MICS_STAGE_EMBED:
        add_pass(&there, 2.0 * s.rows * s.C);
        add_pass(&back, 3.0 * s.rows * s.C);
        break;
    case MICS_STAGE_BLOCK:
        there = block_forward(&s, batch->T);
        back = block_backward(&s, batch->T, batch->recompute);
        break;
    case MICS_STAGE_HEAD:
        there = head_of(model, batch);
        break;
    }
    if (!batch->train)
        back = (struct cost){0};
    *out = (struct mics_stage_work){
        .forward_flops = there.flops,
        .forward_bytes = there.bytes,
        .backward_flops = back.flops,
        .backward_bytes = back.bytes,
    };
}
