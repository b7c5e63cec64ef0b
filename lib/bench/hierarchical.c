/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hierarchical.c - segment by segment: first stage on our stream, an event, second stage on the caller's.
 *
 * Nothing of an operation may start before what the caller enqueued earlier is over, nor before the second stage of
 * our own last operation, which is on the caller's stream, too: one event recorded there at the beginning
 * holds the first stage back for both reasons.
 */
#include "bench/hierarchical.h"

#include <assert.h>
#include <stdlib.h>

struct mics_hier {
    struct mics_device *device;
    struct mics_comm *net, *node;
    struct mics_stream *ahead; /* first stages */
    uint32_t segments;
    struct mics_event *entry;
    struct mics_event *staged[MICS_HIER_MAX_SEGMENTS]; /* the first stage of a segment is over */
};

/* Where things of one operation are, in bytes. */
struct places {
    uint64_t piece;   /* of one rank in one segment */
    uint64_t segment; /* q * k pieces */
    uint64_t run;     /* of this rank's local rank in a segment */
    uint64_t own;     /* of this rank's piece in a segment */
    uint64_t count;   /* elements of a piece */
};

static struct places places_of(const struct mics_hier *hier, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t q = (uint64_t)hier->net->size, k = (uint64_t)hier->node->size;
    struct places places = {.count = count / hier->segments};

    assert(count % hier->segments == 0);
    places.piece = places.count * mics_dtype_bytes(dtype);
    places.segment = q * k * places.piece;
    places.run = (uint64_t)hier->node->block * q * places.piece;
    places.own = mics_hier_block(hier) * places.piece;
    return places;
}

static enum mics_status open_events(struct mics_hier *hier, struct mics_err *err)
{
    const struct mics_device_ops *ops = hier->device->ops;
    enum mics_status status = ops->event_open(hier->device, &hier->entry, err);

    for (uint32_t t = 0; t < hier->segments && status == MICS_OK; t++)
        status = ops->event_open(hier->device, &hier->staged[t], err);
    return status;
}

enum mics_status mics_hier_open(struct mics_device *device, struct mics_comm *net,
                                struct mics_comm *node, uint32_t segments, struct mics_hier **out,
                                struct mics_err *err)
{
    struct mics_hier *hier;
    enum mics_status status;

    if (segments < 1 || segments > MICS_HIER_MAX_SEGMENTS)
        return mics_err_set(err, MICS_ERR_ARG, "%u segments: expected 1 to %d", segments,
                            MICS_HIER_MAX_SEGMENTS);
    hier = calloc(1, sizeof *hier);
    if (!hier)
        return mics_err_nomem(err);
    *hier = (struct mics_hier){.device = device, .net = net, .node = node, .segments = segments};
    status = device->ops->stream_open(device, "stage", 1, &hier->ahead, err);
    if (status == MICS_OK)
        status = open_events(hier, err);
    if (status == MICS_OK)
        *out = hier;
    else
        mics_hier_close(hier);
    return status;
}

void mics_hier_close(struct mics_hier *hier)
{
    if (!hier)
        return;
    hier->device->ops->stream_close(hier->ahead);
    hier->device->ops->event_close(hier->entry);
    for (uint32_t t = 0; t < hier->segments; t++)
        hier->device->ops->event_close(hier->staged[t]);
    free(hier);
}

uint32_t mics_hier_block(const struct mics_hier *hier)
{
    return (uint32_t)(hier->node->block * hier->net->size + hier->net->block);
}

static void enter(struct mics_hier *hier, struct mics_stream *stream)
{
    hier->device->ops->event_record(hier->entry, stream);
    hier->device->ops->event_wait(hier->ahead, hier->entry);
}

/* The second stage of this segment may begin. */
static void pass_on(struct mics_hier *hier, struct mics_stream *stream, uint32_t segment)
{
    hier->device->ops->event_record(hier->staged[segment], hier->ahead);
    hier->device->ops->event_wait(stream, hier->staged[segment]);
}

void mics_hier_all_gather(struct mics_hier *hier, struct mics_stream *stream, const void *send,
                          void *recv, uint64_t count, enum mics_dtype dtype)
{
    const struct places places = places_of(hier, count, dtype);
    struct mics_comm *net = hier->net, *node = hier->node;

    enter(hier, stream);
    for (uint32_t t = 0; t < hier->segments; t++) {
        char *segment = (char *)recv + t * places.segment, *run = segment + places.run;
        const char *own = send ? (const char *)send + t * places.piece : segment + places.own;

        net->ops->all_gather(net, hier->ahead, own, run, places.count, dtype);
        pass_on(hier, stream, t);
        node->ops->all_gather(node, stream, run, segment, places.count * (uint64_t)net->size,
                              dtype);
    }
}

void mics_hier_reduce_scatter(struct mics_hier *hier, struct mics_stream *stream, void *send,
                              void *recv, uint64_t count, enum mics_dtype dtype)
{
    const struct places places = places_of(hier, count, dtype);
    struct mics_comm *net = hier->net, *node = hier->node;

    enter(hier, stream);
    for (uint32_t t = 0; t < hier->segments; t++) {
        char *segment = (char *)send + t * places.segment, *run = segment + places.run;
        char *own = recv ? (char *)recv + t * places.piece : segment + places.own;

        node->ops->reduce_scatter(node, hier->ahead, segment, run,
                                  places.count * (uint64_t)net->size, dtype);
        pass_on(hier, stream, t);
        net->ops->reduce_scatter(net, stream, run, own, places.count, dtype);
    }
}
