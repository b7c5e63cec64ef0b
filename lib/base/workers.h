/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h - the same work on all cores that this process may use. */
#ifndef MICS_BASE_WORKERS_H
#define MICS_BASE_WORKERS_H

#include <stdint.h>

/* Cores, where `host_ranks` processes (0: as 1) share those that this one may use; 1 to 16. */
unsigned mics_core_share(uint32_t host_ranks);

/* Run work(context) on so many threads, of which the caller is one; those that cannot be started are done
 * without. Returns when all have ended. */
void mics_run_threads(void *(*work)(void *context), void *context, uint32_t host_ranks);

#endif
