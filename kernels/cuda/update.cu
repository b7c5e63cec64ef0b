/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update.cu - the optimizers' updates, fp16's loss scale, and the squared norm that clipping needs.
 */
#include "cuda/gpu.h"
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"
#include "ops.h"

#include <math.h>

/*
 * What the optimizers share: the scale of the gradient, the condition under which nothing changes,
 * and the kernel.
 *
 * A thread computes the scale, which needs a square root and divisions in double, while its loads
 * are in flight. The arithmetic is that of host/update.c.
 */

#define UPDATE_THREADS 256
#define UPDATE_WIDTH   4
#define UPDATE_DEPTH   2

/* What the summed gradients are multiplied by: 1 / targets, without the loss scale, times min(1,
 * clip / (norm + 1e-6)). false: nothing may be changed, because there are no targets, a gradient
 * has overflowed, or clipping is on and the norm or the loss is not finite. */
__device__ __forceinline__ bool update_scale(const struct mics_args_update &args, float *scale)
{
    const struct mics_args_scalars *scalars = args.scalars;
    const float clip = args.settings.clip;
    double factor, norm;

    if (scalars->targets == 0 || (args.loss_scale && args.loss_scale->overflow))
        return false;
    factor = 1.0 / scalars->targets;
    if (clip > 0) {
        norm = sqrt(scalars->squared_norm) * factor;
        if (!isfinite(norm) || !isfinite(scalars->loss_sum))
            return false;
        if (clip < norm + 1e-6)
            factor *= clip / (norm + 1e-6);
    }
    if (args.loss_scale)
        factor /= args.loss_scale->used;
    *scale = (float)factor;
    return true;
}

/* Elements [i, i + W) of the copy in bf16 or fp16, if there is one. */
template <int W>
__device__ __forceinline__ void update_copy(const struct mics_args_update &args, uint64_t i,
                                            const float (&param)[W])
{
    if (args.copy && args.copy_f16)
        mics_store<mics_f16, W>((mics_f16 *)args.copy + i, param);
    else if (args.copy)
        mics_store<mics_bf16, W>((mics_bf16 *)args.copy + i, param);
}

/* One piece of WIDTH elements. */
template <typename Op>
__device__ __forceinline__ void update_piece(const Op &op, uint64_t i, typename Op::inputs &in,
                                             bool change, float scale)
{
    if (change)
        op.finish(i, in, scale);
    else
        op.keep(i, in);
}

/* One block: UPDATE_THREADS * UPDATE_DEPTH pieces of a slice; the first block also its rest. Op has
 * inputs and load() as in elementwise.cu; its finish() also takes the scale, and keep() writes the
 * copy of what is left unchanged. */
template <template <int> class Op, int WIDTH>
__global__ void __launch_bounds__(UPDATE_THREADS)
    update_kernel(Op<WIDTH> op, Op<1> rest, uint64_t count)
{
    const uint64_t pieces = count / WIDTH, block = UPDATE_THREADS * UPDATE_DEPTH;
    const uint64_t first = blockIdx.x * block + threadIdx.x;
    typename Op<WIDTH>::inputs in[UPDATE_DEPTH];
    float scale = 0;

#pragma unroll
    for (int d = 0; d < UPDATE_DEPTH; d++)
        if (first + d * UPDATE_THREADS < pieces)
            op.load((first + d * UPDATE_THREADS) * WIDTH, in[d]);
    const bool change = update_scale(op.args, &scale);
#pragma unroll
    for (int d = 0; d < UPDATE_DEPTH; d++)
        if (first + d * UPDATE_THREADS < pieces)
            update_piece(op, (first + d * UPDATE_THREADS) * WIDTH, in[d], change, scale);
    if (WIDTH > 1 && first < count % WIDTH) {
        typename Op<1>::inputs one;

        rest.load(pieces * WIDTH + first, one);
        update_piece(rest, pieces * WIDTH + first, one, change, scale);
    }
}

template <template <int> class Op, int WIDTH>
static cudaError_t update_launch(cudaStream_t stream, const Op<WIDTH> &op, const Op<1> &rest,
                                 uint64_t count)
{
    const uint64_t each = (uint64_t)UPDATE_THREADS * UPDATE_DEPTH * WIDTH;
    const uint64_t blocks = (count + each - 1) / each;

    if (count == 0)
        return cudaSuccess;
    if (blocks > 0x7fffffff)
        return cudaErrorInvalidValue;
    return MICS_LAUNCH((update_kernel<Op, WIDTH>), (unsigned)blocks, UPDATE_THREADS, 0, stream, op,
                       rest, count);
}

