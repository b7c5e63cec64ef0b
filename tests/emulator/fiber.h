/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fiber.h - fibers: stacks that one thread switches between.
 *
 * A fiber runs its function, which must never return, from the first switch to it. Every switch is
 * reported to AddressSanitizer and ThreadSanitizer.
 */
#ifndef MICS_TESTS_EMULATOR_FIBER_H
#define MICS_TESTS_EMULATOR_FIBER_H

#include <stddef.h>

struct emu_fiber;

/* NULL: no memory. The thread's own stack becomes a fiber by emu_fiber_main(). */
struct emu_fiber *emu_fiber_new(void (*run)(struct emu_fiber *fiber));
struct emu_fiber *emu_fiber_main(void);
void emu_fiber_free(struct emu_fiber *fiber);

/* Switch to `to`, which is not `from`; returns when another fiber switches back to `from`. */
void emu_fiber_switch(struct emu_fiber *from, struct emu_fiber *to);

#endif
