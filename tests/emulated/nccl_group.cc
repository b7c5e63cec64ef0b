/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_group.cc - groups of the emulated NCCL, and what begins in the background: see nccl.h. */
#include "nccl_calls.h"

#include <utility>

static thread_local int depth;
static thread_local emu_nccl *grouped; /* the communicator of all of the group */
static thread_local std::vector<std::function<ncclResult_t()>> group;
static thread_local std::vector<emu_nccl *> parting;

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

/* The state is "success" only after the last; an error is the state already. */
static ncclResult_t run(emu_nccl *comm, const std::vector<std::function<ncclResult_t()>> &works)
{
    ncclResult_t result = ncclSuccess;

    for (size_t i = 0; i < works.size() && result == ncclSuccess; i++)
        result = works[i]();
    ncclResult_t expected = ncclInProgress;
    comm->state.compare_exchange_strong(expected, result);
    return result;
}

static ncclResult_t launch(emu_nccl *comm, std::vector<std::function<ncclResult_t()>> works)
{
    comm->collectives += works.size();
    comm->groups += works.size() > 1;
    comm->state = ncclInProgress;
    if (comm->blocking)
        return run(comm, works);
    comm->worker = std::thread([comm, works = std::move(works)] { run(comm, works); });
    return ncclInProgress;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = ncclSuccess;

    if (depth == 0)
        return ncclInvalidUsage;
    if (--depth > 0)
        return ncclSuccess;
    if (!group.empty())
        result = launch(std::exchange(grouped, nullptr), std::exchange(group, {}));
    for (emu_nccl *comm : std::exchange(parting, {}))
        emu_nccl_part(comm);
    return result;
}

ncclResult_t emu_nccl_issue(emu_nccl *comm, std::function<ncclResult_t()> work)
{
    if (grouped && grouped != comm)
        emu_nccl_die("a group has several communicators");
    if (comm->state != ncclSuccess || comm->worker.joinable())
        return comm->state == ncclSuccess || comm->state == ncclInProgress ? ncclInvalidArgument
                                                                           : comm->state.load();
    if (!comm->memory[1] && cudaMalloc(&comm->memory[1], 1 << 20) != cudaSuccess)
        return emu_nccl_error(comm, ncclUnhandledCudaError, "emulated: out of memory");
    ncclGroupStart();
    grouped = comm;
    group.push_back(std::move(work));
    return ncclGroupEnd();
}

bool emu_nccl_part_later(emu_nccl *comm)
{
    if (depth > 0)
        parting.push_back(comm);
    return depth > 0;
}
