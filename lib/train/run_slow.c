/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_slow.c - names the ranks that a run waits for.
 *
 * The times of a step are those of its timeline, which is read anyway; they are exchanged once in a
 * window, by the main thread, while the next step computes.
 */
#include "base/units.h"
#include "comm/agree.h"
#include "train/run_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only the first rank judges, so its environment decides. */
static bool judges(const struct mics_world *world)
{
    const char *text = getenv("MICS_SLOW_RANKS");

    return world->rank == 0 && !(text && strcmp(text, "0") == 0);
}

static enum mics_status open_ranks(struct mics_run *run, struct mics_err *err)
{
    const struct mics_world *world = run->options.world;
    uint32_t *node_of = calloc(world->size, sizeof *node_of);
    enum mics_status status = node_of ? MICS_OK : mics_err_nomem(err);
    uint32_t first;

    for (uint32_t rank = 0; status == MICS_OK && rank < world->size; rank++)
        node_of[rank] = mics_world_node_of(world, rank, &first);
    if (status == MICS_OK)
        status = mics_slow_ranks_open(world->size, node_of, &run->slow.ranks, err);
    free(node_of);
    return status;
}

enum mics_status mics_run_slow_open(struct mics_run *run, struct mics_err *err)
{
    const struct mics_world *world = run->options.world;
    enum mics_status status = MICS_OK;

    if (world->size == 1)
        return MICS_OK;
    run->slow.windows = calloc(world->size, sizeof *run->slow.windows);
    if (!run->slow.windows)
        status = mics_err_nomem(err);
    if (status == MICS_OK && judges(world))
        status = open_ranks(run, err);
    return mics_agree(run->options.control, status, err);
}

void mics_run_slow_close(struct mics_run *run)
{
    mics_slow_ranks_close(run->slow.ranks);
    free(run->slow.windows);
    run->slow = (struct mics_run_slow){.ranks = NULL};
}

/* Seconds of computing in a step, without that of experts on the rows that were sent to them: a
 * rank that has more rows than the others is not slow. */
static double compute_s(const struct mics_engine *engine)
{
    const struct mics_schedule *schedule = mics_engine_schedule(engine);
    const struct mics_timeline *timeline = mics_engine_timeline(engine);
    double sum = 0;

    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (schedule->ops[i].stream == MICS_STREAM_COMPUTE &&
            schedule->ops[i].phase != MICS_PHASE_EXPERTS)
            sum += timeline->end[i] - timeline->start[i];
    return sum;
}

void mics_run_slow_note(struct mics_run *run, const struct mics_step_result *result, double seconds)
{
    struct mics_run_slow *slow = &run->slow;
    const double begin_s = slow->read[result->step & 1].begin_s;
    const double end_s = slow->read[result->step & 1].end_s, before_s = slow->step_end_s;

    slow->step_end_s = result->begin_s + result->overlap.span_s;
    if (!slow->windows || slow->skipped++ < MICS_SLOW_SKIPPED || slow->steps == MICS_SLOW_WINDOW)
        return;
    slow->skipped = MICS_SLOW_SKIPPED;
    /* Reading costs what is left of it after the end of the step before. */
    slow->own.steps[slow->steps++] = (struct mics_slow_step){
        .step_s = (float)seconds,
        .compute_s = (float)compute_s(run->options.engine),
        .read_s = (float)fmax(0, end_s - fmax(begin_s, before_s)),
        .comm_s = (float)result->overlap.comm_s,
    };
}

static void report(const struct mics_run *run, const struct mics_slow_rank *slow,
                   enum mics_status *rank0_status, struct mics_err *err)
{
    const struct mics_world *world = run->options.world;
    const char *what = mics_slow_cause_name(slow->cause);
    uint32_t first;
    const char *host = world->host_of_node[mics_world_node_of(world, slow->rank, &first)];
    char own[32], others[32], also[32] = "";

    if (slow->ranks > 1)
        snprintf(also, sizeof also, " and %" PRIu32 " other%s", slow->ranks - 1,
                 slow->ranks > 2 ? "s" : "");
    mics_run_warn(run,
                  "step %" PRIu64 ": rank %" PRIu32 "%s (%s) %s slow in %s: %s, the others %s; it "
                  "cost %.0f %% of the last %d steps",
                  run->step, slow->rank, also, host, slow->ranks > 1 ? "are" : "is", what,
                  mics_format_time(slow->s, own, sizeof own),
                  mics_format_time(slow->others_s, others, sizeof others), 100 * slow->cost,
                  MICS_SLOW_WINDOW);
    mics_run_report_fault(run,
                          json_pack("{s:s,s:I,s:I,s:I,s:s,s:s,s:f,s:f,s:f}", "event", "slow",
                                    "step", (json_int_t)run->step, "rank", (json_int_t)slow->rank,
                                    "ranks", (json_int_t)slow->ranks, "host", host, "what", what,
                                    "ms", 1e3 * slow->s, "others_ms", 1e3 * slow->others_s, "cost",
                                    slow->cost),
                          rank0_status, err);
}

enum mics_status mics_run_slow_judge(struct mics_run *run, enum mics_status *rank0_status,
                                     struct mics_err *err)
{
    struct mics_run_slow *slow = &run->slow;
    const struct mics_slow_rank *found = NULL;
    size_t count = 0;

    slow->steps = 0;
    const enum mics_status status = mics_comm_all_gather_now(run->options.control, &slow->own,
                                                             slow->windows, sizeof slow->own, err);

    if (status == MICS_OK && slow->ranks)
        count = mics_slow_ranks_judge(slow->ranks, slow->windows, &found);
    for (size_t i = 0; i < count; i++)
        report(run, &found[i], rank0_status, err);
    return mics_run_mark_local(run, status);
}
