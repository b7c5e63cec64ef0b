/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activation.cuh - GELU in both forms, SiLU, and their slopes, of one number.
 *
 * (1 + tanh(u)) / 2 is the logistic function of 2u: one exponential and one division, with no
 * cancellation for negative inputs. T is the type of the tensor: bf16 and fp16 take the
 * multiprocessor's own exponential and reciprocal, one instruction each, whose relative error
 * (under 2e-5 for all that is not rounded to 0) a 16-bit number cannot show. NaN gives NaN.
 */
#ifndef MICS_KERNELS_CUDA_ACTIVATION_CUH
#define MICS_KERNELS_CUDA_ACTIVATION_CUH

#include "cuda/gpu.h"
#include "cuda/tensor.cuh"

#define MICS_TWO_SQRT_2_OVER_PI 1.59576912f /* 2 sqrt(2 / pi) */
#define MICS_GELU_CUBIC         0.044715f
#define MICS_LOG2_E             1.44269504f

template <typename T> __device__ __forceinline__ float mics_exp(float x)
{
    return sizeof(T) == 4 ? expf(x) : mics_exp2(MICS_LOG2_E * x);
}

/* x / y for y in [1, infinity]. */
template <typename T> __device__ __forceinline__ float mics_divide(float x, float y)
{
    return sizeof(T) == 4 ? x / y : x * mics_reciprocal(y);
}

template <typename T> __device__ __forceinline__ float mics_logistic(float x)
{
    return mics_divide<T>(1.0f, 1.0f + mics_exp<T>(-x));
}

template <typename T> __device__ __forceinline__ float mics_gelu_of(float x)
{
    const float twice_u = MICS_TWO_SQRT_2_OVER_PI * (x + MICS_GELU_CUBIC * x * x * x);

    return mics_divide<T>(x, 1.0f + mics_exp<T>(-twice_u));
}

/* s + x s (1 - s) 2u', where s is the logistic of 2u. Past 16 the last factors are 0: x is held
 * there, or its square would overflow and 0 times infinity be NaN. */
template <typename T> __device__ __forceinline__ float mics_gelu_slope(float x)
{
    const float held = x > 16.0f ? 16.0f : x < -16.0f ? -16.0f : x, square = held * held;
    const float s =
        mics_logistic<T>(MICS_TWO_SQRT_2_OVER_PI * (held + MICS_GELU_CUBIC * held * square));

    return s + held * s * (1.0f - s) *
                   (MICS_TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * MICS_GELU_CUBIC * square));
}

/* The normal distribution function, without cancellation for negative numbers. */
static __device__ __forceinline__ float mics_normal_cdf(float x)
{
    return 0.5f * erfcf(-0.707106781f * x);
}

/* The exact form: x times the normal distribution function. */
static __device__ __forceinline__ float mics_gelu_exact(float x)
{
    return x * mics_normal_cdf(x);
}

/* The distribution function and x times the density, both 0 in fp32 past 15. */
static __device__ __forceinline__ float mics_gelu_exact_slope(float x)
{
    const float held = x > 15.0f ? 15.0f : x < -15.0f ? -15.0f : x;

    return mics_normal_cdf(held) + held * (0.398942280f * expf(-0.5f * held * held));
}

template <typename T> __device__ __forceinline__ float mics_silu(float x)
{
    return mics_divide<T>(x, 1.0f + mics_exp<T>(-x));
}

#endif
