/* SPDX-License-Identifier: Apache-2.0 */
/*
 * half.cuh - the 16-bit types of tensors, bf16 and fp16: their conversions, and the C++ type of a
 * tensor.
 *
 * Widening is exact, narrowing rounds to nearest, ties to even; a number too large for fp16 becomes
 * infinite. A pair is a register of two numbers, `low` the first in memory.
 */
#ifndef MICS_KERNELS_CUDA_HALF_CUH
#define MICS_KERNELS_CUDA_HALF_CUH

#include "dtype.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

typedef __nv_bfloat16 mics_bf16;
typedef __half mics_f16;

/* A number of either type, where only its bytes matter. */
typedef uint16_t mics_half;

template <typename T> struct mics_half_type;

template <> struct mics_half_type<mics_bf16> {
    static __device__ __forceinline__ float widen(unsigned short bits)
    {
        return __uint_as_float((unsigned)bits << 16);
    }

    /* One instruction each: halves would have to be moved first. */
    static __device__ __forceinline__ float low(unsigned pair)
    {
        return __uint_as_float(pair << 16);
    }

    static __device__ __forceinline__ float high(unsigned pair)
    {
        return __uint_as_float(pair & 0xffff0000u);
    }

    static __device__ __forceinline__ unsigned short narrow(float x)
    {
        return __bfloat16_as_ushort(__float2bfloat16_rn(x));
    }

    static __device__ __forceinline__ __nv_bfloat162 narrow(float low, float high)
    {
        return __floats2bfloat162_rn(low, high);
    }
};

template <> struct mics_half_type<mics_f16> {
    static __device__ __forceinline__ float widen(unsigned short bits)
    {
        return __half2float(__ushort_as_half(bits));
    }

    static __device__ __forceinline__ float low(unsigned pair)
    {
        return widen((unsigned short)pair);
    }

    static __device__ __forceinline__ float high(unsigned pair)
    {
        return widen((unsigned short)(pair >> 16));
    }

    static __device__ __forceinline__ unsigned short narrow(float x)
    {
        return __half_as_ushort(__float2half_rn(x));
    }

    static __device__ __forceinline__ __half2 narrow(float low, float high)
    {
        return __floats2half2_rn(low, high);
    }
};

/* A pair of T, rounded in one instruction. */
template <typename T> static __device__ __forceinline__ uint32_t mics_pack(float low, float high)
{
    const auto pair = mics_half_type<T>::narrow(low, high);
    uint32_t bits;

    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}

/* launch(T()), T being the type of a tensor. cudaErrorInvalidValue: it is not fp32, bf16 or
 * fp16. */
template <typename Launch>
static inline cudaError_t mics_launch_typed(enum mics_dtype dtype, const Launch &launch)
{
    switch (dtype) {
    case MICS_F32:
        return launch(float());
    case MICS_BF16:
        return launch(mics_bf16());
    case MICS_F16:
        return launch(mics_f16());
    default:
        return cudaErrorInvalidValue;
    }
}

/* launch(T(), G()), for two tensors of which one is fp32, or both have the same type. */
template <typename Launch>
static inline cudaError_t mics_launch_typed(enum mics_dtype dtype, enum mics_dtype other,
                                            const Launch &launch)
{
    if (dtype == other)
        return mics_launch_typed(dtype, [&](auto t) { return launch(t, t); });
    if (other == MICS_F32)
        return mics_launch_typed(dtype, [&](auto t) { return launch(t, float()); });
    if (dtype == MICS_F32)
        return mics_launch_typed(other, [&](auto g) { return launch(float(), g); });
    return cudaErrorInvalidValue;
}

#endif
