/* SPDX-License-Identifier: Apache-2.0 */
/* trace_prediction.c - the simulator's timeline as a trace. */
#include "plan/schedule/trace.h"

#include <stdlib.h>

static enum mics_status write_timeline(const struct mics_plan *plan,
                                       const struct mics_schedule *schedule,
                                       struct mics_timeline *timeline, FILE *out,
                                       struct mics_err *err)
{
    struct mics_trace_writer writer;
    double step_s;
    enum mics_status status =
        mics_simulate(schedule, &plan->choice, plan->topology, timeline, &step_s, err);

    if (status != MICS_OK)
        return status;
    mics_trace_begin(&writer, out, schedule, plan->model);
    mics_trace_process(&writer, 0, "predicted");
    mics_trace_step(&writer, 0, 1, timeline, 0);
    return mics_trace_finish(&writer, err);
}

enum mics_status mics_trace_prediction(const struct mics_plan *plan, FILE *out,
                                       struct mics_err *err)
{
    struct mics_schedule *schedule = NULL;
    enum mics_status status = mics_schedule_new(plan->model, &plan->choice, true, &schedule, err);

    if (status != MICS_OK)
        return status;
    struct mics_timeline timeline = {.op_count = schedule->op_count,
                                     .start = calloc(schedule->op_count, sizeof(double)),
                                     .end = calloc(schedule->op_count, sizeof(double))};
    if (timeline.start && timeline.end)
        status = write_timeline(plan, schedule, &timeline, out, err);
    else
        status = mics_err_nomem(err);
    free(timeline.start);
    free(timeline.end);
    mics_schedule_free(schedule);
    return status;
}
