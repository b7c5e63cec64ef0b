/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.cuh - a few neighbouring elements of a tensor as floats, in one access of up to 16 bytes.
 *
 * T is float or __nv_bfloat16; N elements at p are aligned to N * sizeof(T). Widening is exact,
 * narrowing rounds to nearest, ties to even.
 */
#ifndef MICS_KERNELS_CUDA_VECTOR_CUH
#define MICS_KERNELS_CUDA_VECTOR_CUH

#include "dtype.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <string.h>

/* Elements of a 16-byte access. */
template <typename T> struct mics_width {
    static constexpr int value = (int)(16 / sizeof(T));
};

/* The registers of one access: 2, 4, 8 or 16 bytes. */
template <int bytes> struct mics_word;
template <> struct mics_word<2> {
    typedef unsigned short type;
};
template <> struct mics_word<4> {
    typedef unsigned type;
};
template <> struct mics_word<8> {
    typedef uint2 type;
};
template <> struct mics_word<16> {
    typedef uint4 type;
};

/* N elements as they are stored. */
template <typename T, int N> struct mics_packed {
    typedef typename mics_word<N *(int)sizeof(T)>::type word;
    union {
        word all;
        unsigned short half[N * sizeof(T) / 2];
        unsigned pair[N * sizeof(T) / 4 + (N * sizeof(T) < 4)];
        float single[N * sizeof(T) / 4 + (N * sizeof(T) < 4)];
    };
};

template <typename T, int N> __device__ __forceinline__ mics_packed<T, N> mics_read(const T *p)
{
    mics_packed<T, N> packed;

    packed.all = *(const typename mics_packed<T, N>::word *)p;
    return packed;
}

template <typename T, int N>
__device__ __forceinline__ void mics_widen(const mics_packed<T, N> &packed, float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (sizeof(T) == 4)
            x[i] = packed.single[sizeof(T) == 4 ? i : 0];
        else if (N == 1)
            x[i] = __uint_as_float((unsigned)packed.half[0] << 16);
        else /* one instruction each: halves would have to be moved first */
            x[i] = __uint_as_float(i % 2 == 0 ? packed.pair[N > 1 ? i / 2 : 0] << 16
                                              : packed.pair[N > 1 ? i / 2 : 0] & 0xffff0000u);
}

__device__ __forceinline__ unsigned short mics_bf16_bits(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* Two in one instruction; `low` is the first in memory. */
__device__ __forceinline__ unsigned mics_bf16_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    unsigned bits;

    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}

template <typename T, int N>
__device__ __forceinline__ mics_packed<T, N> mics_narrow(const float (&x)[N])
{
    mics_packed<T, N> packed;

#pragma unroll
    for (int i = 0; i < N; i++)
        if (sizeof(T) == 4)
            packed.single[sizeof(T) == 4 ? i : 0] = x[i];
        else if (N == 1)
            packed.half[i] = mics_bf16_bits(x[i]);
        else if (i % 2 == 0)
            packed.pair[i / 2] = mics_bf16_pair(x[i], x[i + 1 < N ? i + 1 : i]);
    return packed;
}

/* N elements in as many accesses of up to 16 bytes as they need. */
template <typename T, int N> __device__ __forceinline__ void mics_load(const T *p, float (&x)[N])
{
    constexpr int each = N < mics_width<T>::value ? N : mics_width<T>::value;
    float part[each];

#pragma unroll
    for (int i = 0; i < N; i += each) {
        mics_widen<T, each>(mics_read<T, each>(p + i), part);
#pragma unroll
        for (int j = 0; j < each; j++)
            x[i + j] = part[j];
    }
}

template <typename T, int N> __device__ __forceinline__ void mics_store(T *p, const float (&x)[N])
{
    constexpr int each = N < mics_width<T>::value ? N : mics_width<T>::value;
    float part[each];

#pragma unroll
    for (int i = 0; i < N; i += each) {
#pragma unroll
        for (int j = 0; j < each; j++)
            part[j] = x[i + j];
        *(typename mics_packed<T, each>::word *)(p + i) = mics_narrow<T, each>(part).all;
    }
}

/* What x is after being stored as T. */
template <typename T> __device__ __forceinline__ float mics_rounded(float x)
{
    return sizeof(T) == 4 ? x : __uint_as_float((unsigned)mics_bf16_bits(x) << 16);
}

/* Whether each of the addresses (NULL is fine) allows accesses of `bytes`. */
static inline bool mics_aligned(size_t)
{
    return true;
}

template <typename... Rest>
static inline bool mics_aligned(size_t bytes, const void *p, Rest... rest)
{
    return (size_t)p % bytes == 0 && mics_aligned(bytes, rest...);
}

#endif
