/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a GPT-2 stage keeps its activations.
 *
 * With selective recomputation a block saves 6C + F numbers per token (10C for the usual F = 4C): its input, the
 * results of products and of attention (qkv, attention, the middle of the residual stream, the hidden layer before
 * GELU) and the statistics of the norms. The outputs of both norms and of GELU, another 2C + F, take one pass over
 * memory each to compute again, where a product takes some C times the arithmetic. Without recomputation they are
 * saved too: 8C + 2F (16C). Their inputs are needed in either case, for the gradients of the norms and of GELU. With
 * full recomputation a block saves its input only, C. Evaluation uses the areas of training, so that it fits the same
 * arena.
 */
#include "model/activation_layout.h"
#include "model/decoder/gpt2.h"

static uint64_t rows_of(const struct mics_batch *batch)
{
    return (uint64_t)batch->B * batch->T;
}

static struct mics_gpt2_norm carve_norm(struct mics_carver *from, uint64_t rows)
{
    struct mics_gpt2_norm norm;

    norm.mean = mics_carve_floats(from, rows);
    norm.rstd = mics_carve_floats(from, rows);
    return norm;
}

static void report(struct mics_stage_bytes *bytes, const struct mics_carver *saved,
                   const struct mics_carver *scratch)
{
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = saved->used, .scratch = scratch->used};
}

struct mics_gpt2_block_areas mics_gpt2_block_carve(const struct mics_model *model,
                                                   const struct mics_batch *batch, void *saved,
                                                   void *scratch, struct mics_stage_bytes *bytes)
{
    const uint64_t R = rows_of(batch), C = model->config.n_embd, F = model->config.n_inner;
    const uint64_t heads = R * model->config.n_head;
    struct mics_carver keep = {.base = saved}, work = {.base = scratch};
    struct mics_carver *const kept = batch->recompute == MICS_RECOMPUTE_FULL ? &work : &keep;
    const bool keep_all = batch->recompute == MICS_RECOMPUTE_NONE;
    struct mics_gpt2_block_areas areas;

    areas.in = mics_carve_typed(&keep, R * C, batch->dtype);
    areas.ln_1 = carve_norm(kept, R);
    areas.qkv = mics_carve_typed(kept, R * 3 * C, batch->dtype);
    areas.lse = mics_carve_floats(kept, heads);
    areas.attention = mics_carve_typed(kept, R * C, batch->dtype);
    areas.middle = mics_carve_typed(kept, R * C, batch->dtype);
    areas.ln_2 = carve_norm(kept, R);
    areas.hidden = mics_carve_typed(kept, R * F, batch->dtype);
    areas.wide_a = mics_carve_typed(&work, R * (keep_all ? C : mics_max_u64(F, C)), batch->dtype);
    areas.wide_b = mics_carve_typed(&work, R * mics_max_u64(F, 3 * C), batch->dtype);
    areas.normed_1 = keep_all ? mics_carve_typed(&keep, R * C, batch->dtype) : areas.wide_b;
    areas.normed_2 = keep_all ? mics_carve_typed(&keep, R * C, batch->dtype) : areas.wide_b;
    areas.gelu = keep_all ? mics_carve_typed(&keep, R * F, batch->dtype) : areas.wide_a;
    areas.delta = mics_carve_floats(&work, heads);
    report(bytes, &keep, &work);
    return areas;
}

struct mics_gpt2_head_areas mics_gpt2_head_carve(const struct mics_model *model,
                                                 const struct mics_batch *batch, void *saved,
                                                 void *scratch, struct mics_stage_bytes *bytes)
{
    const uint64_t R = rows_of(batch), C = model->config.n_embd;
    struct mics_carver keep = {.base = saved}, work = {.base = scratch};
    struct mics_gpt2_head_areas areas = {
        .rows = mics_carve_head_rows(model->config.vocab_size, R, batch->dtype),
        .columns = mics_carve_head_columns(model->config.vocab_size)};

    areas.in = mics_carve_typed(&keep, R * C, batch->dtype);
    areas.norm = carve_norm(&work, areas.rows);
    areas.normed = mics_carve_typed(&work, areas.rows * C, batch->dtype);
    areas.grad_normed = mics_carve_typed(&work, areas.rows * C, batch->dtype);
    areas.logits = mics_carve_typed(&work, (uint64_t)areas.rows * areas.columns, batch->dtype);
    report(bytes, &keep, &work);
    return areas;
}
