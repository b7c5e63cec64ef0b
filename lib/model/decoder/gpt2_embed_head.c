/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ends of GPT-2: the embedding, and the head with the loss.
 *
 * The head goes through the rows a piece at a time: final norm, logits, loss, and at once the way
 * back, so that the logits of a whole micro-batch never exist. All its gradients are of the *sum* of
 * the losses.
 */
#include "device/launch.h"
#include "model/activation_layout.h"
#include "model/decoder/gpt2.h"

#define ENDS 0 /* the unit */

void mics_gpt2_norm_forward(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                            const struct mics_gpt2_norm *norm, uint32_t rows, const void *in,
                            void *out)
{
    mics_launch_layernorm(pass->stream, &(struct mics_op_layernorm){
                                            .out = out,
                                            .mean = norm->mean,
                                            .rstd = norm->rstd,
                                            .in = in,
                                            .weight = mics_pass_param(pass, unit, weight),
                                            .bias = mics_pass_param(pass, unit, weight + 1),
                                            .rows = rows,
                                            .C = pass->model->config.n_embd,
                                            .eps = (float)pass->model->config.layer_norm_epsilon,
                                            .dtype = pass->batch.dtype,
                                        });
}

void mics_gpt2_norm_backward(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                             const struct mics_gpt2_norm *norm, uint32_t rows, const void *in,
                             const void *grad_out, void *grad_in)
{
    mics_launch_layernorm_grad(pass->stream,
                               &(struct mics_op_layernorm_grad){
                                   .grad_in = grad_in,
                                   .grad_weight = mics_pass_grad(pass, unit, weight),
                                   .grad_bias = mics_pass_grad(pass, unit, weight + 1),
                                   .grad_out = grad_out,
                                   .in = in,
                                   .weight = mics_pass_param(pass, unit, weight),
                                   .mean = norm->mean,
                                   .rstd = norm->rstd,
                                   .rows = rows,
                                   .C = pass->model->config.n_embd,
                                   .dtype = pass->batch.dtype,
                                   .grad_dtype = pass->batch.grad_dtype,
                               });
}

void mics_gpt2_embed_forward(const struct mics_pass *pass)
{
    mics_launch_embedding(pass->stream, &(struct mics_op_embedding){
                                            .out = pass->out,
                                            .tokens = pass->tokens,
                                            .wte = mics_pass_param(pass, ENDS, MICS_GPT2_WTE),
                                            .wpe = mics_pass_param(pass, ENDS, MICS_GPT2_WPE),
                                            .B = pass->batch.B,
                                            .T = pass->batch.T,
                                            .C = pass->model->config.n_embd,
                                            .dtype = pass->batch.dtype,
                                        });
}

void mics_gpt2_embed_backward(const struct mics_pass *pass)
{
    mics_launch_embedding_grad(pass->stream,
                               &(struct mics_op_embedding_grad){
                                   .grad_wte = mics_pass_grad(pass, ENDS, MICS_GPT2_WTE),
                                   .grad_wpe = mics_pass_grad(pass, ENDS, MICS_GPT2_WPE),
                                   .tokens = pass->tokens,
                                   .grad_out = pass->flow,
                                   .B = pass->batch.B,
                                   .T = pass->batch.T,
                                   .C = pass->model->config.n_embd,
                                   .V = pass->model->config.vocab_size,
                                   .dtype = pass->batch.dtype,
                                   .grad_dtype = pass->batch.grad_dtype,
                               });
}

/* The token embedding as the head's layer, with its spare rows: used transposed, without bias, logits =
 * normed wte'. */
static struct mics_linear tied(const struct mics_pass *pass)
{
    return (struct mics_linear){
        .weight = mics_pass_param(pass, ENDS, MICS_GPT2_WTE),
        .in = mics_carve_head_columns(pass->model->config.vocab_size),
        .out = pass->model->config.n_embd,
        .dtype = pass->batch.dtype,
        .grad_dtype = pass->batch.grad_dtype,
    };
}

static void piece_forward(const struct mics_pass *pass, const struct mics_gpt2_head_areas *areas,
                          uint32_t first, uint32_t rows)
{
    const struct mics_linear wte = tied(pass);

    mics_gpt2_norm_forward(pass, ENDS, MICS_GPT2_LN_F_WEIGHT, &areas->norm, rows,
                           mics_pass_row(pass, areas->in, first), areas->normed);
    mics_linear_grad_in(pass->stream, &wte, rows, areas->normed, areas->logits);
}

/* The logits have become their gradients. */
static void piece_backward(const struct mics_pass *pass, const struct mics_gpt2_head_areas *areas,
                           uint32_t first, uint32_t rows)
{
    const struct mics_linear wte = tied(pass);
    void *const flow = mics_pass_row(pass, pass->flow, first);

    mics_linear_grad_params(pass->stream, &wte, rows, areas->logits, areas->normed,
                            mics_pass_grad(pass, ENDS, MICS_GPT2_WTE), NULL);
    mics_linear_forward(pass->stream, &wte, rows, areas->logits, areas->grad_normed);
    mics_launch_zero(pass->stream,
                     &(struct mics_op_zero){
                         .dst = flow,
                         .bytes = mics_dtype_bytes(pass->batch.dtype) * rows * wte.out,
                     });
    mics_gpt2_norm_backward(pass, ENDS, MICS_GPT2_LN_F_WEIGHT, &areas->norm, rows,
                            mics_pass_row(pass, areas->in, first), areas->grad_normed, flow);
}

void mics_gpt2_head(const struct mics_pass *pass)
{
    const uint32_t total = pass->batch.B * pass->batch.T;
    const struct mics_gpt2_head_areas areas =
        mics_gpt2_head_carve(pass->model, &pass->batch, pass->saved, pass->scratch, NULL);

    for (uint32_t first = 0; first < total; first += areas.rows) {
        const uint32_t rows = total - first < areas.rows ? total - first : areas.rows;

        piece_forward(pass, &areas, first, rows);
        mics_launch_cross_entropy(pass->stream, &(struct mics_op_cross_entropy){
                                                    .logits = areas.logits,
                                                    .targets = pass->targets + first,
                                                    .loss_sum = pass->loss_sum,
                                                    .rows = rows,
                                                    .V = pass->model->config.vocab_size,
                                                    .ld = areas.columns,
                                                    .grad = pass->batch.train,
                                                    .dtype = pass->batch.dtype,
                                                });
        if (pass->batch.train)
            piece_backward(pass, &areas, first, rows);
    }
}

void mics_gpt2_logits(const struct mics_pass *pass, uint32_t row, void *logits)
{
    const struct mics_gpt2_head_areas areas =
        mics_gpt2_head_carve(pass->model, &pass->batch, pass->saved, pass->scratch, NULL);

    piece_forward(pass, &areas, row, 1);
    mics_launch_copy(pass->stream, &(struct mics_op_copy){
                                       .dst = logits,
                                       .src = areas.logits,
                                       .bytes = mics_dtype_bytes(pass->batch.dtype) *
                                                pass->model->config.vocab_size,
                                   });
}
