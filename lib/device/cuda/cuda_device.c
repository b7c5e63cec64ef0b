/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_device.c - the machine's GPUs, the device of one GPU, and the entry point of the plug-in.
 */
#include "device/cuda/cuda.h"

#include "cuda/driver.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Errors. The first is the device's for good; those that follow from it are not reported.
 */

static enum mics_status status_of(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? MICS_ERR_NOMEM : MICS_ERR_DEVICE;
}

enum mics_status mics_cuda_error(struct mics_err *err, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return MICS_OK;
    return mics_err_set(err, status_of(error), "%s: %s (%s)", what, cudaGetErrorString(error),
                        cudaGetErrorName(error));
}

void mics_cuda_device_fail(struct mics_device *base, enum mics_status status, const char *text)
{
    struct cuda_device *device = (struct cuda_device *)base;

    pthread_mutex_lock(&device->lock);
    if (!atomic_load(&device->failed)) {
        device->status = status;
        mics_err_set(&device->failure, status, "%s", text);
        atomic_store(&device->failed, true);
    }
    pthread_mutex_unlock(&device->lock);
}

enum mics_status mics_cuda_device_failure(struct mics_device *base, struct mics_err *err)
{
    struct cuda_device *device = (struct cuda_device *)base;

    if (!atomic_load(&device->failed))
        return MICS_OK;
    return mics_err_set(err, device->status, "%s", device->failure.text);
}

enum mics_status mics_cuda_fail(struct cuda_device *device, cudaError_t error, const char *fmt, ...)
{
    char what[256];
    struct mics_err err;
    va_list args;

    if (error == cudaSuccess)
        return MICS_OK;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    mics_cuda_error(&err, error, what);
    mics_err_prefix(&err, "%s", device->description);
    mics_cuda_device_fail(&device->base, status_of(error), err.text);
    (void)cudaGetLastError(); /* reported once */
    return status_of(error);
}

/* The current GPU is per thread; cudaSetDevice() is called only when it changes. */
void mics_cuda_use(const struct cuda_device *device)
{
    static _Thread_local int used = -1;

    if (used != device->gpu && cudaSetDevice(device->gpu) == cudaSuccess)
        used = device->gpu;
}

/*
 * The GPUs of this machine, and whether this build can use them.
 */

/* Compute capabilities (90: 9.0, sm_90) that this build has machine code for, ... */
static const int built_sm[] = {MICS_CUDA_SM};
/* ... and the one whose PTX the driver can compile for later ones; 0: none. */
static const int built_ptx = MICS_CUDA_PTX;

static enum mics_status no_driver(int driver, struct mics_err *err)
{
    if (driver == 0)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "no GPU driver is installed (libcuda.so.1 is not there)");
    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "the GPU driver is for CUDA %d.%d, this build needs %d.%d: install a newer "
                        "driver",
                        driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                        CUDART_VERSION % 1000 / 10);
}

static enum mics_status gpu_count(unsigned *out, struct mics_err *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0, driver = 0;
    cudaError_t error = cudaDriverGetVersion(&driver);

    if (error == cudaSuccess)
        error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver)
        return no_driver(driver, err);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count < 1))
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "no GPU: the driver sees none%s%s",
                            visible ? "; CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    if (error != cudaSuccess) {
        mics_cuda_error(err, error, "the GPU driver");
        return MICS_ERR_UNSUPPORTED;
    }
    *out = (unsigned)count;
    return MICS_OK;
}

/* Machine code runs on its compute capability and on later ones of the same major version. */
static bool is_supported(int sm)
{
    for (size_t i = 0; i < sizeof built_sm / sizeof *built_sm; i++)
        if (sm / 10 == built_sm[i] / 10 && sm >= built_sm[i])
            return true;
    return built_ptx && sm >= built_ptx;
}

static enum mics_status check_gpu(const struct cudaDeviceProp *prop, int gpu, struct mics_err *err)
{
    char built[128] = "";
    size_t used = 0;

    if (is_supported(prop->major * 10 + prop->minor))
        return MICS_OK;
    for (size_t i = 0; i < sizeof built_sm / sizeof *built_sm && used < sizeof built; i++)
        used += (size_t)snprintf(built + used, sizeof built - used, "%ssm_%d", i ? ", " : "",
                                 built_sm[i]);
    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "GPU %d (%s) is sm_%d%d: this build has code for %s%s; build with "
                        "CUDA_ARCH=%d%d",
                        gpu, prop->name, prop->major, prop->minor, built,
                        built_ptx ? " and what comes later" : "", prop->major, prop->minor);
}

/*
 * One GPU.
 */

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
    device->base.has_bf16 = true;
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

static const struct mics_plugin_services *services;

static enum mics_status device_open(unsigned gpu, struct mics_device **out, struct mics_err *err)
{
    struct cudaDeviceProp prop;
    enum mics_status status;

    status = mics_cuda_error(err, cudaGetDeviceProperties(&prop, (int)gpu), "the GPU's properties");
    if (status == MICS_OK)
        status = check_gpu(&prop, (int)gpu, err);
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

/*
 * The plug-in's table, and its one exported symbol.
 */

static const struct mics_plugin plugin = {
    .size = sizeof plugin,
    .device_size = MICS_DEVICE_BYTES,
    .kernel_count = MICS_KERNEL_COUNT,
    .argument_bytes = MICS_KERNEL_ARGUMENT_BYTES,
    .name = MICS_PLUGIN_NAME,
    .built = MICS_PLUGIN_BUILT,
    .gpu_count = gpu_count,
    .device_open = device_open,
};

/* Each stream needs its own hardware connection: a stream that waits for a call on the host must
 * not block another. The driver may read the variable as soon as GPUs are counted. */
static void ask_for_connections(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

mics_plugin_entry_fn mics_plugin_entry;

__attribute__((visibility("default"))) const struct mics_plugin *
mics_plugin_entry(const struct mics_plugin_services *given)
{
    if (given->size != sizeof *given)
        return NULL;
    services = given;
    ask_for_connections();
    return &plugin;
}
