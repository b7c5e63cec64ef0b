/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ends of Llama: the embedding, and the head with the loss, as of GPT-2: the head goes through the
 * rows a piece at a time, norm, logits, loss, and at once the way back, so that the logits of a whole
 * micro-batch never exist. All its gradients are of the *sum* of the losses.
 */
#include "device/launch.h"
#include "model/activation_layout.h"
#include "model/decoder/llama.h"

#define EMBED 0 /* the unit of the embedding, whose matrix is its first tensor, tied or not */

void mics_llama_norm_forward(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                             float *rstd, uint32_t rows, const void *in, void *out)
{
    mics_launch_rmsnorm(pass->stream, &(struct mics_op_rmsnorm){
                                          .out = out,
                                          .rstd = rstd,
                                          .in = in,
                                          .weight = mics_pass_param(pass, unit, weight),
                                          .rows = rows,
                                          .C = pass->model->config.n_embd,
                                          .eps = (float)pass->model->config.layer_norm_epsilon,
                                          .dtype = pass->batch.dtype,
                                      });
}

void mics_llama_norm_backward(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                              const float *rstd, uint32_t rows, const void *in,
                              const void *grad_out, void *grad_in)
{
    mics_launch_rmsnorm_grad(pass->stream, &(struct mics_op_rmsnorm_grad){
                                               .grad_in = grad_in,
                                               .grad_weight = mics_pass_grad(pass, unit, weight),
                                               .grad_out = grad_out,
                                               .in = in,
                                               .weight = mics_pass_param(pass, unit, weight),
                                               .rstd = rstd,
                                               .rows = rows,
                                               .C = pass->model->config.n_embd,
                                               .dtype = pass->batch.dtype,
                                               .grad_dtype = pass->batch.grad_dtype,
                                           });
}

void mics_llama_embed_forward(const struct mics_pass *pass)
{
    mics_launch_embedding(pass->stream,
                          &(struct mics_op_embedding){
                              .out = pass->out,
                              .tokens = pass->tokens,
                              .wte = mics_pass_param(pass, EMBED, MICS_LLAMA_VOCABULARY),
                              .B = pass->batch.B,
                              .T = pass->batch.T,
                              .C = pass->model->config.n_embd,
                              .dtype = pass->batch.dtype,
                          });
}

void mics_llama_embed_backward(const struct mics_pass *pass)
{
    mics_launch_embedding_grad(pass->stream,
                               &(struct mics_op_embedding_grad){
                                   .grad_wte = mics_pass_grad(pass, EMBED, MICS_LLAMA_VOCABULARY),
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

/* What a pass over the head has at hand. */
struct head {
    const struct mics_pass *pass;
    struct mics_llama_head_areas areas;
    struct mics_linear vocabulary;
    uint32_t unit;
};

static struct head head_of(const struct mics_pass *pass, uint32_t unit)
{
    return (struct head){
        .pass = pass,
        .areas = mics_llama_head_carve(pass->model, &pass->batch, pass->saved, pass->scratch, NULL),
        .vocabulary = {.weight = mics_pass_param(pass, unit, MICS_LLAMA_VOCABULARY),
                       .in = pass->model->config.n_embd,
                       .out = mics_carve_head_columns(pass->model->config.vocab_size),
                       .transposed = true,
                       .dtype = pass->batch.dtype,
                       .grad_dtype = pass->batch.grad_dtype},
        .unit = unit,
    };
}

static void piece_forward(const struct head *head, uint32_t first, uint32_t rows)
{
    mics_llama_norm_forward(head->pass, head->unit, MICS_LLAMA_NORM, head->areas.norm, rows,
                            mics_pass_row(head->pass, head->areas.in, first), head->areas.normed);
    mics_linear_forward(head->pass->stream, &head->vocabulary, rows, head->areas.normed,
                        head->areas.logits);
}

/* The logits have become their gradients. */
static void piece_backward(const struct head *head, uint32_t first, uint32_t rows)
{
    const struct mics_pass *pass = head->pass;
    const struct mics_llama_head_areas *areas = &head->areas;
    void *const flow = mics_pass_row(pass, pass->flow, first);

    mics_linear_grad_params(pass->stream, &head->vocabulary, rows, areas->normed, areas->logits,
                            mics_pass_grad(pass, head->unit, MICS_LLAMA_VOCABULARY), NULL);
    mics_linear_grad_in(pass->stream, &head->vocabulary, rows, areas->logits, areas->grad_normed);
    mics_launch_zero(pass->stream,
                     &(struct mics_op_zero){
                         .dst = flow,
                         .bytes = mics_dtype_bytes(pass->batch.dtype) * rows * head->vocabulary.in,
                     });
    mics_llama_norm_backward(pass, head->unit, MICS_LLAMA_NORM, areas->norm, rows,
                             mics_pass_row(pass, areas->in, first), areas->grad_normed, flow);
}

void mics_llama_head(const struct mics_pass *pass, uint32_t unit)
{
    const uint32_t total = pass->batch.B * pass->batch.T;
    const struct head head = head_of(pass, unit);

    for (uint32_t first = 0; first < total; first += head.areas.rows) {
        const uint32_t rows = total - first < head.areas.rows ? total - first : head.areas.rows;

        piece_forward(&head, first, rows);
        mics_launch_cross_entropy(pass->stream, &(struct mics_op_cross_entropy){
                                                    .logits = head.areas.logits,
                                                    .targets = pass->targets + first,
                                                    .loss_sum = pass->loss_sum,
                                                    .rows = rows,
                                                    .V = pass->model->config.vocab_size,
                                                    .ld = head.areas.columns,
                                                    .grad = pass->batch.train,
                                                    .dtype = pass->batch.dtype,
                                                });
        if (pass->batch.train)
            piece_backward(&head, first, rows);
    }
}

void mics_llama_logits(const struct mics_pass *pass, uint32_t unit, uint32_t row, void *logits)
{
    const struct head head = head_of(pass, unit);

    piece_forward(&head, row, 1);
    mics_launch_copy(pass->stream, &(struct mics_op_copy){
                                       .dst = logits,
                                       .src = head.areas.logits,
                                       .bytes = mics_dtype_bytes(pass->batch.dtype) *
                                                pass->model->config.vocab_size,
                                   });
}
