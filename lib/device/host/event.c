/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host.h"

#include "base/clock.h"

#include <stdlib.h>

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

/* Streams still hold the event where it was recorded: wait until they have been there. */
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

/* The stream's lock is taken before the event's; nobody takes them the other way round. */
void mics_host_event_record(struct mics_event *event, struct mics_stream *base)
{
    struct host_stream *stream = (struct host_stream *)base;
    struct host_entry *entry = mics_host_stream_reserve(stream);

    pthread_mutex_lock(&event->lock);
    event->stream = stream;
    event->position = stream->enqueued + 1;
    event->ticket++;
    event->pending++;
    entry->kind = HOST_RECORD;
    entry->event = event;
    entry->position = event->ticket;
    pthread_mutex_unlock(&event->lock);
    mics_host_stream_push(stream);
}

void mics_host_event_reached(struct mics_event *event, uint64_t ticket)
{
    pthread_mutex_lock(&event->lock);
    if (ticket == event->ticket)
        event->time_s = mics_now_s();
    if (--event->pending == 0)
        pthread_cond_broadcast(&event->settled);
    pthread_mutex_unlock(&event->lock);
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

    if (!recorded || recorded == stream || mics_host_stream_passed(recorded, position))
        return;

    struct host_entry *entry = mics_host_stream_reserve(stream);
    entry->kind = HOST_WAIT;
    entry->stream = recorded;
    entry->position = position;
    mics_host_stream_push(stream);
}

enum mics_status mics_host_event_sync(struct mics_event *event, struct mics_err *err)
{
    uint64_t position;
    struct host_stream *recorded = newest_record(event, &position);

    if (recorded)
        mics_host_stream_wait(recorded, position);
    return mics_host_device_failure(event->device, err);
}

/* Records of one event are reached in order. */
bool mics_host_event_is_reached(struct mics_event *event)
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
