/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - the host as a device. */
#include "device/host/host.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, HUGE_PAGE = 2 * 1024 * 1024, HUGE_FROM = 4 * HUGE_PAGE };

/* Weak, for the CBLAS that is linked may be another one. */
extern void openblas_set_num_threads(int threads) __attribute__((weak));

/* Large blocks begin at a huge page and ask for them: fewer TLB misses in matrix products. Only
 * whole huge pages are asked for, so that nothing beyond the block becomes resident. */
static enum mics_status host_alloc(struct mics_device *device, size_t bytes, void **out,
                                   struct mics_err *err)
{
    const size_t alignment = bytes >= HUGE_FROM ? HUGE_PAGE : PAGE;
    uint64_t rounded = mics_round_up(bytes ? bytes : 1, PAGE);
    void *memory;

    (void)device;
    if (bytes > PTRDIFF_MAX || posix_memalign(&memory, alignment, rounded) != 0)
        return mics_err_set(err, MICS_ERR_NOMEM, "host: no memory for %zu bytes", bytes);
    if (alignment == HUGE_PAGE)
        (void)madvise(memory, rounded / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* advice only */
    *out = memory;
    return MICS_OK;
}

static void host_release(struct mics_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static enum mics_status host_memory(struct mics_device *device, size_t bytes, void **out,
                                    struct mics_err *err)
{
    const enum mics_status status = host_alloc(device, bytes, out, err);

    if (status == MICS_OK)
        memset(*out, 0, bytes);
    return status;
}

static void host_fail(struct mics_device *base, enum mics_status status, const char *text)
{
    struct host_device *device = (struct host_device *)base;

    pthread_mutex_lock(&device->lock);
    if (!atomic_load(&device->failed)) {
        device->status = status;
        mics_err_set(&device->failure, status, "%s", text);
        atomic_store(&device->failed, true);
    }
    pthread_mutex_unlock(&device->lock);
}

enum mics_status mics_host_device_failure(struct mics_device *base, struct mics_err *err)
{
    struct host_device *device = (struct host_device *)base;

    if (!atomic_load(&device->failed))
        return MICS_OK;
    return mics_err_set(err, device->status, "%s", device->failure.text);
}

static void host_free(struct mics_device *base)
{
    struct host_device *device = (struct host_device *)base;

    while (device->streams) {
        struct host_stream *stream = device->streams;

        device->streams = stream->next;
        if (stream->ring)
            mics_host_stream_close(&stream->base);
        mics_host_stream_free(stream);
    }
    mics_pool_free(device->pool);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static const struct mics_device_ops host_ops = {
    .abi = MICS_DEVICE_ABI,
    .size = sizeof(struct mics_device_ops),
    .free = host_free,
    .alloc = host_alloc,
    .release = host_release,
    .host_alloc = host_memory,
    .host_release = host_release,
    .stream_open = mics_host_stream_open,
    .stream_close = mics_host_stream_close,
    .stream_sync = mics_host_stream_sync,
    .event_open = mics_host_event_open,
    .event_close = mics_host_event_close,
    .event_record = mics_host_event_record,
    .event_wait = mics_host_event_wait,
    .event_sync = mics_host_event_sync,
    .event_reached = mics_host_event_reached,
    .event_time = mics_host_event_time,
    .launch = mics_host_stream_launch,
    .fail = host_fail,
    .failure = mics_host_device_failure,
};

static enum mics_status check_threads(unsigned threads, struct mics_err *err)
{
    const char *asked = getenv("MICS_THREADS");

    if (threads >= 1 && threads <= MICS_THREADS_MAX)
        return MICS_OK;
    if (asked && *asked)
        return mics_err_set(err, MICS_ERR_ARG,
                            "MICS_THREADS: expected a number from 1 to %d, found \"%s\"",
                            MICS_THREADS_MAX, asked);
    return mics_err_set(err, MICS_ERR_ARG, "host: %u threads is not between 1 and %d", threads,
                        MICS_THREADS_MAX);
}

enum mics_status mics_device_new_host(unsigned threads, struct mics_device **out,
                                      struct mics_err *err)
{
    enum mics_status status = check_threads(threads, err);
    if (status != MICS_OK)
        return status;

    struct host_device *device = calloc(1, sizeof *device);
    if (!device)
        return mics_err_nomem(err);
    device->base.ops = &host_ops;
    device->base.name = "host";
    device->base.on_host = true;
    device->pool = mics_pool_new(threads);
    if (!device->pool) {
        free(device);
        return mics_err_set(err, MICS_ERR_NOMEM, "host: cannot start %u compute threads", threads);
    }
    pthread_mutex_init(&device->lock, NULL);
    if (openblas_set_num_threads)
        openblas_set_num_threads(1); /* the pool is what runs in parallel */
    *out = &device->base;
    return MICS_OK;
}
