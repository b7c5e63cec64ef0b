/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_trace.h - records the timelines of some steps on every rank, and writes them as one trace.
 *
 * The clocks of the nodes differ, so each rank counts from a barrier, which aligns them to about
 * the latency of the network.
 */
#ifndef MICS_TRAIN_REPORT_RUN_TRACE_H
#define MICS_TRAIN_REPORT_RUN_TRACE_H

#include "engine/engine.h"

struct mics_trace {
    uint64_t first, last; /* steps to record */
    uint32_t op_count, recorded;
    uint64_t *steps; /* [last - first + 1]; the first `recorded` are set */
    double *times;   /* of each recorded step: its beginning, CPU time of communication (own, MPI,
                      * kernel), op_count starts, op_count ends */
    double origin_s; /* the barrier, on this rank's clock */
};

/* Allocate space for the steps [first, last]. Collective: it contains a barrier. */
enum mics_status mics_trace_open(struct mics_trace *trace, const struct mics_engine *engine,
                                 struct mics_comm *control, uint64_t first, uint64_t last,
                                 struct mics_err *err);
void mics_trace_close(struct mics_trace *trace);

/* Record the step that was just collected, if it is in [first, last]. Allocates nothing. */
void mics_trace_record(struct mics_trace *trace, const struct mics_engine *engine,
                       const struct mics_step_result *result, const struct mics_comm_cpu *cpu);

/* Write the recorded steps of all ranks to `path` on rank 0, completely or not at all, and as many
 * predicted steps of the plan as a process after those of the ranks. Collective; the status is that
 * of this rank, as only rank 0 writes. */
enum mics_status mics_trace_write(const struct mics_trace *trace, const struct mics_engine *engine,
                                  const struct mics_plan *plan, const struct mics_world *world,
                                  struct mics_comm *control, const char *path,
                                  struct mics_err *err);

#endif
