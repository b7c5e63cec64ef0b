/* SPDX-License-Identifier: Apache-2.0 */
/* entry.c - the one symbol of the plug-in. */
#include "device/cuda/cuda.h"

#include <stdlib.h>

static const struct mics_plugin_services *services;

static enum mics_status device_open(unsigned gpu, struct mics_device **out, struct mics_err *err)
{
    return mics_cuda_device_open(services, gpu, out, err);
}

static const struct mics_plugin plugin = {
    .abi = MICS_PLUGIN_ABI,
    .size = sizeof plugin,
    .name = MICS_PLUGIN_NAME,
    .built = MICS_PLUGIN_BUILT,
    .gpu_count = mics_cuda_gpu_count,
    .device_open = device_open,
};

/* A stream's own connection to the GPU: a stream that waits for its host's call must not hold up another. The driver
 * may read it as soon as GPUs are counted. */
static void ask_for_connections(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

mics_plugin_entry_fn mics_plugin_entry;

__attribute__((visibility("default"))) const struct mics_plugin *
mics_plugin_entry(const struct mics_plugin_services *given)
{
    if (given->abi != MICS_PLUGIN_ABI || given->size != sizeof *given)
        return NULL;
    services = given;
    ask_for_connections();
    return &plugin;
}
