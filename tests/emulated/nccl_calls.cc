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

static std::atomic<int> collectives; /* of this process */

/* Say what is to be done, and see that all do the same. */
static ncclResult_t begin(emu_nccl *comm, const room_call &call)
{
    const char *fault = std::getenv("MICS_EMULATED_NCCL_FAULT");

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
    ncclResult_t result = call.count > 0 ? begin(comm, call) : ncclSuccess;

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

/* What one rank has given to a collective. */
struct given {
    emu_nccl *comm;
    ncclDataType_t type;
    size_t count; /* elements of a block, or of all data where there are no blocks */
    const char *send;
    char *recv;
    int root;
    bool registered;

    size_t bytes() const
    {
        return count * type_bytes(type);
    }
};

/* Two buffers are apart, or the shorter is exactly the rank's block of the longer. */
static bool overlap_badly(const char *piece, size_t piece_bytes, const char *whole,
                          size_t whole_bytes, size_t place)
{
    const bool apart = piece + piece_bytes <= whole || whole + whole_bytes <= piece;

    return !apart && piece != whole + place;
}

static ncclResult_t issue(const given &call, size_t send_blocks, size_t recv_blocks,
                          ncclResult_t (*run)(const given &call))
{
    emu_nccl *comm = call.comm;
    const emu_inside guard(comm);
    const size_t bytes = call.bytes(), place = (size_t)comm->rank * bytes;
    given copy = call;

    if (!call.send || !call.recv)
        return ncclInvalidArgument;
    if (send_blocks < recv_blocks
            ? overlap_badly(call.send, bytes, call.recv, recv_blocks * bytes, place)
            : overlap_badly(call.recv, recv_blocks * bytes, call.send, send_blocks * bytes,
                            send_blocks > recv_blocks ? place : 0))
        return emu_nccl_error(comm, ncclInvalidArgument,
                              "emulated: buffers overlap and are not in place");
    copy.registered = emu_nccl_is_registered(comm, call.send, send_blocks * bytes) &&
                      emu_nccl_is_registered(comm, call.recv, recv_blocks * bytes);
    comm->registered += copy.registered;
    return emu_nccl_issue(comm, [copy, run] { return run(copy); });
}

static room_call call_of(const given &call, uint32_t kind, int root)
{
    return {kind, (uint32_t)call.type, call.count, root, call.registered};
}

static ncclResult_t gather(const given &call)
{
    emu_nccl *comm = call.comm;
    const size_t all = call.bytes(), each = type_bytes(call.type);

    return exchange(
        comm, call_of(call, CALL_GATHER, 0),
        [&](size_t at, size_t bytes) {
            std::memcpy(room_slot(comm->room, comm->rank), call.send + at, bytes);
        },
        [&](size_t at, size_t n) {
            for (int r = 0; r < comm->size; r++)
                std::memcpy(call.recv + (size_t)r * all + at, room_slot(comm->room, r), n * each);
        });
}

/* One block after another; only its own rank takes the sum. */
static ncclResult_t scatter(const given &call)
{
    emu_nccl *comm = call.comm;
    ncclResult_t result = ncclSuccess;

    for (int block = 0; block < comm->size && result == ncclSuccess; block++) {
        const char *from = call.send + (size_t)block * call.bytes();

        result = exchange(
            comm, call_of(call, CALL_SCATTER, block),
            [&](size_t at, size_t bytes) {
                std::memcpy(room_slot(comm->room, comm->rank), from + at, bytes);
            },
            [&](size_t at, size_t n) {
                if (block == comm->rank)
                    sum_slots(comm, call.recv + at, n, call.type);
            });
    }
    return result;
}

static ncclResult_t reduce(const given &call)
{
    emu_nccl *comm = call.comm;

    return exchange(
        comm, call_of(call, CALL_REDUCE, 0),
        [&](size_t at, size_t bytes) {
            std::memcpy(room_slot(comm->room, comm->rank), call.send + at, bytes);
        },
        [&](size_t at, size_t n) { sum_slots(comm, call.recv + at, n, call.type); });
}

static ncclResult_t broadcast(const given &call)
{
    emu_nccl *comm = call.comm;

    return exchange(
        comm, call_of(call, CALL_BROADCAST, call.root),
        [&](size_t at, size_t bytes) {
            if (comm->rank == call.root)
                std::memcpy(room_slot(comm->room, call.root), call.send + at, bytes);
        },
        [&](size_t at, size_t n) {
            std::memmove(call.recv + at, room_slot(comm->room, call.root),
                         n * type_bytes(call.type));
        });
}

static given given_of(const void *send, void *recv, size_t count, ncclDataType_t type,
                      ncclComm_t comm)
{
    return {comm, type, count, static_cast<const char *>(send), static_cast<char *>(recv),
            0,    false};
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t)
{
    return issue(given_of(send, recv, count, type, comm), 1, (size_t)comm->size, gather);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t)
{
    return issue(given_of(send, recv, count, type, comm), (size_t)comm->size, 1, scatter);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t)
{
    return issue(given_of(send, recv, count, type, comm), 1, 1, reduce);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t)
{
    given call = given_of(send, recv, count, type, comm);

    if (root < 0 || root >= comm->size)
        return ncclInvalidArgument;
    call.root = root;
    return issue(call, 1, 1, broadcast);
}
