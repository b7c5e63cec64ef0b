/* SPDX-License-Identifier: Apache-2.0 */
#include "host/sum.h"

#include "host/vector.h"

void mics_host_accumulate_f32(float *restrict into, const float *restrict from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        into[i] += from[i];
}

void mics_host_accumulate_f64(double *restrict into, const double *restrict from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        into[i] += from[i];
}

void mics_host_sum_f32(float *restrict out, const float *restrict a, const float *restrict b,
                       uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

void mics_host_sum_f64(double *restrict out, const double *restrict a, const double *restrict b,
                       uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

MICS_TYPED void sum_halves(uint16_t *out, const uint16_t *a, const uint16_t *b, uint64_t count,
                           const enum mics_dtype dtype)
{
    uint64_t i = 0;

    for (; i + MICS_LANES <= count; i += MICS_LANES)
        mics_vstore_as(out, i, mics_vload_as(a, i, dtype) + mics_vload_as(b, i, dtype), dtype);
    for (; i < count; i++)
        mics_store_as(out, i, mics_load_as(a, i, dtype) + mics_load_as(b, i, dtype), dtype);
}

void mics_host_sum_bf16(uint16_t *out, const uint16_t *a, const uint16_t *b, uint64_t count)
{
    sum_halves(out, a, b, count, MICS_BF16);
}

void mics_host_sum_f16(uint16_t *out, const uint16_t *a, const uint16_t *b, uint64_t count)
{
    sum_halves(out, a, b, count, MICS_F16);
}

void mics_host_accumulate_bf16(uint16_t *into, const uint16_t *from, uint64_t count)
{
    sum_halves(into, into, from, count, MICS_BF16);
}

void mics_host_accumulate_f16(uint16_t *into, const uint16_t *from, uint64_t count)
{
    sum_halves(into, into, from, count, MICS_F16);
}
