/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - what kernels call: mathematics, loads and conversions, atomic operations, and what the
 * lanes of a warp do together.
 *
 * Mathematics is the host's. What a GPU approximates is exact here, so tolerances that hold here
 * are not thereby shown to hold on a GPU. Fibers cannot interrupt an atomic operation, other host
 * threads can.
 */
#ifndef MICS_TESTS_EMULATOR_DEVICE_H
#define MICS_TESTS_EMULATOR_DEVICE_H

#include "emulator.h"

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

/* As on a GPU, these take arguments of mixed types and are in the global namespace. */
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

/* --- atomic operations */

/* *at = change(*at), returns what was there. T has 4 or 8 bytes. */
template <typename T, typename F> static inline T emu_atomic(T *at, F change)
{
    T old, now;

    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do
        now = change(old);
    while (!__atomic_compare_exchange(at, &old, &now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}

#define EMU_ATOMICS(T)                                                                             \
    static inline T atomicAdd(T *at, T value)                                                      \
    {                                                                                              \
        return emu_atomic(at, [=](T old) -> T { return old + value; });                            \
    }                                                                                              \
    static inline T atomicMax(T *at, T value)                                                      \
    {                                                                                              \
        return emu_atomic(at, [=](T old) -> T { return old > value ? old : value; });              \
    }                                                                                              \
    static inline T atomicMin(T *at, T value)                                                      \
    {                                                                                              \
        return emu_atomic(at, [=](T old) -> T { return old < value ? old : value; });              \
    }                                                                                              \
    static inline T atomicExch(T *at, T value)                                                     \
    {                                                                                              \
        return emu_atomic(at, [=](T) -> T { return value; });                                      \
    }                                                                                              \
    static inline T atomicCAS(T *at, T expected, T value)                                          \
    {                                                                                              \
        return emu_atomic(at, [=](T old) -> T { return old == expected ? value : old; });          \
    }

EMU_ATOMICS(int)
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)

#undef EMU_ATOMICS

static inline float atomicAdd(float *at, float value)
{
    return emu_atomic(at, [=](float old) { return old + value; });
}

static inline double atomicAdd(double *at, double value)
{
    return emu_atomic(at, [=](double old) { return old + value; });
}

static inline unsigned atomicOr(unsigned *at, unsigned bits)
{
    return emu_atomic(at, [=](unsigned old) { return old | bits; });
}

static inline unsigned atomicAnd(unsigned *at, unsigned bits)
{
    return emu_atomic(at, [=](unsigned old) { return old & bits; });
}

/* Wraps to 0 above `limit`. */
static inline unsigned atomicInc(unsigned *at, unsigned limit)
{
    return emu_atomic(at, [=](unsigned old) { return old >= limit ? 0 : old + 1; });
}

static inline void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __threadfence_block(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __threadfence_system(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* --- shuffles, votes, reductions of a warp */

/* A lane's part in a shuffle. */
template <typename T> struct emu_shuffle {
    T value, result;
    unsigned from; /* lane */
};

/* The value of a lane that does not take part is undefined (0xff bytes).
 */
template <typename T> static void emu_shuffle_meet(void *const *lanes, unsigned mask)
{
    for (unsigned i = 0; i < EMU_WARP; i++) {
        struct emu_shuffle<T> *lane = static_cast<struct emu_shuffle<T> *>(lanes[i]);

        if (!(mask >> i & 1))
            continue;
        if (lanes[lane->from])
            lane->result = static_cast<struct emu_shuffle<T> *>(lanes[lane->from])->value;
        else
            memset(static_cast<void *>(&lane->result), 0xff, sizeof(T));
    }
}

template <typename T> static inline T emu_shuffle_from(unsigned mask, T value, unsigned from)
{
    struct emu_shuffle<T> lane = {
        value, value, from
    };

    emu_warp_meet(mask, emu_shuffle_meet<T>, &lane);
    return lane.result;
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = EMU_WARP)
{
    unsigned first = emu_lane() & ~(unsigned)(width - 1);

    return emu_shuffle_from(mask, value, first + ((unsigned)from & (unsigned)(width - 1)));
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = EMU_WARP)
{
    unsigned lane = emu_lane(), from = lane ^ (unsigned)bits;
    unsigned end = (lane | (unsigned)(width - 1)) + 1;

    return emu_shuffle_from(mask, value, from < end ? from : lane);
}

template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = EMU_WARP)
{
    unsigned lane = emu_lane(), in_group = lane & (unsigned)(width - 1);

    return emu_shuffle_from(mask, value, in_group >= delta ? lane - delta : lane);
}

template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = EMU_WARP)
{
    unsigned lane = emu_lane(), in_group = lane & (unsigned)(width - 1);

    return emu_shuffle_from(mask, value, in_group + delta < (unsigned)width ? lane + delta : lane);
}

struct emu_vote {
    int predicate;
    unsigned ballot;
};

static inline void emu_vote_meet(void *const *lanes, unsigned mask)
{
    unsigned ballot = 0;

    for (unsigned i = 0; i < EMU_WARP; i++)
        if ((mask >> i & 1) && static_cast<struct emu_vote *>(lanes[i])->predicate)
            ballot |= 1u << i;
    for (unsigned i = 0; i < EMU_WARP; i++)
        if (mask >> i & 1)
            static_cast<struct emu_vote *>(lanes[i])->ballot = ballot;
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    struct emu_vote lane = {predicate, 0};

    emu_warp_meet(mask, emu_vote_meet, &lane);
    return lane.ballot;
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}

static inline void emu_nothing_meet(void *const *, unsigned)
{
}

static inline void __syncwarp(unsigned mask = ~0u)
{
    emu_warp_meet(mask, emu_nothing_meet, nullptr);
}

struct emu_match {
    uint64_t value;
    unsigned same;
};

static inline void emu_match_meet(void *const *lanes, unsigned mask)
{
    for (unsigned i = 0; i < EMU_WARP; i++)
        for (unsigned j = 0; j < EMU_WARP; j++)
            if ((mask >> i & 1) && (mask >> j & 1) &&
                static_cast<struct emu_match *>(lanes[i])->value ==
                    static_cast<struct emu_match *>(lanes[j])->value)
                static_cast<struct emu_match *>(lanes[i])->same |= 1u << j;
}

/* T is an integer. */
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    struct emu_match lane = {(uint64_t)value, 0};

    emu_warp_meet(mask, emu_match_meet, &lane);
    return lane.same;
}

template <typename T> static inline T emu_reduce(unsigned mask, T value, T (*add)(T, T))
{
    T sum = value;
    bool first = true;

    for (unsigned i = 0; i < EMU_WARP; i++) {
        T other = emu_shuffle_from(mask, value, i);

        if (!(mask >> i & 1))
            continue;
        sum = first ? other : add(sum, other);
        first = false;
    }
    return sum;
}

/* T is int or unsigned, as on a GPU. */
template <typename T> static inline T __reduce_add_sync(unsigned mask, T value)
{
    return emu_reduce<T>(mask, value, [](T a, T b) -> T { return a + b; });
}

template <typename T> static inline T __reduce_max_sync(unsigned mask, T value)
{
    return emu_reduce<T>(mask, value, [](T a, T b) -> T { return a > b ? a : b; });
}

static inline unsigned __activemask(void)
{
    return emu_warp_alive();
}

#endif
