/* SPDX-License-Identifier: Apache-2.0 */
/*
 * philox.c - words, uniform and normal numbers of blocks of Philox4x32.
 */
#include "base/philox.h"

#include <math.h>

void mics_philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    mics_philox_lanes(seed, stream, index, 1, out);
}

static uint64_t join(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

uint64_t mics_philox_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t word[4];

    mics_philox(seed, stream, index, word);
    return join(word[0], word[1]);
}

/* The upper 53 bits as a fraction: in [0, 1). */
static double fraction(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

double mics_philox_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return fraction(mics_philox_u64(seed, stream, index));
}

/* Box and Muller 1958: elements 2 `pair` and 2 `pair` + 1. */
static void normal_pair(uint64_t seed, uint64_t stream, uint64_t pair, float out[2])
{
    uint32_t word[4];

    mics_philox(seed, stream, pair, word);
    const double radius = sqrt(-2.0 * log(1.0 - fraction(join(word[0], word[1]))));
    const double angle = 2.0 * 3.14159265358979323846 * fraction(join(word[2], word[3]));
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

void mics_philox_normals(uint64_t seed, uint64_t stream, uint64_t first, uint64_t count, float *out)
{
    for (uint64_t done = 0; done < count;) {
        float pair[2];
        normal_pair(seed, stream, (first + done) / 2, pair);
        if ((first + done) % 2 == 0)
            out[done++] = pair[0];
        if (done < count && (first + done) % 2 == 1)
            out[done++] = pair[1];
    }
}
