/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h - run one function on as many threads as this process has cores. */
#ifndef MICS_BASE_WORKERS_H
#define MICS_BASE_WORKERS_H

#include <stdint.h>

/* Cores per process, 1 to 16, if `host_ranks` processes (0 counts as 1) share the cores that this
 * process may use. */
unsigned mics_workers_max(uint32_t host_ranks);

/* Run work(context) on mics_workers_max() threads, one of them the calling thread. If a thread
 * cannot be started, fewer run. Returns when all have ended. */
void mics_workers_run(void *(*work)(void *context), void *context, uint32_t host_ranks);

#endif
