/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_time.c - CPU time that communication takes.
 *
 * A thread can only ask for its own user and system time. So stream threads add what each of their
 * collectives took, and a thread that drives MPI adds what that took whenever a collective is
 * complete.
 */
#include "comm/cpu_time.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>

static atomic_uint_fast64_t streams_user_us, streams_system_us, mpi_user_us, mpi_system_us;

/* CPU time of this thread: until when it was counted as MPI's, and how much in all. */
static _Thread_local struct comm_thread_time mpi_until, mpi_total;

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

static struct comm_thread_time difference(struct comm_thread_time a, struct comm_thread_time b)
{
    return (struct comm_thread_time){a.user_us - b.user_us, a.system_us - b.system_us};
}

struct comm_thread_time mics_comm_cpu_begin(void)
{
    return difference(own_time(), mpi_total);
}

void mics_comm_cpu_end(struct comm_thread_time begin)
{
    const struct comm_thread_time took = difference(mics_comm_cpu_begin(), begin);

    atomic_fetch_add(&streams_user_us, took.user_us);
    atomic_fetch_add(&streams_system_us, took.system_us);
}

void mics_comm_cpu_begin_mpi(void)
{
    mpi_until = own_time();
}

void mics_comm_cpu_count_mpi(void)
{
    const struct comm_thread_time now = own_time(), took = difference(now, mpi_until);

    mpi_until = now;
    mpi_total.user_us += took.user_us;
    mpi_total.system_us += took.system_us;
    atomic_fetch_add(&mpi_user_us, took.user_us);
    atomic_fetch_add(&mpi_system_us, took.system_us);
}

struct mics_comm_cpu mics_comm_cpu_now(void)
{
    return (struct mics_comm_cpu){
        .own_s = 1e-6 * (double)atomic_load(&streams_user_us),
        .mpi_s = 1e-6 * (double)atomic_load(&mpi_user_us),
        .kernel_s = 1e-6 * (double)(atomic_load(&streams_system_us) + atomic_load(&mpi_system_us))};
}
