/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watchdog.c - which rank is to blame, and which rank reports it.
 *
 * Each rank's heartbeat carries its state: the step and the operation that it executes. A rank
 * without a heartbeat for half of the time-out is silent: its process is stopped or its node
 * unreachable. Without a silent rank, the rank that is least far in its step is to blame. Only the
 * first and the last rank receive heartbeats. The first rank reports; if it is silent itself, the
 * last rank reports a little later. If both are, the others notice that their heartbeats are not
 * received, and one of them reports.
 */
#include "train/watch/watchdog.h"

#include "base/clock.h"
#include "base/threads.h"
#include "base/timed_wait.h"
#include "train/watch/liveness_table.h"
#include "train/watch/signals.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double poll_interval_s = 0.1;
static const double silent_after_min_s = 3;   /* heartbeats are sent about once a second */
static const double suspended_after_s = 2;    /* a poll that late: this process was stopped */
static const double stall_kept_s = 3;         /* the flight of a stall that has passed */
static const double resume_grace_s = 3;       /* no reports for so long after it continues */
static const double last_rank_delay_s = 3;    /* the first rank reports before the last one */
static const double other_ranks_delay_s = 6;  /* and both before any other rank, */
static const double next_rank_delay_s = 0.5;  /* of which the lowest is first */
static const double saving_limit_factor = 10; /* on the time-out while a checkpoint is written */

struct mics_watchdog {
    struct mics_watchdog_options options;
    struct mics_liveness_table *table; /* or NULL */
    pthread_t thread;
    pthread_mutex_t lock; /* guards `stop` */
    pthread_cond_t stopped;
    bool stop;

    /* Used by the thread only. Times are of the monotonic clock, in seconds. */
    /* The counters of the engine and of measured links, or that of the writers, at the last
     * change. */
    uint64_t progress;
    bool saving;
    double progress_s;            /* when `progress` or `saving` changed */
    bool stalled, stopped_flight; /* the flight is written for that */
    double stall_passed_s;        /* when progress went on after it; 0: there is no such flight */
    double polled_s;              /* the last poll */
    double quiet_until_s;         /* after this process was suspended */
    double comm_failed_s; /* when a communicator was first seen to have failed; 0: none has */
};

/* The state of a rank in 64 bits, so that a larger value is further: step in the upper half;
 * evaluating, saving, and the number of the operation + 1 (0: none) in the lower. Between
 * operations a rank that saves has there how much its writer has written, or SAVED if it has no
 * writer. */
#define STATE_EVALUATING (1u << 31)
#define STATE_SAVING     (1u << 30)
#define STATE_SAVED      (STATE_SAVING - 1)
#define SAVED_UNIT_SHIFT 16 /* 64 KiB */

static uint64_t encode_state(const struct mics_engine_activity *doing, const struct mics_run *run)
{
    const bool saving = run->disk.waiting;
    uint32_t low = doing->op == MICS_NONE ? 0 : doing->op + 1;

    if (saving && low == 0)
        low =
            mics_saver_busy(run->disk.saver)
                ? (uint32_t)(mics_saver_written(run->disk.saver) >> SAVED_UNIT_SHIFT) % STATE_SAVED
                : STATE_SAVED;
    return (doing->step ? doing->step : run->submitted_step) << 32 |
           (doing->evaluating ? STATE_EVALUATING : 0) | (saving ? STATE_SAVING : 0) | low;
}

/* "step 12: gather of h.2, micro-step 1" */
static void format_state(const struct mics_watchdog *watchdog, uint64_t state, char *text,
                         size_t size)
{
    const struct mics_model *model = watchdog->options.run->options.plan->model;
    const uint32_t op_index = (uint32_t)state & ~(STATE_EVALUATING | STATE_SAVING);
    const bool evaluating = state & STATE_EVALUATING;
    const int used = snprintf(text, size, "step %u: %s", (unsigned)(state >> 32),
                              evaluating ? "evaluation, " : "");

    text += used;
    size -= (size_t)used;
    if (state & STATE_SAVING) {
        snprintf(text, size,
                 op_index == STATE_SAVED ? "waiting for the others' checkpoint"
                                         : "writing a checkpoint");
        return;
    }
    if (!op_index) {
        snprintf(text, size, "between operations");
        return;
    }
    const struct mics_op *op = mics_engine_op(watchdog->options.engine, evaluating, op_index - 1);
    char stage[32];
    const char *subject = mics_op_subject(op, model, stage, sizeof stage);

    snprintf(text, size, "%s%s%s, micro-step %u", mics_op_kind_name(op->kind),
             *subject ? " of " : "", subject, op->micro_step);
}

