/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_math.h - CUDA's mathematics and loads by the host's. What a GPU approximates is exact here, so
 * tolerances that hold here are not thereby shown to hold on a GPU.
 */
#ifndef MICS_TESTS_EMULATED_DEVICE_MATH_H
#define MICS_TESTS_EMULATED_DEVICE_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

static inline float __frsqrt_rn(float x)
{
    return (float)(1.0 / sqrt((double)x));
}

static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}

static inline float __fdividef(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

/* Operations that no compiler may fuse. */
static inline float __fadd_rn(float a, float b)
{
    volatile float sum = a + b;

    return sum;
}

static inline float __fmul_rn(float a, float b)
{
    volatile float product = a * b;

    return product;
}

static inline float __fsub_rn(float a, float b)
{
    return __fadd_rn(a, -b);
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __saturatef(float x)
{
    return x > 0 ? (x < 1 ? x : 1) : 0;
}

/* glibc reserves the names of the fast functions for itself. */
#define __expf(x)    expf(x)
#define __exp10f(x)  exp10f(x)
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __tanhf(x)   tanhf(x)

#define __sincosf(x, sine, cosine) sincosf(x, sine, cosine)

#define EMU_BITS(name, from_type, to_type)                                                         \
    static inline to_type name(from_type from)                                                     \
    {                                                                                              \
        to_type to;                                                                                \
                                                                                                   \
        static_assert(sizeof(from) == sizeof(to), "bits");                                         \
        memcpy(&to, &from, sizeof(to));                                                            \
        return to;                                                                                 \
    }

EMU_BITS(__float_as_int, float, int)
EMU_BITS(__float_as_uint, float, unsigned)
EMU_BITS(__int_as_float, int, float)
EMU_BITS(__uint_as_float, unsigned, float)
EMU_BITS(__double_as_longlong, double, long long)
EMU_BITS(__longlong_as_double, long long, double)

#undef EMU_BITS

static inline int __float2int_rn(float x)
{
    return (int)rintf(x);
}

static inline int __float2int_rz(float x)
{
    return (int)x;
}

static inline float __int2float_rn(int x)
{
    return (float)x;
}

static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}

static inline float __double2float_rn(double x)
{
    return (float)x;
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

/* As on a GPU these take mixed kinds, and stand in the global name space. */
#define EMU_MIN_MAX(T)                                                                             \
    static inline T min(T a, T b)                                                                  \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline T max(T a, T b)                                                                  \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }

EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)

#undef EMU_MIN_MAX

static inline float min(float a, float b)
{
    return fminf(a, b);
}

static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

static inline double min(double a, double b)
{
    return fmin(a, b);
}

static inline double max(double a, double b)
{
    return fmax(a, b);
}

/* Loads and stores with a hint. */
#define EMU_LOAD(name)                                                                             \
    template <typename T> static inline T name(const T *at)                                        \
    {                                                                                              \
        return *at;                                                                                \
    }
#define EMU_STORE(name)                                                                            \
    template <typename T> static inline void name(T *at, T value)                                  \
    {                                                                                              \
        *at = value;                                                                               \
    }

EMU_LOAD(__ldg)
EMU_LOAD(__ldca)
EMU_LOAD(__ldcg)
EMU_LOAD(__ldcs)
EMU_LOAD(__ldlu)
EMU_LOAD(__ldcv)
EMU_STORE(__stwb)
EMU_STORE(__stcg)
EMU_STORE(__stcs)
EMU_STORE(__stwt)

#undef EMU_LOAD
#undef EMU_STORE

static inline void __trap(void)
{
    emu_fail("trap");
}

static inline size_t __cvta_generic_to_shared(const void *at)
{
    return (size_t)at;
}

#endif
