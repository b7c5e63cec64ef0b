/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_bf16.h - CUDA's bf16: the upper half of an fp32, rounded to nearest, ties to even. */
#ifndef MICS_TESTS_EMULATOR_CUDA_BF16_H
#define MICS_TESTS_EMULATOR_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;

    __nv_bfloat16() = default;
    inline __nv_bfloat16(float value);
    inline operator float() const;
};

static inline float __bfloat162float(__nv_bfloat16 value)
{
    return __uint_as_float((unsigned)value.bits << 16);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    unsigned bits = __float_as_uint(value);
    __nv_bfloat16 rounded;

    if ((bits & 0x7fffffff) > 0x7f800000)
        rounded.bits = 0x7fff; /* as the GPU's conversion */
    else
        rounded.bits = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    return rounded;
}

static inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __float2bfloat16_rn(value);
}

__nv_bfloat16::__nv_bfloat16(float value)
{
    *this = __float2bfloat16_rn(value);
}

__nv_bfloat16::operator float() const
{
    return __bfloat162float(*this);
}

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 value;

    value.bits = bits;
    return value;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

static inline __nv_bfloat162 __float22bfloat162_rn(float2 pair)
{
    return __floats2bfloat162_rn(pair.x, pair.y);
}

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return {x, y};
}

static inline float2 __bfloat1622float2(__nv_bfloat162 pair)
{
    return {__bfloat162float(pair.x), __bfloat162float(pair.y)};
}

static inline float __low2float(__nv_bfloat162 pair)
{
    return __bfloat162float(pair.x);
}

static inline float __high2float(__nv_bfloat162 pair)
{
    return __bfloat162float(pair.y);
}

#endif
