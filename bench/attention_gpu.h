/* SPDX-License-Identifier: Apache-2.0 */
/* attention_gpu.h - tile shapes of the kernels for compute capability 9.0, which are compiled only
 * for it. */
#ifndef MICS_BENCH_ATTENTION_GPU_H
#define MICS_BENCH_ATTENTION_GPU_H

#include "cuda/kernels.h"

struct attention_gpu_hopper {
    unsigned D;
    const char *text; /* columns of attention_gpu's output, from the head size on */
    cudaError_t (*run)(const struct mics_args_attention *args);
};

/* Forward shapes for causal attention. The library uses the first shape of each D. NULL: no more
 * shapes. */
const struct attention_gpu_hopper *attention_gpu_hopper_at(unsigned i);

#endif
