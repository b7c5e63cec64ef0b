/* SPDX-License-Identifier: Apache-2.0 */
/* bench_data.c - a hash of the element gives two small numbers, the rank's key a third. */
#include "bench/data.h"

enum { KEYS = 13, BASES = 17, SLOPES = 5 };

static uint32_t mix(uint64_t element, uint64_t salt)
{
    uint64_t x = (element + 1) * 0x9e3779b97f4a7c15u + salt * 0xc2b2ae3d27d4eb4fu;

    x ^= x >> 29;
    return (uint32_t)((x * 0xbf58476d1ce4e5b9u) >> 33);
}

static double base_of(uint32_t hash)
{
    return 1 + hash % BASES;
}

static double slope_of(uint32_t hash)
{
    return (hash >> 8) % SLOPES;
}

float mics_bench_value(uint64_t key, uint64_t element, uint64_t salt)
{
    const uint32_t hash = mix(element, salt);

    return (float)(base_of(hash) + (double)(1 + key % KEYS) * slope_of(hash));
}

/* Sum of 1 + r mod KEYS over the keys below `end`. */
static double keys_below(uint64_t end)
{
    const uint64_t rounds = end / KEYS, rest = end % KEYS;

    return (double)(rounds * KEYS * (KEYS + 1) / 2 + rest * (rest + 1) / 2);
}

double mics_bench_sum(uint64_t first, uint64_t count, uint64_t element, uint64_t salt)
{
    const uint32_t hash = mix(element, salt);

    return (double)count * base_of(hash) +
           (keys_below(first + count) - keys_below(first)) * slope_of(hash);
}

void mics_bench_fill(float *data, uint64_t count, uint64_t key, uint64_t element, uint64_t salt)
{
    for (uint64_t i = 0; i < count; i++)
        data[i] = mics_bench_value(key, element + i, salt);
}

uint64_t mics_bench_count_wrong(const float *data, uint64_t count, uint64_t key, uint64_t element,
                                uint64_t salt)
{
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < count; i++)
        wrong += data[i] != mics_bench_value(key, element + i, salt);
    return wrong;
}

uint64_t mics_bench_count_wrong_sums(const float *data, uint64_t count, uint64_t key, uint64_t keys,
                                     uint64_t element, uint64_t salt)
{
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < count; i++)
        wrong += (double)data[i] != mics_bench_sum(key, keys, element + i, salt);
    return wrong;
}
