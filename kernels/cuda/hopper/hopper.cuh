/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hopper.cuh - the instructions of compute capability 9.0 alone: matrix products of a warpgroup,
 * bulk copies into shared memory, and tensor maps, which bulk copies read. Files of this
 * folder are compiled for sm_90a, with HOPPER=1 only; the emulator of the tests leaves them out.
 *
 * Matrix products. A warpgroup is four neighbouring warps, the first of a number that 4 divides.
 * All of its threads call each of these functions together. d[64, N] (+)= a[64, 16] b[16, N], bf16,
 * summed in fp32. Warp w of the group has rows 16 w to 16 w + 15 of d, and in block n of 8 columns
 * the fragment C of tensor.cuh: with g = lane / 4 and t = lane % 4
 *     d[n][0], d[n][1]    (16 w + g, 8 n + 2t), (16 w + g, 8 n + 2t + 1)
 *     d[n][2], d[n][3]    (16 w + g + 8, 8 n + 2t), (16 w + g + 8, 8 n + 2t + 1)
 * and a in registers is the fragment A of the same rows. So d, rounded, is a of a following
 * product: mics_wgmma_left.
 *
 * The other operands are tiles in dynamic shared memory. A tile of rows x columns is a row of
 * column blocks, each of 64 columns: [rows][64] bf16, 128 bytes a row, aligned to 1024 bytes,
 * 16-byte chunk c of row r at c ^ (r % 8) (the 128-byte swizzle: bits 4 to 6 of the address, xor
 * bits 7 to 9). Column block j begins at j * rows * 128. A tile is a factor in two ways: its
 * columns are the products' k ("K-major": q k', with the rows of both), or its rows are
 * ("MN-major": p v).
 *
 * A product is asynchronous. Its order with what the thread does otherwise:
 *   1. mics_wgmma_settle what it reads or adds to; mics_wgmma_fence;
 *   2. products; those on the same d follow each other, nothing else may touch d and a, nor write
 *      the tiles;
 *   3. mics_wgmma_commit; mics_wgmma_wait; mics_wgmma_settle d, then it may be read. Only this
 *      warp's part of the product is then known to be done: a tile is free when all four warps have
 *      waited.
 * d and a must stay variables of the caller until then. Tiles come by bulk copies; others would
 * need a fence.proxy.async by the threads that wrote them, and then a barrier.
 */
#ifndef MICS_KERNELS_CUDA_HOPPER_HOPPER_CUH
#define MICS_KERNELS_CUDA_HOPPER_HOPPER_CUH

#include "cuda/driver.h"
#include "cuda/tensor.cuh"

#include <cuda.h>
#include <stddef.h>

/* Which dimension of a tile is the k of the products: its columns or its rows. */
enum mics_major { MICS_K_MAJOR, MICS_MN_MAJOR };

#define MICS_WARPGROUP 128

/* The accumulators of `n` blocks of 8 columns from block i on, as operands. */
#define MICS_SUM(i)   "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define MICS_SUM_4(i) MICS_SUM(i), MICS_SUM((i) + 1), MICS_SUM((i) + 2), MICS_SUM((i) + 3)
#define MICS_SUM_8(i) MICS_SUM_4(i), MICS_SUM_4((i) + 4)

/* Their names. */
#define MICS_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define MICS_NAMES_32                                                                              \
    MICS_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "  \
                  "%31"
#define MICS_NAMES_64                                                                              \
    MICS_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "  \
                  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "    \
                  "%62, %63"

/* Both factors in shared memory. The operands behind the accumulators: a, b, add, how a lies, how b
 * lies. */
#define MICS_WGMMA_SHARED(N, names, A, B, add_, a_how, b_how, ...)                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_ ", 0;\n"                               \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" names "}, %" #A      \
                 ", %" #B ", p, 1, 1, %" #a_how ", %" #b_how ";\n}\n"                              \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"((int)add), "n"((int)a_major), "n"((int)b_major)             \
                 : "memory")

/* The left one in registers. Behind the accumulators: a, b, add, how b lies. */
#define MICS_WGMMA_HELD(N, names, A0, A1, A2, A3, B, add_, b_how, ...)                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_ ", 0;\n"                               \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" names "}, {%" #A0    \
                 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, %" #b_how ";\n}\n"            \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add),              \
                   "n"((int)b_major)                                                               \
                 : "memory")

/* d (+)= a b, added where `add`, otherwise d is written; N = 8 blocks is 64 or 128. a, b:
 * mics_matrix. */
