/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_case.h - one attention problem: its inputs, its results in double, and what the GPU makes of it.
 *
 * Inputs are rounded to the type under test before the reference sees them, so that only the kernels' own
 * rounding is measured.
 */
#ifndef MICS_TESTS_GPU_ATTENTION_CASE_H
#define MICS_TESTS_GPU_ATTENTION_CASE_H

#include "cuda/attention_choice.cuh"
#include "cuda/kernels.h"

#include <vector>

struct attention_shape {
    unsigned B, T, H, H_kv, D;
    bool causal;
};

/* Tensors of ops.h: qkv [B, T, (H + 2 H_kv) D], out [B, T, H D], lse [B, H, T]. */
struct attention_case {
    struct attention_shape shape;
    enum mics_dtype dtype;
    std::vector<double> qkv, grad_out;  /* inputs */
    std::vector<double> out, lse, grad; /* the reference; grad is that of qkv */
    std::vector<double> got_out, got_lse, got_grad;
};

/* Random inputs of about unit size times `size`, and the reference. */
struct attention_case attention_case_make(const struct attention_shape &shape,
                                          enum mics_dtype dtype, double size);

/* The default stream with a workspace, and choices by the environment; ends the program where it fails. */
struct mics_cuda_at attention_case_device(void);
void attention_case_device_close(struct mics_cuda_at *at);

/* Run both directions on the device; NaN stands in every result before. `variant` -1: the one that is chosen; else
 * that one, for the directions that it takes, and the reference for the other. The first error;
 * cudaErrorNotSupported: it takes neither. */
cudaError_t attention_case_run(struct attention_case *c, const struct mics_cuda_at *at,
                               int variant);

#endif
