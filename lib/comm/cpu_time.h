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

/* Around a collective in a stream's thread: what is not counted as MPI's is its own. */
struct comm_thread_time mics_comm_cpu_begin(void);
void mics_comm_cpu_end(struct comm_thread_time begin);

/* Count the calling thread's time since it began, or was counted last, as MPI's. A thread that has
 * not begun is counted from its start. */
void mics_comm_cpu_begin_mpi(void);
void mics_comm_cpu_count_mpi(void);

#endif
