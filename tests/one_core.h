/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_core.h - run a test program, whose threads mostly wait for each other, on one core.
 *
 * Waking a thread on another core costs an interrupt between them, which takes more of the time
 * than the tests do. tests/run has a program for each core.
 */
#ifndef MICS_TESTS_ONE_CORE_H
#define MICS_TESTS_ONE_CORE_H

#include <malloc.h>
#include <sched.h>

/* Before threads are started: they inherit it. Does nothing where the system does not allow it.
 * Free memory stays with the process, since every munmap() interrupts the other cores, too. */
static inline void use_one_core(void)
{
    const int core = sched_getcpu();
    cpu_set_t set;

    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    if (core < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

#endif
