/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost that the stages of each family declare equals that of the operations that they launch. A
 * device that only counts receives the operations; its streams and memory are never accessed.
 */
#include "device/device.h"
#include "model/decoder/decoder.h"
#include "tap.h"

#include <stdlib.h>

struct tally {
    struct mics_stream stream;
    double flops, bytes;
    uint32_t unknown;
};

/* Bytes of so many numbers. */
static double bytes_of(double numbers, enum mics_dtype dtype)
{
    return numbers * (double)mics_dtype_bytes(dtype);
}

static void tally_matmul(struct tally *tally, const struct mics_op_matmul *op)
{
    const double m = op->m, n = op->n, k = op->k;

    tally->flops += 2 * m * n * k;
    tally->bytes += bytes_of(m * k + k * n + (op->pre_gelu || op->gelu_of ? m * n : 0), op->dtype) +
                    bytes_of((op->add ? 2 : 1) * m * n, op->out_dtype);
}

static void tally_attention(struct tally *tally, const struct mics_op_attention *op)
{
    const double C = (double)op->H * op->D, rows = (double)op->B * op->T;
    const double W = C + 2.0 * op->H_kv * op->D;

    tally->flops += 4 * rows * op->T * C / (op->causal ? 2 : 1);
    tally->bytes += bytes_of(rows * (W + C), op->dtype);
}

static void tally_attention_grad(struct tally *tally, const struct mics_op_attention_grad *op)
{
    const double C = (double)op->H * op->D, rows = (double)op->B * op->T;
    const double W = C + 2.0 * op->H_kv * op->D;

    tally->flops += 10 * rows * op->T * C / (op->causal ? 2 : 1);
    tally->bytes += bytes_of(2 * rows * (W + C), op->dtype);
}

/* The same as pass_bytes() of what GPT-2 does not have. */
static double rotary_bytes(enum mics_kernel kernel, const void *args)
{
    const struct mics_op_rmsnorm *norm = args;
    const struct mics_op_rmsnorm_grad *norm_grad = args;
    const struct mics_op_swiglu *swiglu = args;
    const struct mics_op_swiglu_grad *swiglu_grad = args;
    const struct mics_op_rope *rope = args;
    const struct mics_op_qk_norm *qk_norm = args;
    const struct mics_op_qk_norm_grad *qk_grad = args;

    switch (kernel) {
    case MICS_K_RMSNORM:
        return bytes_of(2.0 * norm->rows * norm->C, norm->dtype);
    case MICS_K_RMSNORM_GRAD:
        return bytes_of(4.0 * norm_grad->rows * norm_grad->C, norm_grad->dtype);
    case MICS_K_SWIGLU:
        return bytes_of(3.0 * swiglu->rows * swiglu->F, swiglu->dtype);
    case MICS_K_SWIGLU_GRAD:
        return bytes_of(5.0 * swiglu_grad->rows * swiglu_grad->F, swiglu_grad->dtype);
    case MICS_K_QK_NORM:
        return bytes_of(2.0 * qk_norm->rows * (qk_norm->H + 2 * qk_norm->H_kv) * qk_norm->D,
                        qk_norm->dtype);
    case MICS_K_QK_NORM_GRAD:
        return bytes_of(3.0 * qk_grad->rows * (qk_grad->H + qk_grad->H_kv) * qk_grad->D,
                        qk_grad->dtype);
    case MICS_K_ROPE:
        return bytes_of(2.0 * rope->B * rope->T * rope->heads * rope->D, rope->dtype);
    default:
        return 0;
    }
}

/* Bytes read and written by the operations that only pass over memory; 0: another one. */
static double pass_bytes(enum mics_kernel kernel, const void *args)
{
    const struct mics_op_gelu *gelu = args;
    const struct mics_op_layernorm *norm = args;
    const struct mics_op_layernorm_grad *norm_grad = args;
    const struct mics_op_bias_grad *bias = args;
    const struct mics_op_embedding *embedding = args;
    const struct mics_op_embedding_grad *embedding_grad = args;
    const struct mics_op_cross_entropy *loss = args;
    double rows;

    switch (kernel) {
    case MICS_K_ZERO:
        return (double)((const struct mics_op_zero *)args)->bytes;
    case MICS_K_COPY:
        return 2.0 * (double)((const struct mics_op_copy *)args)->bytes;
    case MICS_K_GELU:
        return bytes_of(2.0 * (double)gelu->count, gelu->dtype);
    case MICS_K_LAYERNORM:
        return bytes_of(2.0 * norm->rows * norm->C, norm->dtype);
    case MICS_K_LAYERNORM_GRAD:
        return bytes_of(4.0 * norm_grad->rows * norm_grad->C, norm_grad->dtype);
    case MICS_K_BIAS_GRAD:
        return bytes_of((double)bias->rows * bias->n, bias->dtype);
    case MICS_K_EMBEDDING:
        return bytes_of((embedding->wpe ? 3.0 : 2.0) * embedding->B * embedding->T * embedding->C,
                        embedding->dtype);
    case MICS_K_EMBEDDING_GRAD:
        rows = (double)embedding_grad->B * embedding_grad->T * embedding_grad->C;
        return bytes_of(rows, embedding_grad->dtype) +
               bytes_of((embedding_grad->grad_wpe ? 4 : 2) * rows, embedding_grad->grad_dtype);
    case MICS_K_CROSS_ENTROPY:
        return bytes_of((loss->grad ? 2.0 : 1.0) * loss->rows * loss->V, loss->dtype);
    default:
        return rotary_bytes(kernel, args);
    }
}

