/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum_blocks.cu - sums of arrays, and conversions, where arrays may be in blocks of 8 or 4 bits.
 *
 * A warp sums and writes one block of 256 elements; lane l has elements 4 l to 4 l + 3 of either
 * half, so that its accesses are of 16 bytes in fp32, 8 in bf16 and fp16, 4 in 8 bits, and in 4
 * bits of 4 that two lanes share. Each byte of memory is read or written once, with about 30
 * operations per element: bound by memory. Products and sums are rounded one by one: equal to the
 * host bit for bit, but for the bits of a NaN of other types.
 */
#include "base/philox.h"
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"

#define THREADS 256
#define WARPS   (THREADS / MICS_WARP)
#define HALVES  2
#define WIDTH   4 /* elements of a lane and half */

#define HALF_BLOCK (MICS_BLOCK / HALVES)
/* Lanes that have a sub-block of each half. */
#define SUB_LANES (MICS_SUB_BLOCK / WIDTH)

#define INFINITE_BITS 0x7f800000u
#define NAN_BITS      0x7fc00000u
#define NORMAL_BITS   0x00800000u

/* Bytes of MICS_BLOCK elements. Arrays in blocks are named by the type of a block. */
template <typename T> struct block_bytes {
    static constexpr unsigned value = MICS_BLOCK * sizeof(T);
};
template <> struct block_bytes<mics_int8_block> {
    static constexpr unsigned value = sizeof(struct mics_int8_block);
};
template <> struct block_bytes<mics_int4_block> {
    static constexpr unsigned value = sizeof(struct mics_int4_block);
};

/* A lane's elements of a block. */
struct lane_values {
    float of[HALVES][WIDTH];
};

/* `src` is the block, of which `count` elements exist; `vectors`: 16-byte accesses are possible. */
template <typename T> struct reader {
    static __device__ __forceinline__ void read(lane_values &x, const void *src, unsigned lane,
                                                unsigned count, bool vectors)
    {
        const T *p = (const T *)src + lane * WIDTH;

#pragma unroll
        for (int h = 0; h < HALVES; h++, p += HALF_BLOCK) {
            if (vectors && count == MICS_BLOCK) {
                mics_load<T, WIDTH>(p, x.of[h]);
                continue;
            }
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                float one[1] = {0};

                if (h * HALF_BLOCK + lane * WIDTH + i < count)
                    mics_load<T, 1>(p + i, one);
                x.of[h][i] = one[0];
            }
        }
    }
};

template <> struct reader<mics_int8_block> {
    static __device__ __forceinline__ void read(lane_values &x, const void *src, unsigned lane,
                                                unsigned, bool)
    {
        const struct mics_int8_block *block = (const struct mics_int8_block *)src;

#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const uint32_t word = ((const uint32_t *)block->steps)[h * (HALF_BLOCK / 4) + lane];

#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                x.of[h][i] = __fmul_rn(block->scale, (float)(int8_t)(word >> 8 * i));
        }
    }
};

template <> struct reader<mics_int4_block> {
    static __device__ __forceinline__ void read(lane_values &x, const void *src, unsigned lane,
                                                unsigned, bool)
    {
        const struct mics_int4_block *block = (const struct mics_int4_block *)src;
        const unsigned nibble = lane % SUB_LANES / (SUB_LANES / 2); /* 1: the upper half */

#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const unsigned sub_block = h * (HALF_BLOCK / MICS_SUB_BLOCK) + lane / SUB_LANES;
            const uint32_t *steps = (const uint32_t *)block->steps[sub_block];
            const uint32_t word = steps[lane % (SUB_LANES / 2)] << (nibble ? 0 : 4);
            const float scale = __uint_as_float((uint32_t)block->scale[sub_block] << 16);

#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                x.of[h][i] = __fmul_rn(scale, (float)((int32_t)(word << (24 - 8 * i)) >> 28));
        }
    }
};

/* The largest of each group of `lanes` neighbours. */
template <int lanes> __device__ __forceinline__ uint32_t group_max(uint32_t x)
{
#pragma unroll
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(MICS_WHOLE_WARP, x, apart);

        x = x > other ? x : other;
    }
    return x;
}

