/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adamw.cu - Adam with decoupled weight decay (Loshchilov and Hutter 2019) on a slice of a unit, in
 * one launch.
 *
 * A block takes 512 pieces of 4 elements, eight 16-byte loads under way in each thread. 28 bytes
 * per element, 30 with a copy in bf16, and about 15 flops: bound by memory. Within 1e-6 of the
 * host, relative to 1 and to the change; an element's result does not depend on its place.
 */
#include "cuda/kernels.h"
#include "cuda/update.cuh"

#include <math.h>

struct adam {
    float beta1, rest1; /* rest = 1 - beta, from the double */
    float beta2, rest2;
    float rate, root2,
        decay; /* lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step), 1 - lr weight_decay */
};

template <int W> struct adamw {
    struct inputs {
        float param[W], m[W], v[W], grad[W];
    };
    struct mics_op_adamw args;
    struct adam adam;

    __device__ __forceinline__ void load(uint64_t i, inputs &in) const
    {
        mics_load<float, W>(args.param + i, in.param);
        mics_load<float, W>(args.m + i, in.m);
        mics_load<float, W>(args.v + i, in.v);
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
            const float g = in.grad[j] * scale;
            const float first = fmaf(adam.beta1, in.m[j], adam.rest1 * g);
            const float second = fmaf(adam.beta2, in.v[j], adam.rest2 * (g * g));
            const float step = first / fmaf(sqrtf(second), adam.root2, args.eps);
            const float kept = i + j < args.decay_count ? adam.decay * in.param[j] : in.param[j];

            in.m[j] = first;
            in.v[j] = second;
            in.param[j] = fmaf(-adam.rate, step, kept);
        }
        mics_store<float, W>(args.param + i, in.param);
        mics_store<float, W>(args.m + i, in.m);
        mics_store<float, W>(args.v + i, in.v);
        mics_update_copy<W>(args.copy, i, in.param);
    }
};

cudaError_t mics_cuda_adamw(const struct mics_cuda_at *at, const struct mics_op_adamw *args)
{
    const double beta1 = args->beta1, beta2 = args->beta2;
    const struct adam adam = {
        args->beta1,
        (float)(1 - beta1),
        args->beta2,
        (float)(1 - beta2),
        (float)(args->lr / (1 - pow(beta1, args->step))),
        (float)(1 / sqrt(1 - pow(beta2, args->step))),
        (float)(1 - (double)args->lr * args->weight_decay),
    };
    const adamw<MICS_UPDATE_WIDTH> wide = {*args, adam};
    const adamw<1> single = {*args, adam};

    if (mics_aligned(16, args->param, args->m, args->v, args->grad) && mics_aligned(8, args->copy))
        return mics_update_launch<adamw, MICS_UPDATE_WIDTH>(at->stream, wide, single, args->count);
    return mics_update_launch<adamw, 1>(at->stream, single, single, args->count);
}
