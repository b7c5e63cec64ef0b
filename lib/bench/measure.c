/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - one case: warm up, meet, then all iterations enqueued with an event after each.
 *
 * The stream never runs dry between iterations, as in training, and still each has a time of its own. Where a GPU is done
 * with a small collective sooner than the host has launched the next, it is held until many are.
 */
#include "base/num.h"
#include "bench/stream_hold.h"
#include "bench/run.h"
#include "bench/stats.h"

#include <stdlib.h>

/* What the ranks exchange. */
struct report {
    double mean, min, median, p99, mad;
    uint64_t wrong;
};

static enum mics_status open_events(struct mics_device *device, struct mics_event **events,
                                    uint32_t count, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < count && status == MICS_OK; i++)
        status = device->ops->event_open(device, &events[i], err);
    return status;
}

static enum mics_status warm_up(const struct mics_bench_case *c, uint32_t times,
                                struct mics_err *err)
{
    struct mics_comm *world = c->bench->world->comm;
    enum mics_status status;

    for (uint32_t i = 0; i < times; i++)
        mics_bench_enqueue(c);
    status = mics_bench_wait(c->bench, err);
    return status == MICS_OK ? world->ops->barrier_now(world, err) : status;
}

/* So many iterations, of a collective or two each, are launched before the first begins: few enough for what a driver
 * takes without running any of it, and for NCCL's 2048 places for transfers between nodes (2 for each channel of a
 * collective), without one of which it waits for ever. */
enum { AHEAD = 16 };

/* Only those that a device enqueues by itself; what the host carries out runs at the host's pace anyhow. And only what was
 * done before: the first time, NCCL connects, and code is loaded, for which the GPU may have to be idle. */
static bool is_held(const struct mics_bench_case *c, uint32_t warmup)
{
    return warmup > 0 && c->bench->comm->health && c->op != MICS_BENCH_SYNC &&
           c->segments == 1 &&
           mics_bench_case_elements(c) * sizeof(float) < MICS_BENCH_SEGMENT_BYTES;
}

static void enqueue_iterations(const struct mics_bench_case *c, uint32_t iters,
                               struct mics_event **events, struct mics_bench_gate *gate)
{
    const struct mics_device_ops *ops = c->bench->device->ops;

    ops->event_record(events[0], c->bench->stream);
    for (uint32_t i = 0; i < iters; i++) {
        mics_bench_enqueue(c);
        ops->event_record(events[i + 1], c->bench->stream);
        if (gate && i + 1 == mics_min_u64(iters, AHEAD))
            mics_bench_gate_open(gate);
    }
}

/* seconds[iters] */
static enum mics_status time_iterations(const struct mics_bench_case *c,
                                        const struct mics_bench_request *request,
                                        struct mics_event **events, double *seconds,
                                        struct mics_err *err)
{
    const struct mics_device_ops *ops = c->bench->device->ops;
    const bool held = is_held(c, request->warmup);
    const uint32_t iters = request->iters;
    struct mics_bench_gate gate;

    if (held)
        mics_bench_gate_close(&gate, c->bench->stream);
    enqueue_iterations(c, iters, events, held ? &gate : NULL);
    const enum mics_status status = mics_bench_wait(c->bench, err);
    for (uint32_t i = 0; i < iters && status == MICS_OK; i++)
        seconds[i] = ops->event_time(events[i + 1]) - ops->event_time(events[i]);
    if (held && status != MICS_OK) /* cancelled: the stream goes on */
        ops->stream_sync(c->bench->stream, NULL);
    if (held)
        mics_bench_gate_fini(&gate);
    return status;
}

static struct report summarise(double *seconds, uint32_t iters)
{
    struct report own = {0};

    for (uint32_t i = 0; i < iters; i++)
        own.mean += seconds[i] / iters;
    own.median = mics_median(seconds, iters); /* which sorts them */
    own.min = seconds[0];
    own.p99 = seconds[(99 * (uint64_t)iters + 99) / 100 - 1];
    own.mad = mics_mad(seconds, iters, own.median);
    return own;
}

static enum mics_status time_case(const struct mics_bench_case *c,
                                  const struct mics_bench_request *request, struct report *own,
                                  struct mics_err *err)
{
    const uint32_t iters = request->iters;
    struct mics_event **events = calloc(iters + 1, sizeof(struct mics_event *));
    double *seconds = calloc(iters, sizeof *seconds);
    enum mics_status status = events && seconds ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = open_events(c->bench->device, events, iters + 1, err);
    if (status == MICS_OK)
        status = warm_up(c, request->warmup, err);
    if (status == MICS_OK)
        status = time_iterations(c, request, events, seconds, err);
    if (status == MICS_OK)
        *own = summarise(seconds, iters);
    for (uint32_t i = 0; events && i <= iters; i++)
        c->bench->device->ops->event_close(events[i]);
    free(events);
    free(seconds);
    return status;
}

/* medians and mads: [ranks], scratch. */
static void combine(const struct report *reports, uint32_t ranks, double *medians, double *mads,
                    struct mics_bench_row *row)
{
    row->min_s = reports[0].min;
    for (uint32_t r = 0; r < ranks; r++) {
        row->time_s += reports[r].mean / ranks;
        row->min_s = reports[r].min < row->min_s ? reports[r].min : row->min_s;
        row->p99_s = reports[r].p99 > row->p99_s ? reports[r].p99 : row->p99_s;
        row->wrong += reports[r].wrong;
        if (reports[r].median > row->slowest_s) {
            row->slowest_s = reports[r].median;
            row->slowest_rank = r;
        }
        medians[r] = reports[r].median;
        mads[r] = reports[r].mad;
    }
    row->median_s = mics_median(medians, ranks);
    row->spread_s = mics_median(mads, ranks);
}

static enum mics_status exchange(const struct mics_bench *bench, const struct report *own,
                                 struct mics_bench_row *row, struct mics_err *err)
{
    struct mics_comm *world = bench->world->comm;
    const uint32_t ranks = bench->world->size;
    struct report *reports = calloc(ranks, sizeof *reports);
    double *scratch = calloc(2 * (size_t)ranks, sizeof *scratch);
    enum mics_status status = reports && scratch ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = world->ops->all_gather_now(world, own, reports, sizeof *own, err);
    if (status == MICS_OK)
        combine(reports, ranks, scratch, scratch + ranks, row);
    free(reports);
    free(scratch);
    return status;
}

enum mics_status mics_bench_measure(const struct mics_bench_case *c,
                                    const struct mics_bench_request *request,
                                    struct mics_bench_row *row, struct mics_err *err)
{
    struct report own;
    enum mics_status status = time_case(c, request, &own, err);

    if (status == MICS_OK && request->check)
        status = mics_bench_check(c, row->bytes, &own.wrong, err);
    if (status != MICS_OK)
        return status;
    row->checked = request->check;
    row->iters = request->iters;
    return exchange(c->bench, &own, row, err);
}
