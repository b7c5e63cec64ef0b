/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_gpu_attention.c - attention forward and backward with each kernel.
 *
 * FLOPs count only what the mask leaves: two products forward, five for the gradient.
 * build/gpu/check_attention compares the results.
 */
#include "kernels_gpu.h"

#include <stdio.h>

static const char *const kernels[] = {"mma", "hopper"};
static const char *const directions[] = {"forward", "backward"};

/* Causal attention of 16,384 tokens in sequences of 2,048, of 2,048 channels. */
static cudaError_t run_attention(struct bench *x, const void *context)
{
    const uint32_t D = *(const uint32_t *)context;

    return mics_cuda_attention(&x->at, &(struct mics_args_attention){x->c, (float *)x->d, x->a, 8,
                                                                     2048, 2048 / D, 2048 / D, D,
                                                                     true, MICS_BF16, NULL, 0});
}

static cudaError_t run_attention_grad(struct bench *x, const void *context)
{
    const uint32_t D = *(const uint32_t *)context;

    return mics_cuda_attention_grad(
        &x->at, &(struct mics_args_attention_grad){x->b, (float *)x->d + (8 << 20), x->c + AREA / 2,
                                                   x->c, x->a, (float *)x->d, 8, 2048, 2048 / D,
                                                   2048 / D, D, true, MICS_BF16, NULL, 0});
}

static void measure_direction(struct bench *x, const char *kernel, uint32_t D, int grad)
{
    const double flops = 2.0 * 8 * 2048 * 2049 * 2048 * (grad ? 2.5 : 1);
    cudaError_t (*const run)(struct bench *, const void *) =
        grad ? run_attention_grad : run_attention;
    const double took_us = time_us(x, run, &D);

    printf("head %-3u %-8s %-17s %10.1f %10.1f\n", D, directions[grad], kernel, took_us,
           flops / took_us / 1e6);
}

static void measure_kernel(struct bench *x, const char *name)
{
    struct mics_err err;

    if (mics_cuda_attention_choose(name, x->capability, &x->at.attention, &err) != MICS_OK) {
        printf("%s\n", err.text);
        return;
    }
    for (int large = 0; large < 2; large++)
        for (int grad = 0; grad < 2; grad++)
            measure_direction(x, name, large ? 128 : 64, grad);
}

void measure_attention(struct bench *x)
{
    printf("%-36s %10s %10s\n", "attention, causal, T 2048, bf16", "us", "TFLOP/s");
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        measure_kernel(x, kernels[i]);
}
