/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - Chrome's trace event format: M events name processes and threads, X events have a start
 * and a duration in microseconds, C events are values. Start and end are rounded to nanoseconds
 * separately, so that operations that follow each other still do so in the trace.
 */
#include "plan/schedule/trace.h"

#include <inttypes.h>
#include <math.h>

static void separate(struct mics_trace_writer *writer)
{
    fputs(writer->has_events ? ",\n" : "\n", writer->out);
    writer->has_events = true;
}

void mics_trace_begin(struct mics_trace_writer *writer, FILE *out,
                      const struct mics_schedule *schedule, const struct mics_model *model)
{
    *writer = (struct mics_trace_writer){.out = out, .schedule = schedule, .model = model};
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", out);
}

/* Names are mics's own or host names, and need no escape in JSON. */
static void name_event(struct mics_trace_writer *writer, const char *what, uint32_t pid,
                       uint32_t tid, const char *name)
{
    separate(writer);
    fprintf(writer->out,
            "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
            ",\"args\":{\"name\":\"%s\"}}",
            what, pid, tid, name);
}

/* Those of tokens that travel to experts, and of states in host memory, are named only where there
 * are such. */
static bool is_named(const struct mics_schedule *schedule, uint32_t stream)
{
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if ((uint32_t)schedule->ops[i].stream == stream)
            return true;
    return stream < MICS_STREAM_DISPATCH;
}

void mics_trace_process(struct mics_trace_writer *writer, uint32_t pid, const char *name)
{
    name_event(writer, "process_name", pid, 0, name);
    for (uint32_t stream = 0; stream < MICS_STREAM_COUNT; stream++)
        if (is_named(writer->schedule, stream))
            name_event(writer, "thread_name", pid, stream,
                       mics_stream_kind_name((enum mics_stream_kind)stream));
}

static void print_us(struct mics_trace_writer *writer, const char *key, int64_t ns)
{
    fprintf(writer->out, ",\"%s\":%" PRId64 ".%03" PRId64, key, ns / 1000, ns % 1000);
}

static void print_args(struct mics_trace_writer *writer, const struct mics_op *op, uint64_t step)
{
    fprintf(writer->out, ",\"args\":{\"step\":%" PRIu64 ",\"micro_step\":%" PRIu32, step,
            op->micro_step);
    if (mics_op_is_comm(op->kind))
        fprintf(writer->out, ",\"comm\":\"%s\",\"segment\":%" PRIu32 ",\"bytes\":%" PRIu64,
                mics_comm_kind_name(op->comm), op->segment, op->bytes);
    else
        fprintf(writer->out, ",\"flops\":%.0f,\"bytes\":%.0f", op->flops, op->memory_bytes);
    fputs("}}", writer->out);
}

static void print_op(struct mics_trace_writer *writer, uint32_t pid, uint64_t step,
                     const struct mics_op *op, double start_s, double end_s)
{
    const int64_t start_ns = llround(start_s * 1e9), end_ns = llround(end_s * 1e9);
    char text[32];
    const char *subject = mics_op_subject(op, writer->model, text, sizeof text);

    separate(writer);
    fprintf(writer->out, "{\"ph\":\"X\",\"name\":\"%s%s%s\",\"cat\":\"%s\"",
            mics_op_kind_name(op->kind), *subject ? " " : "", subject,
            mics_op_is_comm(op->kind) ? "communication" : "computation");
    fprintf(writer->out, ",\"pid\":%" PRIu32 ",\"tid\":%d", pid, (int)op->stream);
    print_us(writer, "ts", start_ns);
    print_us(writer, "dur", end_ns - start_ns);
    print_args(writer, op, step);
}

void mics_trace_step(struct mics_trace_writer *writer, uint32_t pid, uint64_t step,
                     const struct mics_timeline *timeline, double at_s)
{
    for (uint32_t i = 0; i < timeline->op_count; i++)
        if (!mics_op_is_idle(&writer->schedule->ops[i], timeline->turn))
            print_op(writer, pid, step, &writer->schedule->ops[i], at_s + timeline->start[i],
                     at_s + timeline->end[i]);
}

void mics_trace_comm_cpu(struct mics_trace_writer *writer, uint32_t pid, double at_s, double own_s,
                         double mpi_s, double kernel_s)
{
    separate(writer);
    fprintf(writer->out, "{\"ph\":\"C\",\"name\":\"CPU ms of communication\",\"pid\":%" PRIu32,
            pid);
    print_us(writer, "ts", llround(at_s * 1e9));
    fprintf(writer->out, ",\"args\":{\"own\":%.3f,\"mpi\":%.3f,\"kernel\":%.3f}}", 1e3 * own_s,
            1e3 * mpi_s, 1e3 * kernel_s);
}

enum mics_status mics_trace_finish(struct mics_trace_writer *writer, struct mics_err *err)
{
    fputs("\n]}\n", writer->out);
    if (fflush(writer->out) != 0 || ferror(writer->out))
        return mics_err_set_errno(err, "writing the trace");
    return MICS_OK;
}

enum mics_status mics_trace_prediction(struct mics_trace_writer *writer,
                                       const struct mics_plan *plan, uint32_t pid, uint64_t first,
                                       uint32_t steps, double at_s, struct mics_err *err)
{
    struct mics_timeline timeline = {0};
    struct mics_op_costs *costs = NULL;
    double step_s;
    enum mics_status status = mics_timeline_init(writer->schedule, &timeline, err);

    if (status == MICS_OK)
        status = mics_op_costs_new(plan->topology, plan->model, &costs, err);
    if (status == MICS_OK)
        status = mics_simulate(writer->schedule, &plan->choice, costs, &timeline, &step_s, err);
    mics_op_costs_free(costs);
    if (status == MICS_OK) {
        mics_trace_process(writer, pid, "predicted");
        for (uint32_t i = 0; i < steps; i++)
            mics_trace_step(writer, pid, first + i, &timeline, at_s + i * step_s);
    }
    mics_timeline_fini(&timeline);
    return status;
}

enum mics_status mics_trace_plan(const struct mics_plan *plan, FILE *out, struct mics_err *err)
{
    struct mics_schedule *schedule = NULL;
    struct mics_trace_writer writer;
    enum mics_status status = mics_schedule_new(plan->model, &plan->choice, true, &schedule, err);

    if (status != MICS_OK)
        return status;
    mics_trace_begin(&writer, out, schedule, plan->model);
    status = mics_trace_prediction(&writer, plan, 0, 1, 1, 0, err);
    if (status == MICS_OK)
        status = mics_trace_finish(&writer, err);
    mics_schedule_free(schedule);
    return status;
}
