/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPT-2 block:
 *
 *     middle = in + proj(attention(qkv(ln_1(in))))
 *     out    = middle + proj(gelu(fc(ln_2(middle))))
 *
 * forward computes in -> hidden, then out, with GELU in the epilogue of the product that computes hidden. backward
 * goes the opposite way. With full recomputation it first computes in -> hidden again (the last product is not
 * repeated), with selective recomputation only the outputs of the norms and of GELU.
 */
#include "device/launch.h"
#include "model/decoder/gpt2.h"

struct block {
    const struct mics_pass *pass;
    struct mics_gpt2_block_areas areas;
    uint32_t unit, rows, C, F;
    struct mics_linear qkv, attn_proj, fc, mlp_proj;
};

static struct mics_linear linear_of(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                                    uint32_t bias)
{
    const struct mics_tensor *tensor = &pass->model->units[unit].tensors[weight];

    return (struct mics_linear){
        .weight = mics_pass_param(pass, unit, weight),
        .bias = mics_pass_param(pass, unit, bias),
        .in = (uint32_t)tensor->shape[0],
        .out = (uint32_t)tensor->shape[1],
        .dtype = pass->batch.dtype,
        .grad_dtype = pass->batch.grad_dtype,
    };
}

static struct block block_of(const struct mics_pass *pass, uint32_t unit)
{
    return (struct block){
        .pass = pass,
        .areas = mics_gpt2_block_carve(pass->model, &pass->batch, pass->saved, pass->scratch, NULL),
        .unit = unit,
        .rows = pass->batch.B * pass->batch.T,
        .C = pass->model->config.n_embd,
        .F = pass->model->config.n_inner,
        .qkv = linear_of(pass, unit, MICS_GPT2_ATTN_WEIGHT, MICS_GPT2_ATTN_BIAS),
        .attn_proj = linear_of(pass, unit, MICS_GPT2_ATTN_PROJ_WEIGHT, MICS_GPT2_ATTN_PROJ_BIAS),
        .fc = linear_of(pass, unit, MICS_GPT2_FC_WEIGHT, MICS_GPT2_FC_BIAS),
        .mlp_proj = linear_of(pass, unit, MICS_GPT2_MLP_PROJ_WEIGHT, MICS_GPT2_MLP_PROJ_BIAS),
    };
}

static void attend(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_gpt2_block_areas *areas = &block->areas;

    mics_launch_attention(pass->stream, &(struct mics_op_attention){
                                            .out = areas->attention,
                                            .lse = areas->lse,
                                            .qkv = areas->qkv,
                                            .B = pass->batch.B,
                                            .T = pass->batch.T,
                                            .H = pass->model->config.n_head,
                                            .H_kv = pass->model->config.n_head,
                                            .D = block->C / pass->model->config.n_head,
                                            .causal = true,
                                            .dtype = block->pass->batch.dtype,
                                        });
}

/* in -> qkv, attention, middle and the second norm's output, from which `hidden` is computed. */
static void run_to_norm_2(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_gpt2_block_areas *areas = &block->areas;
    const uint32_t rows = block->rows;

    mics_gpt2_norm_forward(pass, block->unit, MICS_GPT2_LN_1_WEIGHT, &areas->ln_1, rows, areas->in,
                           areas->normed_1);
    mics_linear_forward(pass->stream, &block->qkv, rows, areas->normed_1, areas->qkv);
    attend(block);
    mics_linear_forward_add(pass->stream, &block->attn_proj, rows, areas->attention, areas->in,
                            areas->middle);
    mics_gpt2_norm_forward(pass, block->unit, MICS_GPT2_LN_2_WEIGHT, &areas->ln_2, rows,
                           areas->middle, areas->normed_2);
}

/* gelu(hidden) of `hidden` as it is stored, as the product's epilogue takes it: the same bits. */
static void activate(const struct block *block)
{
    mics_launch_gelu(block->pass->stream, &(struct mics_op_gelu){
                                              .out = block->areas.gelu,
                                              .in = block->areas.hidden,
                                              .count = (uint64_t)block->rows * block->F,
                                              .dtype = block->pass->batch.dtype,
                                          });
}

void mics_gpt2_block_forward(const struct mics_pass *pass, uint32_t unit)
{
    const struct block block = block_of(pass, unit);

    run_to_norm_2(&block);
    mics_linear_forward_gelu(pass->stream, &block.fc, block.rows, block.areas.normed_2,
                             block.areas.hidden, block.areas.gelu);
    mics_linear_forward_add(pass->stream, &block.mlp_proj, block.rows, block.areas.gelu,
                            block.areas.middle, pass->out);
}

