/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_fake.h - a model of which only the shape matters, for tests of plans and schedules.
 *
 * Units of odd sizes, round figures of bytes, a product for each stage; nothing can be computed
 * with it.
 */
#ifndef MICS_TESTS_PLAN_FAKE_H
#define MICS_TESTS_PLAN_FAKE_H

#include "device/launch.h"
#include "model/model.h"
#include "plan/plan.h"

enum { FAKE_MAX_BLOCKS = 96 };

struct fake_model {
    struct mics_model model;
    struct mics_unit units[FAKE_MAX_BLOCKS + 2];
    struct mics_stage stages[2 * FAKE_MAX_BLOCKS + 2];
};

static void fake_stage_bytes(const struct mics_model *model, const struct mics_batch *batch,
                             uint32_t stage, struct mics_stage_bytes *out)
{
    static const uint64_t saved[MICS_RECOMPUTE_LEVELS] = {16, 10, 1};
    static const uint64_t scratch[MICS_RECOMPUTE_LEVELS] = {3, 3, 12};
    uint64_t input = (uint64_t)batch->B * batch->T * model->config.n_embd * 4;

    (void)stage;
    out->saved = input * (!batch->train ? 1 : saved[batch->recompute]);
    out->scratch = input * (!batch->train ? 12 : scratch[batch->recompute]);
}

/* The input of a stage is in what it saves. */
static void fake_boundary_bytes(const struct mics_model *model, const struct mics_batch *batch,
                                uint32_t boundary, struct mics_boundary_bytes *out)
{
    (void)boundary;
    *out =
        (struct mics_boundary_bytes){.grad = (uint64_t)batch->B * batch->T * model->config.n_embd *
                                             mics_dtype_bytes(batch->dtype)};
}

/* One product, of 2 `times` FLOPs for each token and parameter. */
static void fake_launch(const struct mics_pass *pass, uint32_t stage, uint32_t times)
{
    const struct mics_model *model = pass->model;
    const uint32_t unit = model->stages[stage].unit;

    mics_launch_matmul(
        pass->stream, &(struct mics_args_matmul){
                          .m = pass->batch.B * pass->batch.T,
                          .n = unit == MICS_NO_UNIT ? 64 : (uint32_t)model->units[unit].param_count,
                          .k = times});
}

static void fake_forward(const struct mics_pass *pass, uint32_t stage)
{
    const bool head = stage + 1 == pass->model->stage_count;

    fake_launch(pass, stage, head && pass->batch.train ? 3 : 1);
}

static void fake_backward(const struct mics_pass *pass, uint32_t stage)
{
    fake_launch(pass, stage, pass->batch.recompute == MICS_RECOMPUTE_FULL ? 3 : 2);
}

static const struct mics_model_ops fake_ops = {
    .stage_bytes = fake_stage_bytes,
    .boundary_bytes = fake_boundary_bytes,
    .forward = fake_forward,
    .backward = fake_backward,
};

/* `blocks` blocks of block_count parameters between ends of end_count: one resident unit when
 * `tied`, else two. */
static inline void fake_model_init(struct fake_model *fake, uint32_t blocks, uint64_t block_count,
                                   uint64_t end_count, bool tied)
{
    struct mics_model *model = &fake->model;

    *fake = (struct fake_model){0};
    model->config =
        (struct mics_model_config){.n_layer = blocks, .n_embd = 64, .n_positions = 1024};
    model->ops = &fake_ops;
    model->units = fake->units;
    model->stages = fake->stages;
    model->unit_count = blocks + (tied ? 1 : 2);
    model->stage_count = blocks + 2;
    model->boundary_count = 1;
    for (uint32_t u = 0; u < model->unit_count; u++) {
        uint64_t count = u == 0 || u == blocks + 1 ? end_count : block_count;

        snprintf(fake->units[u].name, sizeof fake->units[u].name, "u.%u", u);
        fake->units[u].count = fake->units[u].param_count = count;
        fake->units[u].resident = tied && u == 0;
        model->param_count += count;
    }
    for (uint32_t i = 0; i < model->stage_count; i++)
        fake->stages[i] = (struct mics_stage){
            .kind = MICS_STAGE_BLOCK, .unit = i, .layer = i - 1, .backward_needs_params = true};
    fake->stages[0].kind = MICS_STAGE_EMBED;
    fake->stages[blocks + 1].kind = MICS_STAGE_HEAD;
    if (tied)
        fake->stages[blocks + 1].unit = 0;
}

/* Give each block a second stage, without parameters. */
static inline void fake_model_split_blocks(struct fake_model *fake)
{
    const uint32_t blocks = fake->model.stage_count - 2;

    fake->model.stage_count = 2 * blocks + 2;
    fake->stages[2 * blocks + 1] = fake->stages[blocks + 1];
    for (uint32_t i = blocks; i > 0; i--) {
        fake->stages[2 * i - 1] = fake->stages[2 * i] = fake->stages[i];
        fake->stages[2 * i].unit = MICS_NO_UNIT;
        fake->stages[2 * i].part = 1;
    }
}

static inline struct mics_plan_choice
fake_choice(uint32_t nodes, uint32_t per_node, uint32_t p_param, uint32_t p_grad, uint32_t p_optim)
{
    return (struct mics_plan_choice){
        .shapes = MICS_SAME_SHAPE({nodes, per_node, p_param, p_grad, p_optim}),
        .strategy = "custom",
        .hierarchical_gather = true,
        .hierarchical_reduce = true,
        .segments = 1,
        .coalesce = 1,
        .prefetch = 1,
        .grad_slots = 2,
        .micro_batch = 2,
        .micro_steps = 1,
        .seq = 128,
        .clip = true};
}

#endif
