/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.c - how much of a step is computation, communication, and exposed communication.
 *
 * Operations of one stream follow each other in time, so each stream is a sorted list of intervals.
 * One walk over the streams that always takes the earliest start sees all intervals in order,
 * without sorting and without memory. Computation is what the compute stream does; accumulating
 * gradients on a communication stream counts as neither.
 */
#include "plan/schedule/timeline.h"

#include <stdlib.h>

enum mics_status mics_timeline_init(const struct mics_schedule *schedule, struct mics_timeline *out,
                                    struct mics_err *err)
{
    *out = (struct mics_timeline){.op_count = schedule->op_count,
                                  .start = calloc(schedule->op_count, sizeof *out->start),
                                  .end = calloc(schedule->op_count, sizeof *out->end)};
    if (out->start && out->end)
        return MICS_OK;
    mics_timeline_fini(out);
    return mics_err_nomem(err);
}

void mics_timeline_fini(struct mics_timeline *timeline)
{
    free(timeline->start);
    free(timeline->end);
    *timeline = (struct mics_timeline){0};
}

/* Intervals of one stream, one after another. */
struct lane {
    enum mics_stream_kind stream;
    uint32_t next; /* op */
};

struct walk {
    const struct mics_schedule *schedule;
    const struct mics_timeline *timeline;
    struct lane lanes[MICS_STREAM_COUNT];
};

static bool is_counted(const struct mics_op *op)
{
    return op->stream == MICS_STREAM_COMPUTE || mics_op_is_comm(op->kind);
}

static void skip_to_counted(const struct walk *walk, struct lane *lane)
{
    const struct mics_schedule *schedule = walk->schedule;

    while (lane->next < schedule->op_count && (schedule->ops[lane->next].stream != lane->stream ||
                                               !is_counted(&schedule->ops[lane->next])))
        lane->next++;
}

/* The operation with the earliest start of those that are left; MICS_NONE: none is left. */
static uint32_t take_earliest(struct walk *walk)
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
    skip_to_counted(walk, best);
    return op;
}

/* A union of intervals that are added in the order of their starts. */
struct interval_union {
    double end, total;
};

static void add_interval(struct interval_union *intervals, double start, double end)
{
    const double from = start > intervals->end ? start : intervals->end;

    if (end > from) {
        intervals->total += end - from;
        intervals->end = end;
    }
}

enum mics_status mics_timeline_overlap(const struct mics_schedule *schedule,
                                       const struct mics_timeline *timeline,
                                       struct mics_overlap *out, struct mics_err *err)
{
    struct walk walk = {schedule, timeline, {{0}}};
    struct interval_union compute = {0}, comm = {0}, any = {0};
    double begin = 0, end = 0;
    uint32_t op, seen = 0;

    if (timeline->op_count != schedule->op_count)
        return mics_err_set(err, MICS_ERR_ARG, "a timeline of %u operations for a schedule of %u",
                            timeline->op_count, schedule->op_count);
    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        walk.lanes[s].stream = (enum mics_stream_kind)s;
        skip_to_counted(&walk, &walk.lanes[s]);
    }
    while ((op = take_earliest(&walk)) != MICS_NONE) {
        const double from = timeline->start[op], to = timeline->end[op];

        if (seen++ == 0)
            begin = end = compute.end = comm.end = any.end = from;
        end = to > end ? to : end;
        add_interval(schedule->ops[op].stream == MICS_STREAM_COMPUTE ? &compute : &comm, from, to);
        add_interval(&any, from, to);
    }
    *out = (struct mics_overlap){.span_s = end - begin,
                                 .compute_s = compute.total,
                                 .comm_s = comm.total,
                                 .exposed_s = any.total - compute.total};
    return MICS_OK;
}
