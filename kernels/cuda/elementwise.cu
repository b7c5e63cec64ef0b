/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elementwise.cu - operations on each element of an array or of a row: casts, sums, activation
 * functions, and what follows matrix products.
 *
 * Every kernel here is bound by memory: it reads and writes each byte once, in 16-byte accesses
 * where addresses and lengths allow, with several loads in flight in each thread.
 */
#include "cuda/activation.cuh"
#include "cuda/flat.cuh"
#include "cuda/kernels.h"
#include "cuda/products.h"
#include "cuda/vector.cuh"

#include <type_traits>

/*
 * An array in another type.
 *
 * A block casts 1,024 pieces of 4 elements, four loads in flight in each thread. 6 bytes per
 * element, no flops: bound by memory. Exact or rounded to nearest, ties to even: the same bits as
 * the host. Casts to the same type are copies.
 */

template <typename To, typename From> struct casting {
    template <int W> struct op {
        struct inputs {
            mics_packed<From, W> from;
        };
        struct mics_args_cast args;

        __device__ __forceinline__ void load(uint64_t i, inputs &in) const
        {
            in.from = mics_read<From, W>((const From *)args.src + i);
        }

        __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
        {
            float x[W];

            mics_widen<From, W>(in.from, x);
            mics_store<To, W>((To *)args.dst + i, x);
        }
    };
};

template <typename To, typename From>
static cudaError_t cast_launch(const struct mics_cuda_at *at, const struct mics_args_cast *args)
{
    return mics_flat_launch<casting<To, From>::template op, 4, 4>(
        at->stream, *args, args->count, mics_aligned(16, args->dst, args->src));
}

cudaError_t mics_cuda_cast(const struct mics_cuda_at *at, const struct mics_args_cast *args)
{
    if (args->dst_dtype != args->src_dtype)
        return mics_launch_typed(args->dst_dtype, args->src_dtype, [&](auto to, auto from) {
            if constexpr (std::is_same_v<decltype(to), decltype(from)>)
                return cudaErrorInvalidValue;
            else
                return cast_launch<decltype(to), decltype(from)>(at, args);
        });
    if (args->dst == args->src || args->count == 0)
        return cudaSuccess;
    return cudaMemcpyAsync(args->dst, args->src, args->count * mics_dtype_bytes(args->dst_dtype),
                           cudaMemcpyDeviceToDevice, at->stream);
}

/*
 * An array of either type added to an fp32 one.
 *
 * A block adds 1,024 pieces of 4 elements, eight loads in flight in each thread. 12 bytes (fp32) or
 * 10 (16 bits) and 1 flop per element: bound by memory. Equals the host bit for bit.
 */

template <typename T> struct accumulating {
    template <int W> struct op {
        struct inputs {
            mics_packed<float, W> sum;
            mics_packed<T, W> in;
        };
        struct mics_args_accumulate args;

        __device__ __forceinline__ void load(uint64_t i, inputs &in) const
        {
            in.sum = mics_read<float, W>(args.sum + i);
            in.in = mics_read<T, W>((const T *)args.in + i);
        }

        __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
        {
            float sum[W], x[W];

            mics_widen<float, W>(in.sum, sum);
            mics_widen<T, W>(in.in, x);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += x[j];
            mics_store<float, W>(args.sum + i, sum);
        }
    };
};

template <typename T>
static cudaError_t accumulate_launch(const struct mics_cuda_at *at,
                                     const struct mics_args_accumulate *args)
{
    return mics_flat_launch<accumulating<T>::template op, 4, 4>(
        at->stream, *args, args->count, mics_aligned(16, args->sum, args->in));
}

cudaError_t mics_cuda_accumulate(const struct mics_cuda_at *at,
                                 const struct mics_args_accumulate *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return accumulate_launch<decltype(t)>(at, args); });
}

/*
 * The Gaussian error linear unit, in tanh form or exact.
 *
 * A block takes 1,024 pieces of 16 bytes, four loads in flight in each thread. 8 bytes (fp32) or 4
 * (16 bits) and about 15 flops per element: bound by memory. Within 1e-6 (fp32) or one unit of the
 * last place of the host.
 */

