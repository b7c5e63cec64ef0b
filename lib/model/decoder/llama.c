/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the Llama family, and the dispatch from stages to its pieces. */
#include "model/decoder/llama.h"

#include "model/build.h"

static void stage_bytes(const struct mics_model *model, const struct mics_batch *batch,
                        uint32_t stage, struct mics_stage_bytes *out)
{
    switch (model->stages[stage].kind) {
    case MICS_STAGE_EMBED: /* its input are the tokens, which belong to the caller */
        *out = (struct mics_stage_bytes){0};
        break;
    case MICS_STAGE_BLOCK:
        mics_llama_block_carve(model, batch, NULL, NULL, out);
        break;
    case MICS_STAGE_HEAD:
        mics_llama_head_carve(model, batch, NULL, NULL, out);
        break;
    }
}

static void forward(const struct mics_pass *pass, uint32_t stage)
{
    const struct mics_stage *made = &pass->model->stages[stage];

    switch (made->kind) {
    case MICS_STAGE_EMBED:
        mics_llama_embed_forward(pass);
        break;
    case MICS_STAGE_BLOCK:
        mics_llama_block_forward(pass, made->unit);
        break;
    case MICS_STAGE_HEAD:
        mics_llama_head(pass, made->unit);
        break;
    }
}

static void backward(const struct mics_pass *pass, uint32_t stage)
{
    const struct mics_stage *made = &pass->model->stages[stage];

    if (made->kind == MICS_STAGE_EMBED)
        mics_llama_embed_backward(pass);
    else if (made->kind == MICS_STAGE_BLOCK)
        mics_llama_block_backward(pass, made->unit);
}

static void logits_of_row(const struct mics_pass *pass, uint32_t row, void *logits)
{
    const struct mics_model *model = pass->model;

    mics_llama_logits(pass, model->stages[model->stage_count - 1].unit, row, logits);
}

const struct mics_family mics_family_llama = {
    .name = "llama",
    .build = mics_llama_build,
    .stage_bytes = stage_bytes,
    .stage_work = mics_llama_work,
    .forward = forward,
    .backward = backward,
    .logits = logits_of_row,
};
