/* SPDX-License-Identifier: Apache-2.0 */
/* driver.cc - the function of the driver that we call, found as the real ones are. */
#include "memory.h"
#include "queue.h"

#include <atomic>
#include <cstring>

/* The stream goes on when (int32_t)(*at - value) >= 0; another thread writes there. */
static int stream_wait_value32(cudaStream_t stream, unsigned long long at, uint32_t value, unsigned)
{
    const auto *word = reinterpret_cast<const std::atomic<uint32_t> *>((uintptr_t)at);
    const emu_memory kind = emu_memory_of(word, sizeof *word);
    emu_work work;

    if (kind != emu_memory::PINNED && kind != emu_memory::DEVICE)
        return cudaErrorInvalidValue;
    work.run = [word, value] {
        return (int32_t)(word->load() - value) >= 0 ? emu_step::DONE : emu_step::STUCK;
    };
    work.insists_us = 3000; /* a thread of the host is to write it */
    emu_enqueue(stream, std::move(work));
    return emu_note(cudaSuccess);
}

static void *find(const char *symbol)
{
    if (strcmp(symbol, "cuStreamWaitValue32") == 0)
        return reinterpret_cast<void *>(stream_wait_value32);
    return nullptr;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned,
                                             unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    *function = find(symbol);
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return emu_note(*function ? cudaSuccess : cudaErrorInvalidValue);
}