template <typename T> struct gelu {
    template <int W> struct op {
        struct inputs {
            mics_packed<T, W> x;
        };
        struct mics_args_gelu args;

        __device__ __forceinline__ void load(uint64_t i, inputs &in) const
        {
            in.x = mics_read<T, W>((const T *)args.in + i);
        }

        __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
        {
            float x[W];

            mics_widen<T, W>(in.x, x);
#pragma unroll
            for (int j = 0; j < W; j++)
                x[j] = args.exact ? mics_gelu_exact(x[j]) : mics_gelu_of<T>(x[j]);
            mics_store<T, W>((T *)args.out + i, x);
        }
    };
};

template <typename T>
static cudaError_t gelu_launch(const struct mics_cuda_at *at, const struct mics_args_gelu *args)
{
    return mics_flat_launch<gelu<T>::template op, mics_width<T>::value, 4>(
        at->stream, *args, args->count, mics_aligned(16, args->out, args->in));
}

cudaError_t mics_cuda_gelu(const struct mics_cuda_at *at, const struct mics_args_gelu *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return gelu_launch<decltype(t)>(at, args); });
}

/*
 * The gradient of GELU, in tanh form or exact.
 *
 * A block takes 1,024 pieces of 16 bytes, eight loads in flight in each thread. 12 bytes (fp32) or
 * 6 (16 bits) and about 25 flops per element: bound by memory. Within 4e-6 (fp32) or one unit of
 * the last place of the host.
 */

template <typename T> struct gelu_grad {
    template <int W> struct op {
        struct inputs {
            mics_packed<T, W> x, grad;
        };
        struct mics_args_gelu_grad args;

        __device__ __forceinline__ void load(uint64_t i, inputs &in) const
        {
            in.x = mics_read<T, W>((const T *)args.in + i);
            in.grad = mics_read<T, W>((const T *)args.grad_out + i);
        }

        __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
        {
            float x[W], grad[W];

            mics_widen<T, W>(in.x, x);
            mics_widen<T, W>(in.grad, grad);
#pragma unroll
            for (int j = 0; j < W; j++)
                grad[j] *= args.exact ? mics_gelu_exact_slope(x[j]) : mics_gelu_slope<T>(x[j]);
            mics_store<T, W>((T *)args.grad_in + i, grad);
        }
    };
};

template <typename T>
static cudaError_t gelu_grad_launch(const struct mics_cuda_at *at,
                                    const struct mics_args_gelu_grad *args)
{
    return mics_flat_launch<gelu_grad<T>::template op, mics_width<T>::value, 4>(
        at->stream, *args, args->count, mics_aligned(16, args->grad_in, args->in, args->grad_out));
}

cudaError_t mics_cuda_gelu_grad(const struct mics_cuda_at *at,
                                const struct mics_args_gelu_grad *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return gelu_grad_launch<decltype(t)>(at, args); });
}

/*
 * How operations on rows of a matrix are divided into blocks: block blockIdx.x takes
 * TILE_THREADS pieces of row blockIdx.x / tiles.
 */

#define TILE_THREADS 256

/* Blocks for a row of `length` elements, `width` in each thread. */
static inline uint32_t tiles_for(uint32_t length, uint32_t width)
{
    const uint64_t each = (uint64_t)TILE_THREADS * width;

    return (uint32_t)((length + each - 1) / each);
}

/* Whether a grid can have that many blocks. */
static inline bool tiles_fit(uint32_t rows, uint32_t tiles)
{
    return (uint64_t)rows * tiles <= 0x7fffffff;
}

/*
 * The gated unit silu(gate) * up (Shazeer 2020).
 *
 * A block takes 256 pieces of 16 bytes of one row's gate and as many of its up. 12 bytes (fp32) or
 * 6 (16 bits) per element of the result and about 8 flops: bound by memory. Within 1e-6 (fp32) or
 * one unit of the last place of the host.
 */

