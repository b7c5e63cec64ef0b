/* SPDX-License-Identifier: Apache-2.0 */
/* test_work.c - FLOPs and bytes of launches, by hand. */
#include "tap.h"
#include "work.h"

static struct mics_kernel_work work_of(enum mics_kernel kernel, const void *args)
{
    struct mics_kernel_work work;

    mics_kernel_work_of(kernel, args, &work);
    return work;
}

static void a_product_reads_its_operands_and_its_epilogue(void)
{
    float out, pre;
    struct mics_args_matmul op = {.out = &out,
                                  .m = 100,
                                  .n = 200,
                                  .k = 300,
                                  .lda = 300,
                                  .ldb = 200,
                                  .ldout = 200,
                                  .dtype = MICS_BF16,
                                  .out_dtype = MICS_BF16};
    const double operands = 2.0 * (100 * 300 + 300 * 200), result = 2.0 * 100 * 200;
    struct mics_kernel_work work = work_of(MICS_K_MATMUL, &op);

    CHECK_INT(work.work_class, MICS_WORK_PRODUCT);
    CHECK_NEAR(work.flops, 2.0 * 100 * 200 * 300, 0);
    CHECK_NEAR(work.read, operands, 0);
    CHECK_NEAR(work.written, result, 0);
    CHECK(!work.aligned); /* 300 numbers of 2 bytes */
    op.pre_gelu = &pre;
    CHECK_NEAR(work_of(MICS_K_MATMUL, &op).written, 2 * result, 0);
    op.pre_gelu = NULL;
    op.gelu_of = &pre;
    CHECK_NEAR(work_of(MICS_K_MATMUL, &op).read, operands + result, 0);
    op.gelu_of = NULL;
    op.out_dtype = MICS_F32; /* a gradient that accumulates */
    op.add = &out;
    op.lda = 304;
    work = work_of(MICS_K_MATMUL, &op);
    CHECK_NEAR(work.read, operands + 2 * result, 0);
    CHECK_NEAR(work.written, 2 * result, 0);
    CHECK_INT(work.out_bytes, 8);
    CHECK(work.aligned);
}

/* FlashAttention counts 4 B H T^2 D FLOPs forward, half of them if causal, and 2.5 times as many
 * backward. */
static void attention_counts_as_flashattention_does(void)
{
    struct mics_args_attention op = {
        .B = 3, .T = 128, .H = 8, .H_kv = 2, .D = 64, .dtype = MICS_BF16};
    struct mics_args_attention_grad grad = {
        .B = 3, .T = 128, .H = 8, .H_kv = 2, .D = 64, .causal = true, .dtype = MICS_BF16};
    const double flops = 4.0 * 3 * 8 * 128 * 128 * 64, rows = 3 * 128;

    CHECK_NEAR(work_of(MICS_K_ATTENTION, &op).flops, flops, 0);
    op.causal = true;
    CHECK_NEAR(work_of(MICS_K_ATTENTION, &op).flops, flops / 2, 0);
    CHECK_NEAR(work_of(MICS_K_ATTENTION_GRAD, &grad).flops, 2.5 * flops / 2, 0);
    CHECK_NEAR(work_of(MICS_K_ATTENTION, &op).read, rows * 12 * 64 * 2, 0);
    CHECK_NEAR(work_of(MICS_K_ATTENTION, &op).written, rows * (8 * 64 * 2 + 8 * 4), 0);
}

/* A window hides (T - window)^2 / 2 of the T T / 2 pairs. */
static void a_window_counts_the_pairs_that_are_seen(void)
{
    struct mics_args_attention op = {
        .B = 1, .T = 128, .H = 1, .H_kv = 1, .D = 1, .causal = true, .window = 128};
    struct mics_args_attention_grad grad = {
        .B = 1, .T = 128, .H = 1, .H_kv = 1, .D = 1, .causal = true, .window = 32};

    CHECK_NEAR(work_of(MICS_K_ATTENTION, &op).flops, 4 * 128 * 64, 0);
    op.window = 32;
    CHECK_NEAR(work_of(MICS_K_ATTENTION, &op).flops, 4 * (128 * 64 - 96 * 48), 0);
    CHECK_NEAR(work_of(MICS_K_ATTENTION_GRAD, &grad).flops, 10 * (128 * 64 - 96 * 48), 0);
}

static void an_update_moves_28_bytes_of_a_parameter_and_2_of_its_copy(void)
{
    uint16_t copy;
    struct mics_args_update op = {.optimizer = MICS_OPT_ADAMW, .count = 1000};

    struct mics_kernel_work work = work_of(MICS_K_UPDATE, &op);
    CHECK_NEAR(work.read + work.written, 28e3, 0);
    op.copy = &copy;
    work = work_of(MICS_K_UPDATE, &op);
    CHECK_NEAR(work.read + work.written, 30e3, 0);
    op.optimizer = MICS_OPT_LION;
    work = work_of(MICS_K_UPDATE, &op);
    CHECK_NEAR(work.read + work.written, 22e3, 0);
}

static void passes_count_what_they_read_and_write(void)
{
    const struct mics_args_layernorm norm = {.rows = 10, .C = 64, .dtype = MICS_F32};
    const struct mics_args_swiglu_grad swiglu = {.rows = 10, .F = 64, .dtype = MICS_BF16};
    const struct mics_args_cross_entropy loss = {
        .rows = 10, .V = 1000, .ld = 1024, .grad = true, .dtype = MICS_BF16};
    const struct mics_args_cast cast = {
        .count = 100, .src_dtype = MICS_BF16, .dst_dtype = MICS_F32};
    const struct mics_args_sum_blocks sum = {
        .count = 300, .parts = 3, .src_dtype = MICS_INT4, .dst_dtype = MICS_INT8};
    const struct mics_args_zero zero = {.bytes = 77};
    struct mics_kernel_work work = work_of(MICS_K_LAYERNORM, &norm);

    CHECK_NEAR(work.read, 10 * 64 * 4, 0);
    CHECK_NEAR(work.written, 10 * 64 * 4 + 10 * 8, 0);
    work = work_of(MICS_K_SWIGLU_GRAD, &swiglu);
    CHECK_NEAR(work.read + work.written, 5.0 * 10 * 64 * 2, 0);
    work = work_of(MICS_K_CROSS_ENTROPY, &loss);
    CHECK_NEAR(work.read + work.written, 2.0 * 10 * 1000 * 2, 0);
    work = work_of(MICS_K_CAST, &cast);
    CHECK_NEAR(work.read, 200, 0);
    CHECK_NEAR(work.written, 400, 0);
    work = work_of(MICS_K_SUM_BLOCKS, &sum);
    CHECK_NEAR(work.read, 3 * 2 * 144, 0);
    CHECK_NEAR(work.written, 2 * 260, 0);
    work = work_of(MICS_K_ZERO, &zero);
    CHECK_INT(work.work_class, MICS_WORK_COPY);
    CHECK_NEAR(work.read, 0, 0);
    CHECK_NEAR(work.written, 77, 0);
}

int main(void)
{
    TAP_RUN(a_product_reads_its_operands_and_its_epilogue);
    TAP_RUN(attention_counts_as_flashattention_does);
    TAP_RUN(a_window_counts_the_pairs_that_are_seen);
    TAP_RUN(an_update_moves_28_bytes_of_a_parameter_and_2_of_its_copy);
    TAP_RUN(passes_count_what_they_read_and_write);
    return tap_done();
}
