/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - do the limits of this process leave room for what it is about to need?
 *
 * Libraries crash or wait for ever when a thread or a page is refused, so both are tried before the
 * libraries ask for them. A trial sees every limit (of processes, control groups, address space,
 * overcommitment), whatever its kind. Other processes may still take what was free.
 */
#ifndef MICS_BASE_LIMITS_H
#define MICS_BASE_LIMITS_H

#include "base/err.h"

#include <stdint.h>

/* Start `threads` more threads and end them again. MICS_ERR_NOMEM: fewer could be started; the text
 * names the limits that are set. */
enum mics_status mics_limits_try_threads(unsigned threads, struct mics_err *err);

/* Map `bytes` of memory and unmap them again, without touching them. MICS_ERR_NOMEM: they were
 * refused; the text names the limits that are set. */
enum mics_status mics_limits_try_memory(uint64_t bytes, struct mics_err *err);

#endif
