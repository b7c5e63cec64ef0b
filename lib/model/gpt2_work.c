/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stages of GPT-2 cost: floating-point operations of the matrix products and of attention, and
 * bytes of memory that every operation reads and writes, counted in the order of gpt2_block.c
 * and gpt2_ends.c. Caches are left out: an operand is read once by each operation that needs it.
 */
#include "model/gpt2.h"

/* With the bytes of a number, and of one of a gradient of parameters. */
struct cost {
    double flops, bytes, size, grad_size;
};

static struct cost cost_of(const struct mics_batch *batch)
{
    return (struct cost){.size = (double)mics_dtype_bytes(batch->dtype),
                         .grad_size = (double)mics_dtype_bytes(batch->grad_dtype)};
}

/* out[m, n] = a[m, k] b[k, n]; `add`: as much is read and added. */
static void add_matmul(struct cost *cost, double m, double n, double k, bool add)
{
    cost->flops += 2 * m * n * k;
    cost->bytes += cost->size * (m * k + k * n + (add ? 2 : 1) * m * n);
}

/* Operations of one pass over memory: floats read and written. */
static void add_pass(struct cost *cost, double floats)
{
    cost->bytes += cost->size * floats;
}

/* The gradient of a matrix [m, n], from k rows: added to what is there. */
static void add_matrix_grad(struct cost *cost, double m, double n, double k)
{
    cost->flops += 2 * m * n * k;
    cost->bytes += cost->size * (m * k + k * n) + cost->grad_size * 2 * m * n;
}

static void add_linear_grad(struct cost *cost, double rows, double in, double out)
{
    add_matrix_grad(cost, in, out, rows);
    add_pass(cost, rows * out); /* the bias */
    add_matmul(cost, rows, in, out, false);
}

/* Floats that a norm moves for each of its R C elements: in and out; its gradient takes the gradient
 * of the output and the input, and reads and writes the gradient of the input. */
#define NORM      2.0
#define NORM_GRAD 4.0

static struct cost to_hidden(struct cost cost, double R, double T, double C, double F)
{
    add_pass(&cost, NORM * R * C);
    add_matmul(&cost, R, 3 * C, C, false);
    cost.flops += 2 * R * T * C; /* two products of 2 R T C, half of each masked */
    add_pass(&cost, 4 * R * C);
    add_matmul(&cost, R, C, C, true); /* added to the residual stream */
    add_pass(&cost, NORM * R * C);
    add_matmul(&cost, R, F, C, false);
    return cost;
}

static struct cost block_forward(struct cost none, double R, double T, double C, double F)
{
    struct cost cost = to_hidden(none, R, T, C, F);

    add_pass(&cost, 2 * R * F);
    add_matmul(&cost, R, C, F, true);
    return cost;
}

static struct cost block_backward(struct cost cost, double R, double T, double C, double F,
                                  bool recompute)
{
    if (recompute)
        cost = to_hidden(cost, R, T, C, F);
    add_pass(&cost, 2 * R * F); /* GELU again */
    add_linear_grad(&cost, R, F, C);
    add_pass(&cost, 3 * R * F);
    add_pass(&cost, NORM * R * C);
    add_linear_grad(&cost, R, C, F);
    add_pass(&cost, NORM_GRAD * R * C);

    add_linear_grad(&cost, R, C, C);
    cost.flops += 5 * R * T * C; /* five products: the scores are made again */
    add_pass(&cost, 8 * R * C);
    add_pass(&cost, NORM * R * C);
    add_linear_grad(&cost, R, C, 3 * C);
    add_pass(&cost, NORM_GRAD * R * C);
    return cost;
}

/* The head's backward is part of its forward when training. */
static struct cost head(struct cost cost, double R, double C, double V, double pieces, bool train)
{
    add_pass(&cost, NORM * R * C);
    add_matmul(&cost, R, V, C, false);
    add_pass(&cost, (pieces - 1) * V * C); /* the embedding is read for every piece */
    add_pass(&cost, (train ? 2 : 1) * R * V);
    if (!train)
        return cost;
    add_matrix_grad(&cost, V, C, R);
    add_matmul(&cost, R, C, V, false);
    cost.bytes += (pieces - 1) * V * C * (cost.size + 2 * cost.grad_size);
    add_pass(&cost, R * C);
    add_pass(&cost, NORM_GRAD * R * C);
    return cost;
}

static struct cost head_of(const struct mics_model *model, const struct mics_batch *batch)
{
    const uint32_t rows = batch->B * batch->T;
    const uint32_t at_once = mics_gpt2_head_carve(model, batch, NULL, NULL, NULL).rows;

    return head(cost_of(batch), rows, model->config.n_embd, model->config.vocab_size,
                (rows + at_once - 1) / at_once, batch->train);
}

void mics_gpt2_work(const struct mics_model *model, const struct mics_batch *batch, uint32_t stage,
                    struct mics_stage_work *out)
{
    const double R = (double)batch->B * batch->T, T = batch->T;
    const double C = model->config.n_embd, F = model->config.n_inner;
    struct cost there = cost_of(batch), back = there;

    switch (model->stages[stage].kind) {
    case MICS_STAGE_EMBED:
        add_pass(&there, 3 * R * C);
        back.bytes += R * C * (back.size + 4 * back.grad_size);
        break;
    case MICS_STAGE_BLOCK:
        there = block_forward(cost_of(batch), R, T, C, F);
        back = block_backward(cost_of(batch), R, T, C, F, batch->recompute);
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
