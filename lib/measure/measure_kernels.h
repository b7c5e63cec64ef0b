/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_kernels.h - how long the operations of training take on this device, in a few sizes.
 *
 * All ranks run the same operation at the same time, as in training. The mean of all ranks' rates
 * counts, because ranks that share cores take turns, and is divided by how much longer the slowest
 * node takes over all sizes, because collectives wait for nodes.
 * Products are measured in the three forms of a layer's passes and three sizes of each dimension,
 * attention in two lengths and head sizes, passes over memory in two lengths, each in fp32 and
 * bf16. Products that are not transposed are measured twice, some seconds apart, since a machine
 * that others use is faster at one time than at another.
 */
#ifndef MICS_MEASURE_MEASURE_KERNELS_H
#define MICS_MEASURE_MEASURE_KERNELS_H

#include "measure/bench.h"
#include "topology/kernel_rates.h"

/* Takes about `seconds`, more where one launch of the larger sizes takes longer than its part.
 * Collective. *out is the caller's, to free(), and the same on all ranks. The device must be the
 * host; the buffer's content is lost: it is zero afterwards. *drift: by which part of the shorter
 * time the two times of the repeated products differ, 0 or more; set on success. */
enum mics_status mics_bench_kernel_rates(const struct mics_bench *bench, double seconds,
                                         struct mics_kernel_rates **out, uint32_t *count,
                                         double *drift, struct mics_err *err);

#endif