/*
 * Adam with decoupled weight decay (Loshchilov and Hutter 2019) on a slice of a unit, in
 * one launch.
 *
 * A block takes 512 pieces of 4 elements, eight 16-byte loads in flight in each thread. 28 bytes
 * per element, 30 with a copy in 16 bits, and about 15 flops: bound by memory. Within 1e-6 of the
 * host, relative to 1 and to the change; an element's result does not depend on its place.
 */

struct update_adamw {
    float beta1, rest1; /* rest = 1 - beta, computed in double */
    float beta2, rest2;
    float rate, root2; /* lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step) */
    float decay;       /* 1 - lr weight_decay */
};

template <int W> struct adamw {
    struct inputs {
        float param[W], m[W], v[W], grad[W];
    };
    struct mics_args_update args;
    struct update_adamw adam;

    __device__ __forceinline__ void load(uint64_t i, inputs &in) const
    {
        mics_load<float, W>(args.param + i, in.param);
        mics_load<float, W>(args.state[0] + i, in.m);
        mics_load<float, W>(args.state[1] + i, in.v);
        mics_load<float, W>(args.grad + i, in.grad);
    }

    __device__ __forceinline__ void keep(uint64_t i, const inputs &in) const
    {
        update_copy<W>(args, i, in.param);
    }

    __device__ __forceinline__ void finish(uint64_t i, inputs &in, float scale) const
    {
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float g = in.grad[j] * scale;
            const float first = fmaf(adam.beta1, in.m[j], adam.rest1 * g);
            const float second = fmaf(adam.beta2, in.v[j], adam.rest2 * (g * g));
            const float step = first / fmaf(sqrtf(second), adam.root2, args.settings.eps);
            const float kept = i + j < args.decay_count ? adam.decay * in.param[j] : in.param[j];

            in.m[j] = first;
            in.v[j] = second;
            in.param[j] = fmaf(-adam.rate, step, kept);
        }
        mics_store<float, W>(args.param + i, in.param);
        mics_store<float, W>(args.state[0] + i, in.m);
        mics_store<float, W>(args.state[1] + i, in.v);
        update_copy<W>(args, i, in.param);
    }
};

static cudaError_t launch_adamw(const struct mics_cuda_at *at, const struct mics_args_update *args,
                                bool vectors)
{
    const double beta1 = args->settings.beta1, beta2 = args->settings.beta2;
    const struct update_adamw adam = {
        args->settings.beta1,
        (float)(1 - beta1),
        args->settings.beta2,
        (float)(1 - beta2),
        (float)(args->lr / (1 - pow(beta1, args->step))),
        (float)(1 / sqrt(1 - pow(beta2, args->step))),
        (float)(1 - (double)args->lr * args->settings.weight_decay),
    };
    const adamw<UPDATE_WIDTH> wide = {*args, adam};
    const adamw<1> single = {*args, adam};

    return vectors ? update_launch<adamw, UPDATE_WIDTH>(at->stream, wide, single, args->count)
                   : update_launch<adamw, 1>(at->stream, single, single, args->count);
}

/*
 * Stochastic gradient descent with momentum and coupled weight decay on a slice of a unit, in one
 * launch.
 *
 * A block takes 512 pieces of 4 elements, six 16-byte loads in flight in each thread. 20 bytes per
 * element, 22 with a copy in 16 bits, and 6 flops: bound by memory. Within 1e-6 of the host; an
 * element's result does not depend on its place.
 */

template <int W> struct sgd {
    struct inputs {
        float param[W], m[W], grad[W];
    };
    struct mics_args_update args;

    __device__ __forceinline__ void load(uint64_t i, inputs &in) const
    {
        mics_load<float, W>(args.param + i, in.param);
        mics_load<float, W>(args.state[0] + i, in.m);
        mics_load<float, W>(args.grad + i, in.grad);
    }

    __device__ __forceinline__ void keep(uint64_t i, const inputs &in) const
    {
        update_copy<W>(args, i, in.param);
    }

    __device__ __forceinline__ void finish(uint64_t i, inputs &in, float scale) const
    {
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float decay = i + j < args.decay_count ? args.settings.weight_decay : 0.0f;
            const float g = fmaf(in.grad[j], scale, decay * in.param[j]);

            in.m[j] = fmaf(args.settings.momentum, in.m[j], g);
            in.param[j] = fmaf(-args.lr, in.m[j], in.param[j]);
        }
        mics_store<float, W>(args.param + i, in.param);
        mics_store<float, W>(args.state[0] + i, in.m);
        update_copy<W>(args, i, in.param);
    }
};

