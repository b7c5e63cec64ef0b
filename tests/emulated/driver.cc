/* SPDX-License-Identifier: Apache-2.0 */
/* driver.cc - the functions of the driver that we call, found as the real ones are. */
#include "runtime.h"
#include "tensor_map_emulated.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

/* The stream goes on when (int32_t)(*at - value) >= 0; another thread writes there. */
static int stream_wait_value32(cudaStream_t, unsigned long long at, uint32_t value, unsigned)
{
    const auto *word = reinterpret_cast<const std::atomic<uint32_t> *>((uintptr_t)at);

    for (int turn = 0; (int32_t)(word->load() - value) < 0; turn++)
        if (turn < 100)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(20));
    return 0;
}

static void *find(const char *symbol)
{
    if (strcmp(symbol, "cuStreamWaitValue32") == 0)
        return reinterpret_cast<void *>(stream_wait_value32);
    if (strcmp(symbol, "cuTensorMapEncodeTiled") == 0)
        return reinterpret_cast<void *>(emu_tensor_map_encode);
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