static void tally_launch(struct mics_stream *stream, enum mics_kernel kernel, const void *args,
                         size_t size)
{
    struct tally *tally = (struct tally *)stream;
    const double bytes = pass_bytes(kernel, args);

    CHECK(size <= MICS_OP_ARGS_MAX);
    if (kernel == MICS_K_MATMUL)
        tally_matmul(tally, args);
    else if (kernel == MICS_K_ATTENTION)
        tally_attention(tally, args);
    else if (kernel == MICS_K_ATTENTION_GRAD)
        tally_attention_grad(tally, args);
    else
        tally->unknown += bytes == 0;
    tally->bytes += bytes;
}

static struct mics_pass pass_over(const struct mics_model *model, const struct mics_batch *batch,
                                  void *memory)
{
    return (struct mics_pass){
        .model = model,
        .batch = *batch,
        .tokens = memory,
        .targets = memory,
        .params = memory,
        .grads = memory,
        .saved = memory,
        .out = memory,
        .residual_grad = memory,
        .scratch = memory,
        .loss_sum = memory,
    };
}

/* `memory` gives addresses and is not touched. */
static void check_stage(const struct mics_model *model, const struct mics_batch *batch,
                        uint32_t stage, void *memory)
{
    static const struct mics_device_ops ops = {.launch = tally_launch};
    struct mics_device device = {.ops = &ops, .name = "tally"};
    struct tally there = {.stream.device = &device}, back = there;
    struct mics_stage_cost work;
    struct mics_pass pass = pass_over(model, batch, memory);

    model->ops->stage_cost(model, batch, stage, &work);
    pass.stream = &there.stream;
    model->ops->forward(&pass, stage);
    pass.stream = &back.stream;
    if (batch->train && stage + 1 < model->stage_count)
        model->ops->backward(&pass, stage);

    CHECK_NEAR(there.flops, work.forward_flops, 1e-9 * there.flops);
    CHECK_NEAR(back.flops, work.backward_flops, 1e-9 * back.flops);
    CHECK_NEAR(there.bytes, work.forward_bytes, 1e-9 * there.bytes);
    CHECK_NEAR(back.bytes, work.backward_bytes, 1e-9 * back.bytes);
    CHECK_INT(there.unknown + back.unknown, 0);
}

static void check_model(const struct mics_model *model, const struct mics_batch *batch,
                        void *memory)
{
    for (uint32_t stage = 0; stage < model->stage_count; stage++)
        check_stage(model, batch, stage, memory);
}

/* 400 rows of a vocabulary of 9,000: the head works in two pieces. */
static void check_batch(struct mics_batch batch)
{
    static const struct mics_model_config configs[] = {
        {"gpt2", "odd", 2, 24, 3, 200, 9000, 70, .layer_norm_epsilon = 1e-5},
        {"llama", "odd", 2, 24, 6, 200, 9000, 70, 1e-5, .n_kv_head = 2, .head_dim = 10,
         .rope_theta = 1e4, .untied = true},
        {"llama", "tied", 2, 24, 3, 200, 9000, 70, 1e-5, .rope_theta = 1e4},
        {"qwen2", "odd", 2, 24, 6, 200, 9000, 70, 1e-5, .n_kv_head = 2, .rope_theta = 1e4},
        {"qwen3", "odd", 2, 24, 6, 200, 9000, 70, 1e-5, .n_kv_head = 2, .head_dim = 10,
         .rope_theta = 1e4, .untied = true},
    };
    void *memory = malloc(64 << 20);

    CHECK(memory != NULL);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        struct mics_model *model = NULL;

        CHECK_INT(mics_model_new(&configs[i], &model, NULL), MICS_OK);
        check_model(model, &batch, memory);
        struct mics_family parallel = *model->family;
        parallel.parallel_residual = true;
        mics_model_free(model);
        CHECK_INT(mics_model_new_custom(&mics_decoder_ops, &parallel, &configs[i], &model, NULL),
                  MICS_OK);
        check_model(model, &batch, memory);
        mics_model_free(model);
    }
    free(memory);
}

static void training_launches_what_it_declares(void)
{
    check_batch((struct mics_batch){.B = 2, .T = 200, .train = true});
}

static void recomputing_launches_what_it_declares(void)
{
    for (int level = MICS_RECOMPUTE_SELECTIVE; level < MICS_RECOMPUTE_LEVELS; level++)
        check_batch((struct mics_batch){
            .B = 2, .T = 200, .train = true, .recompute = (enum mics_recompute)level});
}

static void evaluation_launches_what_it_declares(void)
{
    check_batch((struct mics_batch){.B = 2, .T = 200});
}

static void other_types_move_what_they_declare(void)
{
    const struct mics_batch batch = {.B = 2, .T = 200, .train = true, .dtype = MICS_BF16};
    struct mics_batch grads = batch;

    check_batch(batch);
    grads.grad_dtype = MICS_BF16;
    check_batch(grads);
    grads.dtype = MICS_F32;
    check_batch(grads);
}

int main(void)
{
    TAP_RUN(training_launches_what_it_declares);
    TAP_RUN(recomputing_launches_what_it_declares);
    TAP_RUN(evaluation_launches_what_it_declares);
    TAP_RUN(other_types_move_what_they_declare);
    return tap_done();
}
