/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.c - how much was computed, exchanged, hidden and exposed.
 *
 * Operations of one stream follow each other in time, so each stream is a sorted list of intervals, and
 * one walk over the five of them, always taking the earliest start, sees all intervals in order: no
 * sorting and no memory. Computation is what the compute stream does; adding up gradients on a
 * communication stream is neither.
 */
#include "plan/schedule/timeline.h"

/* Intervals of one stream, one after another. */
struct lane {
    enum mics_stream_kind stream;
    uint32_t next; /* op */
};

/* A growing union of intervals that come in order of their starts. */
struct reach {
    double end, total;
};

struct walk {
    const struct mics_schedule *schedule;
    const struct mics_timeline *timeline;
    struct lane lanes[MICS_STREAM_COUNT];
};

static bool counts(const struct mics_op *op)
{
    return op->stream == MICS_STREAM_COMPUTE || mics_op_is_comm(op->kind);
}

static void skip(const struct walk *walk, struct lane *lane)
{
    const struct mics_schedule *schedule = walk->schedule;

    while (lane->next < schedule->op_count && (schedule->ops[lane->next].stream != lane->stream ||
                                               !counts(&schedule->ops[lane->next])))
        lane->next++;
}

/* The operation that starts earliest of those not yet seen; MICS_NONE: all are. */
static uint32_t take(struct walk *walk)
{
    struct lane *best = NULL;
    uint32_t op;

    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        struct lane *lane = &walk->lanes[s];

        if (lane->next < walk->schedule->op_count &&
            (!best || walk->timeline->start[lane->next] < walk->timeline->start[best->next]))
            best = lane;
    }
    if (!best)
        return MICS_NONE;
    op = best->next++;
    skip(walk, best);
    return op;
}

static void extend(struct reach *reach, double start, double end)
{
    double from = start > reach->end ? start : reach->end;

    if (end > from) {
        reach->total += end - from;
        reach->end = end;
    }
}

enum mics_status mics_timeline_overlap(const struct mics_schedule *schedule,
                                       const struct mics_timeline *timeline,
                                       struct mics_overlap *out, struct mics_err *err)
{
    struct walk walk = {schedule, timeline, {{0}}};
    struct reach compute = {0}, comm = {0}, any = {0};
    double begin = 0, end = 0;
    uint32_t op, seen = 0;

    if (timeline->op_count != schedule->op_count)
        return mics_err_set(err, MICS_ERR_ARG, "a timeline of %u operations for a schedule of %u",
                            timeline->op_count, schedule->op_count);
    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        walk.lanes[s].stream = (enum mics_stream_kind)s;
        skip(&walk, &walk.lanes[s]);
    }
    while ((op = take(&walk)) != MICS_NONE) {
        double from = timeline->start[op], to = timeline->end[op];

        if (seen++ == 0)
            begin = end = compute.end = comm.end = any.end = from;
        end = to > end ? to : end;
        extend(schedule->ops[op].stream == MICS_STREAM_COMPUTE ? &compute : &comm, from, to);
        extend(&any, from, to);
    }
    *out = (struct mics_overlap){.span_s = end - begin,
                                 .compute_s = compute.total,
                                 .comm_s = comm.total,
                                 .exposed_s = any.total - compute.total};
    return MICS_OK;
}
