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
 * Events, and their times on the host's clock.
 *
 * CUDA gives the time between two events as a float of milliseconds, so each event is timed from a
 * recent anchor: an event on an idle stream of high priority, recorded between two readings of the
 * host's clock. A new anchor is made every few seconds, always between reading two whole steps, so
 * that the times of one step are relative to one anchor.
 *
 * Waiting for an event that was never recorded returns at once, in CUDA as on the host.
 */

#define RENEW_S  2.0    /* a float of so many milliseconds has a resolution of 0.2 us */
#define LATEST_S 60.0   /* after that any anchor is better than the old one */
#define GOOD_S   200e-6 /* between the two readings */

enum { TRIES = 3 };

/* Record anchor `which`: *when is the middle of the two readings; returns the time between them,
 * negative on failure. */
static double try_anchor(struct cuda_clock *clock, int which, double *when)
{
    const double before = clock->now_s();

    if (cudaEventRecord(clock->anchors[which], clock->stream) != cudaSuccess ||
        cudaEventSynchronize(clock->anchors[which]) != cudaSuccess)
        return -1;
    const double after = clock->now_s();
    *when = 0.5 * (before + after);
    return after - before;
}

static enum mics_status clock_open(struct cuda_clock *clock, double (*now_s)(void), int priority,
                                   struct mics_err *err)
{
    cudaError_t error;

    clock->now_s = now_s;
    error = cudaStreamCreateWithPriority(&clock->stream, cudaStreamNonBlocking, priority);
    for (int i = 0; error == cudaSuccess && i < 2; i++)
        error = cudaEventCreate(&clock->anchors[i]);
    if (error != cudaSuccess)
        return mics_cuda_error(err, error, "the clock of the GPU");
    double best = -1;
    for (int i = 0; i < TRIES; i++) { /* the first is slow */
        double when;
        const double width = try_anchor(clock, !clock->at, &when);

        if (width >= 0 && (best < 0 || width < best)) {
            best = width;
            clock->at = !clock->at;
            clock->anchor_s = when;
        }
    }
    return best >= 0 ? MICS_OK : mics_cuda_error(err, cudaGetLastError(), "the clock of the GPU");
}

static void clock_close(struct cuda_clock *clock)
{
    for (int i = 0; i < 2; i++)
        if (clock->anchors[i])
            (void)cudaEventDestroy(clock->anchors[i]);
    if (clock->stream)
        (void)cudaStreamDestroy(clock->stream);
}

/* Make a new anchor when the present one is old. */
static void clock_adjust(struct cuda_clock *clock)
{
    const double age = clock->now_s() - clock->anchor_s;
    double when;

    if (age < RENEW_S)
        return;
    const double width = try_anchor(clock, !clock->at, &when);
    if (width < 0 || (width > GOOD_S && age < LATEST_S))
        return;
    pthread_mutex_lock(&clock->lock);
    clock->at = !clock->at;
    clock->anchor_s = when;
    pthread_mutex_unlock(&clock->lock);
}

/* Under the lock, the anchor is not recorded again meanwhile: only one that is not in use is. */
static double clock_time(struct cuda_clock *clock, cudaEvent_t event)
{
    float apart_ms = 0;

    pthread_mutex_lock(&clock->lock);
    const cudaError_t error = cudaEventElapsedTime(&apart_ms, clock->anchors[clock->at], event);
    const double anchor_s = clock->anchor_s;
    pthread_mutex_unlock(&clock->lock);
    if (error == cudaSuccess)
        return anchor_s + 1e-3 * (double)apart_ms;
    (void)cudaGetLastError(); /* after a failure, which is reported elsewhere; */
    return error == cudaErrorInvalidResourceHandle ? 0 : anchor_s; /* or it was never recorded */
}

static enum mics_status event_open(struct mics_device *base, struct mics_event **out,
                                   struct mics_err *err)
{
    struct mics_event *event = calloc(1, sizeof *event);

    if (!event)
        return mics_err_nomem(err);
    event->device = (struct cuda_device *)base;
    mics_cuda_use(event->device);
    const cudaError_t error = cudaEventCreateWithFlags(&event->event, cudaEventBlockingSync);
    if (error != cudaSuccess) {
        free(event);
        return mics_cuda_error(err, error, "an event");
    }
    *out = event;
    return MICS_OK;
}

static void event_close(struct mics_event *event)
{
    if (!event)
        return;
    mics_cuda_use(event->device);
    (void)cudaEventDestroy(event->event); /* CUDA defers it until the event is no longer in use */
    free(event);
}

static void event_record(struct mics_event *event, struct mics_stream *base)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;

    mics_cuda_use(event->device);
    mics_cuda_fail(event->device, cudaEventRecord(event->event, stream->stream),
                   "an event on stream %s", stream->name);
}

static void event_wait(struct mics_stream *base, struct mics_event *event)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;

    mics_cuda_use(event->device);
    mics_cuda_fail(event->device, cudaStreamWaitEvent(stream->stream, event->event, 0),
                   "stream %s waiting for an event", stream->name);
}

