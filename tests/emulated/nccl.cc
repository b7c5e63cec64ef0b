/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.cc - communicators of the emulated NCCL (see nccl.h): joining, meeting, ending, errors. What they carry
 * stands in nccl_calls.cc.
 *
 * ncclCommAbort() raises a flag that ends all waiting, and then waits for the communicator's own thread and for the GPU.
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
    *version = (int)emu_setting("MICS_EMULATED_NCCL_VERSION", NCCL_VERSION_CODE);
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

void emu_nccl_die(const char *text)
{
    std::fprintf(stderr, "emulated NCCL: %s\n", text);
    std::abort();
}

emu_inside::emu_inside(emu_nccl *comm) : comm_(comm)
{
    if (comm_->callers++ > 0)
        emu_nccl_die("two threads are inside one communicator");
}

emu_inside::~emu_inside()
{
    comm_->callers--;
}

ncclResult_t emu_nccl_error(emu_nccl *comm, ncclResult_t result, const char *text)
{
    std::snprintf(comm->text, sizeof comm->text, "%s", text);
    comm->state = result;
    return result;
}

bool emu_nccl_is_well(const emu_nccl *comm)
{
    const ncclResult_t state = comm->state;

    return state == ncclSuccess || state == ncclInProgress;
}

void emu_meeting::come(emu_nccl *comm)
{
    room *room = comm->room;

    generation_ = room->generation;
    looks_ = 0;
    since_ = std::chrono::steady_clock::now();
    if (room->arrived.fetch_add(1) + 1 == (uint32_t)comm->size) {
        room->arrived = 0;
        room->generation.fetch_add(1);
    }
}

emu_step emu_meeting::ask(emu_nccl *comm)
{
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - since_;

    if (comm->aborted || comm->room->generation != generation_)
        return emu_step::DONE;
    /* That takes time, so not at each look. */
    if (++looks_ % 64 == 0 && emu_nccl_is_well(comm) && room_has_died(comm->room, comm->size))
        emu_nccl_error(comm, ncclRemoteError, "a peer's process is gone");
    if (comm->state == ncclRemoteError || comm->room->aborted || waited.count() < patience_s)
        return emu_step::STUCK; /* after a death for ever, as on a GPU, until it is aborted */
    emu_nccl_error(comm, ncclInternalError,
                   "emulated: ranks wait for each other in different collectives");
    std::fprintf(stderr, "emulated NCCL: rank %d of %d waits in vain: others are elsewhere\n",
                 comm->rank, comm->size);
    return emu_step::FAILED;
}

/* In the background. */
static void join(emu_nccl *comm)
{
    room *room = comm->room;

    if (std::strcmp(fault(), "join") == 0) {
        emu_nccl_error(comm, ncclSystemError, "emulated: cannot join");
        return;
    }
    while (std::strcmp(fault(), "absent") == 0 && !comm->aborted)
        usleep(1000);
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
    comm->blocking = config->blocking != 0;
    *out = comm;
    if (cudaMalloc(&comm->memory[0], 1 << 20) != cudaSuccess)
        return emu_nccl_error(comm, ncclUnhandledCudaError, "emulated: out of memory");
    comm->joiner = std::thread(join, comm);
    if (!comm->blocking)
        return ncclInProgress;
    comm->joiner.join();
    return comm->state;
}

/* Who has seen "success" may go on; the thread that was in the background is over then. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    if (!comm)
        return ncclInvalidArgument;
    const emu_inside guard(comm);
    *result = comm->state;
    if (*result == ncclSuccess && comm->worker.joinable())
        comm->worker.join();
    if (*result == ncclSuccess && comm->finalized && comm->busy > 0)
        *result = ncclInProgress;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    const emu_inside guard(comm);

    if (comm->worker.joinable())
        return ncclInvalidArgument;
    comm->finalized = true;
    return comm->state == ncclSuccess && comm->busy > 0 ? ncclInProgress : comm->state.load();
}

static void write_log(const emu_nccl *comm)
{
    const char *name = std::getenv("MICS_EMULATED_NCCL_LOG");
    std::FILE *out = name ? std::fopen(name, "a") : nullptr;

    if (!out)
        return;
    std::fprintf(out, "rank %d of %d: %zu collectives, %zu groups, %zu registered\n", comm->rank,
                 comm->size, comm->collectives, comm->groups, comm->registered);
    std::fclose(out);
}

void emu_nccl_part(emu_nccl *comm)
{
    if (comm->joiner.joinable())
        comm->joiner.join();
    if (comm->worker.joinable())
        comm->worker.join();
    emu_nccl_deregister_all(comm);
    for (void *memory : comm->memory)
        cudaFree(memory);
    room_leave(comm->room, comm->size);
    delete comm;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm->busy > 0)
        emu_nccl_die("a communicator is destroyed before its collectives are over");
    write_log(comm);
    emu_nccl_part(comm);
    return ncclSuccess;
}

/* The peers' collectives hang then: their state does not change, as with a rank that only went away. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    {
        const emu_inside guard(comm);

        comm->aborted = true;
        if (comm->room->in < (uint32_t)comm->size)
            room_forget_name(comm->name);
        comm->room->aborted = 1;
    }
    if (!emu_nccl_part_later(comm))
        emu_nccl_part(comm);
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
