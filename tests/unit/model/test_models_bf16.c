/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both families with parameters, activations or gradients in bf16 against themselves in fp32, on
 * the same parameters: loss, logits and gradients differ by rounding errors, which are far smaller
 * than the effect of a missing operation. No stage may exceed its area, which is half as large, or
 * read uninitialised memory.
 */
#include "host/vector.h"
#include "model_run.h"
#include "tap.h"

#include <math.h>

/* Error of losses; for gradients, the length of the difference relative to the length, per tensor.
 * A number of bf16 is within 2^-9 of what was rounded, and some tens of roundings lie one behind
 * the other; where only gradients are rounded, the loss is the same and there are a few. */
#define LOSS_TOLERANCE      0.003
#define GRAD_TOLERANCE      0.06
#define ROUNDED_GRADS_APART 0.005

static const struct mics_model_config gpt2 = {
    .family = "gpt2",
    .name = "small",
    .n_layer = 2,
    .n_embd = 48,
    .n_head = 3,
    .n_positions = 40,
    .vocab_size = 61,
    .n_inner = 100,
    .layer_norm_epsilon = 1e-5,
};

static const struct mics_model_config llama = {
    .family = "llama",
    .name = "small",
    .n_layer = 2,
    .n_embd = 44,
    .n_head = 4,
    .n_positions = 40,
    .vocab_size = 61,
    .n_inner = 75,
    .layer_norm_epsilon = 1e-5,
    .n_kv_head = 2,
    .head_dim = 14,
    .rope_theta = 1000,
    .untied = true,
};

/* Parameters ten times as large as at the start, so that attention is not uniform; the same for
 * both types. */
static void set_params(struct model_run *run)
{
    for (uint32_t u = 0; u < run->model->unit_count; u++)
        for (uint64_t i = 0; i < run->model->units[u].count; i++) {
            float start;

            mics_model_init_range(run->model, u, i, 1, 3, &start);
            const uint16_t rounded = mics_bf16_round(fabsf(start) < 0.5f ? 10 * start : start);

            if (run->batch.dtype == MICS_BF16)
                mics_store_as(run->params[u].data, i, mics_bf16_widen(rounded), MICS_BF16);
            else
                run_params(run, u)[i] = mics_bf16_widen(rounded);
        }
}

static struct mics_batch batch_of(enum mics_dtype dtype, enum mics_dtype grad_dtype,
                                  enum mics_recompute recompute)
{
    return (struct mics_batch){.B = 3,
                               .T = 37,
                               .train = true,
                               .recompute = recompute,
                               .dtype = dtype,
                               .grad_dtype = grad_dtype};
}

static void open_run(struct model_run *run, const struct mics_model_config *config,
                     struct mics_batch batch)
{
    struct mics_model *model = NULL;

    if (mics_model_new(config, &model, NULL) != MICS_OK)
        abort();
    run_open(run, model, batch, 3);
    set_params(run);
    run_fill(run, 11);
}

static double gradient(struct model_run *run, uint32_t unit, uint64_t i)
{
    return mics_load_as(run->grads[unit].data, i, run->batch.grad_dtype);
}

/* The length of the difference of a tensor's gradients, relative to their length. */
static double grads_differ(struct model_run *a, struct model_run *b, uint32_t unit,
                           const struct mics_tensor *tensor)
{
    double apart = 0, length = 0;

    for (uint64_t i = tensor->offset; i < tensor->offset + tensor->count; i++) {
        const double want = gradient(a, unit, i), got = gradient(b, unit, i);

        apart += (got - want) * (got - want);
        length += want * want;
    }
    return sqrt(apart / length);
}

/* The worst of all tensors. */
static double all_grads_differ(struct model_run *wide, struct model_run *narrow)
{
    double worst = 0;

    for (uint32_t u = 0; u < wide->model->unit_count; u++)
        for (uint32_t i = 0; i < wide->model->units[u].tensor_count; i++) {
            const double apart = grads_differ(wide, narrow, u, &wide->model->units[u].tensors[i]);

            worst = fmax(worst, isnan(apart) ? INFINITY : apart);
        }
    return worst;
}

