/* SPDX-License-Identifier: Apache-2.0 */
/* memory.cc - registered memory, its allocation, copies and fills: see memory.h, runtime.h. */
#include "memory.h"

#include "queue.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <map>
#include <mutex>

namespace
{

struct range {
    size_t bytes;
    emu_memory kind;
};

} // namespace

static std::mutex ranges_lock;
static std::map<uintptr_t, range> ranges; /* by where they begin */

emu_memory emu_memory_of(const void *memory, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(ranges_lock);
    const auto at = (uintptr_t)memory;
    auto next = ranges.upper_bound(at);

    if (next == ranges.begin())
        return emu_memory::PAGEABLE;
    const auto &[begin, found] = *--next;
    if (at >= begin + found.bytes)
        return emu_memory::PAGEABLE;
    return bytes <= begin + found.bytes - at ? found.kind : emu_memory::BEYOND;
}

void emu_memory_add(const void *memory, size_t bytes, emu_memory kind)
{
    const std::lock_guard<std::mutex> guard(ranges_lock);

    ranges[(uintptr_t)memory] = {bytes, kind};
}

bool emu_memory_remove(const void *memory, emu_memory kind)
{
    const std::lock_guard<std::mutex> guard(ranges_lock);
    const auto found = ranges.find((uintptr_t)memory);

    if (found == ranges.end() || found->second.kind != kind)
        return false;
    ranges.erase(found);
    return true;
}

static cudaError_t allocate(void **out, size_t bytes, emu_memory kind)
{
    void *memory = nullptr;

    *out = nullptr;
    if (bytes == 0)
        return emu_note(cudaSuccess);
    if (posix_memalign(&memory, 256, bytes) != 0)
        return emu_note(cudaErrorMemoryAllocation);
    memset(memory, 0xff, bytes);
    emu_memory_add(memory, bytes, kind);
    *out = memory;
    return emu_note(cudaSuccess);
}

/* Waits for running operations first, as a GPU does. */
static cudaError_t release(void *memory, emu_memory kind)
{
    if (!memory)
        return emu_note(cudaSuccess);
    emu_wait_for_device();
    if (!emu_memory_remove(memory, kind))
        return emu_note(cudaErrorInvalidValue);
    free(memory);
    return emu_note(cudaSuccess);
}

static std::atomic<size_t> used_bytes; /* by cudaMalloc */

size_t emu_memory_left(size_t *total)
{
    /* MICS_EMULATED_TAKEN: memory that other programs use */
    const size_t used = used_bytes + (size_t)emu_setting("MICS_EMULATED_TAKEN", 0);

    *total = (size_t)emu_setting("MICS_EMULATED_MEMORY", 8ll << 30);
    return used < *total ? *total - used : 0;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    emu_log("cudaMalloc");
    size_t total;

    *out = nullptr;
    if (bytes > emu_memory_left(&total))
        return emu_note(cudaErrorMemoryAllocation);
    const cudaError_t error = allocate(out, bytes, emu_memory::DEVICE);
    if (*out)
        used_bytes += malloc_usable_size(*out);
    return error;
}

cudaError_t cudaFree(void *memory)
{
    emu_log("cudaFree");
    const size_t bytes = memory ? malloc_usable_size(memory) : 0;
    const cudaError_t error = release(memory, emu_memory::DEVICE);

    if (error != cudaErrorInvalidValue)
        used_bytes -= bytes;
    return error;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    emu_log("cudaMallocHost");
    return allocate(out, bytes, emu_memory::PINNED);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    emu_log("cudaHostAlloc");
    return allocate(out, bytes, emu_memory::PINNED);
}

