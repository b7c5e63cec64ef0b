/* SPDX-License-Identifier: Apache-2.0 */
/* atomics.h - atomic operations on memory: fibers cannot interrupt each other, other host threads can. */
#ifndef MICS_TESTS_EMULATED_ATOMICS_H
#define MICS_TESTS_EMULATED_ATOMICS_H

#include <string.h>

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

#endif