/* The gradients of a norm and of the linear layer after it: from the gradient of the layer's output, in wide_b,
 * to that of the norm's input, added to flow. The norm's output is `normed` if it was saved, else it is
 * computed again in wide_a, which then takes its gradient. */
static void branch_backward(const struct block *block, const struct mics_linear *layer,
                            uint32_t weight, uint32_t bias, uint32_t norm_weight,
                            const struct mics_gpt2_norm *norm, const void *in, const void *normed)
{
    const struct mics_pass *pass = block->pass;
    void *const grad_normed = block->areas.wide_a, *const grad_out = block->areas.wide_b;

    if (pass->batch.recompute != MICS_RECOMPUTE_NONE) {
        mics_gpt2_norm_forward(pass, block->unit, norm_weight, norm, block->rows, in, grad_normed);
        normed = grad_normed;
    }
    mics_linear_grad_params(pass->stream, layer, block->rows, normed, grad_out,
                            mics_pass_grad(pass, block->unit, weight),
                            mics_pass_grad(pass, block->unit, bias));
    mics_linear_grad_in(pass->stream, layer, block->rows, grad_out, grad_normed);
    mics_gpt2_norm_backward(pass, block->unit, norm_weight, norm, block->rows, in, grad_normed,
                            pass->flow);
}

/* flow: from the gradient of the block's output to that of `middle`. */
static void mlp_backward(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_gpt2_block_areas *areas = &block->areas;

    if (pass->batch.recompute != MICS_RECOMPUTE_NONE)
        activate(block);
    mics_linear_grad_params(pass->stream, &block->mlp_proj, block->rows, areas->gelu, pass->flow,
                            mics_pass_grad(pass, block->unit, MICS_GPT2_MLP_PROJ_WEIGHT),
                            mics_pass_grad(pass, block->unit, MICS_GPT2_MLP_PROJ_BIAS));
    mics_linear_grad_in_gelu(pass->stream, &block->mlp_proj, block->rows, pass->flow, areas->hidden,
                             areas->wide_b);
    branch_backward(block, &block->fc, MICS_GPT2_FC_WEIGHT, MICS_GPT2_FC_BIAS,
                    MICS_GPT2_LN_2_WEIGHT, &areas->ln_2, areas->middle, areas->normed_2);
}

/* flow: from the gradient of `middle` to that of the block's input. */
static void attention_backward(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_gpt2_block_areas *areas = &block->areas;

    mics_linear_grad_params(pass->stream, &block->attn_proj, block->rows, areas->attention,
                            pass->flow,
                            mics_pass_grad(pass, block->unit, MICS_GPT2_ATTN_PROJ_WEIGHT),
                            mics_pass_grad(pass, block->unit, MICS_GPT2_ATTN_PROJ_BIAS));
    mics_linear_grad_in(pass->stream, &block->attn_proj, block->rows, pass->flow, areas->wide_a);
    mics_launch_attention_grad(pass->stream, &(struct mics_op_attention_grad){
                                                 .grad_qkv = areas->wide_b,
                                                 .delta = areas->delta,
                                                 .grad_out = areas->wide_a,
                                                 .out = areas->attention,
                                                 .qkv = areas->qkv,
                                                 .lse = areas->lse,
                                                 .B = pass->batch.B,
                                                 .T = pass->batch.T,
                                                 .H = pass->model->config.n_head,
                                                 .H_kv = pass->model->config.n_head,
                                                 .D = block->C / pass->model->config.n_head,
                                                 .causal = true,
                                                 .dtype = block->pass->batch.dtype,
                                             });
    branch_backward(block, &block->qkv, MICS_GPT2_ATTN_WEIGHT, MICS_GPT2_ATTN_BIAS,
                    MICS_GPT2_LN_1_WEIGHT, &areas->ln_1, areas->in, areas->normed_1);
}

void mics_gpt2_block_backward(const struct mics_pass *pass, uint32_t unit)
{
    const struct block block = block_of(pass, unit);

    if (pass->batch.recompute == MICS_RECOMPUTE_FULL) {
        run_to_norm_2(&block);
        mics_linear_forward(pass->stream, &block.fc, block.rows, block.areas.normed_2,
                            block.areas.hidden);
    }
    mlp_backward(&block);
    attention_backward(&block);
}
