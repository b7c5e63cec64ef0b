/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fiber.h - stacks of their own that one thread switches between.
 *
 * A fiber runs its function, which must never return, from the first switch to it. AddressSanitizer
 * and ThreadSanitizer are told of every switch.
 */
#ifndef MICS_TESTS_EMULATOR_FIBER_H
#define MICS_TESTS_EMULATOR_FIBER_H

#include <stddef.h>

struct emu_fiber;

/* NULL: no memory. The thread's own stack becomes a fiber by emu_fiber_main(). */
struct emu_fiber *emu_fiber_new(void (*run)(struct emu_fiber *fiber));
struct emu_fiber *emu_fiber_main(void);
void emu_fiber_free(struct emu_fiber *fiber);

/* Go on with `to`, which is not `from`; returns when something switches to `from` again. */
void emu_fiber_switch(struct emu_fiber *from, struct emu_fiber *to);

#endif
