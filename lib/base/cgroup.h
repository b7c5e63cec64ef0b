/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.h - what control groups allow this process: memory, processors and threads.
 *
 * `membership` has the format of /proc/self/cgroup; `root` is where the file systems of control
 * groups are, normally /sys/fs/cgroup. Versions 1 and 2, and both side by side. The lowest limit of
 * the group and of all above it counts. UINT64_MAX: no limit.
 */
#ifndef MICS_BASE_CGROUP_H
#define MICS_BASE_CGROUP_H

#include <stdint.h>

/* Bytes of memory. */
uint64_t mics_cgroup_memory_limit(const char *membership, const char *root);

/* Bytes of memory that the groups do not use yet; cached files do not count as used. */
uint64_t mics_cgroup_memory_left(const char *membership, const char *root);

/* Processors that the quota of processor time is worth, rounded up; at least 1. */
uint64_t mics_cgroup_processors(const char *membership, const char *root);

/* Bytes of memory that this process and others of its groups may use. */
uint64_t mics_cgroup_memory_limit_here(void);

/* The part of those bytes that is not used yet. */
uint64_t mics_cgroup_memory_left_here(void);

/* Threads that this process and others of its groups may have. */
uint64_t mics_cgroup_threads_here(void);

/* Processors that this process may use, at least 1: those of its affinity, and no more than its
 * quota is worth. */
unsigned mics_processors(void);

#endif
