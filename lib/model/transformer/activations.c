/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activations.c - where a stage keeps its activations.
 *
 * With selective recomputation a block keeps 2C + W + A + hidden numbers per token: its input, the
 * results of products and of attention (qkv, attention, the middle of the residual stream,
 * `hidden`), and the statistics of the norms. The outputs of both norms and of the activation, and
 * with norms of heads what attention takes, need one pass over memory each to compute again, where
 * a product takes some C times the arithmetic. Without recomputation they are saved too: 2C + F
 * more, and W with norms of heads. Their inputs are needed in either case, for their gradients.
 * With norms after their sublayers what they take is saved (2C) at both levels, and not what they
 * put out. With full recomputation a block saves its input only, C. Evaluation uses the acts of
 * training, so that it fits the same arena.
 *
 * A layer with experts hands on 2C from its router (the residual stream and what the experts take)
 * and saves the E logits at every level, so that no token is routed twice. A shared expert is kept
 * as an MLP is, but for what it takes, and with one number more of each token. The experts work on
 * N rows, whatever the router does: they keep 2I of each with selective recomputation, C + 3I with
 * none, and nothing with full. If tokens travel to them, they keep nothing at any level but how
 * many rows each rank has for each expert.
 */
#include "model/activation_layout.h"
#include "model/transformer/transformer.h"

static struct mics_norm_stats take_stats(const struct mics_model *model,
                                         struct mics_activation_cursor *from, uint64_t rows)
{
    struct mics_norm_stats stats = {NULL, NULL};

    if (model->family->norm == MICS_NORM_LAYER)
        stats.mean = mics_activation_take_floats(from, rows);
    stats.rstd = mics_activation_take_floats(from, rows);
    return stats;
}

/* What a stage of attention and a router has before an MLP's activations, if it has those. */
static void take_router(const struct mics_model *model, const struct mics_batch *batch,
                        struct mics_activation_cursor *keep, struct mics_activation_cursor *work,
                        struct mics_block_activations *acts)
{
    const struct mics_transformer_dims s = mics_transformer_dims_of(model, batch);
    const uint64_t R = s.rows;

    acts->norm_2 = take_stats(model, keep, R);
    acts->logits = mics_activation_take_floats(keep, R * s.E);
    if (model->config.balance.kind == MICS_BALANCE_SEQUENCE)
        acts->balance = mics_activation_take_floats(keep, (uint64_t)batch->B * s.E);
    if (model->config.balance.kind != MICS_BALANCE_MICRO_BATCH)
        acts->load = mics_activation_take_floats(work, (uint64_t)batch->B * 2 * s.E);
    acts->grad_logits = mics_activation_take_typed(work, R * s.E, batch->dtype);
}

struct mics_block_activations mics_block_activations_of(const struct mics_model *model,
                                                        const struct mics_batch *batch,
                                                        uint32_t layer, void *saved, void *scratch,
                                                        struct mics_stage_bytes *bytes)
{
    const bool sparse = mics_model_is_sparse(model, layer);
    const struct mics_transformer_dims s = mics_transformer_layer_dims_of(model, batch, layer);
    const bool has_mlp = s.F > 0;
    const bool all = batch->recompute == MICS_RECOMPUTE_NONE;
    const bool after = model->family->norm_place == MICS_NORM_AFTER;
    const bool qk_norm = mics_transformer_has(model, layer, MICS_BLOCK_Q_NORM);
    const uint64_t R = s.rows, widest = mics_max_u64(s.F, s.C);
    const enum mics_dtype dtype = batch->dtype;
    struct mics_activation_cursor keep = {.base = saved}, work = {.base = scratch};
    struct mics_activation_cursor *const kept =
        batch->recompute == MICS_RECOMPUTE_FULL ? &work : &keep;
    struct mics_block_activations acts = {0};

    acts.norm_1 = take_stats(model, kept, R);
    acts.qkv = mics_activation_take_typed(kept, R * s.W, dtype);
    acts.lse = mics_activation_take_floats(kept, R * s.H);
    acts.attention = mics_activation_take_typed(kept, R * s.A, dtype);
    if (sparse)
        take_router(model, batch, &keep, &work, &acts);
    if (has_mlp)
        acts.middle = mics_activation_take_typed(kept, R * s.C, dtype);
    if (!sparse)
        acts.norm_2 = take_stats(model, kept, R);
    if (has_mlp)
        acts.hidden = mics_activation_take_typed(kept, R * s.hidden, dtype);
    if (sparse && has_mlp) {
        acts.shared_logits = mics_activation_take_floats(kept, R);
        acts.shared_grad_logits = mics_activation_take_floats(&work, R);
    }
    acts.wide_a =
        mics_activation_take_typed(&work, R * mics_max_u64(all ? s.C : widest, s.A), dtype);
    acts.wide_b =
        mics_activation_take_typed(&work, R * mics_max_u64(all ? s.F : widest, s.W), dtype);
    if (after) {
        acts.sum_1 = mics_activation_take_typed(kept, R * s.C, dtype);
        acts.sum_2 = mics_activation_take_typed(kept, R * s.C, dtype);
    } else {
        acts.normed_1 = all ? mics_activation_take_typed(&keep, R * s.C, dtype) : acts.wide_b;
        if (!sparse)
            acts.normed_2 = all ? mics_activation_take_typed(&keep, R * s.C, dtype) : acts.wide_b;
    }
    if (has_mlp)
        acts.activated = all ? mics_activation_take_typed(&keep, R * s.F, dtype) : acts.wide_a;
    acts.delta = mics_activation_take_floats(&work, R * s.H);
    acts.attended = acts.qkv;
    if (qk_norm) {
        acts.qk_rstd = mics_activation_take_floats(kept, R * (s.H + s.H_kv));
        acts.attended = mics_activation_take_typed(all ? &keep : &work, R * s.W, dtype);
    }
    if (after || model->family->parallel_residual)
        acts.grad_out = mics_activation_take_typed(&work, R * s.C, dtype);
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = keep.used, .scratch = work.used};
    return acts;
}