/* Seconds since the last heartbeat of `rank`, and the state in it; < 0: this rank receives none. */
static double heartbeat_age_s(const struct mics_watchdog *watchdog, uint32_t rank, uint64_t *state)
{
    struct mics_comm *comm = watchdog->options.world->comm;

    return comm->heartbeat ? comm->heartbeat->age_s(comm, (int)rank, state) : -1;
}

static double silent_after_s(const struct mics_watchdog *watchdog)
{
    return fmax(watchdog->options.timeout_s / 2, silent_after_min_s);
}

/* Do both receivers of heartbeats not answer? Known on the other ranks. */
static bool receivers_are_silent(const struct mics_watchdog *watchdog)
{
    const struct mics_world *world = watchdog->options.world;
    struct mics_comm *comm = world->comm;
    const double limit_s = silent_after_s(watchdog);

    return world->size > 2 && comm->heartbeat &&
           comm->heartbeat->unreceived_s(comm, false) > limit_s &&
           comm->heartbeat->unreceived_s(comm, true) > limit_s;
}

/* The rank to report: the first silent one, with *silent the number of silent ranks on its node;
 * else, with *silent 0, the one with the least progress. *state is this rank's on entry and that
 * rank's on return. */
static uint32_t find_stalled_rank(const struct mics_watchdog *watchdog, uint64_t *state,
                                  uint32_t *silent)
{
    const struct mics_world *world = watchdog->options.world;
    uint32_t slowest = world->rank, first, silent_node = 0, silent_rank = MICS_NONE;
    uint64_t other;

    *silent = 0;
    for (uint32_t rank = 0; rank < world->size; rank++) {
        const double age_s = heartbeat_age_s(watchdog, rank, &other);

        if (age_s < 0)
            continue;
        const uint32_t node = mics_world_node_of(world, rank, &first);
        if (age_s > silent_after_s(watchdog) && (silent_rank == MICS_NONE || node == silent_node)) {
            silent_node = node;
            if ((*silent)++ == 0) {
                silent_rank = rank;
                *state = other;
            }
        } else if (silent_rank == MICS_NONE && other < *state) {
            slowest = rank;
            *state = other;
        }
    }
    return silent_rank != MICS_NONE ? silent_rank : slowest;
}

static void describe_stall(const struct mics_watchdog *watchdog, uint64_t state, double limit_s,
                           struct mics_err *err)
{
    const struct mics_world *world = watchdog->options.world;
    uint32_t silent, first;
    const uint32_t rank = find_stalled_rank(watchdog, &state, &silent);
    const uint32_t node = mics_world_node_of(world, rank, &first);
    const char *host = world->host_of_node[node];
    char where[128], who[160];

    format_state(watchdog, state, where, sizeof where);
    if (receivers_are_silent(watchdog)) {
        mics_err_set(
            err, MICS_ERR_COMM,
            "no progress for %g s: ranks 0 (%s) and %u (%s) do not answer; rank %u is in %s",
            limit_s, world->host_of_node[0], world->size - 1,
            world->host_of_node[world->node_count - 1], world->rank, where);
        return;
    }
    if (silent > 1 && rank == first && silent == world->ranks_of_node[node])
        snprintf(who, sizeof who, "node %s (ranks %u to %u) does not answer; last seen", host, rank,
                 rank + silent - 1);
    else if (silent)
        snprintf(who, sizeof who, "rank %u (%s) does not answer; last seen", rank, host);
    else
        snprintf(who, sizeof who, "rank %u (%s)", rank, host);
    mics_err_set(err, MICS_ERR_COMM, "no progress for %g s: %s in %s", limit_s, who, where);
}

