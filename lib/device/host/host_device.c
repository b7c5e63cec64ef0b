/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_device.c - the host as a device: compute threads, memory, streams and events.
 *
 * A stream is a thread and a ring of entries. It counts the entries that it has finished, and a
 * record of an event is a position in that count: (stream, position). A wait keeps the pair that
 * was current when it was enqueued: recording the event again does not change it, as in CUDA.
 */
#include "device/device.h"

#include "base/clock.h"
#include "base/num.h"
#include "base/threads.h"
#include "host/kernels.h"
#include "host/onednn.h"
#include "host/products.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct host_device {
    struct mics_device base;
    struct mics_pool *pool;

    pthread_mutex_t lock;        /* guards the failure and the list of streams */
    atomic_bool failed;          /* set after status and failure */
    enum mics_status status;     /* the first failure */
    struct mics_err failure;     /* its text */
    double failed_s;             /* when it was reported */
    struct host_stream *streams; /* all that were opened: waits may refer to closed ones */
};

enum host_entry_kind { HOST_RUN, HOST_RECORD, HOST_WAIT };

struct host_entry {
    enum host_entry_kind kind;
    enum mics_kernel kernel;    /* run */
    struct mics_event *event;   /* record */
    struct host_stream *stream; /* wait: for its entry at `position` */
    uint64_t position;          /* wait; record: the event's ticket */
    _Alignas(16) unsigned char args[MICS_ARGS_MAX];
};

enum { HOST_RING = 1024 }; /* entries of a stream; 232 KiB */

struct host_stream {
    struct mics_stream base;
    struct host_stream *next; /* of the device */
    struct host_entry *ring;  /* NULL once closed */
    pthread_t thread;
    bool short_slices;

    pthread_mutex_t lock;    /* guards all below */
    pthread_cond_t arrived;  /* the worker waits: something enqueued, or stop */
    pthread_cond_t advanced; /* others wait: finished >= wake_at */
    uint64_t enqueued;       /* entries, since the beginning */
    uint64_t finished;
    uint64_t wake_at; /* smallest position that a thread waits for; UINT64_MAX: none */
    bool stop;
};

struct mics_event {
    struct mics_device *device;
    pthread_mutex_t lock;
    pthread_cond_t settled;     /* pending fell to 0 */
    struct host_stream *stream; /* of the newest record; NULL: never recorded */
    uint64_t position;          /* in that stream */
    uint64_t ticket;            /* number of records made */
    uint64_t pending;           /* records that were not reached */
    double time_s;              /* when the newest was reached */
};

static void host_fail(struct mics_device *base, enum mics_status status, const char *text)
{
    struct host_device *device = (struct host_device *)base;

    pthread_mutex_lock(&device->lock);
    if (!atomic_load(&device->failed)) {
        device->status = status;
        device->failed_s = mics_now_s();
        mics_err_set(&device->failure, status, "%s", text);
        atomic_store(&device->failed, true);
    }
    pthread_mutex_unlock(&device->lock);
}

static enum mics_status host_failure(struct mics_device *base, struct mics_err *err)
{
    struct host_device *device = (struct host_device *)base;

    if (!atomic_load(&device->failed))
        return MICS_OK;
    return mics_err_set(err, device->status, "%s", device->failure.text);
}

static double host_failed_at(struct mics_device *base)
{
    return ((struct host_device *)base)->failed_s;
}

/*
 * The sizes of operations' arguments.
 */

