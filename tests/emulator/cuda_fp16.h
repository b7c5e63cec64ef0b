/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_fp16.h - CUDA's fp16: binary16 of IEEE 754, rounded to nearest, ties to even. */
#ifndef MICS_TESTS_EMULATOR_CUDA_FP16_H
#define MICS_TESTS_EMULATOR_CUDA_FP16_H

#include "cuda_runtime.h"
#include "host/numbers.h"

struct __half {
    uint16_t bits;
};

struct alignas(4) __half2 {
    __half x, y;
};

static inline float __half2float(__half value)
{
    return mics_f16_widen(value.bits);
}

/* A NaN becomes the one of the GPU's conversion. */
static inline __half __float2half_rn(float value)
{
    return {value != value ? (uint16_t)0x7fff : mics_f16_round(value)};
}

static inline unsigned short __half_as_ushort(__half value)
{
    return value.bits;
}

static inline __half __ushort_as_half(unsigned short bits)
{
    return {bits};
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}

#endif