/* The bits of the largest |x|; as integers they are ordered as the numbers. */
__device__ __forceinline__ uint32_t largest_bits(const float (&x)[WIDTH])
{
    uint32_t largest = 0;

#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
        const uint32_t bits = __float_as_uint(x[i]) & 0x7fffffffu;

        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* The scale as it is stored, for blocks whose largest |x| has these bits. */
__device__ __forceinline__ float scale_for(uint32_t largest, float most, uint32_t dropped_bits)
{
    const float exact = __fdiv_rn(__uint_as_float(largest), most);
    const uint32_t bits = (__float_as_uint(exact) + dropped_bits) & ~dropped_bits;

    if (largest >= INFINITE_BITS)
        return __uint_as_float(NAN_BITS);
    return bits < NORMAL_BITS ? 0 : __uint_as_float(bits);
}

/* A block's random numbers: of element i, 16 bits of word i / 64 of Philox block i % 32, the lower
 * half where i / 32 is even. Lane l makes Philox block l. `shared` is the warp's. */
__device__ __forceinline__ void draw(const struct mics_args_sum_blocks &args, uint64_t block,
                                     unsigned lane, uint32_t (*shared)[MICS_WARP],
                                     uint32_t (&out)[HALVES][WIDTH])
{
    const uint64_t stream = (uint64_t)1 << 63 | (uint64_t)args.replica << 32 | args.step;
    uint32_t words[4];

    mics_philox_lanes(args.seed, stream, (args.first / MICS_BLOCK + block) * MICS_WARP + lane, 1,
                      words);
#pragma unroll
    for (int w = 0; w < 4; w++)
        shared[w][lane] = words[w];
    __syncwarp();
#pragma unroll
    for (int h = 0; h < HALVES; h++)
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            const unsigned element = h * HALF_BLOCK + lane * WIDTH + i;
            const uint32_t word = shared[element / 64][element % MICS_WARP];

            out[h][i] = element / MICS_WARP % 2 ? word >> 16 : word & 0xffff;
        }
    __syncwarp();
}

/* The steps of a lane in one half, `bits` wide each; all 0 unless the scale is a normal number. */
template <bool stochastic>
__device__ __forceinline__ void round_steps(const float (&x)[WIDTH], float scale,
                                            const uint32_t (&draws)[WIDTH], int (&steps)[WIDTH])
{
    const float inverse = __fdiv_rn(1, scale);

#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
        if (!(scale > 0)) {
            steps[i] = 0;
        } else if (stochastic) {
            const float u = __fadd_rn(__fmul_rn((float)draws[i], 0x1p-16f), 0x1p-17f);
            const uint32_t sign = __float_as_uint(x[i]) & 0x80000000u;
            const float signed_u = __uint_as_float(__float_as_uint(u) | sign);

            steps[i] = __float2int_rz(__fadd_rn(__fdiv_rn(x[i], scale), signed_u));
        } else {
            steps[i] = __float2int_rn(__fmul_rn(x[i], inverse));
        }
    }
}

template <typename T, bool stochastic> struct writer {
    static __device__ __forceinline__ void write(void *dst, const lane_values &x, unsigned lane,
                                                 unsigned count, bool vectors,
                                                 const uint32_t (&)[HALVES][WIDTH])
    {
        T *p = (T *)dst + lane * WIDTH;

#pragma unroll
        for (int h = 0; h < HALVES; h++, p += HALF_BLOCK) {
            if (vectors && count == MICS_BLOCK) {
                mics_store<T, WIDTH>(p, x.of[h]);
                continue;
            }
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                const float one[1] = {x.of[h][i]};

                if (h * HALF_BLOCK + lane * WIDTH + i < count)
                    mics_store<T, 1>(p + i, one);
            }
        }
    }
};

template <bool stochastic> struct writer<mics_int8_block, stochastic> {
    static __device__ __forceinline__ void write(void *dst, const lane_values &x, unsigned lane,
                                                 unsigned, bool,
                                                 const uint32_t (&draws)[HALVES][WIDTH])
    {
        struct mics_int8_block *block = (struct mics_int8_block *)dst;
        const uint32_t first = largest_bits(x.of[0]), second = largest_bits(x.of[1]);
        const uint32_t largest = group_max<MICS_WARP>(first > second ? first : second);
        const float scale = scale_for(largest, MICS_INT8_MAX, 0x7f);

        if (lane == 0)
            *(uint32_t *)&block->scale = __float_as_uint(scale);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            uint32_t word = 0;
            int steps[WIDTH];

            round_steps<stochastic>(x.of[h], scale, draws[h], steps);
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                word |= ((uint32_t)steps[i] & 0xff) << 8 * i;
            ((uint32_t *)block->steps)[h * (HALF_BLOCK / 4) + lane] = word;
        }
    }
};

template <bool stochastic> struct writer<mics_int4_block, stochastic> {
    /* Two lanes share the words of their sub-blocks: one has the lower halves of the bytes, the
     * other the upper ones. The former stores the word of the first half, the latter that of the
     * second. */
    static __device__ __forceinline__ void write(void *dst, const lane_values &x, unsigned lane,
                                                 unsigned, bool,
                                                 const uint32_t (&draws)[HALVES][WIDTH])
    {
        struct mics_int4_block *block = (struct mics_int4_block *)dst;
        const unsigned upper = lane % SUB_LANES / (SUB_LANES / 2);
        const unsigned sub_block = lane / SUB_LANES;
        uint32_t words[HALVES];

#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const uint32_t largest = group_max<SUB_LANES>(largest_bits(x.of[h]));
            const float scale = scale_for(largest, MICS_INT4_MAX, 0xffff);
            int steps[WIDTH];

            if (lane % SUB_LANES == 0)
                block->scale[h * (HALF_BLOCK / MICS_SUB_BLOCK) + sub_block] =
                    (uint16_t)(__float_as_uint(scale) >> 16);
            round_steps<stochastic>(x.of[h], scale, draws[h], steps);
            words[h] = 0;
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                words[h] |= ((uint32_t)steps[i] & 0xf) << (8 * i + 4 * upper);
        }
        const uint32_t given = upper ? words[0] : words[1], kept = upper ? words[1] : words[0];
        const uint32_t other = __shfl_xor_sync(MICS_WHOLE_WARP, given, SUB_LANES / 2);
        const unsigned stored = upper * (HALF_BLOCK / MICS_SUB_BLOCK) + sub_block;

        ((uint32_t *)block->steps[stored])[lane % (SUB_LANES / 2)] = kept | other;
    }
};

