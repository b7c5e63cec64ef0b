/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.cuh - a few neighbouring elements of a tensor as floats, in one access of up to 16 bytes.
 *
 * T is float or a type of half.cuh; N elements at p are aligned to N * sizeof(T).
 */
#ifndef MICS_KERNELS_CUDA_VECTOR_CUH
#define MICS_KERNELS_CUDA_VECTOR_CUH

#include "cuda/half.cuh"

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
        if constexpr (sizeof(T) == 4)
            x[i] = packed.single[i];
        else if constexpr (N == 1)
            x[i] = mics_half_type<T>::widen(packed.half[0]);
        else
            x[i] = i % 2 == 0 ? mics_half_type<T>::low(packed.pair[i / 2])
                              : mics_half_type<T>::high(packed.pair[i / 2]);
}

template <typename T, int N>
__device__ __forceinline__ mics_packed<T, N> mics_narrow(const float (&x)[N])
{
    mics_packed<T, N> packed = {};

#pragma unroll
    for (int i = 0; i < N; i++)
        if constexpr (sizeof(T) == 4)
            packed.single[i] = x[i];
        else if constexpr (N == 1)
            packed.half[i] = mics_half_type<T>::narrow(x[i]);
        else if (i % 2 == 0)
            packed.pair[i / 2] = mics_pack<T>(x[i], x[i + 1 < N ? i + 1 : i]);
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
    if constexpr (sizeof(T) == 4)
        return x;
    else
        return mics_half_type<T>::widen(mics_half_type<T>::narrow(x));
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
