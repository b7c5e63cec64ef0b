/* SPDX-License-Identifier: Apache-2.0 */
#include "train/report/run_trace.h"

#include "base/clock.h"
#include "base/file.h"
#include "plan/schedule/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEGINNING, CPU_OWN, CPU_MPI, CPU_KERNEL, FIRST_TIME };

/* Doubles per recorded step. */
static size_t doubles_per_step(const struct mics_trace *trace)
{
    return FIRST_TIME + 2 * (size_t)trace->op_count;
}

enum mics_status mics_trace_open(struct mics_trace *trace, const struct mics_engine *engine,
                                 struct mics_comm *control, uint64_t first, uint64_t last,
                                 struct mics_err *err)
{
    *trace = (struct mics_trace){
        .first = first, .last = last, .op_count = mics_engine_schedule(engine)->op_count};
    trace->steps = calloc(last - first + 1, sizeof *trace->steps);
    trace->times = calloc(last - first + 1, doubles_per_step(trace) * sizeof *trace->times);
    if (!trace->steps || !trace->times) {
        mics_trace_close(trace);
        return mics_err_nomem(err);
    }
    enum mics_status status = mics_comm_barrier_now(control, err);
    trace->origin_s = mics_now_s();
    return status;
}

void mics_trace_close(struct mics_trace *trace)
{
    free(trace->steps);
    free(trace->times);
    trace->steps = NULL;
    trace->times = NULL;
}

void mics_trace_record(struct mics_trace *trace, const struct mics_engine *engine,
                       const struct mics_step_result *result, const struct mics_comm_cpu *cpu)
{
    const struct mics_timeline *timeline = mics_engine_timeline(engine);
    double *times = trace->times + trace->recorded * doubles_per_step(trace);

    if (result->step < trace->first || result->step > trace->last)
        return;
    times[BEGINNING] = result->begin_s - trace->origin_s;
    times[CPU_OWN] = cpu->own_s;
    times[CPU_MPI] = cpu->mpi_s;
    times[CPU_KERNEL] = cpu->kernel_s;
    memcpy(times + FIRST_TIME, timeline->start, trace->op_count * sizeof *times);
    memcpy(times + FIRST_TIME + trace->op_count, timeline->end, trace->op_count * sizeof *times);
    trace->steps[trace->recorded++] = result->step;
}

/* Gather one step of all ranks; rank 0 writes it. */
static enum mics_status write_step(const struct mics_trace *trace, uint32_t index,
                                   struct mics_comm *control, double *all,
                                   struct mics_trace_writer *writer, struct mics_err *err)
{
    const size_t size = doubles_per_step(trace);
    enum mics_status status = mics_comm_all_gather_now(control, trace->times + index * size, all,
                                                       size * sizeof *all, err);

    if (status != MICS_OK || !writer)
        return status;
    for (int rank = 0; rank < control->size; rank++) {
        double *times = all + (size_t)rank * size;
        const struct mics_timeline timeline = {.op_count = trace->op_count,
                                               .start = times + FIRST_TIME,
                                               .end = times + FIRST_TIME + trace->op_count};

        mics_trace_step(writer, (uint32_t)rank, trace->steps[index], &timeline, times[BEGINNING]);
        mics_trace_comm_cpu(writer, (uint32_t)rank, times[BEGINNING], times[CPU_OWN],
                            times[CPU_MPI], times[CPU_KERNEL]);
    }
    return MICS_OK;
}

static void name_ranks(struct mics_trace_writer *writer, const struct mics_world *world)
{
    uint32_t rank = 0;
    char name[128];

    for (uint32_t node = 0; node < world->node_count; node++)
        for (uint32_t i = 0; i < world->ranks_of_node[node]; i++, rank++) {
            snprintf(name, sizeof name, "rank %u on %s", rank, world->host_of_node[node]);
            mics_trace_process(writer, rank, name);
        }
}

enum mics_status mics_trace_write(const struct mics_trace *trace, const struct mics_engine *engine,
                                  const struct mics_plan *plan, const struct mics_world *world,
                                  struct mics_comm *control, const char *path, struct mics_err *err)
{
    double *all = malloc((size_t)control->size * doubles_per_step(trace) * sizeof *all);
    struct mics_file_writer *file = NULL;
    struct mics_trace_writer writer;
    const bool writes = world->rank == 0;
    enum mics_status status = all ? MICS_OK : mics_err_nomem(err), created = MICS_OK;

    if (writes)
        created = mics_file_create(path, &file, err);
    if (file) {
        mics_trace_begin(&writer, mics_file_stream(file), mics_engine_schedule(engine),
                         plan->model);
        name_ranks(&writer, world);
    }
    for (uint32_t i = 0; status == MICS_OK && i < trace->recorded; i++)
        status = write_step(trace, i, control, all, file ? &writer : NULL, err);
    free(all);
    if (file && status == MICS_OK && trace->recorded > 0)
        status = mics_trace_prediction(&writer, plan, world->size, trace->steps[0], trace->recorded,
                                       trace->times[0], err);
    if (file && status == MICS_OK)
        status = mics_trace_finish(&writer, err);
    if (file && status == MICS_OK)
        return mics_file_commit(file, err);
    mics_file_discard(file);
    return created != MICS_OK ? created : status;
}
