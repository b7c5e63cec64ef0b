/* SPDX-License-Identifier: Apache-2.0 */
/*
 * philox.h - random numbers without state: a pure function of (seed, stream, index).
 *
 * Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
 * So the numbers do not depend on the number of ranks or the order of the calls.
 */
#ifndef MICS_BASE_PHILOX_H
#define MICS_BASE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define MICS_PHILOX_INLINE static __host__ __device__ __forceinline__
#else
#define MICS_PHILOX_INLINE static inline __attribute__((always_inline))
#endif

/* Blocks [first, first + lanes) of `stream` under `seed`: word w of block first + i is out[w *
 * lanes + i]. Ten rounds, each of which multiplies two of the four counter words, exchanges the
 * halves of the products, and mixes in a key that advances by a Weyl sequence. The key is the seed,
 * the counter is (index, stream), each low word first. A compiler vectorises it over the lanes. */
MICS_PHILOX_INLINE void mics_philox_lanes(uint64_t seed, uint64_t stream, uint64_t first,
                                          const unsigned lanes, uint32_t *out)
{
    uint32_t *c0 = out, *c1 = out + lanes, *c2 = c1 + lanes, *c3 = c2 + lanes;
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);

    for (unsigned i = 0; i < lanes; i++) {
        c0[i] = (uint32_t)(first + i);
        c1[i] = (uint32_t)((first + i) >> 32);
        c2[i] = (uint32_t)stream;
        c3[i] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (unsigned i = 0; i < lanes; i++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0[i];
            const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2[i];

            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ key0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ key1;
            c3[i] = (uint32_t)p0;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

/* Block `index` of `stream` under `seed`: four random words. All functions below draw from such
 * blocks, so different purposes need different streams. */
void mics_philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);

/* A random 64-bit word. */
uint64_t mics_philox_u64(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, 1) with 53 bits. */
double mics_philox_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* Standard normals for indices [first, first + count), by Box-Muller on pairs of indices
 * (2i, 2i+1) that share one block: element i is the same whatever range asks for it. */
void mics_philox_normals(uint64_t seed, uint64_t stream, uint64_t first, uint64_t count,
                         float *out);

#endif