/* A rank publishes its state from time to time. It cannot be steps behind this one, which waits for
 * it: then only the step is known. */
static void describe_death(const struct mics_watchdog *watchdog, int local_rank,
                           struct mics_err *err)
{
    const struct mics_world *world = watchdog->options.world;
    const uint64_t published = mics_liveness_table_read(watchdog->table, local_rank);
    struct mics_engine_activity doing;
    uint32_t first;
    const uint32_t node = mics_world_node_of(world, world->rank, &first);
    char where[128];

    mics_engine_watch(watchdog->options.engine, &doing);
    const uint64_t own = encode_state(&doing, watchdog->options.run);

    if (own >> 32 > published >> 32)
        snprintf(where, sizeof where, "step %u: last seen in step %u", (unsigned)(own >> 32),
                 (unsigned)(published >> 32));
    else
        format_state(watchdog, published, where, sizeof where);
    mics_err_set(err, MICS_ERR_COMM, "rank %u (%s) died in %s", first + (uint32_t)local_rank,
                 world->host_of_node[node], where);
}

/* Write the flight, with what this rank knows of the one that died. */
static void write_death(const struct mics_watchdog *watchdog, int local_rank,
                        const struct mics_err *err)
{
    const uint64_t published = mics_liveness_table_read(watchdog->table, local_rank);
    uint32_t first;
    char where[160];

    mics_world_node_of(watchdog->options.world, watchdog->options.world->rank, &first);
    format_state(watchdog, published, where, sizeof where);
    const struct mics_flight_lost lost = {first + (uint32_t)local_rank, true, where};
    mics_flight_write(watchdog->options.flight, MICS_FLIGHT_DEATH, err->text, &lost, 1);
}

/* Has a process of this node exited? True once `on_fault` was called, as in the checks below. */
static bool check_processes(const struct mics_watchdog *watchdog)
{
    const struct mics_watchdog_options *options = &watchdog->options;
    struct mics_err err = {""};
    int first_alive, dead;

    if (!watchdog->table)
        return false;
    dead = mics_liveness_table_find_dead(watchdog->table, &first_alive);
    if (dead < 0)
        return false;
    describe_death(watchdog, dead, &err);
    write_death(watchdog, dead, &err);
    options->on_fault(options->context, first_alive == (int)options->world->local_rank, &err);
    return true;
}

/* Has a communicator failed? A rank whose communicator only lost its peer (MICS_ERR_PEER) leaves
 * the report, for a while, to the peer itself or to the ranks of its node, which know more. */
static bool check_comms(struct mics_watchdog *watchdog)
{
    const struct mics_watchdog_options *options = &watchdog->options;
    const struct mics_world *world = options->world;
    struct mics_err err = {""};
    const enum mics_status status = mics_engine_check(options->engine, &err);
    const double now_s = mics_now_s();
    double delay_s = 0;

    if (status == MICS_OK)
        return false;
    if (watchdog->comm_failed_s == 0) {
        watchdog->comm_failed_s = now_s;
        mics_flight_write(options->flight,
                          status == MICS_ERR_PEER ? MICS_FLIGHT_PEER : MICS_FLIGHT_COMM, err.text,
                          NULL, 0);
    }
    if (status == MICS_ERR_PEER)
        delay_s = world->rank == 0 ? last_rank_delay_s : other_ranks_delay_s;
    if (now_s - watchdog->comm_failed_s < delay_s)
        return false;
    mics_err_prefix(&err, "rank %u (%s)", world->rank, world->host_of_node[world->node]);
    options->on_fault(options->context, true, &err);
    return true;
}

/* How long after the time-out this rank acts. *reports: it is to print the error. */
static double report_delay_s(const struct mics_watchdog *watchdog, bool *reports)
{
    const struct mics_world *world = watchdog->options.world;
    uint64_t state;

    *reports = true;
    if (world->rank == 0)
        return 0;
    if (heartbeat_age_s(watchdog, world->rank, &state) >= 0)
        return last_rank_delay_s;
    *reports = receivers_are_silent(watchdog);
    return other_ranks_delay_s + (*reports ? next_rank_delay_s * fmin(world->rank - 1, 10) : 0);
}

