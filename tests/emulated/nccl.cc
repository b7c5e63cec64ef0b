/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.cc - communicators of the emulated NCCL (see nccl.h): joining, meeting, ending, errors. What they carry
 * stands in nccl_calls.cc.
 *
 * ncclCommAbort() frees nothing that a collective of another thread may be in: it raises a flag that ends
 * the waiting, and the room stays mapped.
 */
#include "nccl_calls.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <unistd.h>

static constexpr double patience_s = 20;

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    std::random_device random;

    std::memset(id, 0, sizeof *id);
    std::snprintf(id->internal, sizeof id->internal, "/mics-nccl-%d-%08x%08x", (int)getpid(),
                  random(), random());
    return ncclSuccess;
}

static const char *fault()
{
    const char *text = std::getenv("MICS_EMULATED_NCCL_FAULT");

    return text ? text : "";
}

ncclResult_t emu_nccl_error(emu_nccl *comm, ncclResult_t result, const char *text)
{
    std::snprintf(comm->text, sizeof comm->text, "%s", text);
    comm->state = result;
    return result;
}

/* Rest between looks: briefly at first, for most meetings are short. */
static void rest(int looks)
{
    if (looks < 100)
        sched_yield();
    else
        usleep(looks < 1000 ? 20 : 500);
}

/* Not ncclSuccess: aborted, or somebody is gone. Looking for that takes time, so not at each look. */
static ncclResult_t look_around(emu_nccl *comm, int looks, emu_clock::time_point since)
{
    const std::chrono::duration<double> waited = emu_clock::now() - since;

    if (comm->aborted)
        return ncclInternalError;
    if (looks % 64 == 63 && comm->state == ncclSuccess && room_has_died(comm->room, comm->size))
        emu_nccl_error(comm, ncclRemoteError, "a peer's process is gone");
    if (comm->state == ncclRemoteError || comm->room->aborted)
        return ncclSuccess; /* hangs, as a GPU would, until it is aborted */
    if (waited.count() > patience_s)
        return emu_nccl_error(comm, ncclInternalError,
                              "emulated: ranks wait for each other in different collectives");
    return ncclSuccess;
}

ncclResult_t emu_nccl_meet(emu_nccl *comm)
{
    room *room = comm->room;
    const uint32_t generation = room->generation;
    const auto since = emu_clock::now();

    if (room->arrived.fetch_add(1) + 1 == (uint32_t)comm->size) {
        room->arrived = 0;
        room->generation.fetch_add(1);
        return ncclSuccess;
    }
    for (int looks = 0; room->generation == generation; looks++) {
        const ncclResult_t result = look_around(comm, looks, since);

        if (result != ncclSuccess)
            return result;
        rest(looks);
    }
    return ncclSuccess;
}

void emu_nccl_hang(emu_nccl *comm)
{
    emu_nccl_error(comm, ncclSystemError, "emulated: the network is down");
    while (!comm->aborted)
        usleep(1000);
}

/* In the background. */
static void join(emu_nccl *comm)
{
    room *room = comm->room;

    if (std::strcmp(fault(), "join") == 0) {
        emu_nccl_error(comm, ncclSystemError, "emulated: cannot join");
        return;
    }
    room->seats[comm->rank].pid = (int32_t)getpid();
    const bool last = room->in.fetch_add(1) + 1 == (uint32_t)comm->size;
    if (last)
        room_forget_name(comm->name);
    while (room->in < (uint32_t)comm->size && !comm->aborted)
        usleep(200);
    if (!comm->aborted)
        comm->state = ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (size < 1 || size > ROOM_RANKS || rank < 0 || rank >= size || config->magic != 0xcafebeef ||
        config->size != sizeof *config)
        return ncclInvalidArgument;

    auto *comm = new emu_nccl();
    comm->size = size;
    comm->rank = rank;
    std::memcpy(comm->name, id.internal, sizeof comm->name - 1);
    comm->room = room_enter(comm->name, size);
    if (!comm->room) {
        delete comm;
        return ncclSystemError;
    }
    comm->state = ncclInProgress;
    comm->joiner = std::thread(join, comm);
    *out = comm;
    if (config->blocking == 0)
        return ncclInProgress;
    comm->joiner.join();
    return comm->state;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    if (!comm)
        return ncclInvalidArgument;
    *result = comm->state;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return comm->state;
}

static void part(ncclComm_t comm)
{
    if (comm->joiner.joinable())
        comm->joiner.join();
    room_leave(comm->room, comm->size);
    delete comm;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    part(comm);
    return ncclSuccess;
}

/* Those that were aborted while a collective was inside: never to be freed, but not lost either. */
static std::atomic<emu_nccl *> forgotten;

/* The peers' collectives hang then: their state does not change, as with a rank that only went away. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->aborted = true;
    if (comm->room->in < (uint32_t)comm->size)
        room_forget_name(comm->name);
    comm->room->aborted = 1;
    if (comm->joiner.joinable())
        comm->joiner.join();
    if (comm->busy == 0)
        part(comm);
    else
        comm->forgotten = forgotten.exchange(comm);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};

    return texts[result];
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm ? comm->text : "";
}
