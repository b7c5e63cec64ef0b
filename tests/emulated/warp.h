/* SPDX-License-Identifier: Apache-2.0 */
/* warp.h - what the lanes of a warp do together: shuffles, votes, reductions. */
#ifndef MICS_TESTS_EMULATED_WARP_H
#define MICS_TESTS_EMULATED_WARP_H

#include "emulator.h"

#include <string.h>

/* A lane's part in a shuffle. */
template <typename T> struct emu_shuffle {
    T value, result;
    unsigned from; /* lane */
};

/* A lane that does not take part has nothing to give: what is read of it is undefined (0xff bytes). */
template <typename T> static void emu_shuffle_meet(void *const *lanes, unsigned mask)
{
    for (unsigned i = 0; i < EMU_WARP; i++) {
        struct emu_shuffle<T> *lane = static_cast<struct emu_shuffle<T> *>(lanes[i]);

        if (!(mask >> i & 1))
            continue;
        if (lanes[lane->from])
            lane->result = static_cast<struct emu_shuffle<T> *>(lanes[lane->from])->value;
        else
            memset(static_cast<void *>(&lane->result), 0xff, sizeof(T));
    }
}

template <typename T> static inline T emu_shuffle_from(unsigned mask, T value, unsigned from)
{
    struct emu_shuffle<T> lane = {
        value, value, from
    };

    emu_warp_meet(mask, emu_shuffle_meet<T>, &lane);
    return lane.result;
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = EMU_WARP)
{
    unsigned first = emu_lane() & ~(unsigned)(width - 1);

    return emu_shuffle_from(mask, value, first + ((unsigned)from & (unsigned)(width - 1)));
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = EMU_WARP)
{
    unsigned lane = emu_lane(), from = lane ^ (unsigned)bits;
    unsigned end = (lane | (unsigned)(width - 1)) + 1;

    return emu_shuffle_from(mask, value, from < end ? from : lane);
}

template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = EMU_WARP)
{
    unsigned lane = emu_lane(), in_group = lane & (unsigned)(width - 1);

    return emu_shuffle_from(mask, value, in_group >= delta ? lane - delta : lane);
}

template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = EMU_WARP)
{
    unsigned lane = emu_lane(), in_group = lane & (unsigned)(width - 1);

    return emu_shuffle_from(mask, value, in_group + delta < (unsigned)width ? lane + delta : lane);
}

struct emu_vote {
    int predicate;
    unsigned ballot;
};

static inline void emu_vote_meet(void *const *lanes, unsigned mask)
{
    unsigned ballot = 0;

    for (unsigned i = 0; i < EMU_WARP; i++)
        if ((mask >> i & 1) && static_cast<struct emu_vote *>(lanes[i])->predicate)
            ballot |= 1u << i;
    for (unsigned i = 0; i < EMU_WARP; i++)
        if (mask >> i & 1)
            static_cast<struct emu_vote *>(lanes[i])->ballot = ballot;
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    struct emu_vote lane = {predicate, 0};

    emu_warp_meet(mask, emu_vote_meet, &lane);
    return lane.ballot;
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}

static inline void emu_nothing_meet(void *const *, unsigned)
{
}

static inline void __syncwarp(unsigned mask = ~0u)
{
    emu_warp_meet(mask, emu_nothing_meet, nullptr);
}

struct emu_match {
    uint64_t value;
    unsigned same;
};

static inline void emu_match_meet(void *const *lanes, unsigned mask)
{
    for (unsigned i = 0; i < EMU_WARP; i++)
        for (unsigned j = 0; j < EMU_WARP; j++)
            if ((mask >> i & 1) && (mask >> j & 1) &&
                static_cast<struct emu_match *>(lanes[i])->value ==
                    static_cast<struct emu_match *>(lanes[j])->value)
                static_cast<struct emu_match *>(lanes[i])->same |= 1u << j;
}

/* T is an integer. */
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    struct emu_match lane = {(uint64_t)value, 0};

    emu_warp_meet(mask, emu_match_meet, &lane);
    return lane.same;
}

template <typename T> static inline T emu_reduce(unsigned mask, T value, T (*add)(T, T))
{
    T sum = value;
    bool first = true;

    for (unsigned i = 0; i < EMU_WARP; i++) {
        T other = emu_shuffle_from(mask, value, i);

        if (!(mask >> i & 1))
            continue;
        sum = first ? other : add(sum, other);
        first = false;
    }
    return sum;
}

/* T is int or unsigned, as on a GPU. */
template <typename T> static inline T __reduce_add_sync(unsigned mask, T value)
{
    return emu_reduce<T>(mask, value, [](T a, T b) -> T { return a + b; });
}

template <typename T> static inline T __reduce_max_sync(unsigned mask, T value)
{
    return emu_reduce<T>(mask, value, [](T a, T b) -> T { return a > b ? a : b; });
}

static inline unsigned __activemask(void)
{
    return emu_warp_alive();
}

#endif
