/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_time.h - what measures the CPU time of communication. For backends only; comm.h has the
 * sum. */
#ifndef MICS_COMM_CPU_TIME_H
#define MICS_COMM_CPU_TIME_H

#include "comm/comm.h"

/* CPU time of the calling thread. */
struct comm_thread_time {
    uint64_t user_us, system_us;
};

/* Around a collective in a stream's thread. */
struct comm_thread_time mics_comm_cpu_begin(void);
void mics_comm_cpu_end(struct comm_thread_time begin);

/* In the progress thread. */
void mics_comm_cpu_publish(void);

#endif
