/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.c - how much of a step is computation, communication, and exposed communication, in
 * total and by class of operation.
 *
 * Operations of one stream follow each other in time, so each stream is a sorted list of intervals.
 * One walk over the streams that always takes the earliest start sees all intervals in order,
 * without sorting and without memory. Where steps overlap, times are those of one period.
 * Computation is what the compute stream does; accumulating and converting gradients on a
 * communication stream counts as neither, and so does what streams of their own do where the
 * optimizer's states are in host memory.
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
struct stream_state {
    enum mics_stream_kind stream;
    uint32_t next; /* op */
};

/* Where steps overlap, what runs in one period is the operations of a step until the next begins,
 * and the end of the step before, from where this one begins: the same operations, a period
 * earlier. Both are walked, and cut to the period. */
struct walk {
    const struct mics_schedule *schedule;
    const struct mics_timeline *timeline;
    uint32_t classes; /* those that are counted; 0: computation and communication */
    double period_s, begin_s, end_s;
    int steps; /* 1: no operation runs beyond the period */
    struct stream_state stream_states[2]
                                     [MICS_STREAM_COUNT]; /* of the step, and of the step before */
};

/* An operation and the part of its time in the period. */
struct span {
    uint32_t op;
    double from, to;
};

static bool is_counted(const struct walk *walk, const struct mics_op *op)
{
    if (walk->classes)
        return walk->classes >> mics_op_class(op) & 1;
    return op->stream == MICS_STREAM_COMPUTE || mics_op_is_comm(op->kind);
}

/* Seconds by which the operations of a step are moved to be those of the step before. */
static double shift_of(const struct walk *walk, int step)
{
    return step ? -walk->period_s : 0;
}

static bool is_in_period(const struct walk *walk, uint32_t op, int step)
{
    return step == 0 || walk->timeline->end[op] + shift_of(walk, step) > walk->begin_s;
}

static void skip_to_counted(const struct walk *walk, struct stream_state *stream_state, int step)
{
    const struct mics_schedule *schedule = walk->schedule;

    while (stream_state->next < schedule->op_count &&
           (schedule->ops[stream_state->next].stream != stream_state->stream ||
            !is_counted(walk, &schedule->ops[stream_state->next]) ||
            !is_in_period(walk, stream_state->next, step)))
        stream_state->next++;
}

/* Sets the period that is walked. Computation of two steps never overlaps: measured periods that
 * are shorter than it come from steps of different lengths. */
static void set_period(struct walk *walk)
{
    const struct mics_timeline *timeline = walk->timeline;
    double first = INFINITY, last = -INFINITY, end_s = -INFINITY;

    walk->begin_s = walk->end_s = INFINITY;
    walk->steps = 1;
    for (uint32_t i = 0; i < timeline->op_count; i++) {
        const double start = timeline->start[i], end = timeline->end[i];

        walk->begin_s = start < walk->begin_s ? start : walk->begin_s;
        end_s = end > end_s ? end : end_s;
        if (walk->schedule->ops[i].stream == MICS_STREAM_COMPUTE) {
            first = start < first ? start : first;
            last = end > last ? end : last;
        }
    }
    walk->period_s = fmax(timeline->period_s, last - first);
    if (timeline->period_s > 0 && end_s > walk->begin_s + walk->period_s) {
        walk->end_s = walk->begin_s + walk->period_s;
        walk->steps = 2;
    }
}

static struct walk walk_begin(const struct mics_schedule *schedule,
                              const struct mics_timeline *timeline, uint32_t classes)
{
    struct walk walk = {.schedule = schedule, .timeline = timeline, .classes = classes};

    set_period(&walk);
    for (int step = 0; step < walk.steps; step++)
        for (int s = 0; s < MICS_STREAM_COUNT; s++) {
            struct stream_state *stream_state = &walk.stream_states[step][s];

            stream_state->stream = (enum mics_stream_kind)s;
            skip_to_counted(&walk, stream_state, step);
        }
    return walk;
}

/* The operation with the earliest start of those that are left. false: none is left. */
static bool take_earliest(struct walk *walk, struct span *out)
{
    struct stream_state *best = NULL;
    double earliest = 0;
    int best_step = 0;

    for (int step = 0; step < walk->steps; step++)
        for (int s = 0; s < MICS_STREAM_COUNT; s++) {
            struct stream_state *stream_state = &walk->stream_states[step][s];

            if (stream_state->next == walk->schedule->op_count)
                continue;
            const double from = walk->timeline->start[stream_state->next] + shift_of(walk, step);

            if (best && from >= earliest)
                continue;
            best = stream_state;
            best_step = step;
            earliest = from;
        }
    if (!best)
        return false;
    *out = (struct span){
        .op = best->next,
        .from = fmax(earliest, walk->begin_s),
        .to = fmin(walk->timeline->end[best->next] + shift_of(walk, best_step), walk->end_s),
    };
    best->next++;
    skip_to_counted(walk, best, best_step);
    return true;
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
    struct interval_union compute = {.end = -INFINITY}, comm = compute, any = compute;
    struct walk walk;
    struct span span;
    double end = 0;
    enum mics_status status = expect_timeline_of(schedule, timeline, err);

    if (status != MICS_OK)
        return status;
    walk = walk_begin(schedule, timeline, 0);
    while (take_earliest(&walk, &span)) {
        add_interval(schedule->ops[span.op].stream == MICS_STREAM_COMPUTE ? &compute : &comm,
                     span.from, span.to);
        add_interval(&any, span.from, span.to);
        end = fmax(end, timeline->end[span.op]);
    }
    *out = (struct mics_overlap){.span_s = schedule->op_count ? end - walk.begin_s : 0,
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
    case MICS_OP_DISPATCH:
    case MICS_OP_COMBINE:
        return MICS_CLASS_DISPATCH_NET;
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
        return MICS_CLASS_UPDATE;
    case MICS_OP_UPDATE:
        return op->stream == MICS_STREAM_UPDATE ? MICS_CLASS_OFFLOAD : MICS_CLASS_UPDATE;
    case MICS_OP_ACCUMULATE:
    case MICS_OP_CONVERT:
    case MICS_OP_OUTER_DELTA:
    case MICS_OP_OUTER_UPDATE:
        return MICS_CLASS_ACCUMULATE;
    case MICS_OP_LOAD:
    case MICS_OP_STORE:
        return MICS_CLASS_OFFLOAD;
    default:
        break;
    }
    op_class = exchange_class(op->kind);
    if (op_class == MICS_CLASS_DISPATCH_NET)
        return op->between_nodes ? op_class : MICS_CLASS_DISPATCH_NODE;
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
    struct span span;

    while (take_earliest(&walk, &span))
        add_interval(&any, span.from, span.to);
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