template <enum mics_major a_major, enum mics_major b_major, int blocks>
static __device__ __forceinline__ void mics_wgmma(float (&d)[blocks][4], uint64_t a, uint64_t b,
                                                  bool add)
{
    static_assert(blocks == 8 || blocks == 16, "a width that there is");
    if constexpr (blocks == 8)
        MICS_WGMMA_SHARED(64, MICS_NAMES_32, 32, 33, 34, 35, 36, MICS_SUM_8(0));
    if constexpr (blocks == 16)
        MICS_WGMMA_SHARED(128, MICS_NAMES_64, 64, 65, 66, 67, 68, MICS_SUM_8(0), MICS_SUM_8(8));
}

/* The same with a in registers. */
template <enum mics_major b_major, int blocks>
static __device__ __forceinline__ void mics_wgmma(float (&d)[blocks][4], const uint32_t (&a)[4],
                                                  uint64_t b, bool add)
{
    static_assert(blocks == 8 || blocks == 16, "a width that there is");
    if constexpr (blocks == 8)
        MICS_WGMMA_HELD(64, MICS_NAMES_32, 32, 33, 34, 35, 36, 37, 38, MICS_SUM_8(0));
    if constexpr (blocks == 16)
        MICS_WGMMA_HELD(128, MICS_NAMES_64, 64, 65, 66, 67, 68, 69, 70, MICS_SUM_8(0),
                        MICS_SUM_8(8));
}

/* Registers written so far come before the products that follow. */
static __device__ __forceinline__ void mics_wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* The products begun since the last commit become a group. */
static __device__ __forceinline__ void mics_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Wait for all groups but the last `pending`. */
template <int pending> static __device__ __forceinline__ void mics_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/* No instruction that uses these registers is moved across this place by the compiler. */
template <int blocks>
static __device__ __forceinline__ void mics_wgmma_settle(float (&d)[blocks][4])
{
#pragma unroll
    for (int n = 0; n < blocks; n++)
        asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}

template <int steps>
static __device__ __forceinline__ void mics_wgmma_settle(uint32_t (&a)[steps][4])
{
#pragma unroll
    for (int k = 0; k < steps; k++)
        asm volatile("" : "+r"(a[k][0]), "+r"(a[k][1]), "+r"(a[k][2]), "+r"(a[k][3])::"memory");
}

/* Forces `value`, which is not negative, to be computed before a following wait. Without it the
 * assembler waits at once, and arithmetic does not overlap with products under way. `spare`: a word
 * that is not otherwise used; it is written when `value` is negative, so the assembler must compute
 * it first. */
static __device__ __forceinline__ void mics_wgmma_hold(float value, mics_shared_at spare)
{
    asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n"
                 "@p st.volatile.shared.f32 [%1], %0;\n}\n" ::"f"(value),
                 "r"(spare)
                 : "memory");
}

