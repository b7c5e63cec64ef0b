/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_emulated.h - the instructions of kernels/cuda/tensor.cuh on the host.
 *
 * Asynchronous copies arrive as late as they may: when they are waited for. Until then the place
 * holds NaN.
 */
#ifndef MICS_TESTS_EMULATOR_TENSOR_EMULATED_H
#define MICS_TESTS_EMULATOR_TENSOR_EMULATED_H

#include "cuda/half.cuh"

#include <math.h>

typedef uintptr_t mics_shared_at;

/* Matrices whose eight rows of 16 bytes do not lie in different banks, since the program began. */
extern uint64_t emu_bank_conflicts;

void emu_ldmatrix(uint32_t r[4], const void *at, bool trans);
/* `widen`: of the type of a and b. */
void emu_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
             float (*widen)(unsigned short bits));
/* `bytes` 4, 8 or 16. */
void emu_copy_begin(void *to, const void *from, unsigned bytes, bool valid);
void emu_copy_commit(void);
void emu_copy_wait(unsigned pending);

static inline mics_shared_at mics_shared(const void *memory)
{
    return reinterpret_cast<mics_shared_at>(memory);
}

static inline void mics_ldmatrix(uint32_t r[4], mics_shared_at at)
{
    emu_ldmatrix(r, reinterpret_cast<const void *>(at), false);
}

static inline void mics_ldmatrix_trans(uint32_t r[4], mics_shared_at at)
{
    emu_ldmatrix(r, reinterpret_cast<const void *>(at), true);
}

template <typename T>
static inline void mics_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    emu_mma(c, a, b0, b1, mics_half_type<T>::widen);
}

static inline void mics_copy_async(mics_shared_at to, const void *from)
{
    emu_copy_begin(reinterpret_cast<void *>(to), from, 16, true);
}

static inline void mics_copy_async_or_zero(mics_shared_at to, const void *from, bool valid)
{
    emu_copy_begin(reinterpret_cast<void *>(to), from, 16, valid);
}

static inline void mics_copy_async_word_or_zero(mics_shared_at to, const void *from, bool valid)
{
    emu_copy_begin(reinterpret_cast<void *>(to), from, 4, valid);
}

static inline void mics_copy_commit(void)
{
    emu_copy_commit();
}

template <int pending> static inline void mics_copy_wait(void)
{
    emu_copy_wait(pending);
}

static inline float mics_exp2(float x)
{
    float y = exp2f(x);

    return fabsf(y) < 1.17549435e-38f ? 0 : y;
}

static inline float mics_reciprocal(float x)
{
    float y = 1.0f / x;

    return fabsf(y) < 1.17549435e-38f ? 0 : y;
}

#endif
