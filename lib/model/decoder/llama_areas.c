/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a Llama stage keeps its activations.
 *
 * With selective recomputation a block saves 2C + W + H D + 2F numbers per token: its input, the results of products
 * and of attention (qkv, attention, the middle of the residual stream, gate and up), and the statistics of the norms.
 * Without recomputation it also saves the outputs of both norms and of SwiGLU: 4C + W + H D + 3F. With full
 * recomputation it saves its input only, C. Evaluation uses the areas of training, so that it fits the same arena.
 */
#include "model/activation_layout.h"
#include "model/decoder/llama.h"

struct mics_llama_sizes mics_llama_sizes_of(const struct mics_model *model,
                                            const struct mics_batch *batch)
{
    const struct mics_model_config *c = &model->config;

    return (struct mics_llama_sizes){
        .rows = batch->B * batch->T,
        .C = c->n_embd,
        .F = c->n_inner,
        .H = c->n_head,
        .H_kv = c->n_kv_head,
        .D = c->head_dim,
        .heads_width = c->n_head * c->head_dim,
        .qkv_width = (c->n_head + 2 * c->n_kv_head) * c->head_dim,
    };
}

static void report(struct mics_stage_bytes *bytes, const struct mics_carver *saved,
                   const struct mics_carver *scratch)
{
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = saved->used, .scratch = scratch->used};
}

struct mics_llama_block_areas mics_llama_block_carve(const struct mics_model *model,
                                                     const struct mics_batch *batch, void *saved,
                                                     void *scratch, struct mics_stage_bytes *bytes)
{
    const struct mics_llama_sizes s = mics_llama_sizes_of(model, batch);
    const bool keep_all = batch->recompute == MICS_RECOMPUTE_NONE;
    const uint64_t R = s.rows, wide_a = keep_all ? s.C : mics_max_u64(s.F, s.C);
    const uint64_t wide_b = keep_all ? s.F : mics_max_u64(s.F, s.C);
    struct mics_carver keep = {.base = saved}, work = {.base = scratch};
    struct mics_carver *const kept = batch->recompute == MICS_RECOMPUTE_FULL ? &work : &keep;
    struct mics_llama_block_areas areas;

    areas.in = mics_carve_typed(&keep, R * s.C, batch->dtype);
    areas.norm_1 = mics_carve_floats(kept, R);
    areas.qkv = mics_carve_typed(kept, R * s.qkv_width, batch->dtype);
    areas.lse = mics_carve_floats(kept, R * s.H);
    areas.attention = mics_carve_typed(kept, R * s.heads_width, batch->dtype);
    areas.middle = mics_carve_typed(kept, R * s.C, batch->dtype);
    areas.norm_2 = mics_carve_floats(kept, R);
    areas.hidden = mics_carve_typed(kept, R * 2 * s.F, batch->dtype);
    areas.wide_a = mics_carve_typed(&work, R * mics_max_u64(wide_a, s.heads_width), batch->dtype);
    areas.wide_b = mics_carve_typed(&work, R * mics_max_u64(wide_b, s.qkv_width), batch->dtype);
    areas.normed_1 = keep_all ? mics_carve_typed(&keep, R * s.C, batch->dtype) : areas.wide_b;
    areas.normed_2 = keep_all ? mics_carve_typed(&keep, R * s.C, batch->dtype) : areas.wide_b;
    areas.swiglu = keep_all ? mics_carve_typed(&keep, R * s.F, batch->dtype) : areas.wide_a;
    areas.delta = mics_carve_floats(&work, R * s.H);
    report(bytes, &keep, &work);
    return areas;
}

struct mics_llama_head_areas mics_llama_head_carve(const struct mics_model *model,
                                                   const struct mics_batch *batch, void *saved,
                                                   void *scratch, struct mics_stage_bytes *bytes)
{
    const uint64_t R = (uint64_t)batch->B * batch->T, C = model->config.n_embd;
    struct mics_carver keep = {.base = saved}, work = {.base = scratch};
    struct mics_llama_head_areas areas = {
        .rows = mics_carve_head_rows(model->config.vocab_size, R, batch->dtype),
        .columns = mics_carve_head_columns(model->config.vocab_size)};

    areas.in = mics_carve_typed(&keep, R * C, batch->dtype);
    areas.norm = mics_carve_floats(&work, areas.rows);
    areas.normed = mics_carve_typed(&work, areas.rows * C, batch->dtype);
    areas.grad_normed = mics_carve_typed(&work, areas.rows * C, batch->dtype);
    areas.logits = mics_carve_typed(&work, (uint64_t)areas.rows * areas.columns, batch->dtype);
    report(bytes, &keep, &work);
    return areas;
}