#define CHECK_ARGS(KEY, name, gpu)                                                                 \
    static_assert(sizeof(struct mics_args_##name) <= MICS_ARGS_MAX, "arguments are copied");
MICS_OPERATIONS(CHECK_ARGS)
#undef CHECK_ARGS

static const size_t args_sizes[MICS_KERNEL_COUNT] = {
#define ARGS_SIZE(KEY, name, gpu) [MICS_K_##KEY] = sizeof(struct mics_args_##name),
    MICS_OPERATIONS(ARGS_SIZE)
#undef ARGS_SIZE
};

/*
 * Pages are touched when memory is taken, so that no operation faults on them later.
 */

enum { PAGE = 4096, HUGE_PAGE = 2 * 1024 * 1024, HUGE_FROM = 4 * HUGE_PAGE };

struct host_touch {
    volatile unsigned char *memory;
    size_t bytes;
};

/* Write to each page of huge pages [begin, end). */
static void touch_pages(void *context, uint64_t begin, uint64_t end)
{
    const struct host_touch *touch = context;
    const uint64_t stop = mics_min_u64(end * HUGE_PAGE, touch->bytes);

    for (uint64_t at = begin * HUGE_PAGE; at < stop; at += PAGE)
        touch->memory[at] = 0;
    if (stop > begin * HUGE_PAGE) /* where `memory` does not begin at a page */
        touch->memory[stop - 1] = 0;
}

/*
 * Streams: a thread and a ring of entries each.
 */

static struct host_device *device_of(const struct host_stream *stream)
{
    return (struct host_device *)stream->base.device;
}

static void wait_locked(struct host_stream *stream, uint64_t position)
{
    while (stream->finished < position) {
        if (position < stream->wake_at)
            stream->wake_at = position;
        pthread_cond_wait(&stream->advanced, &stream->lock);
    }
}

/* Block until `position` entries are finished. */
static void wait_for(struct host_stream *stream, uint64_t position)
{
    pthread_mutex_lock(&stream->lock);
    wait_locked(stream, position);
    pthread_mutex_unlock(&stream->lock);
}

static bool has_passed(struct host_stream *stream, uint64_t position)
{
    pthread_mutex_lock(&stream->lock);
    bool passed = stream->finished >= position;
    pthread_mutex_unlock(&stream->lock);
    return passed;
}

/* The next free entry; if the ring is full, once half of it is free: a thread that waits for one
 * entry at a time is woken as often as entries finish, for which the worker pays. Returns with the
 * stream locked; fill the entry, then push it. */
static struct host_entry *reserve_entry(struct host_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->enqueued - stream->finished == HOST_RING)
        wait_locked(stream, stream->enqueued - HOST_RING / 2);
    return &stream->ring[stream->enqueued % HOST_RING];
}

/* Enqueue the reserved entry and unlock. The worker is woken after that, so that it does not wait
 * for the lock again; so are threads that wait, below. */
static void push_entry(struct host_stream *stream)
{
    const bool was_empty = stream->enqueued++ == stream->finished;

    pthread_mutex_unlock(&stream->lock);
    if (was_empty)
        pthread_cond_signal(&stream->arrived);
}

/* Record number `ticket` was reached. */
static void event_mark(struct mics_event *event, uint64_t ticket)
{
    pthread_mutex_lock(&event->lock);
    if (ticket == event->ticket)
        event->time_s = mics_now_s();
    if (--event->pending == 0)
        pthread_cond_broadcast(&event->settled);
    pthread_mutex_unlock(&event->lock);
}

/* Only matrix products can fail. */
static void run_kernel(struct host_device *device, const struct host_entry *entry)
{
    struct mics_err err;

    mics_host_run(device->pool, entry->kernel, entry->args);
    const enum mics_status status = mics_onednn_failure(mics_pool_onednn(device->pool), &err);
    if (status != MICS_OK)
        host_fail(&device->base, status, err.text);
}

static void run_entry(struct host_stream *stream, struct host_entry *entry)
{
    struct host_device *device = device_of(stream);

    switch (entry->kind) {
    case HOST_RUN:
        if (!atomic_load(&device->failed))
            run_kernel(device, entry);
        break;
    case HOST_RECORD:
        event_mark(entry->event, entry->position);
        break;
    case HOST_WAIT:
        wait_for(entry->stream, entry->position);
        break;
    }
}

/* Count a finished entry, and wake waiting threads when one waits for this position. Returns with
 * the stream locked. */
static void advance(struct host_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    if (++stream->finished >= stream->wake_at) {
        stream->wake_at = UINT64_MAX;
        pthread_mutex_unlock(&stream->lock);
        pthread_cond_broadcast(&stream->advanced);
        pthread_mutex_lock(&stream->lock);
    }
}

static void *stream_main(void *arg)
{
    struct host_stream *stream = arg;

    if (stream->short_slices)
        mics_thread_shorten_slices();
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->finished == stream->enqueued && !stream->stop)
            pthread_cond_wait(&stream->arrived, &stream->lock);
        if (stream->finished == stream->enqueued)
            break;

        struct host_entry *entry = &stream->ring[stream->finished % HOST_RING];
        pthread_mutex_unlock(&stream->lock);
        run_entry(stream, entry);
        advance(stream);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static void host_stream_launch(struct mics_stream *base, enum mics_kernel kernel, const void *args,
                               size_t size)
{
    struct host_stream *stream = (struct host_stream *)base;

    assert(kernel >= 0 && kernel < MICS_KERNEL_COUNT);
    assert(size == args_sizes[kernel]);
    struct host_entry *entry = reserve_entry(stream);
    entry->kind = HOST_RUN;
    entry->kernel = kernel;
    memcpy(entry->args, args, size);
    push_entry(stream);
}

static enum mics_status host_stream_sync(struct mics_stream *base, struct mics_err *err)
{
    struct host_stream *stream = (struct host_stream *)base;

    pthread_mutex_lock(&stream->lock);
    wait_locked(stream, stream->enqueued);
    pthread_mutex_unlock(&stream->lock);
    return host_failure(base->device, err);
}

/* The kernel keeps 15 characters of a thread's name. */
static void name_thread(pthread_t thread, const char *name)
{
    char cut[16];

    snprintf(cut, sizeof cut, "%s", name);
    pthread_setname_np(thread, cut);
}

static void host_stream_free(struct host_stream *stream)
{
    pthread_cond_destroy(&stream->advanced);
    pthread_cond_destroy(&stream->arrived);
    pthread_mutex_destroy(&stream->lock);
    free(stream->ring);
    free(stream);
}

static struct host_stream *stream_new(struct mics_device *device)
{
    struct host_stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    stream->base.device = device;
    stream->wake_at = UINT64_MAX;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->arrived, NULL);
    pthread_cond_init(&stream->advanced, NULL);
    stream->ring = calloc(HOST_RING, sizeof *stream->ring);
    if (!stream->ring) {
        host_stream_free(stream);
        return NULL;
    }
    touch_pages(
        &(struct host_touch){(unsigned char *)stream->ring, sizeof *stream->ring * HOST_RING}, 0,
        1);
    return stream;
}

