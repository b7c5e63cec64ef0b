/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epilogue.cuh - what a matrix product does to its result, as a pass of its own.
 */
#ifndef MICS_KERNELS_CUDA_EPILOGUE_CUH
#define MICS_KERNELS_CUDA_EPILOGUE_CUH

#include "cuda/kernels.h"

/* x = product (+ add) (+ bias); then as in mics_op_matmul. `product` is [m, n] with rows of
 * ldproduct: of fp32 where dtype is, else of out_dtype; NULL is 0. The others have rows of
 * ldout. Any may be out but bias. */
struct mics_epilogue {
    void *out, *pre_gelu;
    const void *product, *add, *bias, *gelu_of;
    uint32_t m, n, ldout, ldproduct;
    enum mics_dtype dtype, out_dtype;
};

/* m and n are 1 or more. */
cudaError_t mics_epilogue_launch(cudaStream_t stream, const struct mics_epilogue *epilogue);

#endif
