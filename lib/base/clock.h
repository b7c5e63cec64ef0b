/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the monotonic clock, and that of this process's time on processors. */
#ifndef MICS_BASE_CLOCK_H
#define MICS_BASE_CLOCK_H

/* Seconds since a fixed but unspecified time of this machine; never decreases. Any thread. */
double mics_now_s(void);

/* Seconds that all threads of this process together have run on processors. Any thread. */
double mics_process_cpu_s(void);

/* Sleep for at least `seconds` (0 or more), whatever signals arrive. */
void mics_sleep_s(double seconds);

#endif
