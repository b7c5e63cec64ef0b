/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Llama block:
 *
 *     middle = in + o(attention(turn(q, k), v)),     q, k, v = qkv(norm_1(in))
 *     out    = middle + down(silu(gate) * up),       gate, up = gate_up(norm_2(middle))
 *
 * forward computes in -> hidden (`run_to_hidden`), then out. backward goes the opposite way. With full recomputation
 * it first runs `run_to_hidden` again (the last product is not repeated), with selective recomputation it computes
 * only the outputs of the norms and of SwiGLU again.
 */
#include "device/launch.h"
#include "model/decoder/llama.h"

struct block {
    const struct mics_pass *pass;
    struct mics_llama_sizes is;
    struct mics_llama_block_areas areas;
    uint32_t unit;
    struct mics_linear qkv, o, gate_up, down;
};

static struct mics_linear linear_of(const struct mics_pass *pass, uint32_t unit, uint32_t tensor,
                                    uint32_t in, uint32_t out)
{
    return (struct mics_linear){
        .weight = mics_pass_param(pass, unit, tensor),
        .in = in,
        .out = out,
        .transposed = true,
        .dtype = pass->batch.dtype,
        .grad_dtype = pass->batch.grad_dtype,
    };
}

static struct block block_of(const struct mics_pass *pass, uint32_t unit)
{
    const struct mics_llama_sizes s = mics_llama_sizes_of(pass->model, &pass->batch);

    return (struct block){
        .pass = pass,
        .is = s,
        .areas =
            mics_llama_block_carve(pass->model, &pass->batch, pass->saved, pass->scratch, NULL),
        .unit = unit,
        .qkv = linear_of(pass, unit, MICS_LLAMA_Q, s.C, s.qkv_width),
        .o = linear_of(pass, unit, MICS_LLAMA_O, s.heads_width, s.C),
        .gate_up = linear_of(pass, unit, MICS_LLAMA_GATE, s.C, 2 * s.F),
        .down = linear_of(pass, unit, MICS_LLAMA_DOWN, s.F, s.C),
    };
}

/* Turn queries and keys to their positions, or their gradients back. */
static void turn(const struct block *block, void *qkv, bool inverse)
{
    mics_launch_rope(block->pass->stream, &(struct mics_op_rope){
                                              .data = qkv,
                                              .B = block->pass->batch.B,
                                              .T = block->pass->batch.T,
                                              .heads = block->is.H + block->is.H_kv,
                                              .D = block->is.D,
                                              .stride = block->is.qkv_width,
                                              .base = (float)block->pass->model->config.rope_theta,
                                              .inverse = inverse,
                                              .dtype = block->pass->batch.dtype,
                                              .scaling = block->pass->model->config.rope_scaling,
                                          });
}

static void attend(const struct block *block)
{
    mics_launch_attention(block->pass->stream, &(struct mics_op_attention){
                                                   .out = block->areas.attention,
                                                   .lse = block->areas.lse,
                                                   .qkv = block->areas.qkv,
                                                   .B = block->pass->batch.B,
                                                   .T = block->pass->batch.T,
                                                   .H = block->is.H,
                                                   .H_kv = block->is.H_kv,
                                                   .D = block->is.D,
                                                   .causal = true,
                                                   .dtype = block->pass->batch.dtype,
                                               });
}

/* in -> qkv, attention, middle, hidden. */
static void run_to_hidden(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_llama_block_areas *areas = &block->areas;
    const uint32_t rows = block->is.rows;

    mics_llama_norm_forward(pass, block->unit, MICS_LLAMA_NORM_1, areas->norm_1, rows, areas->in,
                            areas->normed_1);
    mics_linear_forward(pass->stream, &block->qkv, rows, areas->normed_1, areas->qkv);
    turn(block, areas->qkv, false);
    attend(block);
    mics_linear_forward_add(pass->stream, &block->o, rows, areas->attention, areas->in,
                            areas->middle);
    mics_llama_norm_forward(pass, block->unit, MICS_LLAMA_NORM_2, areas->norm_2, rows,
                            areas->middle, areas->normed_2);
    mics_linear_forward(pass->stream, &block->gate_up, rows, areas->normed_2, areas->hidden);
}

/* swiglu = silu(gate) * up. */
static void activate(const struct block *block)
{
    mics_launch_swiglu(block->pass->stream, &(struct mics_op_swiglu){
                                                .out = block->areas.swiglu,
                                                .in = block->areas.hidden,
                                                .rows = block->is.rows,
                                                .F = block->is.F,
                                                .dtype = block->pass->batch.dtype,
                                            });
}

