/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - memory, streams, events and operations of one device, behind one table.
 *
 * Everything that is enqueued on a stream runs in order; streams run side by side. An event marks a
 * point of a stream; other streams can be made to wait for its newest record. As in CUDA, a wait
 * looks at the record that was newest when the wait was *enqueued*; waiting for an event that was
 * never recorded returns at once. Only one thread at a time may enqueue on a device.
 *
 * A failure inside a stream (of a communicator, for example) is sticky for the whole device: later
 * operations are skipped, events are still recorded so that no wait hangs, and stream_sync() and
 * event_sync() report the first failure.
 */
#ifndef MICS_DEVICE_DEVICE_H
#define MICS_DEVICE_DEVICE_H

#include "base/err.h"
#include "ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mics_device;
struct mics_event;
struct mics_comm;

/* The first member of a device's own stream structure. */
struct mics_stream {
    struct mics_device *device; /* that it belongs to */
};

/* A message of a device for the user. */
struct mics_device_note {
    int level; /* number of -v options from which it is shown; 0: a warning */
    char text[256];
};

struct mics_device_ops {
    void (*free)(struct mics_device *device);

    /* Memory, aligned to 256 bytes at least. *Not* zeroed. With MICS_ERR_NOMEM the text has the
     * bytes that are free. */
    enum mics_status (*alloc)(struct mics_device *device, size_t bytes, void **out,
                              struct mics_err *err);
    void (*release)(struct mics_device *device, void *memory);
    /* Bytes of the device's memory that no process has allocated. NULL: unknown. */
    enum mics_status (*memory_left)(struct mics_device *device, uint64_t *out,
                                    struct mics_err *err);
    /* Host memory, zeroed, from and to which copies are asynchronous (on a GPU: pinned). Copies
     * from and to other host memory are correct too, but may block the caller. */
    enum mics_status (*host_alloc)(struct mics_device *device, size_t bytes, void **out,
                                   struct mics_err *err);
    void (*host_release)(struct mics_device *device, void *memory); /* NULL is fine */

    /* `priority`: 0 normal, 1 high (communication). Name: for traces and thread names; copied. */
    enum mics_status (*stream_open)(struct mics_device *device, const char *name, int priority,
                                    struct mics_stream **out, struct mics_err *err);
    void (*stream_close)(struct mics_stream *stream); /* after all that is enqueued; NULL is fine */
    enum mics_status (*stream_sync)(struct mics_stream *stream, struct mics_err *err);

    enum mics_status (*event_open)(struct mics_device *device, struct mics_event **out,
                                   struct mics_err *err);
    void (*event_close)(struct mics_event *event); /* NULL is fine */
    void (*event_record)(struct mics_event *event, struct mics_stream *stream);
    void (*event_wait)(struct mics_stream *stream, struct mics_event *event);
    /* Block the caller until the newest record is reached. */
    enum mics_status (*event_sync)(struct mics_event *event, struct mics_err *err);
    /* Whether the newest record has been reached; true when there is none. Does not block; any
     * thread. */
    bool (*event_reached)(struct mics_event *event);
    /* When the newest record was reached, in seconds on the clock of mics_now_s(). Only after it
     * was reached. */
    double (*event_time)(const struct mics_event *event);

    /* Enqueue one operation. `args` is the operation's structure; it is copied. */
    void (*launch)(struct mics_stream *stream, enum mics_kernel kernel, const void *args,
                   size_t size);

    /* Set device->tuning, for which the libraries of matrix products in bf16 may have to be opened.
     * Before prepare(). NULL: it is set from the beginning. */
    enum mics_status (*open_products)(struct mics_device *device, struct mics_err *err);

    /* Prepare for matrix products of `count` shapes before the first is launched: choose an
     * algorithm for each and write it to choices[]; or, `given`, use choices[] as written by a
     * device of equal `tuning`. Products are timed on the operands of `products`, whose contents
     * are lost; the call waits for the stream. Shapes that were not prepared use the library's
     * first proposal, without allocating. On a host nothing is chosen or lost, and shapes that were
     * not prepared allocate when they are first used. NULL: there is nothing to choose. */
    enum mics_status (*prepare)(struct mics_stream *stream, const struct mics_args_matmul *products,
                                size_t count, bool given, struct mics_matmul_choice *choices,
                                struct mics_err *err);

    /* Make `status` the device's sticky failure, if it has none. Any thread. */
    void (*fail)(struct mics_device *device, enum mics_status status, const char *text);
    enum mics_status (*failure)(struct mics_device *device, struct mics_err *err);
    /* When it failed, on the clock of mics_now_s(), after failure() has reported that. Any thread.
     * NULL: not known. */
    double (*failed_at)(struct mics_device *device);

    /* Take the oldest note; false: there is none. Any thread. NULL: the device never has any. */
    bool (*next_note)(struct mics_device *device, struct mics_device_note *out);

    /* A communicator of the ranks of `control`, in the same order, whose collectives run on the
     * device's memory. Collective. It uses `control`, which must be freed after it. NULL: the
     * device has no collectives of its own. */
    enum mics_status (*comm_open)(struct mics_device *device, struct mics_comm *control,
                                  struct mics_comm **out, struct mics_err *err);
};

struct mics_device {
    const struct mics_device_ops *ops;
    const char *name;        /* "host", "cuda", "emulated" */
    const char *description; /* in messages: "NVIDIA H200 (GPU 0)"; NULL: none */
    bool on_host;            /* its memory is host memory, which host code may read and write */
    char uuid[16];           /* of a GPU: equal on two ranks that share it */
    bool has_bf16;           /* it multiplies bf16 in hardware, and faster than fp32 */
    bool has_f16;            /* likewise fp16 */
    bool onednn;             /* a host multiplies bf16 by oneDNN */
    char model[64];          /* of a GPU: "NVIDIA H200"; else empty */
    /* Processor and libraries, which products in bf16 and the choices of prepare() depend on. */
    char tuning[192];
};

#define MICS_THREADS_MAX 1024

/* The host as a device: 1 <= `threads` <= MICS_THREADS_MAX compute threads. The device belongs to
 * the caller, who closes its streams and events and then calls device->ops->free(). MICS_ERR_ARG:
 * `threads` is out of range. */
enum mics_status mics_device_new_host(unsigned threads, struct mics_device **out,
                                      struct mics_err *err);

/* Compute threads of each of `local_size` ranks that share the processors which this process may
 * use: their number divided by ranks, at least 1. MICS_THREADS=N in the environment overrides it;
 * if N is not a number in [1, MICS_THREADS_MAX], returns 0, and mics_device_new_host(0) reports the
 * error. */
unsigned mics_threads_per_rank(unsigned local_size);

#endif
