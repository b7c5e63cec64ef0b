/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <cstdint>
#include <map>
#include <mutex>

namespace
{

struct range {
    size_t bytes;
    emu_memory kind;
};

} // namespace

static std::mutex lock;
static std::map<uintptr_t, range> ranges; /* by where they begin */

emu_memory emu_memory_of(const void *memory, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
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
    const std::lock_guard<std::mutex> guard(lock);

    ranges[(uintptr_t)memory] = {bytes, kind};
}

bool emu_memory_remove(const void *memory, emu_memory kind)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = ranges.find((uintptr_t)memory);

    if (found == ranges.end() || found->second.kind != kind)
        return false;
    ranges.erase(found);
    return true;
}