static const char in_operation[] = "an operation on the GPU (MICS_GPU_SYNC=1 finds out which)";

static enum mics_status event_sync(struct mics_event *event, struct mics_err *err)
{
    struct cuda_device *device = event->device;

    mics_cuda_use(device);
    mics_cuda_fail(device, cudaEventSynchronize(event->event), in_operation);
    const enum mics_status status = mics_cuda_device_failure(&device->base, err);
    if (status == MICS_OK)
        clock_adjust(&device->clock);
    return status;
}

/* On a failed GPU every event counts as reached, so that no wait hangs. */
static bool event_reached(struct mics_event *event)
{
    mics_cuda_use(event->device);
    const cudaError_t error = cudaEventQuery(event->event);

    if (error == cudaErrorNotReady)
        (void)cudaGetLastError();
    else
        mics_cuda_fail(event->device, error, in_operation);
    return error != cudaErrorNotReady;
}

static double event_time(const struct mics_event *event)
{
    mics_cuda_use(event->device);
    return clock_time(&event->device->clock, event->event);
}

/*
 * Streams, and the operations that are launched on them.
 */

/* The operations by number. STREAM operations are the stream's own. */

struct cuda_operation {
    cudaError_t (*run)(const struct mics_cuda_at *at, const void *args);
    /* The reason for which the operation would be refused, if any. NULL: run() gives it. */
    enum mics_status (*check)(const struct mics_cuda_at *at, const void *args,
                              struct mics_err *err);
    const char *name;
    size_t args_size;
    bool needs_workspace;
};

#define RUN(name)                                                                                  \
    static cudaError_t run_##name(const struct mics_cuda_at *at, const void *args)                 \
    {                                                                                              \
        return mics_cuda_##name(at, args);                                                         \
    }
#define RUN_STREAM(name)
#define RUN_PLAIN(name)     RUN(name)
#define RUN_WORKSPACE(name) RUN(name)
#define RUN_CHECKED(name)                                                                          \
    RUN(name)                                                                                      \
    static enum mics_status check_##name(const struct mics_cuda_at *at, const void *args,          \
                                         struct mics_err *err)                                     \
    {                                                                                              \
        return mics_cuda_##name##_check(at, args, err);                                            \
    }
#define RUN_ROW(KEY, name, gpu) RUN_##gpu(name)
MICS_OPERATIONS(RUN_ROW)

#define ENTRY_STREAM(op)    .name = #op
#define ENTRY_PLAIN(op)     .name = #op, .run = run_##op
#define ENTRY_WORKSPACE(op) .name = #op, .run = run_##op, .needs_workspace = true
#define ENTRY_CHECKED(op)   .name = #op, .run = run_##op, .check = check_##op
#define ENTRY_ROW(KEY, op, gpu)                                                                    \
    [MICS_K_##KEY] = {ENTRY_##gpu(op), .args_size = sizeof(struct mics_args_##op)},

static const struct cuda_operation operations[MICS_KERNEL_COUNT] = {MICS_OPERATIONS(ENTRY_ROW)};

/* Streams of communication usually need none: theirs is allocated by the first operation that
 * does. */
static enum mics_status open_workspace(struct cuda_stream *stream, struct mics_err *err)
{
    const enum mics_status status = mics_cuda_alloc_own(
        cuda_device_of(&stream->base), MICS_CUDA_WORKSPACE_BYTES, &stream->at.workspace, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "the workspace of stream %s", stream->name);
    return status;
}

static enum mics_status open_parts(struct cuda_stream *stream, int priority, struct mics_err *err)
{
    struct cuda_device *device = cuda_device_of(&stream->base);
    char what[64];

    /* Non-blocking: not ordered with the legacy default stream. */
    const cudaError_t error =
        cudaStreamCreateWithPriority(&stream->stream, cudaStreamNonBlocking, priority);
    snprintf(what, sizeof what, "stream %s", stream->name);
    if (error != cudaSuccess)
        return mics_cuda_error(err, error, what);
    stream->at = (struct mics_cuda_at){.stream = stream->stream,
                                       .multiprocessors = device->multiprocessors,
                                       .products = device->products,
                                       .attention = device->attention};
    return priority == 0 ? open_workspace(stream, err) : MICS_OK;
}

static void stream_close(struct mics_stream *base)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;

    if (!stream)
        return;
    mics_cuda_use(cuda_device_of(base));
    if (stream->stream) {
        (void)cudaStreamSynchronize(stream->stream);
        mics_cuda_calls_close(stream->calls);
        (void)cudaStreamDestroy(stream->stream);
    }
    mics_cuda_release(base->device, stream->at.workspace);
    free(stream);
}

static enum mics_status stream_open(struct mics_device *base, const char *name, int priority,
                                    struct mics_stream **out, struct mics_err *err)
{
    struct cuda_device *device = (struct cuda_device *)base;
    struct cuda_stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return mics_err_nomem(err);
    mics_cuda_use(device);
    stream->base.device = base;
    snprintf(stream->name, sizeof stream->name, "%s", name);
    const enum mics_status status = open_parts(stream, priority ? device->high_priority : 0, err);
    if (status == MICS_OK)
        *out = &stream->base;
    else
        stream_close(&stream->base);
    return status;
}

