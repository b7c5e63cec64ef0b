/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - in which order the sequences of a corpus are seen.
 *
 * Training draws samples 0, 1, 2, ... one after another, `windows` of them an epoch. Within an epoch every
 * window comes once, in an order that is a keyed permutation of [0, windows): a Feistel network over
 * the next even power of two, walked until it falls inside (Black and Rogaway, "Ciphers with
 * Arbitrary Finite Domains", 2002). So sample i needs no table and no state: it is a pure function of
 * (seed, i), whatever the number of ranks.
 */
#ifndef MICS_DATA_ORDER_H
#define MICS_DATA_ORDER_H

#include <stdint.h>

/* Place of `index` in the permutation of [0, count) that (seed, epoch) names. index < count,
 * 1 <= count <= 2^62. */
uint64_t mics_order_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

/* A number in [0, count) for the epoch: where the epoch's first window begins. count >= 1. */
uint64_t mics_order_offset(uint64_t seed, uint64_t epoch, uint64_t count);

/* The place in a step's global batch of sequence `row` of a rank's micro-step: every micro-step takes
 * the next world_size * micro_batch sequences, rank by rank. For all (world_size, micro_batch,
 * micro_steps) of the same product, a step covers the same [0, global_batch). */
uint64_t mics_order_place(uint32_t micro_step, uint32_t world_size, uint32_t rank,
                          uint32_t micro_batch, uint32_t row);

#endif
