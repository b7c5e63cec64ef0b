/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - the memory that the emulated GPUs have registered: their own, and pinned memory of the
 * host. */
#ifndef MICS_TESTS_EMULATOR_MEMORY_H
#define MICS_TESTS_EMULATOR_MEMORY_H

#include <cstddef>

enum class emu_memory {
    PAGEABLE, /* of the host, not registered */
    PINNED,
    DEVICE,
    BEYOND /* begins in registered memory and ends beyond it */
};

emu_memory emu_memory_of(const void *memory, size_t bytes);
/* Register and unregister memory; false: it was not registered. Ranges do not overlap. */
void emu_memory_add(const void *memory, size_t bytes, emu_memory kind);
bool emu_memory_remove(const void *memory, emu_memory kind);

#endif
