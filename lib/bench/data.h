/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - data whose gathered and summed form can be told in advance, exactly.
 *
 * What the rank with key r holds at element e is a(e) + b(r) c(e): whole numbers from 1 to 69, so that sums of
 * up to 100000 ranks are exact in fp32, and the sum over a range of keys has a closed form.
 */
#ifndef MICS_BENCH_DATA_H
#define MICS_BENCH_DATA_H

#include <stdint.h>

/* Where the elements of a buffer belong. Element i of the flat vector has the index first + i; a gathered buffer cut
 * into segments is as in machine/hier.h. */
float mics_bench_value(uint64_t key, uint64_t element, uint64_t salt);

/* Sum over the keys [first, first + count). */
double mics_bench_sum(uint64_t first, uint64_t count, uint64_t element, uint64_t salt);

/* data[count] = the values of `key` for elements from `element` on. */
void mics_bench_fill(float *data, uint64_t count, uint64_t key, uint64_t element, uint64_t salt);

/* How many of data[count] are not that, or not the sum over `keys` keys from `key` on. */
uint64_t mics_bench_count_wrong(const float *data, uint64_t count, uint64_t key, uint64_t element,
                                uint64_t salt);
uint64_t mics_bench_count_wrong_sums(const float *data, uint64_t count, uint64_t key, uint64_t keys,
                                     uint64_t element, uint64_t salt);

#endif