static cudaError_t launch_sgd(const struct mics_cuda_at *at, const struct mics_args_update *args,
                              bool vectors)
{
    const sgd<UPDATE_WIDTH> wide = {*args};
    const sgd<1> single = {*args};

    return vectors ? update_launch<sgd, UPDATE_WIDTH>(at->stream, wide, single, args->count)
                   : update_launch<sgd, 1>(at->stream, single, single, args->count);
}

/*
 * Lion (Chen et al. 2023) with decoupled weight decay on a slice of a unit, in one launch.
 *
 * A block takes 512 pieces of 4 elements, six 16-byte loads in flight in each thread. 20 bytes per
 * element, 22 with a copy in 16 bits, and 9 flops: bound by memory. The state is within 1e-6 of the
 * host's, and so is a parameter whose direction is not within rounding of 0, where the sign may
 * differ; an element's result does not depend on its place.
 */

struct update_lion {
    float beta1, rest1, beta2, rest2; /* rest = 1 - beta, computed in double */
    float decay;                      /* 1 - lr weight_decay */
};

template <int W> struct lion {
    struct inputs {
        float param[W], m[W], grad[W];
    };
    struct mics_args_update args;
    struct update_lion with;

    __device__ __forceinline__ void load(uint64_t i, inputs &in) const
    {
        mics_load<float, W>(args.param + i, in.param);
        mics_load<float, W>(args.state[0] + i, in.m);
        mics_load<float, W>(args.grad + i, in.grad);
    }

    __device__ __forceinline__ void keep(uint64_t i, const inputs &in) const
    {
        update_copy<W>(args, i, in.param);
    }

    /* NaN stays NaN. */
    __device__ __forceinline__ void finish(uint64_t i, inputs &in, float scale) const
    {
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float g = in.grad[j] * scale;
            const float u = fmaf(with.beta1, in.m[j], with.rest1 * g);
            const float sign = u > 0 ? 1.0f : u < 0 ? -1.0f : u;
            const float kept = i + j < args.decay_count ? with.decay * in.param[j] : in.param[j];

            in.m[j] = fmaf(with.beta2, in.m[j], with.rest2 * g);
            in.param[j] = fmaf(-args.lr, sign, kept);
        }
        mics_store<float, W>(args.param + i, in.param);
        mics_store<float, W>(args.state[0] + i, in.m);
        update_copy<W>(args, i, in.param);
    }
};

static cudaError_t launch_lion(const struct mics_cuda_at *at, const struct mics_args_update *args,
                               bool vectors)
{
    const double beta1 = args->settings.beta1, beta2 = args->settings.beta2;
    const struct update_lion with = {
        args->settings.beta1,
        (float)(1 - beta1),
        args->settings.beta2,
        (float)(1 - beta2),
        (float)(1 - (double)args->lr * args->settings.weight_decay),
    };
    const lion<UPDATE_WIDTH> wide = {*args, with};
    const lion<1> single = {*args, with};

    return vectors ? update_launch<lion, UPDATE_WIDTH>(at->stream, wide, single, args->count)
                   : update_launch<lion, 1>(at->stream, single, single, args->count);
}

cudaError_t mics_cuda_update(const struct mics_cuda_at *at, const struct mics_args_update *args)
{
    const bool vectors =
        mics_aligned(16, args->param, args->state[0], args->state[1], args->grad) &&
        mics_aligned(8, args->copy);

    switch (args->optimizer) {
    case MICS_OPT_ADAMW:
        return launch_adamw(at, args, vectors);
    case MICS_OPT_SGD:
        return launch_sgd(at, args, vectors);
    case MICS_OPT_LION:
        return launch_lion(at, args, vectors);
    default:
        return cudaErrorInvalidValue;
    }
}

/* One thread: fp16's loss scale after a step, as host/update.c moves it. Equals the host bit for
 * bit. */
__global__ void loss_scale_kernel(struct mics_args_loss_scale args)
{
    struct mics_loss_scale state = *args.state;
    struct mics_args_scalars *scalars = args.scalars;

    state.used = state.factor;
    state.overflow = !isfinite(scalars->squared_norm) || !isfinite(scalars->loss_sum);
    state.at_minimum = state.overflow && state.patience <= 1 && state.factor <= args.min;
    scalars->squared_norm /= state.used * state.used;
    if (args.counts)
        scalars->skipped = state.at_minimum ? (double)INFINITY : state.overflow;
    if (state.overflow) {
        state.overflows++;
        state.clean = 0;
        if (state.patience > 1)
            state.patience--;
        else
            state.factor = fmax(state.factor / args.step, args.min);
    } else if (!args.drains) {
        state.clean++;
        if (args.window > 0 && state.clean >= args.window) {
            state.factor = fmin(state.factor * args.step, args.max);
            state.patience = args.hysteresis;
            state.clean = 0;
        }
    }
    *args.state = state;
}

