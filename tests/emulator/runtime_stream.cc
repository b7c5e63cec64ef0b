/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_stream.cc - streams, events, functions of the host, and the driver's wait for a number:
 * see runtime.h. */
#include "memory.h"
#include "queue.h"

#include <atomic>
#include <cstring>
#include <new>

struct emu_event {
    bool timed;
    int device;
    emu_op_ref record; /* the newest; NULL: none */
};

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
    emu_log("cudaStreamCreateWithPriority");
    *out = emu_stream_open(!(flags & cudaStreamNonBlocking));
    return emu_note(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emu_log("cudaStreamDestroy");
    if (!stream)
        return emu_note(cudaErrorInvalidResourceHandle);
    emu_stream_close(stream);
    return emu_note(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    emu_log("cudaStreamSynchronize");
    emu_wait(emu_last(stream));
    return emu_note(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return emu_note(emu_is_over(emu_last(stream)) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *context)
{
    emu_work work;

    work.call = fn;
    work.context = context;
    work.insists_us = 20000; /* a thread of ours makes it */
    emu_enqueue(stream, std::move(work));
    return emu_note(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    emu_log("cudaEventCreateWithFlags");
    *out = new (std::nothrow)
        emu_event{!(flags & cudaEventDisableTiming), emu_current_device(), nullptr};
    return emu_note(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    emu_log("cudaEventDestroy");
    delete event;
    return emu_note(cudaSuccess);
}

/* An event may be recorded by one thread while another asks for it. */
static emu_op_ref record_of(const struct emu_event *event)
{
    return std::atomic_load(&event->record);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (!event || event->device != emu_device_of(stream))
        return emu_note(cudaErrorInvalidResourceHandle);
    std::atomic_store(&event->record, emu_enqueue(stream, {}));
    return emu_note(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    emu_work work;

    if (!event)
        return emu_note(cudaErrorInvalidResourceHandle);
    work.after = {record_of(event)};
    if (emu_count_wait(stream) != (uint64_t)emu_setting("MICS_EMULATED_FORGET", 0))
        emu_enqueue(stream, std::move(work));
    return emu_note(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    emu_wait(record_of(event));
    return emu_note(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return emu_note(emu_is_over(record_of(event)) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *time_ms, cudaEvent_t from, cudaEvent_t to)
{
    const emu_op_ref first = record_of(from), last = record_of(to);

    if (!from->timed || !to->timed || !first || !last)
        return emu_note(cudaErrorInvalidResourceHandle);
    if (!emu_is_over(first) || !emu_is_over(last))
        return emu_note(cudaErrorNotReady);
    *time_ms = (float)(emu_over_ms(last) - emu_over_ms(first));
    return emu_note(cudaSuccess);
}

/* --- the driver, whose function is found as the real one is */

/* The stream continues when (int32_t)(*at - value) >= 0; another thread writes there. */
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
