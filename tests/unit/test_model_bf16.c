/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models with parameters, activations or gradients in bf16, beside the same in fp32. Nothing may leave its area,
 * which is half as large, or read what nobody wrote.
 */
#include "model_run.h"
#include "tap.h"

#include <math.h>

static const struct mics_model_config configs[] = {
    {"gpt2", "odd", 3, 24, 3, 40, 131, 70, .layer_norm_epsilon = 1e-5},
    {"llama", "odd", 3, 24, 6, 40, 131, 70, 1e-5, .n_kv_head = 2, .head_dim = 10, .rope_theta = 1e4,
     .untied = true},
};

static void open_model(struct model_run *run, const struct mics_model_config *config,
                       struct mics_batch batch)
{
    struct mics_model *model = NULL;

    if (mics_model_new(config, &model, NULL) != MICS_OK)
        abort();
    run_open(run, model, batch, 3);
    run_fill(run, 11);
}

static double gradient(struct model_run *run, uint32_t unit, uint64_t i)
{
    const bool bf16 = run->batch.grad_dtype == MICS_BF16;
    float value;

    mics_numbers_to_f32(bf16 ? MICS_NUMBER_BF16 : MICS_NUMBER_F32,
                        run->grads[unit].data + i * (bf16 ? 2 : 4), &value, 1);
    return value;
}

/* How far the gradients of a unit are apart, relative to their length. */
static double distance(struct model_run *a, struct model_run *b, uint32_t unit)
{
    double apart = 0, length = 0;

    for (uint64_t i = 0; i < a->model->units[unit].count; i++) {
        const double x = gradient(a, unit, i), y = gradient(b, unit, i);

        apart += (x - y) * (x - y);
        length += x * x;
    }
    return sqrt(apart / length);
}

/* Gradients of activations are rounded some ten times on their way through a block: a few in a hundred. */
static void check(const struct mics_model_config *config, struct mics_batch batch)
{
    struct mics_batch plain = batch;
    struct model_run run, full;
    double loss, want;

    plain.dtype = plain.grad_dtype = MICS_F32;
    open_model(&full, config, plain);
    open_model(&run, config, batch);
    want = run_step(&full);
    loss = run_step(&run);
    CHECK_NEAR(loss, want, (batch.dtype == MICS_BF16 ? 1e-3 : 1e-9) * want);
    for (uint32_t u = 0; batch.train && u < run.model->unit_count; u++)
        CHECK(distance(&full, &run, u) < (batch.dtype == MICS_BF16 ? 0.03 : 0.005));
    run_close(&run);
    run_close(&full);
}

static void training_in_every_type_is_near_fp32(void)
{
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
        for (unsigned recompute = 0; recompute < 2; recompute++) {
            struct mics_batch batch = {.B = 3, .T = 37, .recompute = recompute, .train = true};

            batch.grad_dtype = MICS_BF16;
            check(&configs[i], batch);
            batch.dtype = MICS_BF16;
            check(&configs[i], batch);
            batch.grad_dtype = MICS_F32;
            check(&configs[i], batch);
        }
}

static void evaluation_in_bf16_is_near_fp32(void)
{
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
        check(&configs[i], (struct mics_batch){.B = 3, .T = 37, .dtype = MICS_BF16});
}

/* Half the activations, but the statistics in fp32 and what is rounded up. */
static void stages_save_half_as_much_in_bf16(void)
{
    const struct mics_batch full = {.B = 4, .T = 32, .train = true};
    struct mics_batch half = full;

    half.dtype = MICS_BF16;
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct mics_stage_bytes a, b;
        struct mics_model *model = NULL;

        CHECK_INT(mics_model_new(&configs[i], &model, NULL), MICS_OK);
        model->family->stage_bytes(model, &full, 1, &a);
        model->family->stage_bytes(model, &half, 1, &b);
        CHECK(b.saved < 0.56 * (double)a.saved && b.saved >= a.saved / 2);
        CHECK(b.scratch < 0.56 * (double)a.scratch && b.scratch >= a.scratch / 2);
        mics_model_free(model);
    }
}

int main(void)
{
    TAP_RUN(training_in_every_type_is_near_fp32);
    TAP_RUN(evaluation_in_bf16_is_near_fp32);
    TAP_RUN(stages_save_half_as_much_in_bf16);
    return tap_done();
}