cudaError_t mics_cuda_loss_scale(const struct mics_cuda_at *at,
                                 const struct mics_args_loss_scale *args)
{
    return MICS_LAUNCH(loss_scale_kernel, 1, 1, 0, at->stream, *args);
}

/*
 * The sum of squares of an array, in double.
 *
 * A block strides over the array in pieces of 16 bytes, four in flight in each thread, and writes
 * its sum to the workspace; one block adds those up in order. 4 bytes and 2 flops in double
 * precision per element: bound by memory. Within 1e-13 of the host, relatively. Equal runs on equal
 * devices give equal bits.
 */

#define NORM_THREADS  512
#define NORM_RESIDENT 4 /* blocks of a multiprocessor */
#define NORM_DEPTH    4

template <int W> __device__ __forceinline__ double squares(const mics_packed<float, W> &in)
{
    float x[W];
    double sum = 0;

    mics_widen<float, W>(in, x);
#pragma unroll
    for (int i = 0; i < W; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* One block: every gridDim.x-th run of pieces; the first block also the rest of the array. */
template <int W>
__global__ void __launch_bounds__(NORM_THREADS)
    squared_norm_kernel(const float *in, uint64_t count, double *partials)
{
    MICS_SHARED(double, shared, [MICS_WARPS_MAX]);
    const uint64_t pieces = count / W, stride = (uint64_t)gridDim.x * NORM_THREADS;
    const uint64_t first = (uint64_t)blockIdx.x * NORM_THREADS + threadIdx.x;
    double sum[1] = {0};

    for (uint64_t at = first; at < pieces; at += stride * NORM_DEPTH) {
        mics_packed<float, W> x[NORM_DEPTH];

#pragma unroll
        for (int d = 0; d < NORM_DEPTH; d++)
            if (at + d * stride < pieces)
                x[d] = mics_read<float, W>(in + (at + d * stride) * W);
#pragma unroll
        for (int d = 0; d < NORM_DEPTH; d++)
            if (at + d * stride < pieces)
                sum[0] += squares<W>(x[d]);
    }
    if (W > 1 && first < count % W)
        sum[0] += squares<1>(mics_read<float, 1>(in + pieces * W + first));
    mics_team_sum<1>(sum, shared);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = sum[0];
}

/* One block: *to += weight times the sum of all partials. */
__global__ void __launch_bounds__(NORM_THREADS)
    sum_partials_kernel(const double *partials, unsigned count, double weight, double *to)
{
    MICS_SHARED(double, shared, [MICS_WARPS_MAX]);
    double sum[1] = {0};

    for (unsigned i = threadIdx.x; i < count; i += NORM_THREADS)
        sum[0] += partials[i];
    mics_team_sum<1>(sum, shared);
    if (threadIdx.x == 0)
        *to += weight * sum[0];
}

cudaError_t mics_cuda_squared_norm(const struct mics_cuda_at *at,
                                   const struct mics_args_squared_norm *args)
{
    const bool vectors = mics_aligned(16, args->in);
    const uint64_t each = (uint64_t)NORM_THREADS * (vectors ? 4 : 1),
                   needed = (args->count + each - 1) / each;
    const uint64_t resident = (uint64_t)at->multiprocessors * NORM_RESIDENT;
    const unsigned blocks = (unsigned)(needed < resident ? needed : resident);
    double *partials = (double *)at->workspace;
    cudaError_t error;

    if (args->count == 0)
        return cudaSuccess;
    error = vectors ? MICS_LAUNCH((squared_norm_kernel<4>), blocks, NORM_THREADS, 0, at->stream,
                                  args->in, args->count, partials)
                    : MICS_LAUNCH((squared_norm_kernel<1>), blocks, NORM_THREADS, 0, at->stream,
                                  args->in, args->count, partials);
    if (error != cudaSuccess)
        return error;
    return MICS_LAUNCH(sum_partials_kernel, 1, NORM_THREADS, 0, at->stream, partials, blocks,
                       args->check_only ? 0.0 : 1.0, args->sum);
}
