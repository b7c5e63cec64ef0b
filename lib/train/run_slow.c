/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_slow.c - names the ranks and links that a run waits for.
 *
 * The times of a step are those of its timeline, which is read anyway; they are exchanged once in a
 * window, by the main thread, while the next step computes. Links are measured only where these
 * times leave it open that one is slow, between two steps, over the communicator by which the main
 * threads agree: buffers and communicators of training are not touched, so its results are the same
 * bits.
 */
#include "base/clock.h"
#include "base/units.h"
#include "comm/agree.h"
#include "probe/pair_rates.h"
#include "train/run_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of transfers of a rank: long beside the time slices of a scheduler, and so short that ranks wait
 * for a few seconds where no link is slow, and are not taken to hang where one hardly works. */
enum { FIRST_BYTES = 256 << 10, MAX_BYTES = 16 << 20 };
static const double transfer_s = 0.1, limit_s = 30;

/* However slow a link is, all pairs can be measured so often within the limit: twice, in four
 * confirmations, and some more for pauses between them. */
enum { PASSES = 8 };

/* Repeats in which what seems slow is below half of the others, and so named. */
enum { STAND_OUTS = 4 };

/* Between two measurements of links the run trains so many times as long as one took: after one
 * that was not sure less, but twice as much after each further one. */
static const double training_times = 99, times_unless_sure = 9;

/* Only the first rank judges, so its environment decides. */
static bool judges(const struct mics_world *world)
{
    bool on = true;

    mics_read_switch("MICS_SLOW_RANKS", &on, NULL); /* mics_world_open() refuses other values */
    return world->rank == 0 && on;
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
    if (status == MICS_OK && world->node_count > 1)
        status = mics_slow_links_open(world->node_count, &run->slow.links, err);
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
    mics_slow_links_close(run->slow.links);
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
        .exposed_s = (float)result->overlap.exposed_s,
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
    if (status == MICS_OK && run->slow.windows) {
        slow->waits = mics_slow_waits_of(slow->windows, run->options.world->size);
        slow->measure_links = slow->links && mics_slow_waits_are_long(&slow->waits) &&
                              mics_now_s() >= slow->measure_after_s;
    }
    return mics_run_mark_local(run, status);
}

/* "node2", "node2 and 3 others": of a group of the verdict, whose first node it is. */
static void format_group(const struct mics_run *run, const unsigned char *group, uint32_t node,
                         char *text, size_t size)
{
    const struct mics_world *world = run->options.world;
    uint32_t others = 0;

    for (uint32_t i = 0; i < world->node_count; i++)
        others += i != node && group[i] == group[node];
    snprintf(text, size, "%s and %" PRIu32 " other%s", world->host_of_node[node], others,
             others == 1 ? "" : "s");
}

static void report_link(const struct mics_run *run, const struct mics_slow_link *link,
                        const unsigned char *group, enum mics_status *rank0_status,
                        struct mics_err *err)
{
    static const char *const whats[] = {
        [MICS_SLOW_SENDING] = "sending",
        [MICS_SLOW_RECEIVING] = "receiving",
        [MICS_SLOW_BOTH] = "sending and receiving",
        [MICS_SLOW_PAIR] = "sending to ",
        [MICS_SLOW_GROUPS] = "exchanges with ",
    };
    const struct mics_world *world = run->options.world;
    const bool groups = link->direction == MICS_SLOW_GROUPS;
    char host[128], other[128] = "", what[160], own[32], others[32];
    uint32_t rank = 0;