/* A stream of high priority has short time slices: more would need privileges. */
static enum mics_status host_stream_open(struct mics_device *base, const char *name, int priority,
                                         struct mics_stream **out, struct mics_err *err)
{
    struct host_device *device = (struct host_device *)base;
    struct host_stream *stream = stream_new(base);

    if (!stream)
        return mics_err_nomem(err);
    stream->short_slices = priority > 0;

    int code = pthread_create(&stream->thread, NULL, stream_main, stream);
    if (code != 0) {
        host_stream_free(stream);
        return mics_err_set(err, MICS_ERR_NOMEM, "stream %s: cannot start a thread: %s", name,
                            strerror(code));
    }
    name_thread(stream->thread, name);

    pthread_mutex_lock(&device->lock);
    stream->next = device->streams;
    device->streams = stream;
    pthread_mutex_unlock(&device->lock);
    *out = &stream->base;
    return MICS_OK;
}

/* The structure is kept until the device is freed: waits that are enqueued on other streams read
 * its count. */
static void host_stream_close(struct mics_stream *base)
{
    struct host_stream *stream = (struct host_stream *)base;

    if (!stream)
        return;
    pthread_mutex_lock(&stream->lock);
    stream->stop = true;
    pthread_cond_signal(&stream->arrived);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    free(stream->ring);
    stream->ring = NULL;
}

static enum mics_status host_event_open(struct mics_device *device, struct mics_event **out,
                                        struct mics_err *err)
{
    struct mics_event *event = calloc(1, sizeof *event);

    if (!event)
        return mics_err_nomem(err);
    event->device = device;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->settled, NULL);
    *out = event;
    return MICS_OK;
}

/* Streams that recorded the event still refer to it: wait until they have reached those records. */
static void host_event_close(struct mics_event *event)
{
    if (!event)
        return;
    pthread_mutex_lock(&event->lock);
    while (event->pending > 0)
        pthread_cond_wait(&event->settled, &event->lock);
    pthread_mutex_unlock(&event->lock);
    pthread_cond_destroy(&event->settled);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

/* Lock order: the stream's lock before the event's, everywhere. */
static void host_event_record(struct mics_event *event, struct mics_stream *base)
{
    struct host_stream *stream = (struct host_stream *)base;
    struct host_entry *entry = reserve_entry(stream);

    pthread_mutex_lock(&event->lock);
    event->stream = stream;
    event->position = stream->enqueued + 1;
    event->ticket++;
    event->pending++;
    entry->kind = HOST_RECORD;
    entry->event = event;
    entry->position = event->ticket;
    pthread_mutex_unlock(&event->lock);
    push_entry(stream);
}

/* The newest record, or NULL when there is none. */
static struct host_stream *newest_record(struct mics_event *event, uint64_t *position)
{
    pthread_mutex_lock(&event->lock);
    struct host_stream *stream = event->stream;
    *position = event->position;
    pthread_mutex_unlock(&event->lock);
    return stream;
}

static void host_event_wait(struct mics_stream *base, struct mics_event *event)
{
    struct host_stream *stream = (struct host_stream *)base;
    uint64_t position;
    struct host_stream *recorded = newest_record(event, &position);

    if (!recorded || recorded == stream || has_passed(recorded, position))
        return;

    struct host_entry *entry = reserve_entry(stream);
    entry->kind = HOST_WAIT;
    entry->stream = recorded;
    entry->position = position;
    push_entry(stream);
}

static enum mics_status host_event_sync(struct mics_event *event, struct mics_err *err)
{
    uint64_t position;
    struct host_stream *recorded = newest_record(event, &position);

    if (recorded)
        wait_for(recorded, position);
    return host_failure(event->device, err);
}

/* Records of one event are reached in order. */
static bool host_event_reached(struct mics_event *event)
{
    pthread_mutex_lock(&event->lock);
    const bool reached = event->pending == 0;
    pthread_mutex_unlock(&event->lock);
    return reached;
}

/* The watchdog may ask while the event is recorded again. */
static double host_event_time(const struct mics_event *event)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&event->lock;

    pthread_mutex_lock(lock);
    const double time_s = event->time_s;
    pthread_mutex_unlock(lock);
    return time_s;
}

