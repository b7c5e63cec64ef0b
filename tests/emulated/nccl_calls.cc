/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_calls.cc - the collectives of the emulated NCCL: a chunk at a time through the ranks' slots.
 *
 * Sums go over the ranks in their order, in the type itself: bf16 rounds at each addition, as NCCL's rings do.
 */
#include "nccl_calls.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

enum { CALL_GATHER = 1, CALL_SCATTER, CALL_REDUCE, CALL_BROADCAST };

static size_t type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat64:
        return 8;
    case ncclFloat32:
        return 4;
    case ncclBfloat16:
        return 2;
    default:
        return 1;
    }
}

static float widen(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float out;

    std::memcpy(&out, &bits, sizeof out);
    return out;
}

static uint16_t narrow(float x)
{
    uint32_t bits;

    std::memcpy(&bits, &x, sizeof bits);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Elements may lie anywhere. */
template <typename T> static void add_as(char *into, const char *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        T a, b;

        std::memcpy(&a, into + i * sizeof a, sizeof a);
        std::memcpy(&b, from + i * sizeof b, sizeof b);
        if constexpr (sizeof(T) == 2)
            a = narrow(widen(a) + widen(b));
        else
            a += b;
        std::memcpy(into + i * sizeof a, &a, sizeof a);
    }
}

static void add(char *into, const char *from, size_t count, ncclDataType_t type)
{
    if (type == ncclFloat64)
        add_as<double>(into, from, count);
    else if (type == ncclFloat32)
        add_as<float>(into, from, count);
    else
        add_as<uint16_t>(into, from, count);
}

/* The sum of all ranks' slots. */
static void sum_slots(emu_nccl *comm, char *out, size_t count, ncclDataType_t type)
{
    std::memcpy(out, room_slot(comm->room, 0), count * type_bytes(type));
    for (int r = 1; r < comm->size; r++)
        add(out, room_slot(comm->room, r), count, type);
}

/* A thread is inside a collective, whose communicator must not go away. */
class inside
{
  public:
    explicit inside(emu_nccl *comm) : comm_(comm)
    {
        comm_->busy++;
    }
    ~inside()
    {
        comm_->busy--;
    }

  private:
    emu_nccl *comm_;
};

static std::atomic<int> collectives; /* of this process */

/* Say what is to be done, and see that all do the same. */
static ncclResult_t begin(emu_nccl *comm, const room_call &call)
{
    const char *fault = std::getenv("MICS_EMULATED_NCCL_FAULT");

    if (comm->state != ncclSuccess)
        return comm->state;
    if (fault && ++collectives == std::atoi(fault)) {
        emu_nccl_hang(comm);
        return ncclInternalError;
    }
    comm->room->seats[comm->rank].call = call;
    ncclResult_t result = emu_nccl_meet(comm);
    for (int r = 0; r < comm->size && result == ncclSuccess; r++)
        if (!(comm->room->seats[r].call == call))
            result = emu_nccl_error(comm, ncclInvalidUsage,
                                    "emulated: ranks begin different collectives");
    return result;
}

/* For each chunk of `count` elements: all put something into their slots, meet, take something out, meet. */
template <typename Put, typename Take>
static ncclResult_t exchange(emu_nccl *comm, const room_call &call, Put put, Take take)
{
    const size_t each = type_bytes((ncclDataType_t)call.type), most = ROOM_SLOT / each;
    const inside guard(comm);
    ncclResult_t result = call.count > 0 ? begin(comm, call) : comm->state.load();

    for (size_t at = 0; at < call.count && result == ncclSuccess; at += most) {
        const size_t count = std::min(most, call.count - at);

        put(at * each, count * each);
        result = emu_nccl_meet(comm);
        if (result == ncclSuccess)
            take(at * each, count);
        if (result == ncclSuccess)
            result = emu_nccl_meet(comm);
    }
    return result;
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t)
{
    const room_call call = {CALL_GATHER, (uint32_t)type, count, 0};
    const size_t each = type_bytes(type);

    return exchange(
        comm, call,
        [&](size_t at, size_t bytes) {
            std::memcpy(room_slot(comm->room, comm->rank), (const char *)send + at, bytes);
        },
        [&](size_t at, size_t n) {
            for (int r = 0; r < comm->size; r++)
                std::memcpy((char *)recv + (size_t)r * count * each + at, room_slot(comm->room, r),
                            n * each);
        });
}

/* One block after another; only its own rank takes the sum. */
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t)
{
    const size_t each = type_bytes(type);
    ncclResult_t result = ncclSuccess;

    for (int block = 0; block < comm->size && result == ncclSuccess; block++) {
        const room_call call = {CALL_SCATTER, (uint32_t)type, count, block};
        const char *from = (const char *)send + (size_t)block * count * each;

        result = exchange(
            comm, call,
            [&](size_t at, size_t bytes) {
                std::memcpy(room_slot(comm->room, comm->rank), from + at, bytes);
            },
            [&](size_t at, size_t n) {
                if (block == comm->rank)
                    sum_slots(comm, (char *)recv + at, n, type);
            });
    }
    return result;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t)
{
    const room_call call = {CALL_REDUCE, (uint32_t)type, count, 0};

    return exchange(
        comm, call,
        [&](size_t at, size_t bytes) {
            std::memcpy(room_slot(comm->room, comm->rank), (const char *)send + at, bytes);
        },
        [&](size_t at, size_t n) { sum_slots(comm, (char *)recv + at, n, type); });
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t)
{
    const room_call call = {CALL_BROADCAST, (uint32_t)type, count, root};

    return exchange(
        comm, call,
        [&](size_t at, size_t bytes) {
            if (comm->rank == root)
                std::memcpy(room_slot(comm->room, root), (const char *)send + at, bytes);
        },
        [&](size_t at, size_t n) {
            std::memmove((char *)recv + at, room_slot(comm->room, root), n * type_bytes(type));
        });
}
