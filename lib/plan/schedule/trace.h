/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - timelines in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and
 * chrome://tracing open.
 *
 * A rank is a process, a stream is a thread, operations are complete events. Predicted and measured
 * timelines are written in the same way, so that they can be compared side by side.
 */
#ifndef MICS_PLAN_SCHEDULE_TRACE_H
#define MICS_PLAN_SCHEDULE_TRACE_H

#include "plan/schedule/timeline.h"

#include <stdio.h>

/* A trace in progress; the caller owns it and the stream. */
struct mics_trace_writer {
    FILE *out;
    const struct mics_schedule *schedule;
    const struct mics_model *model;
    bool has_events;
};

void mics_trace_begin(struct mics_trace_writer *writer, FILE *out,
                      const struct mics_schedule *schedule, const struct mics_model *model);

/* Name process `pid` and its streams. */
void mics_trace_process(struct mics_trace_writer *writer, uint32_t pid, const char *name);

/* The operations of one step, which began `at_s` seconds after the beginning of the trace. */
void mics_trace_step(struct mics_trace_writer *writer, uint32_t pid, uint64_t step,
                     const struct mics_timeline *timeline, double at_s);

/* A counter: the CPU seconds that a step's communication took, in own code, MPI and the kernel. */
void mics_trace_comm_cpu(struct mics_trace_writer *writer, uint32_t pid, double at_s, double own_s,
                         double mpi_s, double kernel_s);

/* Complete the document. MICS_ERR_IO: part of it could not be written. */
enum mics_status mics_trace_finish(struct mics_trace_writer *writer, struct mics_err *err);

/* Process `pid`, "predicted": `steps` steps of the plan in the steady state, numbered from `first`,
 * the first of which begins `at_s` seconds after the beginning of the trace. */
enum mics_status mics_trace_prediction(struct mics_trace_writer *writer,
                                       const struct mics_plan *plan, uint32_t pid, uint64_t first,
                                       uint32_t steps, double at_s, struct mics_err *err);

/* A trace of one predicted step. */
enum mics_status mics_trace_plan(const struct mics_plan *plan, FILE *out, struct mics_err *err);

#endif
