/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - the order of operations where CUDA leaves it open.
 *
 * Threads of a block: emu_order().
 *
 * Operations of different streams: MICS_EMULATED_ORDER, read when a GPU's first stream is opened.
 * CUDA allows all of these orders; a program whose result depends on the order lacks an event, or a
 * wait of the host.
 *   late     (default) nothing runs before the host waits for it, then only that and what it
 *            depends on; what was enqueued last runs first
 *   others   likewise, but then everything else runs before what the host waits for
 *   early    everything runs as soon as it can, in the order of the calls: as in a program
 *            without streams
 *   NUMBER   random, with this seed: streams get ahead of each other, and of the host
 * After MICS_EMULATED_PATIENCE_MS (default 20) without the host enqueuing or waiting, everything
 * that can run runs. MICS_EMULATED_FORGET=N leaves out the Nth cudaStreamWaitEvent() of each GPU.
 */
#ifndef MICS_TESTS_EMULATOR_ORDER_H
#define MICS_TESTS_EMULATOR_ORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* emu_set_order() for C: 0 runs the threads of blocks in ascending order, another seed in a random
 * one. */
void emu_order(uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
