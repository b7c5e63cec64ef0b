/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embed_head.c - the embedding, and the head with the loss.
 *
 * The head works on a chunk of rows at a time: final norm, logits, loss, and at once its backward
 * pass, so that the logits of a whole micro-batch never exist. All its gradients are of the *sum*
 * of the losses. With a mask_rate its rows are those that have a target, up to a number that the
 * shape of the batch gives, and some others: without a target a row adds 0 to everything.
 */
#include "device/launch.h"
#include "model/activation_layout.h"
#include "model/transformer/transformer.h"

#include <assert.h>

#define EMBED_UNIT 0

/* The embedding's matrices as the weights of layers: only their places count. */
struct embedding {
    struct mics_linear tokens, positions, types; /* positions: from that of the first token on */
    bool has_norm;
    struct mics_norm norm;
    struct mics_embed_activations acts;
};

static struct mics_linear table_of(const struct mics_pass *pass, enum mics_embed_head_tensor tensor)
{
    return mics_linear_of(pass, EMBED_UNIT, mics_transformer_embed_head_index(pass->model, tensor),
                          MICS_NO_TENSOR, 0, 0);
}

static struct embedding embedding_of(const struct mics_pass *pass)
{
    const struct mics_model *model = pass->model;
    const uint64_t skip = (uint64_t)model->family->position_offset * model->config.n_embd;
    struct embedding embedding = {
        .tokens = table_of(pass, MICS_HEAD_EMBEDDING),
        .positions = table_of(pass, MICS_HEAD_POSITIONS),
        .types = table_of(pass, MICS_HEAD_TYPES),
        .has_norm = model->family->embed_head[MICS_HEAD_EMBED_NORM] != NULL,
        .acts = mics_embed_activations_of(model, &pass->batch, pass->scratch, NULL),
    };
    struct mics_linear *const positions = &embedding.positions;

    if (positions->weight)
        positions->weight = mics_element(positions->weight, skip, pass->batch.dtype);
    if (positions->grad_weight)
        positions->grad_weight = mics_element(positions->grad_weight, skip, pass->batch.grad_dtype);
    embedding.norm = mics_norm_of(
        pass, EMBED_UNIT, mics_transformer_embed_head_index(model, MICS_HEAD_EMBED_NORM),
        mics_transformer_embed_head_index(model, MICS_HEAD_EMBED_NORM_BIAS), &embedding.acts.norm);
    return embedding;
}

/* The sums of rows of the tables, before a norm. */
static void look_up(const struct mics_pass *pass, const struct embedding *embedding,
                    uint32_t position, void *out)
{
    const uint64_t first = (uint64_t)position * pass->model->config.n_embd;
    const void *wpe = embedding->positions.weight;

    mics_launch_embedding(pass->stream,
                          &(struct mics_args_embedding){
                              .out = out,
                              .tokens = pass->tokens,
                              .wte = embedding->tokens.weight,
                              .wpe = wpe ? mics_element(wpe, first, pass->batch.dtype) : NULL,
                              .B = pass->batch.B,
                              .T = pass->batch.T,
                              .C = pass->model->config.n_embd,
                              .dtype = pass->batch.dtype,
                              .each = embedding->types.weight,
                          });
}

void mics_embed_forward(const struct mics_pass *pass, uint32_t position)
{
    const struct embedding embedding = embedding_of(pass);
    void *const out = pass->out[MICS_RESIDUAL];

    look_up(pass, &embedding, position, embedding.has_norm ? embedding.acts.sum : out);
    if (embedding.has_norm)
        mics_norm_forward(&embedding.norm, pass->batch.B * pass->batch.T, embedding.acts.sum, out);
}

/* The gradient of what the norm takes. */
static const void *norm_backward(const struct mics_pass *pass, const struct embedding *embedding)
{
    const struct mics_embed_activations *acts = &embedding->acts;
    const uint32_t rows = pass->batch.B * pass->batch.T;

    look_up(pass, embedding, 0, acts->sum);
    mics_norm_forward(&embedding->norm, rows, acts->sum, acts->normed);
    mics_launch_zero(pass->stream, &(struct mics_args_zero){
                                       .dst = acts->grad,
                                       .bytes = mics_dtype_bytes(pass->batch.dtype) * rows *
                                                pass->model->config.n_embd,
                                   });
    mics_norm_backward(&embedding->norm, rows, acts->sum, pass->grad[MICS_RESIDUAL], acts->grad);
    return acts->grad;
}

