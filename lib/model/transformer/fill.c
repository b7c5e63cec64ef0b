/* SPDX-License-Identifier: Apache-2.0 */
/* fill.c - the forward pass of one sequence, and the logits of some of its tokens. */
#include "model/fill.h"

#include "base/num.h"
#include "device/host/immediate.h"
#include "model/transformer/transformer.h"

#include <assert.h>
#include <stdlib.h>

struct fill {
    const struct mics_fill_options *options;
    struct mics_immediate host;
    void *boundary[MICS_BOUNDARIES_MAX][2]; /* what a stage receives and hands on, in turns */
    void *saved, *scratch;
};

static struct mics_pass pass_of(const struct fill *fill, uint32_t unit, void *const *in,
                                void *const *out)
{
    return (struct mics_pass){
        .model = fill->options->model,
        .stream = (struct mics_stream *)&fill->host.stream,
        .batch = {.B = 1,
                  .T = fill->options->count,
                  .recompute = MICS_RECOMPUTE_FULL,
                  .dtype = MICS_F32},
        .tokens = fill->options->tokens,
        .params = unit == MICS_NO_UNIT ? NULL : fill->options->params[unit],
        .in = in,
        .out = out,
        .saved = fill->saved,
        .scratch = fill->scratch,
    };
}

static enum mics_status allocate(struct fill *fill, struct mics_err *err)
{
    const struct mics_model *model = fill->options->model;
    const struct mics_batch batch = pass_of(fill, 0, NULL, NULL).batch;
    uint64_t saved = 0, scratch = 0;

    for (uint32_t i = 0; i < model->stage_count; i++) {
        struct mics_stage_bytes bytes;

        mics_transformer_stage_bytes(model, &batch, i, &bytes);
        saved = mics_max_u64(saved, bytes.saved);
        scratch = mics_max_u64(scratch, bytes.scratch);
    }
    fill->saved = malloc(saved + 1);
    fill->scratch = malloc(scratch + 1);
    if (!fill->saved || !fill->scratch)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < model->boundary_count; i++) {
        struct mics_boundary_bytes boundary;

        mics_transformer_boundary_bytes(model, &batch, i, &boundary);
        fill->boundary[i][0] = malloc(boundary.value);
        fill->boundary[i][1] = malloc(boundary.value);
        if (!fill->boundary[i][0] || !fill->boundary[i][1])
            return mics_err_nomem(err);
    }
    return MICS_OK;
}

/* All stages but the head. */
static void run_stages(struct fill *fill)
{
    const struct mics_model *model = fill->options->model;

    for (uint32_t i = 0; i + 1 < model->stage_count; i++) {
        const struct mics_stage *stage = &model->stages[i];
        void *in[MICS_BOUNDARIES_MAX], *out[MICS_BOUNDARIES_MAX];

        for (int j = 0; j < MICS_BOUNDARIES_MAX; j++) {
            in[j] = stage->receives >> j & 1 ? fill->boundary[j][0] : NULL;
            out[j] = stage->hands_on >> j & 1 ? fill->boundary[j][1] : NULL;
        }
        const struct mics_pass pass = pass_of(fill, stage->unit, in, out);
        mics_transformer_ops.forward(&pass, i);
        for (int j = 0; j < MICS_BOUNDARIES_MAX; j++)
            if (out[j]) {
                fill->boundary[j][1] = fill->boundary[j][0];
                fill->boundary[j][0] = out[j];
            }
    }
}

static void run_head(const struct fill *fill, float *logits)
{
    const struct mics_model *model = fill->options->model;
    const uint32_t unit = model->stages[model->stage_count - 1].unit;
    void *const in = fill->boundary[MICS_RESIDUAL][0];
    const struct mics_pass pass = pass_of(fill, unit, &in, NULL);

    for (uint32_t i = 0; i < fill->options->position_count; i++)
        mics_head_logits(&pass, unit, fill->options->positions[i], 1,
                         logits + (size_t)i * model->config.vocab_size);
}

static enum mics_status check(const struct mics_fill_options *options, struct mics_err *err)
{
    const uint32_t vocab = options->model->config.vocab_size;
    const enum mics_status status = mics_model_check_seq(options->model, options->count, err);

    for (uint32_t i = 0; status == MICS_OK && i < options->count; i++)
        if (options->tokens[i] < 0 || (uint32_t)options->tokens[i] >= vocab)
            return mics_err_set(err, MICS_ERR_ARG,
                                "token %d is outside the model's vocabulary of %u",
                                options->tokens[i], vocab);
    return status;
}

enum mics_status mics_fill_logits(const struct mics_fill_options *options, float *logits,
                                  struct mics_err *err)
{
    struct fill fill = {.options = options};
    enum mics_status status = check(options, err);

    assert(options->model->family);
    if (status != MICS_OK)
        return status;
    mics_immediate_init(&fill.host, options->pool);
    status = allocate(&fill, err);
    if (status == MICS_OK) {
        run_stages(&fill);
        run_head(&fill, logits);
    }
    for (int i = 0; i < MICS_BOUNDARIES_MAX; i++) {
        free(fill.boundary[i][0]);
        free(fill.boundary[i][1]);
    }
    free(fill.saved);
    free(fill.scratch);
    return status;
}