template <typename T, int W>
__global__ void __launch_bounds__(TILE_THREADS)
    swiglu_kernel(struct mics_args_swiglu args, uint32_t tiles)
{
    const size_t row = blockIdx.x / tiles;
    const uint32_t i = (blockIdx.x % tiles * TILE_THREADS + threadIdx.x) * W;
    const T *in = (const T *)args.in + row * 2 * args.F + i;
    float gate[W], up[W];

    if (i >= args.F)
        return;
    mics_load<T, W>(in, gate);
    mics_load<T, W>(in + args.F, up);
#pragma unroll
    for (int j = 0; j < W; j++)
        up[j] *= mics_silu<T>(gate[j]);
    mics_store<T, W>((T *)args.out + row * args.F + i, up);
}

template <typename T, int W>
static cudaError_t swiglu_launch(const struct mics_cuda_at *at, const struct mics_args_swiglu *args)
{
    const uint32_t tiles = tiles_for(args->F, W);

    if (!tiles_fit(args->rows, tiles))
        return cudaErrorInvalidValue;
    return MICS_LAUNCH((swiglu_kernel<T, W>), args->rows * tiles, TILE_THREADS, 0, at->stream,
                       *args, tiles);
}

template <typename T>
static cudaError_t swiglu_launch_width(const struct mics_cuda_at *at,
                                       const struct mics_args_swiglu *args)
{
    constexpr int W = mics_width<T>::value;

    if (args->rows == 0 || args->F == 0)
        return cudaSuccess;
    if (args->F % W == 0 && mics_aligned(16, args->out, args->in))
        return swiglu_launch<T, W>(at, args);
    return swiglu_launch<T, 1>(at, args);
}

cudaError_t mics_cuda_swiglu(const struct mics_cuda_at *at, const struct mics_args_swiglu *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return swiglu_launch_width<decltype(t)>(at, args); });
}

/*
 * The gradient of the gated unit silu(gate) * up.
 *
 * With s the logistic of gate: d/d gate = g up s (1 + gate (1 - s)), d/d up = g gate s. A block
 * takes 256 pieces of 16 bytes of one row's gate, up and grad_out. 20 bytes (fp32) or 10 (16 bits)
 * per element of grad_out and about 15 flops: bound by memory. Within 2e-6 (fp32) or one unit of
 * the last place of the host.
 */

template <typename T, int W>
__global__ void __launch_bounds__(TILE_THREADS)
    swiglu_grad_kernel(struct mics_args_swiglu_grad args, uint32_t tiles)
{
    const size_t row = blockIdx.x / tiles;
    const uint32_t i = (blockIdx.x % tiles * TILE_THREADS + threadIdx.x) * W;
    const T *in = (const T *)args.in + row * 2 * args.F + i;
    T *to = (T *)args.grad_in + row * 2 * args.F + i;
    float gate[W], up[W], grad[W];

    if (i >= args.F)
        return;
    mics_load<T, W>(in, gate);
    mics_load<T, W>(in + args.F, up);
    mics_load<T, W>((const T *)args.grad_out + row * args.F + i, grad);
#pragma unroll
    for (int j = 0; j < W; j++) {
        const float x = gate[j], s = mics_logistic<T>(x), silu = mics_silu<T>(x);

        gate[j] = grad[j] * up[j] * (s + silu * (1.0f - s));
        up[j] = grad[j] * silu;
    }
    mics_store<T, W>(to, gate);
    mics_store<T, W>(to + args.F, up);
}

template <typename T, int W>
static cudaError_t swiglu_grad_launch(const struct mics_cuda_at *at,
                                      const struct mics_args_swiglu_grad *args)
{
    const uint32_t tiles = tiles_for(args->F, W);

    if (!tiles_fit(args->rows, tiles))
        return cudaErrorInvalidValue;
    return MICS_LAUNCH((swiglu_grad_kernel<T, W>), args->rows * tiles, TILE_THREADS, 0, at->stream,
                       *args, tiles);
}

