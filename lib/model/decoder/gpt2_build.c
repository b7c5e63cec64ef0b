/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2's tensors: names and [in, out] layout as in the released checkpoints. Weights start from
 * N(0, 0.02), those that end a residual branch from N(0, 0.02 / sqrt(2 L)).
 */
#include "model/build.h"
#include "model/activation_layout.h"
#include "model/decoder/gpt2.h"

#include <math.h>
#include <stdio.h>

#define STD 0.02

static enum mics_status build_ends(struct mics_model *model, struct mics_err *err)
{
    const struct mics_model_config *c = &model->config;
    const struct mics_tensor_spec specs[MICS_GPT2_END_TENSORS] = {
        [MICS_GPT2_WTE] = {"wte.weight", c->vocab_size, c->n_embd, MICS_INIT_NORMAL, STD,
                           .decay = true, .spare_rows = mics_carve_spare_rows(c->vocab_size)},
        [MICS_GPT2_WPE] = {"wpe.weight", c->n_positions, c->n_embd, MICS_INIT_NORMAL, STD,
                           .decay = true},
        [MICS_GPT2_LN_F_WEIGHT] = {"ln_f.weight", c->n_embd, 0, MICS_INIT_ONE, 0, .decay = false},
        [MICS_GPT2_LN_F_BIAS] = {"ln_f.bias", c->n_embd, 0, MICS_INIT_ZERO, 0, .decay = false},
    };

    return mics_build_unit(model, 0, "ends", true, specs, MICS_GPT2_END_TENSORS, err);
}

static enum mics_status build_block(struct mics_model *model, uint32_t layer, struct mics_err *err)
{
    const uint64_t C = model->config.n_embd, F = model->config.n_inner;
    const double branch = STD / sqrt(2.0 * model->config.n_layer);
    const struct mics_tensor_spec specs[MICS_GPT2_BLOCK_TENSORS] = {
        [MICS_GPT2_ATTN_WEIGHT] = {"attn.c_attn.weight", C, 3 * C, MICS_INIT_NORMAL, STD,
                                   .decay = true},
        [MICS_GPT2_ATTN_PROJ_WEIGHT] = {"attn.c_proj.weight", C, C, MICS_INIT_NORMAL, branch,
                                        .decay = true},
        [MICS_GPT2_FC_WEIGHT] = {"mlp.c_fc.weight", C, F, MICS_INIT_NORMAL, STD, .decay = true},
        [MICS_GPT2_MLP_PROJ_WEIGHT] = {"mlp.c_proj.weight", F, C, MICS_INIT_NORMAL, branch,
                                       .decay = true},
        [MICS_GPT2_LN_1_WEIGHT] = {"ln_1.weight", C, 0, MICS_INIT_ONE, 0, .decay = false},
        [MICS_GPT2_LN_1_BIAS] = {"ln_1.bias", C, 0, MICS_INIT_ZERO, 0, .decay = false},
        [MICS_GPT2_ATTN_BIAS] = {"attn.c_attn.bias", 3 * C, 0, MICS_INIT_ZERO, 0, .decay = false},
        [MICS_GPT2_ATTN_PROJ_BIAS] = {"attn.c_proj.bias", C, 0, MICS_INIT_ZERO, 0, .decay = false},
        [MICS_GPT2_LN_2_WEIGHT] = {"ln_2.weight", C, 0, MICS_INIT_ONE, 0, .decay = false},
        [MICS_GPT2_LN_2_BIAS] = {"ln_2.bias", C, 0, MICS_INIT_ZERO, 0, .decay = false},
        [MICS_GPT2_FC_BIAS] = {"mlp.c_fc.bias", F, 0, MICS_INIT_ZERO, 0, .decay = false},
        [MICS_GPT2_MLP_PROJ_BIAS] = {"mlp.c_proj.bias", C, 0, MICS_INIT_ZERO, 0, .decay = false},
    };
    char name[32];

    snprintf(name, sizeof name, "h.%u", layer);
    return mics_build_unit(model, 1 + layer, name, false, specs, MICS_GPT2_BLOCK_TENSORS, err);
}

enum mics_status mics_gpt2_build(struct mics_model *model, struct mics_err *err)
{
    enum mics_status status = mics_build_stages(model, err);

    if (status == MICS_OK)
        status = build_ends(model, err);
    for (uint32_t i = 0; status == MICS_OK && i < model->config.n_layer; i++)
        status = build_block(model, i, err);
    return status;
}