void mics_llama_block_forward(const struct mics_pass *pass, uint32_t unit)
{
    const struct block block = block_of(pass, unit);

    run_to_hidden(&block);
    activate(&block);
    mics_linear_forward_add(pass->stream, &block.down, block.is.rows, block.areas.swiglu,
                            block.areas.middle, pass->out);
}

/* The gradients of a norm and of the linear layer after it: from the gradient of the layer's output to that of
 * the norm's input, added to flow. The norm's output is `normed` if it was saved, else it is computed again in
 * wide_a, which then takes its gradient. */
static void branch_backward(const struct block *block, const struct mics_linear *layer,
                            uint32_t tensor, const void *grad_out, uint32_t norm, float *rstd,
                            const void *in, const void *normed)
{
    const struct mics_pass *pass = block->pass;
    void *const grad_normed = block->areas.wide_a;

    if (pass->batch.recompute != MICS_RECOMPUTE_NONE) {
        mics_llama_norm_forward(pass, block->unit, norm, rstd, block->is.rows, in, grad_normed);
        normed = grad_normed;
    }
    mics_linear_grad_params(pass->stream, layer, block->is.rows, normed, grad_out,
                            mics_pass_grad(pass, block->unit, tensor), NULL);
    mics_linear_grad_in(pass->stream, layer, block->is.rows, grad_out, grad_normed);
    mics_llama_norm_backward(pass, block->unit, norm, rstd, block->is.rows, in, grad_normed,
                             pass->flow);
}

/* flow: from the gradient of the block's output to that of `middle`. */
static void mlp_backward(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_llama_block_areas *areas = &block->areas;

    if (pass->batch.recompute != MICS_RECOMPUTE_NONE)
        activate(block);
    mics_linear_grad_params(pass->stream, &block->down, block->is.rows, areas->swiglu, pass->flow,
                            mics_pass_grad(pass, block->unit, MICS_LLAMA_DOWN), NULL);
    mics_linear_grad_in(pass->stream, &block->down, block->is.rows, pass->flow, areas->wide_b);
    mics_launch_swiglu_grad(pass->stream, &(struct mics_op_swiglu_grad){
                                              .grad_in = areas->hidden,
                                              .in = areas->hidden,
                                              .grad_out = areas->wide_b,
                                              .rows = block->is.rows,
                                              .F = block->is.F,
                                              .dtype = block->pass->batch.dtype,
                                          });
    branch_backward(block, &block->gate_up, MICS_LLAMA_GATE, areas->hidden, MICS_LLAMA_NORM_2,
                    areas->norm_2, areas->middle, areas->normed_2);
}

static void attend_backward(const struct block *block)
{
    mics_launch_attention_grad(block->pass->stream, &(struct mics_op_attention_grad){
                                                        .grad_qkv = block->areas.wide_b,
                                                        .delta = block->areas.delta,
                                                        .grad_out = block->areas.wide_a,
                                                        .out = block->areas.attention,
                                                        .qkv = block->areas.qkv,
                                                        .lse = block->areas.lse,
                                                        .B = block->pass->batch.B,
                                                        .T = block->pass->batch.T,
                                                        .H = block->is.H,
                                                        .H_kv = block->is.H_kv,
                                                        .D = block->is.D,
                                                        .causal = true,
                                                        .dtype = block->pass->batch.dtype,
                                                    });
}

/* flow: from the gradient of `middle` to that of the block's input. */
static void attention_backward(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_llama_block_areas *areas = &block->areas;

    mics_linear_grad_params(pass->stream, &block->o, block->is.rows, areas->attention, pass->flow,
                            mics_pass_grad(pass, block->unit, MICS_LLAMA_O), NULL);
    mics_linear_grad_in(pass->stream, &block->o, block->is.rows, pass->flow, areas->wide_a);
    attend_backward(block);
    turn(block, areas->wide_b, true);
    branch_backward(block, &block->qkv, MICS_LLAMA_Q, areas->wide_b, MICS_LLAMA_NORM_1,
                    areas->norm_1, areas->in, areas->normed_1);
}

void mics_llama_block_backward(const struct mics_pass *pass, uint32_t unit)
{
    const struct block block = block_of(pass, unit);

    if (pass->batch.recompute == MICS_RECOMPUTE_FULL)
        run_to_hidden(&block);
    mlp_backward(&block);
    attention_backward(&block);
}
