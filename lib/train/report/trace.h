/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - keep the timelines of some steps on every rank, and write them as one trace.
 *
 * The clocks of nodes differ, so each rank counts from a barrier; that aligns them to about the
 * latency of the network.
 */
#ifndef MICS_TRAIN_REPORT_TRACE_H
#define MICS_TRAIN_REPORT_TRACE_H

#include "engine/engine.h"

struct mics_trace {
    uint64_t first, last; /* steps wanted */
    uint32_t op_count, taken;
    uint64_t *steps; /* [last - first + 1], those taken */
    double *times;   /* for each step taken: its beginning, then op_count starts, op_count ends */
    double zero_s;   /* the barrier, on this rank's clock */
};

/* Room for the steps [first, last] of the engine. Collective: there is a barrier in it. */
enum mics_status mics_trace_open(struct mics_trace *trace, const struct mics_engine *engine,
                                 struct mics_comm *control, uint64_t first, uint64_t last,
                                 struct mics_err *err);
void mics_trace_close(struct mics_trace *trace);

/* Keep the step that was just collected, if it is wanted. Allocates nothing. */
void mics_trace_take(struct mics_trace *trace, const struct mics_engine *engine,
                     const struct mics_step_result *result);

/* Write what all ranks kept to `path`, on rank 0, whole or not at all. Collective; the status is that of
 * this rank: rank 0 alone may fail to write. */
enum mics_status mics_trace_write(const struct mics_trace *trace, const struct mics_engine *engine,
                                  const struct mics_model *model, const struct mics_world *world,
                                  struct mics_comm *control, const char *path,
                                  struct mics_err *err);

#endif