/* While a checkpoint is written: a number that changes when a writer that this rank knows of has
 * written more. */
static uint64_t saving_progress(const struct mics_watchdog *watchdog)
{
    const struct mics_world *world = watchdog->options.world;
    uint64_t sum = mics_saver_written(watchdog->options.run->disk.saver), state;

    for (uint32_t rank = 0; rank < world->size; rank++)
        if (heartbeat_age_s(watchdog, rank, &state) >= 0)
            sum += state;
    return sum;
}

/* Does this rank know nothing of the writers that it waits for? The first and the last rank do, and
 * the others rely on them. */
static bool waits_blindly(const struct mics_watchdog *watchdog)
{
    const struct mics_world *world = watchdog->options.world;
    uint64_t state;

    return world->size > 1 && world->comm->heartbeat &&
           heartbeat_age_s(watchdog, world->rank, &state) < 0 && !receivers_are_silent(watchdog) &&
           !mics_saver_busy(watchdog->options.run->disk.saver);
}

/* Progress went on after a stall was written. A little later, if it was no failure that ended what
 * the streams were at, the flight of the stall is withdrawn: the next fault has nothing to do with
 * it. */
static void withdraw_stall(struct mics_watchdog *watchdog, double now_s)
{
    if (watchdog->stall_passed_s == 0 || now_s - watchdog->stall_passed_s < stall_kept_s ||
        watchdog->comm_failed_s > 0 || mics_engine_has_failed(watchdog->options.engine))
        return;
    watchdog->stall_passed_s = 0;
    watchdog->stopped_flight = false; /* the stall's may have replaced it */
    mics_flight_withdraw(watchdog->options.flight, MICS_FLIGHT_STALL);
}

/* Write the flight, with the ranks that are silent if this one receives their heartbeats. */
static void write_stall(const struct mics_watchdog *watchdog, const struct mics_err *err)
{
    enum { MOST = 64 };
    struct mics_flight_lost lost[MOST];
    char where[MOST][160];
    size_t count = 0;
    uint64_t state;

    for (uint32_t rank = 0; rank < watchdog->options.world->size && count < MOST; rank++) {
        if (!(heartbeat_age_s(watchdog, rank, &state) > silent_after_s(watchdog)))
            continue;
        format_state(watchdog, state, where[count], sizeof where[count]);
        lost[count] = (struct mics_flight_lost){rank, false, where[count]};
        count++;
    }
    mics_flight_write(watchdog->options.flight, MICS_FLIGHT_STALL, err->text, lost, count);
}

static bool check_progress(struct mics_watchdog *watchdog, uint64_t progress, uint64_t state)
{
    const struct mics_watchdog_options *options = &watchdog->options;
    const bool saving = options->run->disk.waiting;
    bool reports;
    const double now_s = mics_now_s(), delay_s = report_delay_s(watchdog, &reports);
    const double limit_s = options->timeout_s * (saving ? saving_limit_factor : 1);
    struct mics_err err = {""};

    if (saving)
        progress = saving_progress(watchdog);
    if (progress != watchdog->progress || saving != watchdog->saving ||
        (saving && waits_blindly(watchdog)) || options->run->generating) {
        watchdog->progress = progress;
        watchdog->saving = saving;
        watchdog->progress_s = now_s;
        if (watchdog->stalled)
            watchdog->stall_passed_s = now_s;
        watchdog->stalled = false;
    }
    withdraw_stall(watchdog, now_s);
    if (now_s - watchdog->progress_s < limit_s)
        return false;
    describe_stall(watchdog, state, limit_s, &err);
    if (!watchdog->stalled) /* all ranks at about the same time, before one of them ends the job */
        write_stall(watchdog, &err);
    watchdog->stalled = true;
    watchdog->stall_passed_s = 0;
    if (now_s - watchdog->progress_s < limit_s + delay_s)
        return false;
    options->on_fault(options->context, reports, &err);
    return true;
}

/* A process that was suspended (SIGSTOP) has missed the heartbeats of the others, and has most
 * likely been continued only to be killed: it must not report anything. */