/*
 * Memory, and the device.
 */

/* Large blocks begin at a huge page and ask for them: fewer TLB misses in matrix products. Only
 * whole huge pages are asked for, so that nothing beyond the block becomes resident. All threads of
 * the pool touch it. */
static enum mics_status host_alloc(struct mics_device *base, size_t bytes, void **out,
                                   struct mics_err *err)
{
    const struct host_device *device = (const struct host_device *)base;
    const size_t alignment = bytes >= HUGE_FROM ? HUGE_PAGE : PAGE;
    uint64_t rounded = mics_round_up(bytes ? bytes : 1, PAGE);
    void *memory;

    if (bytes > PTRDIFF_MAX || posix_memalign(&memory, alignment, rounded) != 0)
        return mics_err_set(err, MICS_ERR_NOMEM, "host: no memory for %zu bytes", bytes);
    if (alignment == HUGE_PAGE)
        (void)madvise(memory, rounded / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* advice only */
    struct host_touch touch = {memory, bytes};
    mics_pool_run(device->pool, mics_ceil_div(bytes, HUGE_PAGE), 1, touch_pages, &touch);
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

/* Nothing is chosen; the caller's device has the same products as the others of its `tuning`. */
static enum mics_status host_prepare(struct mics_stream *stream,
                                     const struct mics_args_matmul *products, size_t count,
                                     bool given, struct mics_matmul_choice *choices,
                                     struct mics_err *err)
{
    struct host_device *device = (struct host_device *)stream->device;
    enum mics_status status = MICS_OK;

    (void)given, (void)choices;
    for (size_t i = 0; i < count && status == MICS_OK; i++)
        status = mics_host_matmul_prepare(device->pool, &products[i], err);
    return status;
}

static enum mics_status host_open_products(struct mics_device *base, struct mics_err *err)
{
    struct host_device *device = (struct host_device *)base;

    return mics_product_describe(device->pool, base->tuning, sizeof base->tuning, err);
}

static void host_free(struct mics_device *base)
{
    struct host_device *device = (struct host_device *)base;

    while (device->streams) {
        struct host_stream *stream = device->streams;

        device->streams = stream->next;
        if (stream->ring)
            host_stream_close(&stream->base);
        host_stream_free(stream);
    }
    mics_pool_free(device->pool);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static const struct mics_device_ops host_ops = {
    .free = host_free,
    .alloc = host_alloc,
    .release = host_release,
    .host_alloc = host_memory,
    .host_release = host_release,
    .stream_open = host_stream_open,
    .stream_close = host_stream_close,
    .stream_sync = host_stream_sync,
    .event_open = host_event_open,
    .event_close = host_event_close,
    .event_record = host_event_record,
    .event_wait = host_event_wait,
    .event_sync = host_event_sync,
    .event_reached = host_event_reached,
    .event_time = host_event_time,
    .launch = host_stream_launch,
    .open_products = host_open_products,
    .prepare = host_prepare,
    .fail = host_fail,
    .failure = host_failure,
    .failed_at = host_failed_at,
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
    if (status == MICS_OK)
        status = mics_onednn_check_switch(err);
    if (status == MICS_OK)
        status = mics_product_open(threads, err);
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
    const enum mics_product_method of_bf16 = mics_product_of_bf16(device->pool);

    device->base.has_bf16 = of_bf16 != MICS_PRODUCT_OWN;
    device->base.onednn = of_bf16 == MICS_PRODUCT_ONEDNN;
    pthread_mutex_init(&device->lock, NULL);
    *out = &device->base;
    return MICS_OK;
}
