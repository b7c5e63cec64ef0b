/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_internal.h - interfaces between the files of the emulated NCCL. */
#ifndef MICS_TESTS_EMULATOR_NCCL_INTERNAL_H
#define MICS_TESTS_EMULATOR_NCCL_INTERNAL_H

#include "nccl.h"
#include "queue.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <vector>

/*
 * The shared state: memory shared by the ranks of a communicator.
 *
 * It is named by the unique id; the first rank creates it, filled with zeros, and it is unlinked
 * when all ranks have joined.
 */

enum { SHARED_STATE_RANKS = 64, SHARED_STATE_SLOT = 1 << 18 }; /* bytes of a rank's slot */

/* The collective that a rank is about to run; it must be the same on all ranks. */
struct collective_call {
    uint32_t kind, type;
    uint64_t count;
    int32_t root;
    bool registered; /* its buffers */

    bool operator==(const collective_call &) const = default;
};

struct room_member {
    std::atomic<int32_t> pid; /* 0: not joined yet */
    collective_call call;
};

/* The ranks' slots follow it. */
struct alignas(64) shared_state {
    std::atomic<uint32_t> in, arrived, generation, aborted;
    room_member members[SHARED_STATE_RANKS];
};

/* NULL: failed, with errno. */
shared_state *shared_state_open(const char *name, int size);
void shared_state_close(shared_state *shared_state, int size);
void shared_state_unlink(const char *name);

static inline char *shared_state_slot(shared_state *shared_state, int rank)
{
    return reinterpret_cast<char *>(shared_state + 1) + (size_t)rank * SHARED_STATE_SLOT;
}

/* Whether the process of a rank that had joined has ended. */
bool shared_state_has_dead_rank(const shared_state *shared_state, int size);

/* --- communicators */

/* A buffer that was registered with a communicator. */
struct emu_registration {
    const char *begin, *end;
};

/* A message of a group. */
struct emu_message {
    char *data;
    size_t count;
    ncclDataType_t type;
    cudaStream_t stream;
    bool registered;
};

struct emu_nccl {
    int size, rank;
    bool blocking;
    char name[NCCL_UNIQUE_ID_BYTES];
    struct shared_state *shared_state;
    std::thread joiner, worker; /* in the background: joining, then enqueuing collectives */
    std::atomic<ncclResult_t> state;
    std::atomic<bool> aborted, finalized;
    std::atomic<int> callers; /* threads inside */
    std::atomic<int> busy;    /* collectives that are enqueued and have not ended */
    emu_op_ref last;          /* of them */
    char text[128];           /* of `state` */
    void *memory[2];          /* that NCCL takes when it joins, and for its first collective */
    std::vector<emu_registration *> registrations;
    std::map<int, emu_message> sends, receives; /* of the group that begins, by peer */
    size_t collectives, groups, registered;     /* for the log */
};

static inline size_t emu_type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat64:
        return 8;
    case ncclFloat32:
        return 4;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    default:
        return 1;
    }
}

/* A thread is inside a communicator; NCCL allows one. */
class emu_inside
{
  public:
    explicit emu_inside(emu_nccl *comm);
    ~emu_inside();

  private:
    emu_nccl *comm_;
};

/* Report use that NCCL's manual forbids. */
[[noreturn]] void emu_nccl_die(const char *text);

/* Set the communicator's state; returns it. */
ncclResult_t emu_nccl_error(emu_nccl *comm, ncclResult_t result, const char *text);
/* Whether the communicator has no error. */
bool emu_nccl_is_well(const emu_nccl *comm);

/* A barrier of all ranks without blocking: arrive once, then poll until all have arrived. */
class emu_barrier
{
  public:
    void arrive(emu_nccl *comm);
    /* DONE: all have arrived, or the communicator was aborted. FAILED: they cannot arrive, which
     * was reported. If a rank died, the communicator's state is an error. */
    emu_step poll(emu_nccl *comm);

  private:
    uint32_t generation_ = 0;
    int polls_ = 0;
    std::chrono::steady_clock::time_point since_;
};

/* nccl_collectives.cc: enqueue a collective whose ranks put bytes [at, at + bytes) of what they
 * give into their slots, and then take `count` elements out of all slots, for byte `at` of theirs.
 */
typedef std::function<void(size_t at, size_t bytes)> emu_give;
typedef std::function<void(size_t at, size_t count)> emu_take;
ncclResult_t emu_nccl_enqueue(emu_nccl *comm, cudaStream_t stream, const collective_call &call,
                              emu_give give, emu_take take);

/* Begin it now, or with its group. */
ncclResult_t emu_nccl_issue(emu_nccl *comm, std::function<ncclResult_t()> work);
/* nccl.cc: release an aborted communicator; at the end of the group, if there is one. */
void emu_nccl_part(emu_nccl *comm);
bool emu_nccl_part_later(emu_nccl *comm);

/* nccl_memory.cc */
bool emu_nccl_is_registered(const emu_nccl *comm, const void *buffer, size_t bytes);
void emu_nccl_deregister_all(emu_nccl *comm);

#endif
