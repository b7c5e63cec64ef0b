/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - what the files of the host device share. Private to lib/device/host.
 *
 * A stream is a thread and a ring of entries. It counts the entries that it has finished, and a
 * record of an event is a position in that count: (stream, position). A wait keeps the pair that
 * was current when it was enqueued: recording the event again does not change it, as in CUDA.
 */
#ifndef MICS_DEVICE_HOST_HOST_H
#define MICS_DEVICE_HOST_HOST_H

#include "device/device.h"

#include "host/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct host_device {
    struct mics_device base;
    struct mics_pool *pool;

    pthread_mutex_t lock;        /* guards the failure and the list of streams */
    atomic_bool failed;          /* set after status and failure */
    enum mics_status status;     /* the first failure */
    struct mics_err failure;     /* its text */
    struct host_stream *streams; /* all that were opened: waits may refer to closed ones */
};

enum host_entry_kind { HOST_RUN, HOST_RECORD, HOST_WAIT };

struct host_entry {
    enum host_entry_kind kind;
    enum mics_kernel kernel;    /* run */
    struct mics_event *event;   /* record */
    struct host_stream *stream; /* wait: for its entry at `position` */
    uint64_t position;          /* wait; record: the event's ticket */
    _Alignas(16) unsigned char args[MICS_OP_ARGS_MAX];
};

enum { HOST_RING = 1024 }; /* entries of a stream; 232 KiB */

struct host_stream {
    struct mics_stream base;
    struct host_stream *next; /* of the device */
    struct host_entry *ring;  /* NULL once closed */
    pthread_t thread;

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

/* stream.c: the functions of struct mics_device_ops for streams and events. */
enum mics_status mics_host_stream_open(struct mics_device *device, const char *name, int priority,
                                       struct mics_stream **out, struct mics_err *err);
void mics_host_stream_close(struct mics_stream *stream);
enum mics_status mics_host_stream_sync(struct mics_stream *stream, struct mics_err *err);
void mics_host_stream_launch(struct mics_stream *stream, enum mics_kernel kernel, const void *args,
                             size_t size);
enum mics_status mics_host_event_open(struct mics_device *device, struct mics_event **out,
                                      struct mics_err *err);
void mics_host_event_close(struct mics_event *event);
void mics_host_event_record(struct mics_event *event, struct mics_stream *stream);
void mics_host_event_wait(struct mics_stream *stream, struct mics_event *event);
enum mics_status mics_host_event_sync(struct mics_event *event, struct mics_err *err);
bool mics_host_event_reached(struct mics_event *event);
double mics_host_event_time(const struct mics_event *event);
void mics_host_stream_free(struct host_stream *stream); /* a closed one */

/* device.c */
enum mics_status mics_host_device_failure(struct mics_device *device, struct mics_err *err);

#endif
