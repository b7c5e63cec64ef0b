/* SPDX-License-Identifier: Apache-2.0 */
/* attention_gpu.h - shapes of tiles of the kernels for compute capability 9.0, which are compiled
 * for it alone. */
#ifndef MICS_BENCH_ATTENTION_GPU_H
#define MICS_BENCH_ATTENTION_GPU_H

#include "cuda/kernels.h"

struct attention_gpu_hopper {
    unsigned D;
    const char *text; /* as the columns of attention_gpu's lines, from the head on */
    cudaError_t (*run)(const struct mics_op_attention *args);
};

/* The forward's shapes, for causal attention; the first of each D is the one that is used. NULL:
 * there are no more. */
const struct attention_gpu_hopper *attention_gpu_hopper_at(unsigned i);

#endif
