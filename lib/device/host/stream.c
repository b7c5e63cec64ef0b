/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct host_device *device_of(const struct host_stream *stream)
{
    return (struct host_device *)stream->base.device;
}

static void run_entry(struct host_stream *stream, struct host_entry *entry)
{
    struct host_device *device = device_of(stream);

    switch (entry->kind) {
    case HOST_RUN:
        if (!atomic_load(&device->failed))
            mics_host_kernel_run(entry->kernel, device->pool, entry->args);
        break;
    case HOST_RECORD:
        mics_host_event_reached(entry->event, entry->position);
        break;
    case HOST_WAIT:
        mics_host_stream_wait(entry->stream, entry->position);
        break;
    }
}

/* One more entry is finished. Wakes only when somebody waits for just this. */
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

static void wait_locked(struct host_stream *stream, uint64_t position)
{
    while (stream->finished < position) {
        if (position < stream->wake_at)
            stream->wake_at = position;
        pthread_cond_wait(&stream->advanced, &stream->lock);
    }
}

void mics_host_stream_wait(struct host_stream *stream, uint64_t position)
{
    pthread_mutex_lock(&stream->lock);
    wait_locked(stream, position);
    pthread_mutex_unlock(&stream->lock);
}

bool mics_host_stream_passed(struct host_stream *stream, uint64_t position)
{
    pthread_mutex_lock(&stream->lock);
    bool passed = stream->finished >= position;
    pthread_mutex_unlock(&stream->lock);
    return passed;
}

struct host_entry *mics_host_stream_reserve(struct host_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->enqueued - stream->finished == HOST_RING)
        wait_locked(stream, stream->enqueued - HOST_RING + 1);
    return &stream->ring[stream->enqueued % HOST_RING];
}

void mics_host_stream_push(struct host_stream *stream)
{
    if (stream->enqueued++ == stream->finished)
        pthread_cond_signal(&stream->arrived);
    pthread_mutex_unlock(&stream->lock);
}

void mics_host_stream_launch(struct mics_stream *base, enum mics_kernel kernel, const void *args,
                             size_t size)
{
    struct host_stream *stream = (struct host_stream *)base;

    assert(kernel >= 0 && kernel < MICS_KERNEL_COUNT);
    assert(size == mics_host_kernel_args_size(kernel) && size <= MICS_OP_ARGS_MAX);
    struct host_entry *entry = mics_host_stream_reserve(stream);
    entry->kind = HOST_RUN;
    entry->kernel = kernel;
    memcpy(entry->args, args, size);
    mics_host_stream_push(stream);
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
        mics_host_stream_destroy(stream);
        return NULL;
    }
    return stream;
}

/* The host has no priorities: the system's scheduler is fair, and raising one needs rights. */
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
        mics_host_stream_destroy(stream);
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

/* The count stays until the device goes, for the sake of waits that are enqueued elsewhere. */
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

void mics_host_stream_destroy(struct host_stream *stream)
{
    pthread_cond_destroy(&stream->advanced);
    pthread_cond_destroy(&stream->arrived);
    pthread_mutex_destroy(&stream->lock);
    free(stream->ring);
    free(stream);
}