void mics_embed_backward(const struct mics_pass *pass)
{
    const struct embedding embedding = embedding_of(pass);
    const void *const grad =
        embedding.has_norm ? norm_backward(pass, &embedding) : pass->grad[MICS_RESIDUAL];

    mics_launch_embedding_grad(pass->stream, &(struct mics_args_embedding_grad){
                                                 .grad_wte = embedding.tokens.grad_weight,
                                                 .grad_wpe = embedding.positions.grad_weight,
                                                 .tokens = pass->tokens,
                                                 .grad_out = grad,
                                                 .B = pass->batch.B,
                                                 .T = pass->batch.T,
                                                 .C = pass->model->config.n_embd,
                                                 .V = pass->model->config.vocab_size,
                                                 .dtype = pass->batch.dtype,
                                                 .grad_dtype = pass->batch.grad_dtype,
                                             });
    if (pass->model->family->embed_head[MICS_HEAD_TYPES])
        mics_launch_bias_grad(pass->stream, &(struct mics_args_bias_grad){
                                                .grad_bias = embedding.types.grad_weight,
                                                .grad_out = grad,
                                                .rows = pass->batch.B * pass->batch.T,
                                                .n = pass->model->config.n_embd,
                                                .dtype = pass->batch.dtype,
                                                .grad_dtype = pass->batch.grad_dtype,
                                            });
}

struct head {
    const struct mics_pass *pass;
    struct mics_head_activations acts;
    struct mics_norm norm;
    struct mics_linear vocabulary; /* [V, C] with its padding: logits = normed vocabulary' + bias */
    bool has_transform;
    struct mics_linear transform;
    bool selects; /* its rows, in the order acts.order, instead of taking all of the batch */
    const int32_t *targets;
};

static struct head head_of(const struct mics_pass *pass, uint32_t unit)
{
    const struct mics_model *model = pass->model;
    const uint32_t C = model->config.n_embd;
    struct head head = {
        .pass = pass,
        .acts = mics_head_activations_of(model, &pass->batch, pass->scratch, NULL),
        .has_transform = model->family->embed_head[MICS_HEAD_TRANSFORM] != NULL,
        .selects = mics_model_targets_max(model, pass->batch.T) < pass->batch.T,
    };

    head.targets = head.selects ? head.acts.targets : pass->targets;

    head.norm = mics_norm_of(pass, unit, mics_transformer_embed_head_index(model, MICS_HEAD_NORM),
                             mics_transformer_embed_head_index(model, MICS_HEAD_NORM_BIAS),
                             &head.acts.norm);
    head.vocabulary = mics_linear_of(
        pass, unit, mics_transformer_embed_head_index(model, MICS_HEAD_WEIGHT),
        mics_transformer_embed_head_index(model, MICS_HEAD_BIAS), C, head.acts.columns);
    head.vocabulary.transposed = true; /* in every family */
    head.transform =
        mics_linear_of(pass, unit, mics_transformer_embed_head_index(model, MICS_HEAD_TRANSFORM),
                       mics_transformer_embed_head_index(model, MICS_HEAD_TRANSFORM_BIAS), C, C);
    return head;
}

/* Row `row` of an array [rows, C] of activations. */
static void *row_of(const struct mics_pass *pass, const void *base, uint64_t row)
{
    return mics_element(base, row * pass->model->config.n_embd, pass->batch.dtype);
}

/* What the norm takes: rows of the head's input, or what a transform makes of them. */
static const void *norm_input(const struct head *head, const void *in, uint32_t rows)
{
    const struct mics_pass *pass = head->pass;

    if (!head->has_transform)
        return in;
    mics_linear_forward(&head->transform, rows, in, head->acts.pre);
    mics_launch_gelu(pass->stream, &(struct mics_args_gelu){
                                       .out = head->acts.activated,
                                       .in = head->acts.pre,
                                       .count = (uint64_t)rows * head->transform.out,
                                       .dtype = pass->batch.dtype,
                                       .exact = pass->model->family->mlp == MICS_MLP_GELU_EXACT,
                                   });
    return head->acts.activated;
}

/* Find the rows that have a target. The gradients of all others are 0. */
static void select_rows(const struct head *head)
{
    const struct mics_pass *pass = head->pass;
    const uint32_t rows = pass->batch.B * pass->batch.T;

    mics_launch_select_rows(pass->stream, &(struct mics_args_select_rows){
                                              .order = head->acts.order,
                                              .selected = head->acts.targets,
                                              .loss_sum = pass->loss_sum,
                                              .targets = pass->targets,
                                              .rows = rows,
                                              .most = head->acts.total,
                                          });
    if (pass->batch.train)
        mics_launch_zero(pass->stream, &(struct mics_args_zero){
                                           .dst = pass->grad[MICS_RESIDUAL],
                                           .bytes = mics_dtype_bytes(pass->batch.dtype) * rows *
                                                    pass->model->config.n_embd,
                                       });
}

