/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_memory.cc - memory of the emulated NCCL, and its registration: see nccl.h. */
#include "nccl_internal.h"

#include <algorithm>
#include <map>
#include <mutex>

static constexpr size_t granularity = 2 << 20;

static std::mutex lock; /* guards both below */
static std::map<const char *, size_t> memories;
static std::vector<const emu_registration *> all_registrations;

ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
    const size_t whole = (bytes + granularity - 1) / granularity * granularity;

    if (!out || cudaMalloc(out, whole) != cudaSuccess)
        return ncclUnhandledCudaError;
    const std::lock_guard<std::mutex> guard(lock);
    memories[static_cast<const char *>(*out)] = whole;
    return ncclSuccess;
}

/* The memory that all of the buffer is in. */
static bool is_ours(const char *begin, const char *end)
{
    auto after = memories.upper_bound(begin);

    return after != memories.begin() && end <= std::prev(after)->first + std::prev(after)->second;
}

ncclResult_t ncclMemFree(void *memory)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = memories.find(static_cast<const char *>(memory));

    if (found == memories.end())
        return ncclInvalidArgument;
    for (const emu_registration *one : all_registrations)
        if (one->begin < found->first + found->second && found->first < one->end)
            emu_nccl_die("memory is freed while it is registered");
    memories.erase(found);
    return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    const char *begin = static_cast<const char *>(buffer);
    const emu_inside guard(comm);
    const std::lock_guard<std::mutex> locked(lock);

    if (!is_ours(begin, begin + bytes))
        return emu_nccl_error(comm, ncclInvalidArgument,
                              "emulated: registered memory is not from ncclMemAlloc");
    auto *registration = new emu_registration{begin, begin + bytes};
    comm->registrations.push_back(registration);
    all_registrations.push_back(registration);
    *handle = registration;
    return ncclSuccess;
}

static void forget(emu_registration *registration)
{
    const std::lock_guard<std::mutex> guard(lock);

    std::erase(all_registrations, registration);
    delete registration;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle)
{
    auto *registration = static_cast<emu_registration *>(handle);
    const emu_inside guard(comm);

    if (std::erase(comm->registrations, registration) == 0)
        return emu_nccl_error(comm, ncclInvalidUsage, "emulated: nothing is registered as that");
    forget(registration);
    return ncclSuccess;
}

bool emu_nccl_is_registered(const emu_nccl *comm, const void *buffer, size_t bytes)
{
    const char *begin = static_cast<const char *>(buffer);

    return std::any_of(comm->registrations.begin(), comm->registrations.end(),
                       [=](const emu_registration *one) {
                           return one->begin <= begin && begin + bytes <= one->end;
                       });
}

void emu_nccl_deregister_all(emu_nccl *comm)
{
    for (emu_registration *registration : comm->registrations)
        forget(registration);
    comm->registrations.clear();
}
