/* SPDX-License-Identifier: Apache-2.0 */
/* The host's operations by number. */
#include "machine/host.h"

#include "host/kernels.h"

#define ADAPT(name)                                                                                \
    static void run_##name(struct mics_pool *pool, const void *args)                               \
    {                                                                                              \
        mics_host_##name(pool, args);                                                              \
    }

ADAPT(zero)
ADAPT(copy)
ADAPT(call)

#define ENTRY(name)                                                                                \
    {                                                                                              \
        run_##name, sizeof(struct mics_op_##name)                                                  \
    }

static const struct {
    void (*run)(struct mics_pool *pool, const void *args);
    size_t args_size;
} kernels[MICS_KERNEL_COUNT] = {
    [MICS_K_ZERO] = ENTRY(zero),
    [MICS_K_COPY] = ENTRY(copy),
    [MICS_K_CALL] = ENTRY(call),
};

void host_kernel_run(enum mics_kernel kernel, struct mics_pool *pool, const void *args)
{
    kernels[kernel].run(pool, args);
}

size_t host_kernel_args_size(enum mics_kernel kernel)
{
    return kernels[kernel].args_size;
}
