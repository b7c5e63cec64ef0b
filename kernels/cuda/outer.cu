/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outer.cu - what outer steps need: a scaled difference of two arrays, and the outer update.
 *
 * A block takes 1,024 pieces of 4 elements, several loads in flight in each thread. 12 bytes per
 * element for a difference, 24 (26 with a copy) for an update: bound by memory. Each result is
 * within a rounding of the host's, and does not depend on the element's place.
 */
#include "cuda/flat.cuh"
#include "cuda/kernels.h"

template <int W> struct difference {
    struct inputs {
        float a[W], b[W];
    };
    struct mics_args_difference args;

    __device__ __forceinline__ void load(uint64_t i, inputs &in) const
    {
        mics_load<float, W>(args.a + i, in.a);
        if (args.b)
            mics_load<float, W>(args.b + i, in.b);
    }

    __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
    {
        float x[W];

#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = args.scale * (args.b ? in.a[j] - in.b[j] : in.a[j]);
        mics_store<float, W>(args.dst + i, x);
    }
};

cudaError_t mics_cuda_difference(const struct mics_cuda_at *at,
                                 const struct mics_args_difference *args)
{
    const bool vectors = mics_aligned(16, args->dst, args->a, args->b);

    return mics_flat_launch<difference, 4, 4>(at->stream, *args, args->count, vectors);
}

template <int W> struct outer_update {
    struct inputs {
        float anchor[W], momentum[W], delta[W];
    };
    struct mics_args_outer_update args;

    __device__ __forceinline__ void load(uint64_t i, inputs &in) const
    {
        mics_load<float, W>(args.anchor + i, in.anchor);
        mics_load<float, W>(args.momentum + i, in.momentum);
        mics_load<float, W>(args.delta + i, in.delta);
    }

    __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
    {
        float anchor[W], momentum[W];

#pragma unroll
        for (int j = 0; j < W; j++) {
            const float d = args.scale * in.delta[j];

            momentum[j] = fmaf(args.mu, in.momentum[j], d);
            anchor[j] = fmaf(-args.lr, fmaf(args.mu, momentum[j], d), in.anchor[j]);
        }
        mics_store<float, W>(args.momentum + i, momentum);
        mics_store<float, W>(args.anchor + i, anchor);
        mics_store<float, W>(args.param + i, anchor);
        if (args.copy && args.copy_f16)
            mics_store<mics_f16, W>((mics_f16 *)args.copy + i, anchor);
        else if (args.copy)
            mics_store<mics_bf16, W>((mics_bf16 *)args.copy + i, anchor);
    }
};

cudaError_t mics_cuda_outer_update(const struct mics_cuda_at *at,
                                   const struct mics_args_outer_update *args)
{
    const bool vectors =
        mics_aligned(16, args->param, args->anchor, args->momentum, args->delta, args->copy);

    return mics_flat_launch<outer_update, 4, 4>(at->stream, *args, args->count, vectors);
}