/* One block of threads: WARPS blocks of the arrays. */
template <typename From, typename To, bool stochastic>
__global__ void __launch_bounds__(THREADS)
    sum_blocks_kernel(struct mics_args_sum_blocks args, bool vectors)
{
    MICS_SHARED(uint32_t, shared, [stochastic ? WARPS : 1][4][MICS_WARP]);
    const unsigned warp = threadIdx.x / MICS_WARP, lane = threadIdx.x % MICS_WARP;
    const uint64_t block = (uint64_t)blockIdx.x * WARPS + warp;
    const uint64_t begin = block * MICS_BLOCK;

    if (begin >= args.count)
        return;
    const unsigned count =
        args.count - begin < MICS_BLOCK ? (unsigned)(args.count - begin) : MICS_BLOCK;
    const char *src = (const char *)args.src + block * block_bytes<From>::value;
    void *dst = (char *)args.dst + block * block_bytes<To>::value;
    uint32_t draws[HALVES][WIDTH] = {};
    lane_values sum, x;

    reader<From>::read(sum, src, lane, count, vectors);
#pragma unroll 4
    for (uint32_t part = 1; part < args.parts; part++) {
        src += args.stride;
        reader<From>::read(x, src, lane, count, vectors);
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                sum.of[h][i] = __fadd_rn(sum.of[h][i], x.of[h][i]);
    }
#pragma unroll
    for (int h = 0; h < HALVES; h++)
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            if (h * HALF_BLOCK + lane * WIDTH + i >= count)
                sum.of[h][i] = 0;
    if (stochastic)
        draw(args, block, lane, shared[stochastic ? warp : 0], draws);
    writer<To, stochastic>::write(dst, sum, lane, count, vectors, draws);
}

template <typename From, typename To, bool stochastic>
static cudaError_t sum_blocks_launch(const struct mics_cuda_at *at,
                                     const struct mics_args_sum_blocks *args)
{
    const uint64_t each = (uint64_t)WARPS * MICS_BLOCK;
    const uint64_t blocks = (args->count + each - 1) / each;
    const bool vectors =
        mics_aligned(16, args->dst, args->src) && (args->parts == 1 || args->stride % 16 == 0);

    if (args->count == 0)
        return cudaSuccess;
    if (blocks > 0x7fffffff)
        return cudaErrorInvalidValue;
    return MICS_LAUNCH((sum_blocks_kernel<From, To, stochastic>), (unsigned)blocks, THREADS, 0,
                       at->stream, *args, vectors);
}

template <typename From>
static cudaError_t sum_blocks_from(const struct mics_cuda_at *at,
                                   const struct mics_args_sum_blocks *args)
{
    switch (args->dst_dtype) {
    case MICS_F32:
        return sum_blocks_launch<From, float, false>(at, args);
    case MICS_BF16:
        return sum_blocks_launch<From, mics_bf16, false>(at, args);
    case MICS_F16:
        return sum_blocks_launch<From, mics_f16, false>(at, args);
    case MICS_INT8:
        return args->stochastic ? sum_blocks_launch<From, mics_int8_block, true>(at, args)
                                : sum_blocks_launch<From, mics_int8_block, false>(at, args);
    case MICS_INT4:
        return args->stochastic ? sum_blocks_launch<From, mics_int4_block, true>(at, args)
                                : sum_blocks_launch<From, mics_int4_block, false>(at, args);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t mics_cuda_sum_blocks(const struct mics_cuda_at *at,
                                 const struct mics_args_sum_blocks *args)
{
    switch (args->src_dtype) {
    case MICS_F32:
        return sum_blocks_from<float>(at, args);
    case MICS_BF16:
        return sum_blocks_from<mics_bf16>(at, args);
    case MICS_F16:
        return sum_blocks_from<mics_f16>(at, args);
    case MICS_INT8:
        return sum_blocks_from<mics_int8_block>(at, args);
    case MICS_INT4:
        return sum_blocks_from<mics_int4_block>(at, args);
    default:
        return cudaErrorInvalidValue;
    }
}
