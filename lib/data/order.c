/* SPDX-License-Identifier: Apache-2.0 */
#include "data/order.h"

#include "base/philox.h"

#include <assert.h>

#define ROUNDS 6

/* Streams of random numbers of their own, far from the tensors' (small integers). */
#define STREAM_PERMUTE ((uint64_t)0x6f72646572 << 24)
#define STREAM_OFFSET  ((uint64_t)0x7374617274 << 24)

static unsigned half_bits(uint64_t count)
{
    unsigned bits = 1;

    while (bits < 31 && (uint64_t)1 << (2 * bits) < count)
        bits++;
    return bits;
}

static uint64_t feistel(uint64_t seed, uint64_t epoch, unsigned bits, uint64_t value)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t left = value >> bits, right = value & mask;

    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t word = mics_philox_u64(seed, STREAM_PERMUTE + round, epoch << 32 ^ right);
        uint64_t next = left ^ (word & mask);

        left = right;
        right = next;
    }
    return left << bits | right;
}

uint64_t mics_order_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index)
{
    const unsigned bits = half_bits(count);

    assert(index < count && count <= (uint64_t)1 << 62);
    do
        index = feistel(seed, epoch, bits, index);
    while (index >= count);
    return index;
}

uint64_t mics_order_offset(uint64_t seed, uint64_t epoch, uint64_t count)
{
    return mics_philox_u64(seed, STREAM_OFFSET, epoch) % count;
}

uint64_t mics_order_place(uint32_t micro_step, uint32_t world_size, uint32_t rank,
                          uint32_t micro_batch, uint32_t row)
{
    return ((uint64_t)micro_step * world_size + rank) * micro_batch + row;
}
