/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum.h - the additions of the communicators, in the caller's thread.
 *
 * Ranges never overlap. 3 memory accesses per addition, so memory decides the speed.
 */
#ifndef MICS_KERNELS_HOST_SUM_H
#define MICS_KERNELS_HOST_SUM_H

#include <stdint.h>

/* into[i] += from[i] */
void mics_host_accumulate_f32(float *into, const float *from, uint64_t count);
void mics_host_accumulate_f64(double *into, const double *from, uint64_t count);

/* bf16, fp16: each addition in fp32, rounded once. */
void mics_host_accumulate_bf16(uint16_t *into, const uint16_t *from, uint64_t count);
void mics_host_accumulate_f16(uint16_t *into, const uint16_t *from, uint64_t count);

/* out[i] = a[i] + b[i] */
void mics_host_sum_f32(float *out, const float *a, const float *b, uint64_t count);
void mics_host_sum_f64(double *out, const double *a, const double *b, uint64_t count);
void mics_host_sum_bf16(uint16_t *out, const uint16_t *a, const uint16_t *b, uint64_t count);
void mics_host_sum_f16(uint16_t *out, const uint16_t *a, const uint16_t *b, uint64_t count);

#endif
