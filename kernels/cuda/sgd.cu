/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sgd.cu - stochastic gradient descent with momentum and coupled weight decay on a slice of a unit,
 * in one launch.
 *
 * A block takes 512 pieces of 4 elements, six 16-byte loads under way in each thread. 20 bytes per
 * element, 22 with a copy in bf16, and 6 flops: bound by memory. Within 1e-6 of the host; an
 * element's result does not depend on its place.
 */
#include "cuda/kernels.h"
#include "cuda/update.cuh"

template <int W> struct sgd {
    struct inputs {
        float param[W], momentum[W], grad[W];
    };
    struct mics_op_sgd args;

    __device__ __forceinline__ void load(uint64_t i, inputs &in) const
    {
        mics_load<float, W>(args.param + i, in.param);
        mics_load<float, W>(args.momentum + i, in.momentum);
        mics_load<float, W>(args.grad + i, in.grad);
    }

    __device__ __forceinline__ void keep(uint64_t i, const inputs &in) const
    {
        mics_update_copy<W>(args.copy, i, in.param);
    }

    __device__ __forceinline__ void finish(uint64_t i, inputs &in, float scale) const
    {
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float decay = i + j < args.decay_count ? args.weight_decay : 0.0f;
            const float g = fmaf(in.grad[j], scale, decay * in.param[j]);

            in.momentum[j] = fmaf(args.mu, in.momentum[j], g);
            in.param[j] = fmaf(-args.lr, in.momentum[j], in.param[j]);
        }
        mics_store<float, W>(args.param + i, in.param);
        mics_store<float, W>(args.momentum + i, in.momentum);
        mics_update_copy<W>(args.copy, i, in.param);
    }
};

cudaError_t mics_cuda_sgd(const struct mics_cuda_at *at, const struct mics_op_sgd *args)
{
    const sgd<MICS_UPDATE_WIDTH> wide = {*args};
    const sgd<1> single = {*args};

    if (mics_aligned(16, args->param, args->momentum, args->grad) && mics_aligned(8, args->copy))
        return mics_update_launch<sgd, MICS_UPDATE_WIDTH>(at->stream, wide, single, args->count);
    return mics_update_launch<sgd, 1>(at->stream, single, single, args->count);
}
