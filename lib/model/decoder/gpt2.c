/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the GPT-2 family, and the dispatch from stages to its pieces. */
#include "model/decoder/gpt2.h"

#include "model/build.h"

static void stage_bytes(const struct mics_model *model, const struct mics_batch *batch,
                        uint32_t stage, struct mics_stage_bytes *out)
{
    switch (model->stages[stage].kind) {
    case MICS_STAGE_EMBED: /* its input are the tokens, which belong to the caller */
        *out = (struct mics_stage_bytes){0};
        break;
    case MICS_STAGE_BLOCK:
        mics_gpt2_block_carve(model, batch, NULL, NULL, out);
        break;
    case MICS_STAGE_HEAD:
        mics_gpt2_head_carve(model, batch, NULL, NULL, out);
        break;
    }
}

static void forward(const struct mics_pass *pass, uint32_t stage)
{
    const struct mics_stage *made = &pass->model->stages[stage];

    switch (made->kind) {
    case MICS_STAGE_EMBED:
        mics_gpt2_embed_forward(pass);
        break;
    case MICS_STAGE_BLOCK:
        mics_gpt2_block_forward(pass, made->unit);
        break;
    case MICS_STAGE_HEAD:
        mics_gpt2_head(pass);
        break;
    }
}

static void backward(const struct mics_pass *pass, uint32_t stage)
{
    const struct mics_stage *made = &pass->model->stages[stage];

    if (made->kind == MICS_STAGE_EMBED)
        mics_gpt2_embed_backward(pass);
    else if (made->kind == MICS_STAGE_BLOCK)
        mics_gpt2_block_backward(pass, made->unit);
}

const struct mics_family mics_family_gpt2 = {
    .name = "gpt2",
    .build = mics_gpt2_build,
    .stage_bytes = stage_bytes,
    .stage_work = mics_gpt2_work,
    .forward = forward,
    .backward = backward,
    .logits = mics_gpt2_logits,
};