/* Rows [first, first + rows) of what the head takes. */
static const void *take_chunk(const struct head *head, uint32_t first, uint32_t rows)
{
    const struct mics_pass *pass = head->pass;

    if (!head->selects)
        return row_of(pass, pass->in[MICS_RESIDUAL], first);
    mics_launch_gather_rows(pass->stream, &(struct mics_args_gather_rows){
                                              .out = head->acts.taken,
                                              .in = pass->in[MICS_RESIDUAL],
                                              .order = head->acts.order + first,
                                              .rows = rows,
                                              .k = 1,
                                              .C = pass->model->config.n_embd,
                                              .dtype = pass->batch.dtype,
                                          });
    return head->acts.taken;
}

/* Returns what the norm took. */
static const void *chunk_forward(const struct head *head, const void *taken, uint32_t rows)
{
    const void *const in = norm_input(head, taken, rows);

    mics_norm_forward(&head->norm, rows, in, head->acts.normed);
    mics_linear_forward(&head->vocabulary, rows, head->acts.normed, head->acts.logits);
    return in;
}

/* From the gradient of what the norm took, `grad_in`, to that of what the head took. */
static void transform_backward(const struct head *head, const void *taken, uint32_t rows,
                               void *grad_in, void *grad_taken)
{
    const struct mics_pass *pass = head->pass;

    mics_launch_gelu_grad(pass->stream,
                          &(struct mics_args_gelu_grad){
                              .grad_in = grad_in,
                              .in = head->acts.pre,
                              .grad_out = grad_in,
                              .count = (uint64_t)rows * head->transform.out,
                              .dtype = pass->batch.dtype,
                              .exact = pass->model->family->mlp == MICS_MLP_GELU_EXACT,
                          });
    mics_linear_grad_params(&head->transform, rows, taken, grad_in);
    mics_linear_grad_in(&head->transform, rows, grad_in, NULL, grad_taken);
}

/* The logits have become their gradients. With a transform `normed` takes the gradient of what the
 * norm took: it has been read. */
static void chunk_backward(const struct head *head, uint32_t first, uint32_t rows,
                           const void *taken, const void *in)
{
    const struct mics_pass *pass = head->pass;
    const struct mics_head_activations *acts = &head->acts;
    void *const grad_taken =
        head->selects ? acts->grad_taken : row_of(pass, pass->grad[MICS_RESIDUAL], first);
    void *const grad = head->has_transform ? acts->normed : grad_taken;

    mics_linear_grad_params(&head->vocabulary, rows, acts->normed, acts->logits);
    mics_linear_grad_in(&head->vocabulary, rows, acts->logits, NULL, acts->grad_normed);
    mics_launch_zero(pass->stream,
                     &(struct mics_args_zero){
                         .dst = grad,
                         .bytes = mics_dtype_bytes(pass->batch.dtype) * rows * head->vocabulary.in,
                     });
    mics_norm_backward(&head->norm, rows, in, acts->grad_normed, grad);
    if (head->has_transform)
        transform_backward(head, taken, rows, grad, grad_taken);
    if (head->selects)
        mics_launch_scatter_rows(pass->stream, &(struct mics_args_scatter_rows){
                                                   .out = pass->grad[MICS_RESIDUAL],
                                                   .in = grad_taken,
                                                   .order = acts->order + first,
                                                   .rows = rows,
                                                   .C = head->vocabulary.in,
                                                   .dtype = pass->batch.dtype,
                                               });
}

void mics_head_forward(const struct mics_pass *pass, uint32_t unit)
{
    const struct head head = head_of(pass, unit);
    const uint32_t total = head.acts.total;
    double *const hits = pass->model->family->bidirectional ? pass->hits : NULL;

    if (head.selects)
        select_rows(&head);
    for (uint32_t first = 0; first < total; first += head.acts.rows) {
        const uint32_t rows = total - first < head.acts.rows ? total - first : head.acts.rows;
        const void *const taken = take_chunk(&head, first, rows);

        const void *const in = chunk_forward(&head, taken, rows);
        mics_launch_cross_entropy(pass->stream, &(struct mics_args_cross_entropy){
                                                    .logits = head.acts.logits,
                                                    .targets = head.targets + first,
                                                    .loss_sum = pass->loss_sum,
                                                    .rows = rows,
                                                    .V = pass->model->config.vocab_size,
                                                    .ld = head.acts.columns,
                                                    .grad = pass->batch.train,
                                                    .dtype = pass->batch.dtype,
                                                    .hits = hits,
                                                    .grad_scale = pass->grad_scale,
                                                });
        if (pass->batch.train)
            chunk_backward(&head, first, rows, taken, in);
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
    mics_norm_forward(&head.norm, rows,
                      norm_input(&head, row_of(pass, pass->in[MICS_RESIDUAL], first), rows),
                      head.acts.normed);
    mics_linear_forward(&head.vocabulary, rows, head.acts.normed, logits);
}