cudaError_t cudaFreeHost(void *memory)
{
    emu_log("cudaFreeHost");
    return release(memory, emu_memory::PINNED);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned)
{
    emu_log("cudaHostRegister");
    emu_memory_add(memory, bytes, emu_memory::PINNED);
    return emu_note(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *memory)
{
    emu_log("cudaHostUnregister");
    emu_wait_for_device();
    return emu_note(emu_memory_remove(memory, emu_memory::PINNED) ? cudaSuccess
                                                                  : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = emu_memory_left(total);
    return emu_note(cudaSuccess);
}

namespace
{

/* A copy, and what is at its two ends. */
struct copy {
    void *dst;
    const void *src;
    size_t bytes;
    emu_memory from, to;
};

} // namespace

static bool is_on_host(emu_memory kind)
{
    return kind != emu_memory::DEVICE;
}

/* Whether both ends are in the kinds of memory that the caller declares. */
static bool kind_fits(const struct copy &c, enum cudaMemcpyKind kind)
{
    if (c.from == emu_memory::BEYOND || c.to == emu_memory::BEYOND)
        return false;
    switch (kind) {
    case cudaMemcpyHostToHost:
        return is_on_host(c.from) && is_on_host(c.to);
    case cudaMemcpyHostToDevice:
        return is_on_host(c.from) && !is_on_host(c.to);
    case cudaMemcpyDeviceToHost:
        return !is_on_host(c.from) && is_on_host(c.to);
    case cudaMemcpyDeviceToDevice:
        return !is_on_host(c.from) && !is_on_host(c.to);
    default:
        return true;
    }
}

/* Pageable memory is read now, on its way to a device; all other memory when the copy runs. */
static emu_op_ref enqueue_copy(const struct copy &c, cudaStream_t stream)
{
    if (c.from == emu_memory::PAGEABLE && c.to == emu_memory::DEVICE) {
        const auto *begin = static_cast<const char *>(c.src);
        auto staged = std::make_shared<std::vector<char>>(begin, begin + c.bytes);

        return emu_enqueue_plain(stream, [c, staged] { memcpy(c.dst, staged->data(), c.bytes); });
    }
    return emu_enqueue_plain(stream, [c] { memmove(c.dst, c.src, c.bytes); });
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const struct copy c = {dst, src, bytes, emu_memory_of(src, bytes), emu_memory_of(dst, bytes)};

    if (bytes == 0)
        return emu_note(cudaSuccess);
    if (!kind_fits(c, kind))
        return emu_note(cudaErrorInvalidValue);
    const emu_op_ref op = enqueue_copy(c, stream);
    if (c.to == emu_memory::PAGEABLE || (is_on_host(c.from) && is_on_host(c.to)))
        emu_wait(op);
    return emu_note(cudaSuccess);
}

/* Waits for earlier operations, and for the copy itself if it uses memory of the host; not for
 * copies within a device. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    emu_log("cudaMemcpy");
    const emu_memory from = emu_memory_of(src, bytes), to = emu_memory_of(dst, bytes);

    if (is_on_host(from) || is_on_host(to))
        emu_wait(emu_enqueue(nullptr, {}));
    const cudaError_t error = cudaMemcpyAsync(dst, src, bytes, kind, nullptr);
    if (error == cudaSuccess && (from == emu_memory::PINNED || to == emu_memory::PINNED))
        emu_wait(emu_last(nullptr));
    return emu_note(error);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    const emu_memory to = emu_memory_of(dst, bytes);

    if (bytes > 0 && (to == emu_memory::BEYOND || to == emu_memory::PAGEABLE))
        return emu_note(cudaErrorInvalidValue);
    if (bytes > 0)
        emu_enqueue_plain(stream, [=] { memset(dst, value, bytes); });
    return emu_note(cudaSuccess);
}

/* Memory of the host is waited for. */
cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    emu_log("cudaMemset");
    const cudaError_t error = cudaMemsetAsync(dst, value, bytes, nullptr);

    if (error == cudaSuccess && emu_memory_of(dst, bytes) == emu_memory::PINNED)
        emu_wait(emu_last(nullptr));
    return emu_note(error);
}
