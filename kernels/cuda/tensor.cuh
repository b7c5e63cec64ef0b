/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.cuh - instructions without an equivalent in C++: matrix products of a warp, copies into
 * shared memory that are asynchronous, and the multiprocessor's own exponential and reciprocal.
 * From compute capability 8.0 on; on 7.5 with what that has: a product in two halves of k, only of
 * fp16, and copies that are waited for at once.
 *
 * Fragments, as the PTX manual lays them out, with g = lane / 4 and t = lane % 4; each register
 * holds two bf16 or fp16, the lower index in the lower half:
 *     A 16 x 16: a[0] (g, 2t), a[1] (g + 8, 2t), a[2] (g, 2t + 8), a[3] (g + 8, 2t + 8)
 *     B 16 x 8:  b0 (2t, g), b1 (2t + 8, g)
 *     C 16 x 8:  c[0], c[1] (g, 2t), c[2], c[3] (g + 8, 2t)
 * So C, rounded, is A of a following product; two neighbouring C make one A.
 */
#ifndef MICS_KERNELS_CUDA_TENSOR_CUH
#define MICS_KERNELS_CUDA_TENSOR_CUH

#include "cuda/half.cuh"
#include "gpu.h"

#ifdef MICS_EMULATED

#include "tensor_emulated.h"

#else

/* An address in shared memory. */
typedef uint32_t mics_shared_at;

static __device__ __forceinline__ mics_shared_at mics_shared(const void *memory)
{
    return (mics_shared_at)__cvta_generic_to_shared(memory);
}

/* Four 8 x 8 matrices of 16-bit numbers: lane l gives the address of row l % 8 of matrix l / 8, 16
 * bytes aligned, and gets in r[i] the elements (g, 2t) and (g, 2t + 1) of matrix i; transposed,
 * (2t, g) and (2t + 1, g). */
static __device__ __forceinline__ void mics_ldmatrix(uint32_t r[4], mics_shared_at at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void mics_ldmatrix_trans(uint32_t r[4], mics_shared_at at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* c += a b in fp32, m16n8k16; a and b are of T. */
template <typename T>
static __device__ __forceinline__ void mics_mma(float c[4], const uint32_t a[4], uint32_t b0,
                                                uint32_t b1);

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800

/* Not launched: a GPU without bf16 is refused plans in it. */
template <>
__device__ __forceinline__ void mics_mma<mics_bf16>(float *, const uint32_t *, uint32_t, uint32_t)
{
    __trap();
}

static __device__ __forceinline__ void mics_mma_half(float c[4], uint32_t a0, uint32_t a1,
                                                     uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

template <>
__device__ __forceinline__ void mics_mma<mics_f16>(float c[4], const uint32_t a[4], uint32_t b0,
                                                   uint32_t b1)
{
    mics_mma_half(c, a[0], a[1], b0);
    mics_mma_half(c, a[2], a[3], b1);
}

#else

#define MICS_MMA(type)                                                                             \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                    \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                 \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

template <>
__device__ __forceinline__ void mics_mma<mics_bf16>(float c[4], const uint32_t a[4], uint32_t b0,
                                                    uint32_t b1)
{
    MICS_MMA("bf16");
}

template <>
__device__ __forceinline__ void mics_mma<mics_f16>(float c[4], const uint32_t a[4], uint32_t b0,
                                                   uint32_t b1)
{
    MICS_MMA("f16");
}

#undef MICS_MMA

#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800

static __device__ __forceinline__ void mics_copy_async_or_zero(mics_shared_at to, const void *from,
                                                               bool valid)
{
    const uint4 x = valid ? *static_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);

    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

static __device__ __forceinline__ void mics_copy_async(mics_shared_at to, const void *from)
{
    mics_copy_async_or_zero(to, from, true);
}

static __device__ __forceinline__ void mics_copy_async_word_or_zero(mics_shared_at to,
                                                                    const void *from, bool valid)
{
    const uint32_t x = valid ? *static_cast<const uint32_t *>(from) : 0;

    asm volatile("st.shared.u32 [%0], %1;" : : "r"(to), "r"(x) : "memory");
}

static __device__ __forceinline__ void mics_copy_commit(void)
{
}

template <int pending> static __device__ __forceinline__ void mics_copy_wait(void)
{
}

#else

/* Begin to copy 16 bytes from global to shared memory ... */
static __device__ __forceinline__ void mics_copy_async(mics_shared_at to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
}

/* ... or zeros, where it is not `valid`; then `from` is not read. */
static __device__ __forceinline__ void mics_copy_async_or_zero(mics_shared_at to, const void *from,
                                                               bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}

/* The same for 4 bytes. */
static __device__ __forceinline__ void mics_copy_async_word_or_zero(mics_shared_at to,
                                                                    const void *from, bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(to), "l"(from), "r"(valid ? 4 : 0)
                 : "memory");
}

/* What the thread began to copy since the last commit becomes a group. */
static __device__ __forceinline__ void mics_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait for all groups of this thread but the last `pending`. */
template <int pending> static __device__ __forceinline__ void mics_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

#endif

/* 2^x to about 2 ulp; results below the normal range are 0. */
static __device__ __forceinline__ float mics_exp2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x to 1 ulp; results below the normal range are 0. */
static __device__ __forceinline__ float mics_reciprocal(float x)
{
    float y;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif

#endif