struct mics_routing mics_routing_of(const struct mics_model *model, const struct mics_batch *batch,
                                    void *base, uint64_t *bytes)
{
    const struct mics_transformer_dims s = mics_transformer_dims_of(model, batch);
    const uint64_t N = s.N;
    struct mics_activation_cursor at = {.base = base};
    struct mics_routing routing;

    routing.experts = mics_activation_take(&at, N * sizeof *routing.experts);
    routing.weights = mics_activation_take_floats(&at, N);
    routing.offsets = mics_activation_take(&at, (s.E + 1) * sizeof *routing.offsets);
    routing.order = mics_activation_take(&at, N * sizeof *routing.order);
    routing.position = mics_activation_take(&at, N * sizeof *routing.position);
    if (bytes)
        *bytes = at.used;
    return routing;
}

struct mics_expert_activations mics_expert_activations_of(const struct mics_model *model,
                                                          const struct mics_batch *batch,
                                                          void *saved, void *scratch,
                                                          struct mics_stage_bytes *bytes)
{
    const struct mics_transformer_dims s = mics_transformer_dims_of(model, batch);
    const uint64_t N = s.taken;
    const enum mics_dtype dtype = batch->dtype;
    struct mics_activation_cursor keep = {.base = saved}, work = {.base = scratch};
    struct mics_activation_cursor *const most =
        batch->recompute == MICS_RECOMPUTE_NONE ? &keep : &work;
    struct mics_expert_activations acts;

    acts.hidden = mics_activation_take_typed(
        batch->recompute == MICS_RECOMPUTE_FULL ? &work : &keep, N * 2 * s.I, dtype);
    acts.taken = mics_activation_take_typed(most, N * s.C, dtype);
    acts.activated = mics_activation_take_typed(most, N * s.I, dtype);
    acts.rows = mics_activation_take_typed(&work, N * s.C, dtype);
    acts.grad_activated = mics_activation_take_typed(&work, N * s.I, dtype);
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = keep.used, .scratch = work.used};
    return acts;
}

struct mics_embed_activations mics_embed_activations_of(const struct mics_model *model,
                                                        const struct mics_batch *batch,
                                                        void *scratch,
                                                        struct mics_stage_bytes *bytes)
{
    const uint64_t R = (uint64_t)batch->B * batch->T, C = model->config.n_embd;
    struct mics_activation_cursor work = {.base = scratch};
    struct mics_embed_activations acts = {{NULL, NULL}, NULL, NULL, NULL};

    if (model->family->embed_head[MICS_HEAD_EMBED_NORM]) {
        acts.norm = take_stats(model, &work, R);
        acts.sum = mics_activation_take_typed(&work, R * C, batch->dtype);
        acts.normed = mics_activation_take_typed(&work, R * C, batch->dtype);
        acts.grad = mics_activation_take_typed(&work, R * C, batch->dtype);
    }
    if (bytes)
        *bytes = (struct mics_stage_bytes){.scratch = work.used};
    return acts;
}

static struct mics_dispatch_buffers take_buffers(struct mics_activation_cursor *from, uint64_t rows,
                                                 uint32_t C, enum mics_dtype dtype)
{
    struct mics_dispatch_buffers buffers;

    buffers.x = mics_activation_take_typed(from, rows * C, dtype);
    buffers.grad = mics_activation_take_typed(from, rows * C, dtype);
    buffers.weights = mics_activation_take_floats(from, rows);
    buffers.grad_weights = mics_activation_take_floats(from, rows);
    return buffers;
}

struct mics_dispatch_activations mics_dispatch_activations_of(const struct mics_model *model,
                                                              const struct mics_batch *batch,
                                                              void *saved, void *scratch,
                                                              struct mics_stage_bytes *bytes)
{
    const struct mics_transformer_dims s = mics_transformer_dims_of(model, batch);
    const uint32_t ranks = batch->expert_ranks;
    const uint64_t Q = (uint64_t)ranks * mics_model_dispatch(model, batch).slots;
    struct mics_activation_cursor keep = {.base = saved}, work = {.base = scratch};
    struct mics_dispatch_activations acts;

