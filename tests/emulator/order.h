/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - in which order things happen that CUDA leaves open.
 *
 * Threads of a block: emu_order().
 *
 * Operations of different streams: MICS_EMULATED_ORDER, read when a GPU's first stream is opened.
 * All orders are CUDA's; a program that gets another result in one of them lacks an event, or a
 * wait of the host.
 *   late     (default) nothing runs before the host waits for it, then only what it waits for and
 *            what that depends on; what was enqueued last goes first
 *   others   likewise nothing, but then everything else before what the host waits for
 *   early    everything runs as soon as it can, in the order of the calls: what a program without
 *            streams does
 *   NUMBER   drawn from it: streams get ahead of each other, and of the host
 * A host that neither enqueues nor waits for MICS_EMULATED_PATIENCE_MS (default 20) sees no order
 * any more: all that can run runs. MICS_EMULATED_FORGET=N leaves out the Nth cudaStreamWaitEvent()
 * of each GPU.
 */
#ifndef MICS_TESTS_EMULATOR_ORDER_H
#define MICS_TESTS_EMULATOR_ORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* emu_set_order() for C: 0 runs the threads of blocks in ascending order, another seed in its own.
 */
void emu_order(uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
