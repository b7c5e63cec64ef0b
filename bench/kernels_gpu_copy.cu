/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_gpu_copy.cu - a copy kernel with the structure of the library's kernels: the bandwidth
 * that they can reach. */
#include "kernels_gpu.h"

#include "cuda/flat.cuh"

struct copy {
    float *to;
    const float *from;
};

template <int W> struct copying {
    struct inputs {
        mics_packed<float, W> x;
    };
    struct copy args;

    __device__ __forceinline__ void load(uint64_t i, inputs &in) const
    {
        in.x = mics_read<float, W>(args.from + i);
    }

    __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
    {
        *(typename mics_packed<float, W>::word *)(args.to + i) = in.x.all;
    }
};

cudaError_t copy_by_kernel(cudaStream_t stream, void *to, const void *from, size_t bytes)
{
    const struct copy args = {(float *)to, (const float *)from};

    return mics_flat_launch<copying, 4, 4>(stream, args, bytes / sizeof(float), true);
}
