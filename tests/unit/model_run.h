/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_run.h - one whole model on the host device, without groups, plans or an engine: for tests.
 *
 * Every area has exactly the planned bytes and a guard behind it, and starts as NaN, so that a
 * stage that uses more than it declares, or reads uninitialised memory, is detected.
 */
#ifndef MICS_TESTS_MODEL_RUN_H
#define MICS_TESTS_MODEL_RUN_H

#include "host/numbers.h"
#include "model/model.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

#define RUN_GUARD_BYTES 256

struct run_area {
    unsigned char *data;
    uint64_t bytes;
};

struct model_run {
    struct mics_model *model;
    struct mics_batch batch;
    struct mics_device *device;
    struct mics_stream *stream;
    struct run_area *params, *grads; /* [unit_count] */
    struct run_area *saved;          /* [stage_count] */
    /* [stage_count] Boundary tensors that stages hand on, and which of them each receives. */
    struct run_area (*handed_on)[MICS_BOUNDARIES_MAX];
    void *(*in)[MICS_BOUNDARIES_MAX], *(*out)[MICS_BOUNDARIES_MAX];
    struct run_area boundary_grads[MICS_BOUNDARIES_MAX];
    void *grad[MICS_BOUNDARIES_MAX];
    struct run_area scratch, tokens, targets, loss;
    bool first; /* whether passes are the first into the gradients */
};

static inline struct run_area run_area_new(struct model_run *run, uint64_t bytes)
{
    struct run_area area = {.bytes = bytes};
    void *memory = NULL;

    if (run->device->ops->alloc(run->device, bytes + RUN_GUARD_BYTES, &memory, NULL) != MICS_OK)
        abort();
    area.data = memory;
    memset(area.data, 0xff, bytes + RUN_GUARD_BYTES); /* all ones is a NaN */
    return area;
}

static inline void run_area_free(struct model_run *run, struct run_area *area)
{
    int bad = 0;

    for (uint64_t i = area->bytes; i < area->bytes + RUN_GUARD_BYTES; i++)
        bad += area->data[i] != 0xff;
    CHECK_INT(bad, 0);
    run->device->ops->release(run->device, area->data);
}

/* Parameters of a run in fp32. */
static inline float *run_params(struct model_run *run, uint32_t unit)
{
    return (float *)(void *)run->params[unit].data;
}

static inline float *run_grads(struct model_run *run, uint32_t unit)
{
    return (float *)(void *)run->grads[unit].data;
}

static inline int32_t *run_tokens(struct model_run *run)
{
    return (int32_t *)(void *)run->tokens.data;
}

static inline int32_t *run_targets(struct model_run *run)
{
    return (int32_t *)(void *)run->targets.data;
}

static inline void run_zero_grads(struct model_run *run)
{
    for (uint32_t i = 0; i < run->model->unit_count; i++)
        memset(run->grads[i].data, 0, run->grads[i].bytes);
}

/* A boundary tensor in each stage that hands it on; if no backward pass reads it, it is
 * overwritten there before the backward passes. */
static inline void run_alloc_boundary(struct model_run *run, uint32_t boundary)
{
    struct mics_boundary_bytes bytes;
    void *current = NULL;

    run->model->ops->boundary_bytes(run->model, &run->batch, boundary, &bytes);
    run->boundary_grads[boundary] = run_area_new(run, bytes.grad);
    run->grad[boundary] = run->boundary_grads[boundary].data;
    for (uint32_t i = 0; i < run->model->stage_count; i++) {
        const struct mics_stage *stage = &run->model->stages[i];

        if (stage->receives >> boundary & 1)
            run->in[i][boundary] = current;
        if (stage->hands_on >> boundary & 1) {
            run->handed_on[i][boundary] = run_area_new(run, bytes.value);
            current = run->out[i][boundary] = run->handed_on[i][boundary].data;
        }
    }
}