template <typename T>
static cudaError_t swiglu_grad_launch_width(const struct mics_cuda_at *at,
                                            const struct mics_args_swiglu_grad *args)
{
    constexpr int W = mics_width<T>::value;

    if (args->rows == 0 || args->F == 0)
        return cudaSuccess;
    if (args->F % W == 0 && mics_aligned(16, args->grad_in, args->in, args->grad_out))
        return swiglu_grad_launch<T, W>(at, args);
    return swiglu_grad_launch<T, 1>(at, args);
}

cudaError_t mics_cuda_swiglu_grad(const struct mics_cuda_at *at,
                                  const struct mics_args_swiglu_grad *args)
{
    return mics_launch_typed(
        args->dtype, [&](auto t) { return swiglu_grad_launch_width<decltype(t)>(at, args); });
}

/*
 * Bias, residual and GELU after a matrix product, where cuBLASLt does not do them; the product
 * itself is in products.c.
 *
 * A block takes 256 pieces of 4 elements of one row. The bytes of what it reads and writes, at most
 * 30 flops per element: bound by memory. An fp32 x is that of the host within the product's own
 * tolerance; a 16-bit product was rounded once before.
 */

/* x += the elements at p, unless p is NULL. */
template <typename T, int W>
__device__ __forceinline__ void add_at(float (&x)[W], const void *p, size_t at)
{
    float y[W];

    if (!p)
        return;
    mics_load<T, W>((const T *)p + at, y);
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] += y[i];
}

/* In is the type of the operands, Out that of the result. */
template <typename In, typename Out, typename Product, int W>
__global__ void __launch_bounds__(TILE_THREADS)
    epilogue_kernel(struct mics_epilogue args, uint32_t tiles)
{
    const size_t row = blockIdx.x / tiles;
    const uint32_t c = (blockIdx.x % tiles * TILE_THREADS + threadIdx.x) * W;
    const size_t at = row * args.ldout + c;
    float x[W] = {}, y[W];

    if (c >= args.n)
        return;
    add_at<Product, W>(x, args.product, row * args.ldproduct + c);
    add_at<Out, W>(x, args.add, at);
    add_at<In, W>(x, args.bias, c);
    if (args.gelu_of) {
        mics_load<In, W>((const In *)args.gelu_of + at, y);
#pragma unroll
        for (int i = 0; i < W; i++)
            x[i] *= mics_gelu_slope<In>(y[i]);
    }
    if (args.pre_gelu) {
        if (args.pre_gelu != args.product || args.add || args.bias || args.gelu_of)
            mics_store<In, W>((In *)args.pre_gelu + at, x);
#pragma unroll
        for (int i = 0; i < W; i++)
            x[i] = mics_gelu_of<In>(mics_rounded<In>(x[i]));
    }
    mics_store<Out, W>((Out *)args.out + at, x);
}

template <typename In, typename Out, typename Product>
static cudaError_t epilogue_launch(cudaStream_t stream, const struct mics_epilogue *args)
{
    const bool vectors = (args->n | args->ldout | args->ldproduct) % 4 == 0 &&
                         mics_aligned(16, args->out, args->pre_gelu, args->product, args->add,
                                      args->bias, args->gelu_of);
    const uint32_t tiles = tiles_for(args->n, vectors ? 4 : 1);

    if (!tiles_fit(args->m, tiles))
        return cudaErrorInvalidValue;
    if (vectors)
        return MICS_LAUNCH((epilogue_kernel<In, Out, Product, 4>), args->m * tiles, TILE_THREADS, 0,
                           stream, *args, tiles);
    return MICS_LAUNCH((epilogue_kernel<In, Out, Product, 1>), args->m * tiles, TILE_THREADS, 0,
                       stream, *args, tiles);
}

cudaError_t mics_epilogue_launch(cudaStream_t stream, const struct mics_epilogue *args)
{
    return mics_launch_typed(args->dtype, args->out_dtype, [&](auto in, auto out) {
        typedef std::conditional_t<sizeof(in) == 4, float, decltype(out)> product;

        return epilogue_launch<decltype(in), decltype(out), product>(stream, args);
    });
}
