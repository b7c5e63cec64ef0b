/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embed_head.c - the embedding, and the head with the loss.
 *
 * The head works on a chunk of rows at a time: final norm, logits, loss, and at once its backward
 * pass, so that the logits of a whole micro-batch never exist. All its gradients are of the *sum*
 * of the losses.
 */
#include "device/launch.h"
#include "model/activation_layout.h"
#include "model/transformer/transformer.h"

#include <assert.h>

#define EMBED_UNIT 0

/* The embedding's matrices as the weights of layers: only their places count. */
struct embedding {
    struct mics_linear tokens, positions;
};

static struct embedding embedding_of(const struct mics_pass *pass)
{
    const struct mics_model *model = pass->model;
    const bool learned = model->family->positions == MICS_POSITIONS_LEARNED;

    return (struct embedding){
        .tokens = mics_linear_of(pass, EMBED_UNIT,
                                 mics_transformer_embed_head_index(model, MICS_HEAD_EMBEDDING),
                                 MICS_NO_TENSOR, 0, 0),
        .positions =
            mics_linear_of(pass, EMBED_UNIT,
                           learned ? mics_transformer_embed_head_index(model, MICS_HEAD_POSITIONS)
                                   : MICS_NO_TENSOR,
                           MICS_NO_TENSOR, 0, 0),
    };
}

void mics_embed_forward(const struct mics_pass *pass, uint32_t position)
{
    const struct embedding embedding = embedding_of(pass);
    const uint64_t first = (uint64_t)position * pass->model->config.n_embd;
    const void *wpe = embedding.positions.weight;

    mics_launch_embedding(pass->stream,
                          &(struct mics_args_embedding){
                              .out = pass->out[MICS_RESIDUAL],
                              .tokens = pass->tokens,
                              .wte = embedding.tokens.weight,
                              .wpe = wpe ? mics_element(wpe, first, pass->batch.dtype) : NULL,
                              .B = pass->batch.B,
                              .T = pass->batch.T,
                              .C = pass->model->config.n_embd,
                              .dtype = pass->batch.dtype,
                          });
}

void mics_embed_backward(const struct mics_pass *pass)
{
    const struct embedding embedding = embedding_of(pass);

    mics_launch_embedding_grad(pass->stream, &(struct mics_args_embedding_grad){
                                                 .grad_wte = embedding.tokens.grad_weight,
                                                 .grad_wpe = embedding.positions.grad_weight,
                                                 .tokens = pass->tokens,
                                                 .grad_out = pass->grad[MICS_RESIDUAL],
                                                 .B = pass->batch.B,
                                                 .T = pass->batch.T,
                                                 .C = pass->model->config.n_embd,
                                                 .V = pass->model->config.vocab_size,
                                                 .dtype = pass->batch.dtype,
                                                 .grad_dtype = pass->batch.grad_dtype,
                                             });
}

struct head {
    const struct mics_pass *pass;
    struct mics_head_activations acts;
    struct mics_norm norm;
    struct mics_linear vocabulary; /* [V, C] with its padding: logits = normed vocabulary' */
};

static struct head head_of(const struct mics_pass *pass, uint32_t unit)
{
    const struct mics_model *model = pass->model;
    const bool bias = model->family->embed_head[MICS_HEAD_NORM_BIAS] != NULL;
    struct head head = {
        .pass = pass,
        .acts = mics_head_activations_of(model, &pass->batch, pass->scratch, NULL),
    };

    head.norm = mics_norm_of(pass, unit, mics_transformer_embed_head_index(model, MICS_HEAD_NORM),
                             bias ? mics_transformer_embed_head_index(model, MICS_HEAD_NORM_BIAS)
                                  : MICS_NO_TENSOR,
                             &head.acts.norm);
    head.vocabulary =
        mics_linear_of(pass, unit, mics_transformer_embed_head_index(model, MICS_HEAD_WEIGHT),
                       MICS_NO_TENSOR, model->config.n_embd, head.acts.columns);
    head.vocabulary.transposed = true; /* in every family */
    return head;
}

/* Row `row` of an array [rows, C] of activations. */
static void *row_of(const struct mics_pass *pass, const void *base, uint64_t row)
{
    return mics_element(base, row * pass->model->config.n_embd, pass->batch.dtype);
}

static void chunk_forward(const struct head *head, uint32_t first, uint32_t rows)
{
    mics_norm_forward(&head->norm, rows, row_of(head->pass, head->pass->in[MICS_RESIDUAL], first),
                      head->acts.normed);
    mics_linear_forward(&head->vocabulary, rows, head->acts.normed, head->acts.logits);
}

/* The logits have become their gradients. */
static void chunk_backward(const struct head *head, uint32_t first, uint32_t rows)
{
    const struct mics_pass *pass = head->pass;
    const struct mics_head_activations *acts = &head->acts;
    void *const grad = row_of(pass, pass->grad[MICS_RESIDUAL], first);

    mics_linear_grad_params(&head->vocabulary, rows, acts->normed, acts->logits);
    mics_linear_grad_in(&head->vocabulary, rows, acts->logits, NULL, acts->grad_normed);
    mics_launch_zero(pass->stream,
                     &(struct mics_args_zero){
                         .dst = grad,
                         .bytes = mics_dtype_bytes(pass->batch.dtype) * rows * head->vocabulary.in,
                     });
    mics_norm_backward(&head->norm, rows, row_of(pass, pass->in[MICS_RESIDUAL], first),
                       acts->grad_normed, grad);
}

void mics_head_forward(const struct mics_pass *pass, uint32_t unit)
{
    const uint32_t total = pass->batch.B * pass->batch.T;
    const struct head head = head_of(pass, unit);

    for (uint32_t first = 0; first < total; first += head.acts.rows) {
        const uint32_t rows = total - first < head.acts.rows ? total - first : head.acts.rows;

        chunk_forward(&head, first, rows);
        mics_launch_cross_entropy(pass->stream, &(struct mics_args_cross_entropy){
                                                    .logits = head.acts.logits,
                                                    .targets = pass->targets + first,
                                                    .loss_sum = pass->loss_sum,
                                                    .rows = rows,
                                                    .V = pass->model->config.vocab_size,
                                                    .ld = head.acts.columns,
                                                    .grad = pass->batch.train,
                                                    .dtype = pass->batch.dtype,
                                                });
        if (pass->batch.train)
            chunk_backward(&head, first, rows);
    }
    if (mics_transformer_pools_load(pass->model))
        mics_load_loss(pass);
}

void mics_head_logits(const struct mics_pass *pass, uint32_t unit, uint32_t first, uint32_t rows,
                      void *logits)
{
    struct head head = head_of(pass, unit);

    assert(rows <= head.acts.rows);
    head.vocabulary.out = pass->model->config.vocab_size;
    mics_norm_forward(&head.norm, rows, row_of(pass, pass->in[MICS_RESIDUAL], first),
                      head.acts.normed);
    mics_linear_forward(&head.vocabulary, rows, head.acts.normed, logits);
}
