/* SPDX-License-Identifier: Apache-2.0 */
#include "host/sum.h"

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
