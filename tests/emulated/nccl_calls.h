/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_calls.h - between the two halves of the emulated NCCL. */
#ifndef MICS_TESTS_EMULATED_NCCL_CALLS_H
#define MICS_TESTS_EMULATED_NCCL_CALLS_H

#include "nccl_room.h"

#include <chrono>
#include <thread>

typedef std::chrono::steady_clock emu_clock;

struct emu_nccl {
    int size, rank;
    char name[NCCL_UNIQUE_ID_BYTES];
    struct room *room;
    std::thread joiner;
    std::atomic<ncclResult_t> state;
    std::atomic<bool> aborted;
    std::atomic<int> busy; /* threads inside a collective */
    char text[128];        /* of `state` */
    emu_nccl *forgotten;   /* the next of these */
};

/* Set the communicator's state; returns it. */
ncclResult_t emu_nccl_error(emu_nccl *comm, ncclResult_t result, const char *text);
/* All ranks, or an error. */
ncclResult_t emu_nccl_meet(emu_nccl *comm);
/* The network is down: the state says so, and the call hangs until it is aborted. */
void emu_nccl_hang(emu_nccl *comm);

#endif
