/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the host's operations, one function for each structure of ops.h.
 *
 * They run in a stream's thread, in parallel over the pool, allocate nothing, and cannot fail:
 * arguments are checked before they are enqueued.
 */
#ifndef MICS_KERNELS_HOST_KERNELS_H
#define MICS_KERNELS_HOST_KERNELS_H

#include "host/pool.h"
#include "ops.h"

/* The widest head (D) of the attention kernels, whose blocks are on the stacks of the pool's
 * threads: up to 800 KiB. */
#define MICS_HOST_HEAD_MAX MICS_HEAD_MAX

#define MICS_HOST_KERNEL(KEY, name, gpu)                                                           \
    void mics_host_##name(struct mics_pool *pool, const struct mics_args_##name *args);
MICS_OPERATIONS(MICS_HOST_KERNEL)
#undef MICS_HOST_KERNEL

/* Run an operation by its number. */
static inline void mics_host_run(struct mics_pool *pool, enum mics_kernel kernel, const void *args)
{
    switch (kernel) {
#define MICS_HOST_CASE(KEY, name, gpu)                                                             \
    case MICS_K_##KEY:                                                                             \
        mics_host_##name(pool, args);                                                              \
        break;
        MICS_OPERATIONS(MICS_HOST_CASE)
#undef MICS_HOST_CASE
    case MICS_KERNEL_COUNT:
        break;
    }
}

#endif
