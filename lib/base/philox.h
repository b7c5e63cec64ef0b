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
