/* SPDX-License-Identifier: Apache-2.0 */
/* hopper_emulated_parts.h - what the parts of the emulated instructions of hopper.cuh know of each other. */
#ifndef MICS_TESTS_EMULATED_HOPPER_EMULATED_PARTS_H
#define MICS_TESTS_EMULATED_HOPPER_EMULATED_PARTS_H

enum mics_major { MICS_K_MAJOR, MICS_MN_MAJOR };

#include "hopper_emulated.h"

/* Where the `bytes` at a GPU's address lie in dynamic shared memory; it fails the launch when they do not. */
size_t emu_shared_offset(uint32_t number, size_t bytes);

#endif
