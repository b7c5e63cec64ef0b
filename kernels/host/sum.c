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

void mics_host_sum_bf16(uint16_t *out, const uint16_t *a, const uint16_t *b, uint64_t count)
{
    uint64_t i = 0;

    for (; i + MICS_LANES <= count; i += MICS_LANES)
        mics_vstore_as(out, i, mics_vload_as(a, i, MICS_BF16) + mics_vload_as(b, i, MICS_BF16),
                       MICS_BF16);
    for (; i < count; i++)
        out[i] = mics_bf16_round(mics_bf16_widen(a[i]) + mics_bf16_widen(b[i]));
}

void mics_host_accumulate_bf16(uint16_t *into, const uint16_t *from, uint64_t count)
{
    mics_host_sum_bf16(into, into, from, count);
}