    snprintf(host, sizeof host, "%s", world->host_of_node[link->node]);
    if (link->direction == MICS_SLOW_PAIR)
        snprintf(other, sizeof other, "%s", world->host_of_node[link->other]);
    if (groups) {
        format_group(run, group, link->node, host, sizeof host);
        format_group(run, group, link->other, other, sizeof other);
    }
    snprintf(what, sizeof what, "%s%s", whats[link->direction], other);
    for (uint32_t node = 0; node < link->node; node++)
        rank += world->ranks_of_node[node];
    mics_run_warn(run,
                  "step %" PRIu64 ": %s %s slow in %s: %s, usual are %s; it cost up to %.0f %% of "
                  "the last %d steps",
                  run->step, host, groups ? "are" : "is", what,
                  mics_format_rate(link->rate, own, sizeof own),
                  mics_format_rate(link->others_rate, others, sizeof others), 100 * link->cost,
                  MICS_SLOW_WINDOW);
    mics_run_report_fault(run,
                          json_pack("{s:s,s:I,s:I,s:I,s:s,s:s,s:f,s:f,s:f}", "event", "slow",
                                    "step", (json_int_t)run->step, "rank", (json_int_t)rank,
                                    "ranks", (json_int_t)world->ranks_of_node[link->node], "host",
                                    host, "what", what, "bytes_per_s", link->rate,
                                    "others_bytes_per_s", link->others_rate, "cost", link->cost),
                          rank0_status, err);
}

/* Bytes that each node has sent to others in a step, on average since the steps were last drained:
 * [nodes], the caller's. Collective. */
static double *gather_sent_bytes(struct mics_run *run, enum mics_status *status,
                                 struct mics_err *err)
{
    const struct mics_world *world = run->options.world;
    const uint64_t steps = run->totals.steps - run->slow.steps_done;
    const double own =
        steps > 0 ? (double)(mics_engine_net_bytes(run->options.engine) - run->slow.sent_bytes) /
                        (double)steps
                  : 0;
    double *all = mics_all_gather(run->options.control, &own, sizeof own, status, err), *sum = NULL;
    uint32_t first;

    if (*status == MICS_OK && !(sum = calloc(world->node_count, sizeof *sum)))
        *status = mics_err_nomem(err);
    for (uint32_t rank = 0; *status == MICS_OK && rank < world->size; rank++)
        sum[mics_world_node_of(world, rank, &first)] += all[rank];
    free(all);
    return sum;
}

enum mics_status mics_run_slow_measure_links(struct mics_run *run, enum mics_status *rank0_status,
                                             struct mics_err *err)
{
    struct mics_run_slow *slow = &run->slow;
    const uint32_t nodes = run->options.world->node_count;
    const struct mics_pair_rates_options options = {
        .world = run->options.world,
        .comm = run->options.control,
        .seconds = transfer_s,
        .longest_s = limit_s / (PASSES * 2 * mics_pair_rounds(nodes)),
        .first_bytes = FIRST_BYTES,
        .max_bytes = MAX_BYTES,
        .limit_s = limit_s,
        .stand_outs = STAND_OUTS,
        .transfers = &slow->transfers};
    struct mics_pair_rates rates = {0};
    const struct mics_slow_link *found = NULL;
    const double begin = mics_now_s();
    enum mics_status status = MICS_OK;
    double *sent_bytes = gather_sent_bytes(run, &status, err);
    size_t count = 0;

    slow->measure_links = false;
    if (status == MICS_OK)
        status = mics_pair_rates_measure(&options, &rates, err);
    const double end = mics_now_s();

    if (status == MICS_OK && !rates.sure && !slow->unsure_is_said) {
        slow->unsure_is_said = true;
        mics_run_warn(run,
                      "step %" PRIu64 ": all ranks wait for the network, but the rates between "
                      "nodes vary too much to name one that is slow",
                      run->step);
    }
    slow->unsure_times =
        rates.sure ? 0 : fmin(fmax(2 * slow->unsure_times, times_unless_sure), training_times);
    slow->measure_after_s =
        end + (rates.sure ? training_times : slow->unsure_times) * (end - begin);
    if (status == MICS_OK && slow->links && rates.sure)
        count = mics_slow_links_judge(slow->links, &rates.verdict, rates.reference, &slow->waits,
                                      sent_bytes, &found);
    for (size_t i = 0; i < count; i++)
        report_link(run, &found[i], rates.verdict.group, rank0_status, err);
    mics_pair_rates_fini(&rates);
    free(sent_bytes);
    return mics_run_mark_local(run, status);
}

void mics_run_slow_resume(struct mics_run *run)
{
    run->slow.sent_bytes = mics_engine_net_bytes(run->options.engine);
    run->slow.steps_done = run->totals.steps;
}
