/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both families in bf16 against themselves in fp32, on the same parameters: loss, logits and gradients differ
 * by what rounding activations costs, and a few rounded differences are not the like of a lost operation.
 */
#include "host/bf16.h"
#include "model_run.h"
#include "tap.h"

#include <math.h>

/* Of losses; of gradients the length of the difference relative to the length, per tensor. A number of bf16 is
 * within 2^-9 of what was rounded, and some tens of roundings lie one behind the other. */
#define LOSS_TOLERANCE 0.003
#define GRAD_TOLERANCE 0.06

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

/* Parameters ten times as large as at the start, so that attention is no mean; of both types the same. */
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

static void open_run(struct model_run *run, const struct mics_model_config *config,
                     enum mics_dtype dtype, enum mics_dtype grad_dtype, bool recompute)
{
    const struct mics_batch batch = {.B = 3,
                                     .T = 37,
                                     .train = true,
                                     .recompute = recompute,
                                     .dtype = dtype,
                                     .grad_dtype = grad_dtype};
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

static void check_gradients(const struct mics_model_config *config, enum mics_dtype grad_dtype)
{
    struct model_run wide, narrow;
    double worst = 0;

    open_run(&wide, config, MICS_F32, MICS_F32, false);
    open_run(&narrow, config, MICS_BF16, grad_dtype, false);
    const double loss = run_step(&wide);
    CHECK_NEAR(run_step(&narrow), loss, LOSS_TOLERANCE * loss);
    for (uint32_t u = 0; u < wide.model->unit_count; u++)
        for (uint32_t i = 0; i < wide.model->units[u].tensor_count; i++) {
            const struct mics_tensor *tensor = &wide.model->units[u].tensors[i];
            const double apart = grads_differ(&wide, &narrow, u, tensor);

            if (!(apart < GRAD_TOLERANCE))
                printf("# %s differs by %.2g of its length\n", tensor->name, apart);
            worst = fmax(worst, isnan(apart) ? INFINITY : apart);
        }
    printf("# %s: gradients differ by up to %.2g of their length\n", config->family, worst);
    CHECK(worst < GRAD_TOLERANCE);
    run_close(&wide);
    run_close(&narrow);
}

static void gradients_in_bf16_are_those_of_fp32_but_for_rounding(void)
{
    check_gradients(&gpt2, MICS_F32);
    check_gradients(&llama, MICS_F32);
}

static void they_are_where_gradients_are_bf16_too(void)
{
    check_gradients(&gpt2, MICS_BF16);
    check_gradients(&llama, MICS_BF16);
}

static void recomputing_changes_no_bit(void)
{
    const struct mics_model_config *const configs[] = {&gpt2, &llama};

    for (size_t i = 0; i < 2; i++) {
        struct model_run keep, again;

        open_run(&keep, configs[i], MICS_BF16, MICS_F32, false);
        open_run(&again, configs[i], MICS_BF16, MICS_F32, true);
        CHECK(run_step(&keep) == run_step(&again));
        for (uint32_t u = 0; u < keep.model->unit_count; u++)
            CHECK(memcmp(keep.grads[u].data, again.grads[u].data, keep.grads[u].bytes) == 0);
        run_close(&keep);
        run_close(&again);
    }
}

static void check_logits(const struct mics_model_config *config)
{
    struct model_run run;
    const uint32_t row = 50;
    uint16_t logits[61];
    double total = 0;

    open_run(&run, config, MICS_BF16, MICS_F32, false);
    run.batch.train = false;
    for (uint32_t i = 0; i < run.batch.B * run.batch.T; i++)
        run_targets(&run)[i] = i == row ? 4 : -1;
    const double loss = run_step(&run);
    const struct mics_pass pass = run_pass(&run, run.model->stage_count - 1);

    run.model->family->logits(&pass, row, logits);
    run_sync(&run);
    for (uint32_t v = 0; v < 61; v++)
        total += exp((double)mics_bf16_widen(logits[v]));
    CHECK_NEAR(log(total) - mics_bf16_widen(logits[4]), loss, 1e-5 * (1 + loss));
    run_close(&run);
}

static void the_logits_of_a_row_give_that_rows_loss(void)
{
    check_logits(&gpt2);
    check_logits(&llama);
}

int main(void)
{
    TAP_RUN(gradients_in_bf16_are_those_of_fp32_but_for_rounding);
    TAP_RUN(they_are_where_gradients_are_bf16_too);
    TAP_RUN(recomputing_changes_no_bit);
    TAP_RUN(the_logits_of_a_row_give_that_rows_loss);
    return tap_done();
}
