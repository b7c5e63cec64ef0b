/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - the host's streams and events (see host.h). */
#include "device/host/host.h"

#include "base/clock.h"
#include "host/kernels.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The operations by number.
 */

#define RUN_KERNEL(KEY, name, gpu)                                                                 \
    static void run_##name(struct mics_pool *pool, const void *args)                               \
    {                                                                                              \
        mics_host_##name(pool, args);                                                              \
    }                                                                                              \
    static_assert(sizeof(struct mics_op_##name) <= MICS_OP_ARGS_MAX, "arguments are copied");
MICS_OPERATIONS(RUN_KERNEL)
#undef RUN_KERNEL

static const struct {
    void (*run)(struct mics_pool *pool, const void *args);
    size_t args_size;
} kernels[MICS_KERNEL_COUNT] = {
#define KERNEL_ROW(KEY, name, gpu) [MICS_K_##KEY] = {run_##name, sizeof(struct mics_op_##name)},
    MICS_OPERATIONS(KERNEL_ROW)
#undef KERNEL_ROW
};

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

/* The next free entry, waiting for one if the ring is full. Returns with the stream locked; fill
 * the entry, then push it. */
static struct host_entry *reserve_entry(struct host_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->enqueued - stream->finished == HOST_RING)
        wait_locked(stream, stream->enqueued - HOST_RING + 1);
    return &stream->ring[stream->enqueued % HOST_RING];
}

/* Enqueue the reserved entry and unlock. */
static void push_entry(struct host_stream *stream)
{
    if (stream->enqueued++ == stream->finished)
        pthread_cond_signal(&stream->arrived);
    pthread_mutex_unlock(&stream->lock);
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

static void run_entry(struct host_stream *stream, struct host_entry *entry)
{
    struct host_device *device = device_of(stream);

    switch (entry->kind) {
    case HOST_RUN:
        if (!atomic_load(&device->failed))
            kernels[entry->kernel].run(device->pool, entry->args);
        break;
    case HOST_RECORD:
        event_mark(entry->event, entry->position);
        break;
    case HOST_WAIT:
        wait_for(entry->stream, entry->position);
        break;
    }
}

/* Count a finished entry, and wake waiting threads when one waits for this position. */
static void advance(struct host_stream *stream)
{
    stream->finished++;
    if (stream->finished >= stream->wake_at) {
        stream->wake_at = UINT64_MAX;
        pthread_cond_broadcast(&stream->advanced);
    }
}

static void *stream_main(void *arg)
{
    struct host_stream *stream = arg;

    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->finished == stream->enqueued && !stream->stop)
            pthread_cond_wait(&stream->arrived, &stream->lock);
        if (stream->finished == stream->enqueued)
            break;

        struct host_entry *entry = &stream->ring[stream->finished % HOST_RING];
        pthread_mutex_unlock(&stream->lock);
        run_entry(stream, entry);
        pthread_mutex_lock(&stream->lock);
        advance(stream);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

void mics_host_stream_launch(struct mics_stream *base, enum mics_kernel kernel, const void *args,
                             size_t size)
{
    struct host_stream *stream = (struct host_stream *)base;

    assert(kernel >= 0 && kernel < MICS_KERNEL_COUNT);
    assert(size == kernels[kernel].args_size);
    struct host_entry *entry = reserve_entry(stream);
    entry->kind = HOST_RUN;
    entry->kernel = kernel;
    memcpy(entry->args, args, size);
    push_entry(stream);
}

enum mics_status mics_host_stream_sync(struct mics_stream *base, struct mics_err *err)
{
    struct host_stream *stream = (struct host_stream *)base;

    pthread_mutex_lock(&stream->lock);
    wait_locked(stream, stream->enqueued);
    pthread_mutex_unlock(&stream->lock);
    return mics_host_device_failure(base->device, err);
}

/* The kernel keeps 15 characters of a thread's name. */
static void name_thread(pthread_t thread, const char *name)
{
    char cut[16];

    snprintf(cut, sizeof cut, "%s", name);
    pthread_setname_np(thread, cut);
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
        mics_host_stream_free(stream);
        return NULL;
    }
    return stream;
}

/* Priorities are ignored: raising that of a thread needs privileges. */
enum mics_status mics_host_stream_open(struct mics_device *base, const char *name, int priority,
                                       struct mics_stream **out, struct mics_err *err)
{
    struct host_device *device = (struct host_device *)base;
    struct host_stream *stream = stream_new(base);

    (void)priority;
    if (!stream)
        return mics_err_nomem(err);

    int code = pthread_create(&stream->thread, NULL, stream_main, stream);
    if (code != 0) {
        mics_host_stream_free(stream);
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
void mics_host_stream_close(struct mics_stream *base)
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

void mics_host_stream_free(struct host_stream *stream)
{
    pthread_cond_destroy(&stream->advanced);
    pthread_cond_destroy(&stream->arrived);
    pthread_mutex_destroy(&stream->lock);
    free(stream->ring);
    free(stream);
}

enum mics_status mics_host_event_open(struct mics_device *device, struct mics_event **out,
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
void mics_host_event_close(struct mics_event *event)
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
void mics_host_event_record(struct mics_event *event, struct mics_stream *base)
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

void mics_host_event_wait(struct mics_stream *base, struct mics_event *event)
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

enum mics_status mics_host_event_sync(struct mics_event *event, struct mics_err *err)
{
    uint64_t position;
    struct host_stream *recorded = newest_record(event, &position);

    if (recorded)
        wait_for(recorded, position);
    return mics_host_device_failure(event->device, err);
}

/* Records of one event are reached in order. */
bool mics_host_event_reached(struct mics_event *event)
{
    pthread_mutex_lock(&event->lock);
    const bool reached = event->pending == 0;
    pthread_mutex_unlock(&event->lock);
    return reached;
}

double mics_host_event_time(const struct mics_event *event)
{
    return event->time_s;
}
