/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - what memory the emulated GPUs know: theirs, and the pinned memory of the host. */
#ifndef MICS_TESTS_EMULATOR_MEMORY_H
#define MICS_TESTS_EMULATOR_MEMORY_H

#include <cstddef>

enum class emu_memory {
    PAGEABLE, /* of the host, and unknown to the GPU */
    PINNED,
    DEVICE,
    BEYOND /* begins in memory that is known and ends behind it */
};

emu_memory emu_memory_of(const void *memory, size_t bytes);
/* From now on it is known, or no longer; false: it was not. Ranges do not overlap. */
void emu_memory_add(const void *memory, size_t bytes, emu_memory kind);
bool emu_memory_remove(const void *memory, emu_memory kind);

#endif