static bool was_suspended(struct mics_watchdog *watchdog)
{
    const double now_s = mics_now_s();

    if (watchdog->polled_s > 0 && now_s - watchdog->polled_s > suspended_after_s) {
        watchdog->progress_s = now_s;
        watchdog->quiet_until_s = now_s + resume_grace_s;
        mics_flight_note_suspended(watchdog->options.flight, now_s - watchdog->polled_s);
    }
    watchdog->polled_s = now_s;
    return now_s < watchdog->quiet_until_s;
}

/* The launcher may have sent SIGTERM since another rank died, and may soon kill this one. */
static void write_stop(struct mics_watchdog *watchdog)
{
    if (watchdog->stopped_flight || !watchdog->options.flight || !mics_signals_terminated())
        return;
    watchdog->stopped_flight = true;
    mics_flight_write(watchdog->options.flight, MICS_FLIGHT_STOP, "asked to stop by a signal", NULL,
                      0);
}

/* Publish this rank's state, then check everything. True: a fault was reported. */
static bool poll_once(struct mics_watchdog *watchdog)
{
    const struct mics_watchdog_options *options = &watchdog->options;
    struct mics_comm *comm = options->world->comm;
    struct mics_engine_activity doing;

    mics_engine_watch(options->engine, &doing);
    const uint64_t state = encode_state(&doing, options->run);
    if (comm->heartbeat)
        comm->heartbeat->set(comm, state);
    if (watchdog->table)
        mics_liveness_table_write(watchdog->table, state);
    const bool suspended = was_suspended(watchdog);
    write_stop(watchdog);
    if (suspended)
        return false;
    return check_processes(watchdog) || check_comms(watchdog) ||
           check_progress(watchdog, doing.progress + options->run->slow.transfers, state);
}

static void *run_watchdog(void *context)
{
    struct mics_watchdog *watchdog = context;

    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->stop) {
        pthread_mutex_unlock(&watchdog->lock);
        const bool fault = poll_once(watchdog);
        pthread_mutex_lock(&watchdog->lock);
        if (fault)
            break;
        if (!watchdog->stop)
            mics_cond_wait_for(&watchdog->stopped, &watchdog->lock, poll_interval_s);
    }
    pthread_mutex_unlock(&watchdog->lock);
    return NULL;
}

enum mics_status mics_watchdog_start(const struct mics_watchdog_options *options,
                                     struct mics_watchdog **out, struct mics_err *err)
{
    struct mics_watchdog *watchdog = calloc(1, sizeof *watchdog);
    enum mics_status status;
    int code;

    if (!watchdog)
        return mics_err_nomem(err);
    watchdog->options = *options;
    watchdog->progress_s = mics_now_s();
    status = mics_liveness_table_open(options->world->node_comm, &watchdog->table, err);
    if (status != MICS_OK) {
        free(watchdog);
        return status;
    }
    pthread_mutex_init(&watchdog->lock, NULL);
    mics_cond_init_timed(&watchdog->stopped);
    code = pthread_create(&watchdog->thread, NULL, run_watchdog, watchdog);
    if (code != 0) {
        mics_liveness_table_close(watchdog->table);
        free(watchdog);
        return mics_err_set(err, MICS_ERR_NOMEM, "watchdog: cannot start a thread: %s",
                            strerror(code));
    }
    pthread_setname_np(watchdog->thread, "mics-watchdog");
    *out = watchdog;
    return MICS_OK;
}

void mics_watchdog_expect_exit(struct mics_watchdog *watchdog)
{
    if (watchdog && watchdog->table)
        mics_liveness_table_expect_exit(watchdog->table);
}

void mics_watchdog_stop(struct mics_watchdog *watchdog)
{
    if (!watchdog)
        return;
    mics_watchdog_expect_exit(watchdog);
    pthread_mutex_lock(&watchdog->lock);
    watchdog->stop = true;
    pthread_cond_signal(&watchdog->stopped);
    pthread_mutex_unlock(&watchdog->lock);
    pthread_join(watchdog->thread, NULL);
    pthread_cond_destroy(&watchdog->stopped);
    pthread_mutex_destroy(&watchdog->lock);
    mics_liveness_table_close(watchdog->table);
    free(watchdog);
}
