/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_time.c - CPU time that communication takes.
 *
 * A thread can only ask for its own user and system time. So stream threads add what each of their
 * collectives took, and the progress thread publishes its total whenever a collective is complete.
 */
#include "comm/cpu_time.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>

static atomic_uint_fast64_t streams_user_us, streams_system_us, mpi_user_us, mpi_system_us;

static uint64_t microseconds(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

static struct comm_thread_time own_time(void)
{
    struct rusage usage = {0};

    getrusage(RUSAGE_THREAD, &usage);
    return (struct comm_thread_time){microseconds(usage.ru_utime), microseconds(usage.ru_stime)};
}

struct comm_thread_time mics_comm_cpu_begin(void)
{
    return own_time();
}

void mics_comm_cpu_end(struct comm_thread_time begin)
{
    const struct comm_thread_time end = own_time();

    atomic_fetch_add(&streams_user_us, end.user_us - begin.user_us);
    atomic_fetch_add(&streams_system_us, end.system_us - begin.system_us);
}

void mics_comm_cpu_publish(void)
{
    const struct comm_thread_time now = own_time();

    atomic_store(&mpi_user_us, now.user_us);
    atomic_store(&mpi_system_us, now.system_us);
}

struct mics_comm_cpu mics_comm_cpu_now(void)
{
    return (struct mics_comm_cpu){
        .own_s = 1e-6 * (double)atomic_load(&streams_user_us),
        .mpi_s = 1e-6 * (double)atomic_load(&mpi_user_us),
        .kernel_s = 1e-6 * (double)(atomic_load(&streams_system_us) + atomic_load(&mpi_system_us))};
}
