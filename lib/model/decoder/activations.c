/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activations.c - where a stage keeps its activations.
 *
 * With selective recomputation a block saves 2C + W + A + hidden numbers per token: its input, the
 * results of products and of attention (qkv, attention, the middle of the residual stream,
 * `hidden`), and the statistics of the norms. The outputs of both norms and of the activation, and
 * with norms of heads what attention takes, need one pass over memory each to compute again, where
 * a product takes some C times the arithmetic. Without recomputation they are saved too: 2C + F
 * more, and W with norms of heads. Their inputs are needed in either case, for their gradients.
 * With full recomputation a block saves its input only, C. Evaluation uses the areas of training,
 * so that it fits the same arena.
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