static inline void run_alloc_stages(struct model_run *run)
{
    uint64_t scratch = 0;

    for (uint32_t i = 0; i < run->model->stage_count; i++) {
        struct mics_stage_bytes bytes;

        run->model->ops->stage_bytes(run->model, &run->batch, i, &bytes);
        run->saved[i] = run_area_new(run, bytes.saved);
        scratch = bytes.scratch > scratch ? bytes.scratch : scratch;
    }
    run->scratch = run_area_new(run, scratch);
    for (uint32_t b = 0; b < run->model->boundary_count; b++)
        run_alloc_boundary(run, b);
}

/* Initial parameters of a unit, in the batch's type. */
static inline void run_init_unit(struct model_run *run, uint32_t unit, uint64_t seed)
{
    const uint64_t count = run->model->units[unit].count;
    float *wide = malloc(count * sizeof *wide);

    if (!wide)
        abort();
    mics_model_init_range(run->model, unit, 0, count, seed, wide);
    mics_numbers_from_f32(run->batch.dtype == MICS_BF16 ? MICS_STORAGE_BF16 : MICS_STORAGE_F32,
                          wide, run->params[unit].data, count);
    free(wide);
}

/* The run takes the model; parameters from `seed`, gradients 0. */
static inline void run_open(struct model_run *run, struct mics_model *model,
                            struct mics_batch batch, uint64_t seed)
{
    const uint64_t rows = (uint64_t)batch.B * batch.T;

    *run = (struct model_run){.model = model, .batch = batch};
    if (mics_device_new_host(2, &run->device, NULL) != MICS_OK ||
        run->device->ops->stream_open(run->device, "compute", 0, &run->stream, NULL) != MICS_OK)
        abort();
    run->params = calloc(model->unit_count, sizeof *run->params);
    run->grads = calloc(model->unit_count, sizeof *run->grads);
    run->saved = calloc(model->stage_count, sizeof *run->saved);
    run->handed_on = calloc(model->stage_count, sizeof *run->handed_on);
    run->in = calloc(model->stage_count, sizeof *run->in);
    run->out = calloc(model->stage_count, sizeof *run->out);
    if (!run->params || !run->grads || !run->saved || !run->handed_on || !run->in || !run->out)
        abort();
    for (uint32_t i = 0; i < model->unit_count; i++) {
        const uint64_t count = model->units[i].count;

        run->params[i] = run_area_new(run, count * mics_dtype_bytes(batch.dtype));
        run->grads[i] = run_area_new(run, count * mics_dtype_bytes(batch.grad_dtype));
        run_init_unit(run, i, seed);
    }
    run_alloc_stages(run);
    run->tokens = run_area_new(run, rows * sizeof(int32_t));
    run->targets = run_area_new(run, rows * sizeof(int32_t));
    run->loss = run_area_new(run, sizeof(double));
    run_zero_grads(run);
}

/* Larger and less regular parameters (fp32) than the initial ones, so that every path of the
 * gradient counts. */
static inline void run_shake(struct model_run *run)
{
    for (uint32_t u = 0; u < run->model->unit_count; u++)
        for (uint32_t t = 0; t < run->model->units[u].tensor_count; t++) {
            const struct mics_tensor *tensor = &run->model->units[u].tensors[t];

            for (uint64_t i = tensor->offset; i < tensor->offset + tensor->count; i++) {
                float *x = &run_params(run, u)[i];

                *x = 8 * *x / (1 + fabsf(*x)) + 0.1f * (float)((i * 37 + u) % 11) - 0.5f;
            }
        }
}

/* Gradients other than 0 where no tensor is. */
static inline uint64_t run_stray_grads(struct model_run *run, uint32_t unit)
{
    const struct mics_unit *made = &run->model->units[unit];
    uint64_t stray = 0, at = 0;

    for (uint32_t t = 0; t <= made->tensor_count; t++) {
        const struct mics_tensor *next = t < made->tensor_count ? &made->tensors[t] : NULL;

        for (; at < (next ? next->offset : made->count); at++)
            stray += run_grads(run, unit)[at] != 0;
        at = next ? next->offset + next->count : at;
    }
    return stray;
}