/* Barrier `id` (1 to 15) of `threads` threads, whole warps: wait until all have come ... */
static __device__ __forceinline__ void mics_barrier_sync(unsigned id, unsigned threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ... or only arrive, without waiting. */
static __device__ __forceinline__ void mics_barrier_arrive(unsigned id, unsigned threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Have `count` registers (a multiple of 8 from 24 to 240) in each thread of this warpgroup from
 * here on; fewer than the kernel was compiled with, or more, waiting until others have given them.
 */
template <int count> static __device__ __forceinline__ void mics_registers_fewer(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

template <int count> static __device__ __forceinline__ void mics_registers_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

/* A matrix descriptor: where it begins, and two distances in bytes, all multiples of 16 below 2^18;
 * 128-byte swizzle. The pattern of the swizzle begins at a multiple of 1024, so the base offset is
 * 0. */
static __device__ __forceinline__ uint64_t mics_matrix(mics_shared_at at, unsigned leading,
                                                       unsigned stride)
{
    return (at & 0x3ffff) >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* Rows `row` (a multiple of 8) and on of a tile of `rows`, times columns 16 k to 16 k + 15:
 * K-major. */
template <int rows>
static __device__ __forceinline__ uint64_t mics_matrix_k(mics_shared_at tile, unsigned row,
                                                         unsigned k)
{
    return mics_matrix(tile + k / 4 * (rows * 128) + row * 128 + k % 4 * 32, 16, 1024);
}

/* The columns of a tile of `rows` from `column` (a multiple of 64) on, times rows 16 k to 16 k +
 * 15: MN-major. */
template <int rows>
static __device__ __forceinline__ uint64_t mics_matrix_mn(mics_shared_at tile, unsigned column,
                                                          unsigned k)
{
    return mics_matrix(tile + column / 64 * (rows * 128) + k * 2048, rows * 128, 1024);
}

/* Columns 16 k to 16 k + 15 of accumulators, rounded, as the left factor of a product. */
template <int blocks>
static __device__ __forceinline__ void mics_wgmma_left(uint32_t (&a)[4],
                                                       const float (&d)[blocks][4], int k)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = mics_pack<mics_bf16>(d[2 * k + i / 2][i % 2 * 2], d[2 * k + i / 2][i % 2 * 2 + 1]);
}

/*
 * Bulk copies: whole tiles into shared memory by the copy engine, and the barriers in shared memory
 * that signal their arrival.
 *
 * A barrier (8 bytes, aligned to 8) has phases, which it counts by parity: phase 0, 1, 0, ... A
 * phase ends when `count` arrivals have come and all bytes that were announced have arrived; then
 * the next begins. A wait for parity p returns when the barrier is past a phase of parity p: so one
 * for 1 returns at once on a new barrier.
 *
 * One thread begins a copy. What has arrived is seen by ordinary loads and by matrix products of
 * all threads that have waited. A place is written again only after all its readers have arrived at
 * some barrier that the copying thread has waited for.
 */

/* By one thread; mics_mbarrier_publish and a barrier of the block come before any other use. */
static __device__ __forceinline__ void mics_mbarrier_init(mics_shared_at at, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}

/* The thread's new barriers are seen by bulk copies. */
static __device__ __forceinline__ void mics_mbarrier_publish(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void mics_mbarrier_arrive(mics_shared_at at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/* Arrive, and announce `bytes` that bulk copies will bring in this phase. */
static __device__ __forceinline__ void mics_mbarrier_expect(mics_shared_at at, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void mics_mbarrier_wait(mics_shared_at at, unsigned parity)
{
    uint32_t over;

    do
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(over)
                     : "r"(at), "r"(parity)
                     : "memory");
    while (!over);
}

/* Begin to copy the map's box from column `column` of head `head` of row `row` of sequence `b` on
 * to `to`, aligned to 1024 bytes, as a column block of a tile. All bytes of the box count at the
 * barrier, also those outside of the tensor, which are zero. The map lies in global memory or is a
 * __grid_constant__ parameter. */
static __device__ __forceinline__ void mics_bulk_load(mics_shared_at to, const CUtensorMap *map,
                                                      mics_shared_at barrier, unsigned column,
                                                      unsigned head, unsigned row, unsigned b)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(head), "r"(row), "r"(b)
                 : "memory");
}

/*
 * Tensor maps: descriptions of the tensors that bulk copies read, encoded on the host.
 *
 * Heads of activations: [B, T, heads, D] bf16, where rows of T are `stride` elements apart and the
 * heads of a row stand side by side. A box is 64 columns of one head by `rows` rows of one
 * sequence.
 */
struct mics_heads {
    const void *at;          /* aligned to 16 bytes */
    unsigned B, T, heads, D; /* 1 or more; D a multiple of 8 */
    size_t stride;           /* a multiple of 8, heads D or more */
};

typedef CUresult (*mics_encode_fn)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                   void *at, const cuuint64_t *size, const cuuint64_t *stride,
                                   const cuuint32_t *box, const cuuint32_t *step,
                                   CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                   CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

static inline mics_encode_fn mics_find_encode(void)
{
    void *function = mics_driver_function("cuTensorMapEncodeTiled");
    mics_encode_fn encode;

    memcpy(&encode, &function, sizeof(encode));
    return encode;
}

/* Fill in a map for boxes of `rows` (1 to 256) rows. cudaErrorNotSupported: the driver has no such
 * maps; cudaErrorInvalidValue: it does not take these. */
static inline cudaError_t mics_tensor_map_make(CUtensorMap *map, const struct mics_heads &of,
                                               unsigned rows)
{
    static const mics_encode_fn encode = mics_find_encode();
    const cuuint64_t size[4] = {of.D, of.heads, of.T, of.B};
    /* In bytes, from the second dimension on. */
    const cuuint64_t stride[3] = {of.D * 2, of.stride * 2, of.stride * 2 * of.T};
    const cuuint32_t box[4] = {64, 1, rows, 1}, step[4] = {1, 1, 1, 1};

    if (!encode)
        return cudaErrorNotSupported;
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void *>(of.at), size, stride,
                  box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

#endif