static void check(const struct mics_model_config *config, struct mics_batch batch)
{
    const bool bf16 = batch.dtype == MICS_BF16;
    struct mics_batch plain = batch;
    struct model_run wide, narrow;

    plain.dtype = plain.grad_dtype = MICS_F32;
    open_run(&wide, config, plain);
    open_run(&narrow, config, batch);
    const double loss = run_step(&wide);
    CHECK_NEAR(run_step(&narrow), loss, (bf16 ? LOSS_TOLERANCE : 1e-9) * loss);
    if (batch.train) {
        const double worst = all_grads_differ(&wide, &narrow);

        printf("# %s: gradients differ by up to %.2g of their length\n", config->family, worst);
        CHECK(worst < (bf16 ? GRAD_TOLERANCE : ROUNDED_GRADS_APART));
    }
    run_close(&wide);
    run_close(&narrow);
}

static void check_both(enum mics_dtype dtype, enum mics_dtype grad_dtype)
{
    for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
        check(&gpt2, batch_of(dtype, grad_dtype, (enum mics_recompute)level));
        check(&llama, batch_of(dtype, grad_dtype, (enum mics_recompute)level));
    }
}

static void gradients_in_bf16_are_those_of_fp32_but_for_rounding(void)
{
    check_both(MICS_BF16, MICS_F32);
}

static void gradients_agree_with_parameter_gradients_in_bf16_too(void)
{
    check_both(MICS_BF16, MICS_BF16);
}

static void gradients_agree_with_only_parameter_gradients_in_bf16(void)
{
    check_both(MICS_F32, MICS_BF16);
}

static void evaluation_in_bf16_is_near_fp32(void)
{
    struct mics_batch batch = batch_of(MICS_BF16, MICS_F32, MICS_RECOMPUTE_NONE);

    batch.train = false;
    check(&gpt2, batch);
    check(&llama, batch);
}

/* Half the activations, but the statistics in fp32 and what is rounded up. */
static void stages_save_half_as_much_in_bf16(void)
{
    const struct mics_batch full = batch_of(MICS_F32, MICS_F32, MICS_RECOMPUTE_NONE);
    const struct mics_batch half = batch_of(MICS_BF16, MICS_F32, MICS_RECOMPUTE_NONE);
    const struct mics_model_config *const configs[] = {&gpt2, &llama};

    for (size_t i = 0; i < 2; i++) {
        struct mics_stage_bytes a, b;
        struct mics_model *model = NULL;

        CHECK_INT(mics_model_new(configs[i], &model, NULL), MICS_OK);
        model->ops->stage_bytes(model, &full, 1, &a);
        model->ops->stage_bytes(model, &half, 1, &b);
        CHECK(b.saved < 0.56 * (double)a.saved && b.saved >= a.saved / 2);
        CHECK(b.scratch < 0.56 * (double)a.scratch && b.scratch >= a.scratch / 2);
        mics_model_free(model);
    }
}

static void check_same_bits(const struct mics_model_config *config, enum mics_dtype grad_dtype,
                            enum mics_recompute level)
{
    struct model_run keep, again;

    open_run(&keep, config, batch_of(MICS_BF16, grad_dtype, MICS_RECOMPUTE_NONE));
    open_run(&again, config, batch_of(MICS_BF16, grad_dtype, level));
    CHECK(run_step(&keep) == run_step(&again));
    for (uint32_t u = 0; u < keep.model->unit_count; u++)
        CHECK(memcmp(keep.grads[u].data, again.grads[u].data, keep.grads[u].bytes) == 0);
    run_close(&keep);
    run_close(&again);
}

static void recomputing_changes_no_bit_in_bf16(void)
{
    const struct mics_model_config *const configs[] = {&gpt2, &llama};

    for (int level = MICS_RECOMPUTE_SELECTIVE; level < MICS_RECOMPUTE_LEVELS; level++)
        for (size_t i = 0; i < 2; i++) {
            check_same_bits(configs[i], MICS_F32, (enum mics_recompute)level);
            check_same_bits(configs[i], MICS_BF16, (enum mics_recompute)level);
        }
}

int main(void)
{
    TAP_RUN(gradients_in_bf16_are_those_of_fp32_but_for_rounding);
    TAP_RUN(gradients_agree_with_parameter_gradients_in_bf16_too);
    TAP_RUN(gradients_agree_with_only_parameter_gradients_in_bf16);
    TAP_RUN(evaluation_in_bf16_is_near_fp32);
    TAP_RUN(stages_save_half_as_much_in_bf16);
    TAP_RUN(recomputing_changes_no_bit_in_bf16);
    return tap_done();
}
