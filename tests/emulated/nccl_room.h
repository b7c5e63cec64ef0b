/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_room.h - where the ranks of an emulated NCCL communicator meet: a piece of shared memory.
 *
 * It is named by the unique id; who comes first makes it, of zeros, and it loses its name when all are in.
 */
#ifndef MICS_TESTS_EMULATED_NCCL_ROOM_H
#define MICS_TESTS_EMULATED_NCCL_ROOM_H

#include "nccl.h"

#include <atomic>
#include <cstdint>

enum { ROOM_RANKS = 64, ROOM_SLOT = 1 << 18 }; /* bytes of a rank's slot */

/* What a rank is about to do; all must do the same. */
struct room_call {
    uint32_t kind, type;
    uint64_t count;
    int32_t root;
    bool registered; /* its buffers */

    bool operator==(const room_call &) const = default;
};

struct room_seat {
    std::atomic<int32_t> pid; /* 0: not in yet */
    room_call call;
};

/* The ranks' slots follow it. */
struct alignas(64) room {
    std::atomic<uint32_t> in, arrived, generation, aborted;
    room_seat seats[ROOM_RANKS];
};

/* NULL: the system refuses, errno says why. */
room *room_enter(const char *name, int size);
void room_leave(room *room, int size);
void room_forget_name(const char *name);

static inline char *room_slot(room *room, int rank)
{
    return reinterpret_cast<char *>(room + 1) + (size_t)rank * ROOM_SLOT;
}

/* The process of some rank that was in is gone. */
bool room_has_died(const room *room, int size);

#endif
