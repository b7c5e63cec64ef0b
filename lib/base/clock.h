/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the monotonic clock. */
#ifndef MICS_BASE_CLOCK_H
#define MICS_BASE_CLOCK_H

/* Seconds since some fixed moment of this machine. Never goes back. Any thread. */
double mics_now_s(void);

/* Sleep for at least `seconds` (0 or more), through signals. */
void mics_sleep_s(double seconds);

#endif
