/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the family "counting": its units, its memory, and its calls into the stream. */
#include "model/counting.h"

#include "device/launch.h"
#include "model/build.h"
#include "model/activation_layout.h"

#include <stdio.h>
#include <string.h>

static enum mics_status build_ends(struct mics_model *model, struct mics_err *err)
{
    const struct mics_tensor_spec specs[] = {
        {"wte.weight", 13, 5, MICS_INIT_INTEGER, 0, .decay = true},
        {"ln_f.weight", 3, 0, MICS_INIT_INTEGER, 0, .decay = false},
        {"ln_f.bias", 1, 0, MICS_INIT_INTEGER, 0, .decay = false},
    };

    return mics_build_unit(model, 0, "ends", true, specs, 3, err);
}

/* Blocks differ in size: the first tensor has F, F / 2 or F / 3 elements, the second 65 and more. */
static enum mics_status build_block(struct mics_model *model, uint32_t layer, struct mics_err *err)
{
    const struct mics_tensor_spec specs[] = {
        {"a.weight", 1 + (model->config.n_inner - 1) / (1 + layer % 3), 0, MICS_INIT_INTEGER, 0,
         .decay = true},
        {"b.weight", 65 + layer, 0, MICS_INIT_INTEGER, 0, .decay = true},
        {"c.bias", 3, 0, MICS_INIT_INTEGER, 0, .decay = false},
        {"d.bias", 1, 0, MICS_INIT_INTEGER, 0, .decay = false},
    };
    char name[32];

    snprintf(name, sizeof name, "h.%u", layer);
    return mics_build_unit(model, 1 + layer, name, false, specs, 4, err);
}

enum mics_status mics_counting_build(struct mics_model *model, struct mics_err *err)
{
    enum mics_status status = mics_build_stages(model, err);

    if (status == MICS_OK) {
        model->stages[0].blind_backward = false; /* gradients are made of all parameters */
        status = build_ends(model, err);
    }
    for (uint32_t i = 0; status == MICS_OK && i < model->config.n_layer; i++)
        status = build_block(model, i, err);
    return status;
}

struct mics_counting_areas mics_counting_carve(const struct mics_model *model,
                                               const struct mics_batch *batch, uint32_t stage,
                                               void *saved, void *scratch,
                                               struct mics_stage_bytes *bytes)
{
    const uint64_t count = (uint64_t)batch->B * batch->T * model->config.n_embd;
    const enum mics_stage_kind kind = model->stages[stage].kind;
    struct mics_carver keep = {.base = saved}, work = {.base = scratch};
    struct mics_counting_areas areas = {0};

    if (kind != MICS_STAGE_EMBED)
        areas.in = mics_carve_typed(&keep, count, batch->dtype);
    if (kind == MICS_STAGE_BLOCK)
        areas.middle =
            mics_carve_typed(batch->recompute == MICS_RECOMPUTE_FULL ? &work : &keep, count,
                             batch->dtype); /* there are no norms or activation functions */
    if (bytes)
        *bytes = (struct mics_stage_bytes){.saved = keep.used, .scratch = work.used};
    return areas;
}

static void stage_bytes(const struct mics_model *model, const struct mics_batch *batch,
                        uint32_t stage, struct mics_stage_bytes *out)
{
    mics_counting_carve(model, batch, stage, NULL, NULL, out);
}

/* A few operations for each state and, in backward, for each parameter and sample. */
static void stage_work(const struct mics_model *model, const struct mics_batch *batch,
                       uint32_t stage, struct mics_stage_work *out)
{
    const double states = (double)batch->B * batch->T * model->config.n_embd;
    const double params = (double)model->units[model->stages[stage].unit].count;
    const double size = (double)mics_dtype_bytes(batch->dtype);
    const double grad_size = (double)mics_dtype_bytes(batch->grad_dtype);

    *out = (struct mics_stage_work){
        .forward_flops = 8 * (states + params),
        .forward_bytes = size * (3 * states + params),
    };
    if (batch->train) {
        out->backward_flops = 8 * (states + params * batch->B);
        out->backward_bytes =
            size * (4 * states + params * batch->B) + 2 * grad_size * params * batch->B;
    }
}

/* One call, as it travels in the operation's payload. */
struct job {
    struct mics_pass pass;
    void *logits;
    uint32_t stage, row;
    void (*run)(const struct job *job);
};

static void run_job(void *context)
{
    const struct job *job = context;

    job->run(job);
}

static void enqueue(const struct job *job)
{
    struct mics_op_call call = {.fn = run_job};

    _Static_assert(sizeof *job <= sizeof call.payload, "a job must fit into a call's payload");
    memcpy(call.payload, job, sizeof *job);
    mics_launch_call(job->pass.stream, &call);
}

static void run_forward(const struct job *job)
{
    mics_counting_run_forward(&job->pass, job->stage);
}

static void run_backward(const struct job *job)
{
    mics_counting_run_backward(&job->pass, job->stage);
}

static void run_logits(const struct job *job)
{
    mics_counting_run_logits(&job->pass, job->row, job->logits);
}

static void forward(const struct mics_pass *pass, uint32_t stage)
{
    enqueue(&(struct job){.pass = *pass, .stage = stage, .run = run_forward});
}

static void backward(const struct mics_pass *pass, uint32_t stage)
{
    enqueue(&(struct job){.pass = *pass, .stage = stage, .run = run_backward});
}

static void logits_of_row(const struct mics_pass *pass, uint32_t row, void *logits)
{
    enqueue(&(struct job){.pass = *pass, .row = row, .logits = logits, .run = run_logits});
}

const struct mics_family mics_family_counting = {
    .name = "counting",
    .build = mics_counting_build,
    .stage_bytes = stage_bytes,
    .stage_work = stage_work,
    .forward = forward,
    .backward = backward,
    .logits = logits_of_row,
};
