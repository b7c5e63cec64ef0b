/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - one GPU behind the table of devices. */
#include "cuda/driver.h"
#include "device/cuda/cuda.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void device_free(struct mics_device *base)
{
    struct cuda_device *device = (struct cuda_device *)base;

    mics_cuda_use(device);
    mics_cuda_products_close(device->products);
    mics_cuda_clock_close(&device->clock);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static bool next_note(struct mics_device *base, struct mics_device_note *out)
{
    static_assert(sizeof out->text == MICS_CUDA_NOTE_BYTES, "a note has room for any line");
    return mics_cuda_products_next_note(((struct cuda_device *)base)->products, &out->level,
                                        out->text);
}

static const struct mics_device_ops cuda_ops = {
    .abi = MICS_DEVICE_ABI,
    .size = sizeof(struct mics_device_ops),
    .free = device_free,
    .alloc = mics_cuda_alloc,
    .release = mics_cuda_release,
    .memory_left = mics_cuda_memory_left,
    .host_alloc = mics_cuda_host_alloc,
    .host_release = mics_cuda_host_release,
    .stream_open = mics_cuda_stream_open,
    .stream_close = mics_cuda_stream_close,
    .stream_sync = mics_cuda_stream_sync,
    .event_open = mics_cuda_event_open,
    .event_close = mics_cuda_event_close,
    .event_record = mics_cuda_event_record,
    .event_wait = mics_cuda_event_wait,
    .event_sync = mics_cuda_event_sync,
    .event_reached = mics_cuda_event_reached,
    .event_time = mics_cuda_event_time,
    .launch = mics_cuda_stream_launch,
    .prepare = mics_cuda_stream_prepare,
    .fail = mics_cuda_device_fail,
    .failure = mics_cuda_device_failure,
    .next_note = next_note,
#if MICS_HAVE_NCCL
    .comm_open = mics_nccl_open,
#endif
};

static void find_wait_value(struct cuda_device *device)
{
    void *function = mics_driver_function("cuStreamWaitValue32");

    memcpy(&device->wait_value, &function, sizeof function);
}

static void describe(struct cuda_device *device, const struct cudaDeviceProp *prop)
{
    snprintf(device->description, sizeof device->description, "%s (GPU %d)", prop->name,
             device->gpu);
    memcpy(device->base.uuid, &prop->uuid, sizeof device->base.uuid);
    snprintf(device->base.model, sizeof device->base.model, "%.63s", prop->name);
    device->base.description = device->description;
    device->multiprocessors = prop->multiProcessorCount;
}

static enum mics_status start(struct cuda_device *device, double (*now_s)(void),
                              struct mics_err *err)
{
    int least, greatest;
    cudaError_t error = cudaSetDevice(device->gpu); /* makes the context */

    mics_cuda_use(device);
    if (error == cudaSuccess)
        error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error != cudaSuccess)
        return mics_cuda_error(err, error, device->description);
    device->high_priority = greatest;
    find_wait_value(device);
    error = mics_cuda_products_open(&device->products);
    if (error != cudaSuccess)
        return mics_cuda_error(err, error, "cuBLASLt");
    snprintf(device->base.tuning, sizeof device->base.tuning, "%s",
             mics_cuda_products_tuning(device->products));
    return mics_cuda_clock_open(&device->clock, now_s, greatest, err);
}

/* Environment variables that are 0 or 1. */
static enum mics_status check_switches(struct mics_err *err)
{
    static const char *const names[] = {"MICS_CUDA_MEASURE", "MICS_TF32", "MICS_GPU_SYNC"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);

        if (value && *value && strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
            return mics_err_set(err, MICS_ERR_ARG, "%s=%s: expected 0 or 1", names[i], value);
    }
    return MICS_OK;
}

enum mics_status mics_cuda_device_open(const struct mics_plugin_services *services, unsigned gpu,
                                       struct mics_device **out, struct mics_err *err)
{
    struct cudaDeviceProp prop;
    enum mics_status status;

    status = mics_cuda_error(err, cudaGetDeviceProperties(&prop, (int)gpu), "the GPU's properties");
    if (status == MICS_OK)
        status = mics_cuda_check_gpu(&prop, (int)gpu, err);
    if (status != MICS_OK)
        return status;

    struct cuda_device *device = calloc(1, sizeof *device);
    if (!device)
        return mics_err_nomem(err);
    device->base.ops = &cuda_ops;
    device->base.name = MICS_PLUGIN_NAME;
    device->gpu = (int)gpu;
    pthread_mutex_init(&device->lock, NULL);
    describe(device, &prop);
    status = check_switches(err);
    device->each = status == MICS_OK && mics_cuda_switch("MICS_GPU_SYNC", false);
    if (status == MICS_OK)
        status = mics_cuda_attention_choose(getenv("MICS_CUDA_ATTENTION"),
                                            prop.major * 10 + prop.minor, &device->attention, err);
    if (status == MICS_OK)
        status = start(device, services->now_s, err);
    if (status == MICS_OK)
        *out = &device->base;
    else
        device_free(&device->base);
    return status;
}
