/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_calls.h - between the parts of the emulated NCCL. */
#ifndef MICS_TESTS_EMULATED_NCCL_CALLS_H
#define MICS_TESTS_EMULATED_NCCL_CALLS_H

#include "nccl_room.h"

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

typedef std::chrono::steady_clock emu_clock;

/* A buffer that was registered with a communicator. */
struct emu_registration {
    const char *begin, *end;
};

struct emu_nccl {
    int size, rank;
    bool blocking;
    char name[NCCL_UNIQUE_ID_BYTES];
    struct room *room;
    std::thread joiner, worker; /* in the background: joining, then collectives */
    std::atomic<ncclResult_t> state;
    std::atomic<bool> aborted;
    std::atomic<int> callers; /* threads inside */
    char text[128];           /* of `state` */
    void *memory[2];          /* that NCCL takes when it joins, and for its first collective */
    std::vector<emu_registration *> registrations;
    size_t collectives, groups, registered; /* for the log */
};

/* A thread is inside a communicator; NCCL allows one. */
class emu_inside
{
  public:
    explicit emu_inside(emu_nccl *comm);
    ~emu_inside();

  private:
    emu_nccl *comm_;
};

/* The caller did what NCCL's manual forbids. */
[[noreturn]] void emu_nccl_die(const char *text);

/* Set the communicator's state; returns it. */
ncclResult_t emu_nccl_error(emu_nccl *comm, ncclResult_t result, const char *text);
/* All ranks, or an error. */
ncclResult_t emu_nccl_meet(emu_nccl *comm);
/* The network is down: the state says so, and the call hangs until it is aborted. */
void emu_nccl_hang(emu_nccl *comm);

/* nccl_group.cc: begin it, or with its group. */
ncclResult_t emu_nccl_issue(emu_nccl *comm, std::function<ncclResult_t()> work);
/* nccl.cc: let go of an aborted communicator; in the end of a group, if there is one. */
void emu_nccl_part(emu_nccl *comm);
bool emu_nccl_part_later(emu_nccl *comm);

/* nccl_memory.cc */
bool emu_nccl_is_registered(const emu_nccl *comm, const void *buffer, size_t bytes);
void emu_nccl_deregister_all(emu_nccl *comm);

#endif