    acts.offsets = mics_activation_take(&keep, ranks * (s.E + 1ul) * sizeof *acts.offsets);
    acts.sent = take_buffers(&work, Q, s.C, batch->dtype);
    acts.received = take_buffers(&work, Q, s.C, batch->dtype);
    acts.row = mics_activation_take(&work, Q * sizeof *acts.row);
    acts.assignment = mics_activation_take(&work, Q * sizeof *acts.assignment);
    acts.received_offsets =
        mics_activation_take(&work, (s.E / ranks + 1) * sizeof *acts.received_offsets);
    acts.received_slots = mics_activation_take(&work, Q * sizeof *acts.received_slots);
    acts.active = mics_activation_take(&work, sizeof *acts.active);
    acts.experts.hidden = mics_activation_take_typed(&work, Q * 2 * s.I, batch->dtype);
    acts.experts.taken = mics_activation_take_typed(&work, Q * s.C, batch->dtype);
    acts.experts.activated = mics_activation_take_typed(&work, Q * s.I, batch->dtype);
    acts.experts.rows = mics_activation_take_typed(&work, Q * s.C, batch->dtype);
    acts.experts.grad_activated = mics_activation_take_typed(&work, Q * s.I, batch->dtype);
    acts.sorted = mics_activation_take_typed(&work, (uint64_t)s.taken * s.C, batch->dtype);
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = keep.used, .scratch = work.used};
    return acts;
}

struct mics_head_activations mics_head_activations_of(const struct mics_model *model,
                                                      const struct mics_batch *batch, void *scratch,
                                                      struct mics_stage_bytes *bytes)
{
    const uint32_t V = model->config.vocab_size;
    const uint32_t most = mics_model_targets_max(model, batch->T);
    const uint64_t R = (uint64_t)batch->B * most, C = model->config.n_embd;
    struct mics_activation_cursor work = {.base = scratch};
    struct mics_head_activations acts = {.rows = mics_head_chunk_rows(V, R, batch->dtype),
                                         .total = (uint32_t)R,
                                         .columns = mics_padded_vocab(V)};

    acts.norm = take_stats(model, &work, acts.rows);
    acts.normed = mics_activation_take_typed(&work, acts.rows * C, batch->dtype);
    acts.grad_normed = mics_activation_take_typed(&work, acts.rows * C, batch->dtype);
    acts.logits =
        mics_activation_take_typed(&work, (uint64_t)acts.rows * acts.columns, batch->dtype);
    if (model->family->embed_head[MICS_HEAD_TRANSFORM]) {
        acts.pre = mics_activation_take_typed(&work, acts.rows * C, batch->dtype);
        acts.activated = mics_activation_take_typed(&work, acts.rows * C, batch->dtype);
    }
    if (most < batch->T) {
        acts.order = mics_activation_take(&work, R * sizeof *acts.order);
        acts.targets = mics_activation_take(&work, R * sizeof *acts.targets);
        acts.taken = mics_activation_take_typed(&work, acts.rows * C, batch->dtype);
        acts.grad_taken = mics_activation_take_typed(&work, acts.rows * C, batch->dtype);
    }
    if (bytes)
        *bytes = (struct mics_stage_bytes){.scratch = work.used};
    return acts;
}

void mics_transformer_boundary_bytes(const struct mics_model *model, const struct mics_batch *batch,
                                     uint32_t boundary, struct mics_boundary_bytes *out)
{
    const struct mics_transformer_dims s = mics_transformer_dims_of(model, batch);
    struct mics_activation_cursor value = {0}, grad = {0};

    switch (boundary) {
    case MICS_ROUTING:
        mics_routing_of(model, batch, NULL, &value.used);
        mics_activation_take_floats(&grad, s.N);
        break;
    case MICS_LOAD:
        mics_activation_take_floats(&value, 2 * (uint64_t)s.E);
        mics_activation_take_floats(&grad, s.E);
        break;
    default:
        mics_activation_take_typed(&value, (uint64_t)s.rows * s.C, batch->dtype);
        grad = value;
    }
    *out = (struct mics_boundary_bytes){.value = value.used, .grad = grad.used};
}

void mics_transformer_stage_bytes(const struct mics_model *model, const struct mics_batch *batch,
                                  uint32_t stage, struct mics_stage_bytes *out)
{
    switch (model->stages[stage].kind) {
    case MICS_STAGE_EMBED: /* its input are the tokens, which the caller keeps */
        mics_embed_activations_of(model, batch, NULL, out);
        break;
    case MICS_STAGE_BLOCK:
        if (model->stages[stage].part == 1 && batch->expert_ranks > 0)
            mics_dispatch_activations_of(model, batch, NULL, NULL, out);
        else if (model->stages[stage].part == 1)
            mics_expert_activations_of(model, batch, NULL, NULL, out);
        else
            mics_block_activations_of(model, batch, model->stages[stage].layer, NULL, NULL, out);
        break;
    case MICS_STAGE_HEAD:
        mics_head_activations_of(model, batch, NULL, out);
        break;
    }
}
