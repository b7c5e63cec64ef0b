/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.c - how much of a step is computation, communication, and exposed communication, in
 * total and by class of operation.
 *
 * Operations of one stream follow each other in time, so each stream is a sorted list of intervals.
 * One walk over the streams that always takes the earliest start sees all intervals in order,
 * without sorting and without memory. Computation is what the compute stream does; accumulating
 * gradients on a communication stream counts as neither.
 */
#include "plan/schedule/timeline.h"

#include <math.h>
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
    uint32_t classes; /* those that are counted; 0: computation and communication */
    struct lane lanes[MICS_STREAM_COUNT];
};

static bool is_counted(const struct walk *walk, const struct mics_op *op)
{
    if (walk->classes)
        return walk->classes >> mics_op_class(op) & 1;
    return op->stream == MICS_STREAM_COMPUTE || mics_op_is_comm(op->kind);
}

static void skip_to_counted(const struct walk *walk, struct lane *lane)
{
    const struct mics_schedule *schedule = walk->schedule;

    while (lane->next < schedule->op_count && (schedule->ops[lane->next].stream != lane->stream ||
                                               !is_counted(walk, &schedule->ops[lane->next])))
        lane->next++;
}

static struct walk walk_begin(const struct mics_schedule *schedule,
                              const struct mics_timeline *timeline, uint32_t classes)
{
    struct walk walk = {.schedule = schedule, .timeline = timeline, .classes = classes};

    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        walk.lanes[s].stream = (enum mics_stream_kind)s;
        skip_to_counted(&walk, &walk.lanes[s]);
    }
    return walk;
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

static enum mics_status expect_timeline_of(const struct mics_schedule *schedule,
                                           const struct mics_timeline *timeline,
                                           struct mics_err *err)
{
    if (timeline->op_count == schedule->op_count)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "a timeline of %u operations for a schedule of %u",
                        timeline->op_count, schedule->op_count);
}

enum mics_status mics_timeline_overlap(const struct mics_schedule *schedule,
                                       const struct mics_timeline *timeline,
                                       struct mics_overlap *out, struct mics_err *err)
{
    struct walk walk;
    struct interval_union compute = {0}, comm = {0}, any = {0};
    double begin = 0, end = 0;
    uint32_t op, seen = 0;
    enum mics_status status = expect_timeline_of(schedule, timeline, err);

    if (status != MICS_OK)
        return status;
    walk = walk_begin(schedule, timeline, 0);
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

/* The exchanges that have a class for each medium; the one inside nodes follows that over the
 * network. */
static enum mics_op_class exchange_class(enum mics_op_kind kind)
{
    switch (kind) {
    case MICS_OP_GATHER:
        return MICS_CLASS_GATHER_NET;
    case MICS_OP_REDUCE:
        return MICS_CLASS_REDUCE_NET;
    case MICS_OP_SCATTER:
    case MICS_OP_SYNC:
        return MICS_CLASS_SYNC_NET;
    case MICS_OP_PUBLISH:
        return MICS_CLASS_PUBLISH_NET;
    default:
        return MICS_CLASS_SCALARS;
    }
}

enum mics_op_class mics_op_class(const struct mics_op *op)
{
    enum mics_op_class op_class;

    switch (op->kind) {
    case MICS_OP_FORWARD:
        return MICS_CLASS_FORWARD;
    case MICS_OP_BACKWARD:
        return MICS_CLASS_BACKWARD;
    case MICS_OP_NORM:
    case MICS_OP_UPDATE:
        return MICS_CLASS_UPDATE;
    case MICS_OP_ACCUMULATE:
        return MICS_CLASS_ACCUMULATE;
    default:
        break;
    }
    op_class = exchange_class(op->kind);
    if (op_class != MICS_CLASS_SCALARS &&
        (op->stream == MICS_STREAM_GATHER_NODE || op->stream == MICS_STREAM_REDUCE_NODE))
        op_class = (enum mics_op_class)(op_class + 1);
    return op_class;
}

/* Seconds with at least one operation of these classes. */
static double seconds_of(const struct mics_schedule *schedule, const struct mics_timeline *timeline,
                         uint32_t classes)
{
    struct walk walk = walk_begin(schedule, timeline, classes);
    struct interval_union any = {.end = -INFINITY};
    uint32_t op;

    while ((op = take_earliest(&walk)) != MICS_NONE)
        add_interval(&any, timeline->start[op], timeline->end[op]);
    return any.total;
}

/* The part of that without computation, which takes compute_s. Not below 0 after rounding. */
static double exposed(const struct mics_schedule *schedule, const struct mics_timeline *timeline,
                      uint32_t classes, double compute_s)
{
    return fmax(0, seconds_of(schedule, timeline, MICS_CLASSES_COMPUTE | classes) - compute_s);
}

enum mics_status mics_timeline_classes(const struct mics_schedule *schedule,
                                       const struct mics_timeline *timeline,
                                       struct mics_class_times *out, struct mics_err *err)
{
    enum mics_status status = expect_timeline_of(schedule, timeline, err);
    uint32_t present = 0;

    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < schedule->op_count; i++)
        present |= 1u << mics_op_class(&schedule->ops[i]);
    const double compute_s = seconds_of(schedule, timeline, MICS_CLASSES_COMPUTE);

    *out = (struct mics_class_times){.net_s = 0};
    for (uint32_t c = 0; c < MICS_CLASS_COUNT; c++) {
        if (!(present >> c & 1))
            continue;
        out->busy_s[c] = seconds_of(schedule, timeline, 1u << c);
        out->exposed_s[c] = exposed(schedule, timeline, 1u << c, compute_s);
    }
    out->net_s = seconds_of(schedule, timeline, MICS_CLASSES_NET);
    out->net_exposed_s = exposed(schedule, timeline, MICS_CLASSES_NET, compute_s);
    out->node_s = seconds_of(schedule, timeline, MICS_CLASSES_NODE);
    out->node_exposed_s = exposed(schedule, timeline, MICS_CLASSES_NODE, compute_s);
    return MICS_OK;
}