static enum mics_status stream_sync(struct mics_stream *base, struct mics_err *err)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;
    struct cuda_device *device = cuda_device_of(base);

    mics_cuda_use(device);
    mics_cuda_fail(device, cudaStreamSynchronize(stream->stream),
                   "an operation on stream %s (MICS_GPU_SYNC=1 finds out which)", stream->name);
    return mics_cuda_device_failure(base->device, err);
}

static enum mics_status stream_prepare(struct mics_stream *base,
                                       const struct mics_args_matmul *products, size_t count,
                                       bool given, struct mics_matmul_choice *choices,
                                       struct mics_err *err)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;
    enum mics_status status = mics_cuda_device_failure(base->device, err);

    mics_cuda_use(cuda_device_of(base));
    if (status == MICS_OK && !stream->at.workspace)
        status = open_workspace(stream, err);
    if (status != MICS_OK)
        return status;
    const cudaError_t error =
        mics_cuda_products_prepare(&stream->at, products, count, given, choices);
    if (given && error == cudaErrorInvalidValue)
        return mics_err_set(err, MICS_ERR_DEVICE,
                            "%s: the algorithms of matrix products that another rank with this GPU "
                            "chose do not fit (is MICS_TF32 the same on all ranks?)",
                            base->device->description);
    return mics_cuda_error(err, error, "algorithms of matrix products");
}

static cudaError_t copy(struct cuda_stream *stream, const struct mics_args_copy *op)
{
    if (op->bytes == 0 || op->dst == op->src)
        return cudaSuccess;
    return cudaMemcpyAsync(op->dst, op->src, op->bytes, cudaMemcpyDefault, stream->stream);
}

static cudaError_t zero(struct cuda_stream *stream, const struct mics_args_zero *op)
{
    return op->bytes ? cudaMemsetAsync(op->dst, 0, op->bytes, stream->stream) : cudaSuccess;
}

static void compute(struct cuda_stream *stream, enum mics_kernel kernel, const void *args)
{
    struct cuda_device *device = cuda_device_of(&stream->base);
    const struct cuda_operation *operation = &operations[kernel];
    struct mics_err err;

    if (operation->needs_workspace && !stream->at.workspace &&
        open_workspace(stream, &err) != MICS_OK) {
        mics_cuda_device_fail(&device->base, MICS_ERR_NOMEM, err.text);
        return;
    }
    if (operation->check) {
        const enum mics_status status = operation->check(&stream->at, args, &err);

        if (status != MICS_OK) {
            mics_cuda_device_fail(&device->base, status, err.text);
            return;
        }
    }
    mics_cuda_fail(device, operation->run(&stream->at, args), "%s on stream %s", operation->name,
                   stream->name);
    if (device->each)
        mics_cuda_fail(device, cudaStreamSynchronize(stream->stream),
                       "%s on stream %s, while it ran", operation->name, stream->name);
}

static void launch(struct cuda_stream *stream, enum mics_kernel kernel, const void *args)
{
    struct cuda_device *device = cuda_device_of(&stream->base);

    switch (kernel) {
    case MICS_K_ZERO:
        mics_cuda_fail(device, zero(stream, args), "zero on stream %s", stream->name);
        return;
    case MICS_K_COPY:
        mics_cuda_fail(device, copy(stream, args), "copy on stream %s", stream->name);
        return;
    case MICS_K_CALL:
        mics_cuda_fail(device, mics_cuda_call(stream, args), "call on stream %s", stream->name);
        return;
    default:
        compute(stream, kernel, args);
    }
}

static void stream_launch(struct mics_stream *base, enum mics_kernel kernel, const void *args,
                          size_t size)
{
    struct cuda_device *device = cuda_device_of(base);

    assert(kernel >= 0 && kernel < MICS_KERNEL_COUNT && size <= MICS_ARGS_MAX);
    assert(size == operations[kernel].args_size);
    (void)size;
    if (atomic_load(&device->failed))
        return;
    mics_cuda_use(device);
    launch((struct cuda_stream *)base, kernel, args);
}

/*
 * One GPU.
 */

static void device_free(struct mics_device *base)
{
    struct cuda_device *device = (struct cuda_device *)base;

    mics_cuda_use(device);
    mics_cuda_products_close(device->products);
    clock_close(&device->clock);
    pthread_mutex_destroy(&device->clock.lock);
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
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_sync = stream_sync,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_sync = event_sync,
    .event_reached = event_reached,
    .event_time = event_time,
    .launch = stream_launch,
    .prepare = stream_prepare,
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
    device->base.has_bf16 = prop->major >= 8;
    device->base.has_f16 = prop->major >= 7;
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
    return clock_open(&device->clock, now_s, greatest, err);
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
    pthread_mutex_init(&device->clock.lock, NULL);
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