static inline void run_close(struct model_run *run)
{
    for (uint32_t i = 0; i < run->model->unit_count; i++) {
        run_area_free(run, &run->params[i]);
        run_area_free(run, &run->grads[i]);
    }
    for (uint32_t i = 0; i < run->model->stage_count; i++) {
        run_area_free(run, &run->saved[i]);
        for (uint32_t b = 0; b < run->model->boundary_count; b++)
            if (run->out[i][b])
                run_area_free(run, &run->handed_on[i][b]);
    }
    for (uint32_t b = 0; b < run->model->boundary_count; b++)
        run_area_free(run, &run->boundary_grads[b]);
    run_area_free(run, &run->scratch);
    run_area_free(run, &run->tokens);
    run_area_free(run, &run->targets);
    run_area_free(run, &run->loss);
    run->device->ops->stream_close(run->stream);
    run->device->ops->free(run->device);
    free(run->params);
    free(run->grads);
    free(run->saved);
    free(run->handed_on);
    free(run->in);
    free(run->out);
    mics_model_free(run->model);
}

/* Tokens and targets that look like text's: any of the vocabulary, every fifth target masked. */
static inline void run_fill(struct model_run *run, uint32_t seed)
{
    const uint32_t vocab = run->model->config.vocab_size;

    for (uint32_t i = 0; i < run->batch.B * run->batch.T; i++) {
        const uint32_t word = (seed + i) * 2654435761u;

        run_tokens(run)[i] = (int32_t)((word >> 8) % vocab);
        run_targets(run)[i] = (seed + i) % 5 == 4 ? -1 : (int32_t)((word >> 4) % vocab);
    }
}

static inline struct mics_pass run_pass(struct model_run *run, uint32_t stage)
{
    const uint32_t unit = run->model->stages[stage].unit;

    return (struct mics_pass){
        .model = run->model,
        .stream = run->stream,
        .batch = run->batch,
        .tokens = run_tokens(run),
        .targets = run_targets(run),
        .params = unit == MICS_NO_UNIT ? NULL : run->params[unit].data,
        .grads = unit == MICS_NO_UNIT ? NULL : run->grads[unit].data,
        .first = run->first,
        .saved = run->saved[stage].data,
        .scratch = run->scratch.data,
        .in = run->in[stage],
        .out = run->out[stage],
        .grad = run->grad,
        .loss_sum = (double *)(void *)run->loss.data,
    };
}

static inline void run_sync(struct model_run *run)
{
    struct mics_err err = {{0}};

    CHECK_INT(run->device->ops->stream_sync(run->stream, &err), MICS_OK);
}

/* No gradient is there yet, and nothing that backward passes must not read is left. */
static inline void run_clear_boundaries(struct model_run *run)
{
    for (uint32_t b = 0; b < run->model->boundary_count; b++) {
        struct mics_boundary_bytes bytes;

        run->model->ops->boundary_bytes(run->model, &run->batch, b, &bytes);
        for (uint32_t i = 0; bytes.forward_only && i < run->model->stage_count; i++)
            if (run->out[i][b])
                memset(run->out[i][b], 0xff, bytes.value);
    }
}

/* Forward, and backward when the batch trains; gradients add up. Returns the loss. */
static inline double run_step(struct model_run *run)
{
    double loss = 0;

    memcpy(run->loss.data, &loss, sizeof loss);
    for (uint32_t b = 0; b < run->model->boundary_count; b++)
        memset(run->grad[b], 0xff, run->boundary_grads[b].bytes);
    for (uint32_t i = 0; i < run->model->stage_count; i++) {
        const struct mics_pass pass = run_pass(run, i);

        run->model->ops->forward(&pass, i);
    }
    run_sync(run);
    run_clear_boundaries(run);
    for (uint32_t i = run->model->stage_count - 1; run->batch.train && i-- > 0;) {
        struct mics_pass pass = run_pass(run, i);

        if (!run->model->stages[i].backward_needs_params)
            pass.params = NULL;
        run->model->ops->backward(&pass, i);
    }
    run_sync(run);
    memcpy(&loss, run->loss.data, sizeof loss);
    return loss;
}

#endif
