/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch/flight.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/timed_wait.h"
#include "base/utf8.h"
#include "doc/doc.h"
#include "report/flights.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double fault_wait_s = 2;   /* for a document, before the job is ended */
static const double remove_wait_s = 10; /* at an orderly end */

/* The file system may hang: only the writer uses it, a detached thread that runs while something is
 * to be done. */
struct mics_flight {
    const struct mics_world *world;
    const struct mics_engine *engine;
    const struct mics_run *run;
    char folder[MICS_PATH_MAX], path[MICS_PATH_MAX];
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t idle;  /* `writing` became false */
    bool writing;         /* the writer runs; it frees a flight that was closed */
    bool pending;         /* it is to write `doc`, or, NULL, to remove the file */
    json_t *doc;
    bool written; /* the file is that of the fault that counts */
    bool used, removed, closed;
    bool taken;                     /* a fault counts, for ... */
    enum mics_flight_reason reason; /* ... this reason */
    double suspended_s, suspended_until_s;
    struct mics_engine_op_times ops[MICS_FLIGHT_OPS];
};

/* The communicators of a document's operations: what they are, and this rank's peers in them. */
struct groups {
    json_t *list;
    int at[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT]; /* + 1; 0: not in the list */
};

enum mics_status mics_flight_clear(const char *out, struct mics_err *err)
{
    char folder[MICS_PATH_MAX], old[MICS_PATH_MAX];
    bool exists = false;
    enum mics_status status = mics_path_format(folder, err, "%s/" MICS_FLIGHT_FOLDER, out);

    if (status == MICS_OK)
        status = mics_path_format(old, err, "%s.old", folder);
    if (status == MICS_OK)
        status = mics_file_exists(folder, &exists, err);
    if (status != MICS_OK || !exists)
        return status;
    status = mics_file_remove_tree(old, err);
    if (status == MICS_OK && rename(folder, old) != 0)
        status = mics_err_set_errno(err, "%s: cannot be renamed to '%s'", folder, old);
    return status;
}

enum mics_status mics_flight_open(const struct mics_world *world, const struct mics_engine *engine,
                                  const struct mics_run *run, const char *out,
                                  struct mics_flight **out_flight, struct mics_err *err)
{
    struct mics_flight *flight = calloc(1, sizeof *flight);
    enum mics_status status;

    if (!flight)
        return mics_err_nomem(err);
    flight->world = world;
    flight->engine = engine;
    flight->run = run;
    status = mics_path_format(flight->folder, err, "%s/" MICS_FLIGHT_FOLDER, out);
    if (status == MICS_OK)
        status = mics_path_format(flight->path, err, "%s/" MICS_FLIGHT_FILE, flight->folder,
                                  world->rank);
    if (status != MICS_OK) {
        free(flight);
        return status;
    }
    pthread_mutex_init(&flight->lock, NULL);
    mics_cond_init_timed(&flight->idle);
    *out_flight = flight;
    return MICS_OK;
}

static void flight_free(struct mics_flight *flight)
{
    pthread_cond_destroy(&flight->idle);
    pthread_mutex_destroy(&flight->lock);
    free(flight);
}

void mics_flight_close(struct mics_flight *flight)
{
    if (!flight)
        return;
    pthread_mutex_lock(&flight->lock);
    const bool writing = flight->writing;
    flight->closed = true;
    pthread_mutex_unlock(&flight->lock);
    if (!writing)
        flight_free(flight);
}

void mics_flight_note_suspended(struct mics_flight *flight, double seconds)
{
    if (!flight)
        return;
    pthread_mutex_lock(&flight->lock);
    flight->suspended_s = seconds;
    flight->suspended_until_s = mics_now_s();
    pthread_mutex_unlock(&flight->lock);
}

static const char *reason_name(enum mics_flight_reason reason)
{
    static const char *const names[] = {
        [MICS_FLIGHT_STOP] = "stop",   [MICS_FLIGHT_STALL] = "stall",
        [MICS_FLIGHT_DEATH] = "death", [MICS_FLIGHT_COMM] = "communication",
        [MICS_FLIGHT_PEER] = "peer",   [MICS_FLIGHT_FAILURE] = "failure",
    };

    return names[reason];
}

static const char *state_name(enum mics_op_state state)
{
    static const char *const names[] = {
        [MICS_OP_ENDED] = "ended", [MICS_OP_RUNNING] = "running", [MICS_OP_DUE] = "due"};

    return names[state];
}

/* The ranks of this rank's communicator of a kind, in world order. */
static json_t *group_ranks(const struct mics_shape *shape, enum mics_comm_kind kind, uint32_t rank)
{
    json_t *ranks = json_array();
    struct mics_group_position own, other;

    mics_shape_position(shape, kind, rank, &own);
    for (uint32_t i = 0; ranks && i < mics_shape_world_size(shape); i++) {
        mics_shape_position(shape, kind, i, &other);
        if (other.color == own.color && json_array_append_new(ranks, json_integer(i)) != 0) {
            json_decref(ranks);
            ranks = NULL;
        }
    }
    return ranks;
}

/* The index of the operation's communicator in the list, to which it is added; -1: out of
 * memory. */
static int find_group(const struct mics_flight *flight, struct groups *groups,
                      const struct mics_op *op)
{
    const struct mics_plan_choice *choice = &flight->run->options.plan->choice;
    int *at = &groups->at[op->groups][op->comm];

    if (*at == 0) {
        json_t *ranks = group_ranks(&choice->shapes[op->groups], op->comm, flight->world->rank);
        json_t *group = ranks ? json_pack("{s:s,s:o}", "communicator",
                                          mics_comm_kind_name(op->comm), "ranks", ranks)
                              : NULL;

        if (!group || json_array_append_new(groups->list, group) != 0)
            return -1;
        *at = (int)json_array_size(groups->list);
    }
    return *at - 1;
}

/* Which of its communicator's collectives in its schedule the operation is, from 1. */
static json_int_t sequence_of(const struct mics_engine_op_times *times)
{
    json_int_t sequence = 0;

    for (uint32_t i = 0; i <= times->index; i++) {
        const struct mics_op *op = &times->schedule->ops[i];

        sequence += mics_op_is_comm(op->kind) && op->groups == times->op->groups &&
                    op->comm == times->op->comm;
    }
    return sequence;
}

static json_t *describe_op(const struct mics_flight *flight, struct groups *groups,
                           const struct mics_engine_op_times *times, double to_unix_s)
{
    static const char *const replays[] = {[MICS_REPLAY_STEP] = "step",
                                          [MICS_REPLAY_EVAL] = "evaluation",
                                          [MICS_REPLAY_UPDATE] = "update"};
    const struct mics_op *op = times->op;
    char stage[32];
    json_t *doc = json_pack(
        "{s:s,s:s,s:I,s:I,s:I,s:s,s:s,s:I,s:s,s:f}", "state", state_name(times->state), "of",
        replays[times->kind], "number", (json_int_t)times->number, "step", (json_int_t)times->step,
        "op", (json_int_t)times->index, "does", mics_op_kind_name(op->kind), "subject",
        mics_op_subject(op, flight->run->options.plan->model, stage, sizeof stage), "micro_step",
        (json_int_t)op->micro_step, "stream", mics_stream_kind_name(op->stream), "since",
        times->begin_s + to_unix_s);
    int failed = !doc;

    if (!failed && times->state == MICS_OP_ENDED)
        failed = json_object_set_new(doc, "end", json_real(times->end_s + to_unix_s));
    if (!failed && mics_op_is_comm(op->kind)) {
        const int group = find_group(flight, groups, op);

        failed = group < 0 || json_object_set_new(doc, "group", json_integer(group)) ||
                 json_object_set_new(doc, "sequence", json_integer(sequence_of(times)));
    }
    if (!failed)
        return doc;
    json_decref(doc);
    return NULL;
}

/* Members "groups" and "ops". */
static enum mics_status add_ops(struct mics_flight *flight, json_t *doc, double to_unix_s,
                                struct mics_err *err)
{
    struct groups groups = {.list = json_array()};
    json_t *list = json_array();
    size_t count = 0;
    enum mics_status status =
        mics_engine_last_ops(flight->engine, flight->ops, MICS_FLIGHT_OPS, &count, err);

    for (size_t i = 0; status == MICS_OK && i < count; i++)
        if (json_array_append_new(list, describe_op(flight, &groups, &flight->ops[i], to_unix_s)))
            status = mics_err_nomem(err);
    const int failed = json_object_set_new(doc, "groups", groups.list) |
                       json_object_set_new(doc, "ops", list); /* both take their references */

    return status == MICS_OK && failed ? mics_err_nomem(err) : status;
}

static json_t *describe_lost(const struct mics_world *world, const struct mics_flight_lost *lost,
                             size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++) {
        uint32_t first;
        const char *host = world->host_of_node[mics_world_node_of(world, lost[i].rank, &first)];
        char state[256];

        snprintf(state, sizeof state, "%s", lost[i].state);
        mics_utf8_make_line(state);
        if (json_array_append_new(list, json_pack("{s:I,s:s,s:b,s:s}", "rank",
                                                  (json_int_t)lost[i].rank, "host", host, "dead",
                                                  lost[i].dead, "last_seen", state)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Since the process was suspended for longer than that before now, it says nothing of this end. */
static const double suspension_counts_s = 10;

static enum mics_status describe(struct mics_flight *flight, enum mics_flight_reason reason,
                                 const char *text, const struct mics_flight_lost *lost,
                                 size_t lost_count, json_t **out, struct mics_err *err)
{
    const struct mics_world *world = flight->world;
    const struct mics_run_doing *doing = &flight->run->doing;
    const double now_s = mics_now_s();
    struct timespec now;
    struct mics_err shown;
    json_t *doc = mics_doc_new(MICS_FLIGHT_KIND, MICS_FLIGHT_VERSION);

    snprintf(shown.text, sizeof shown.text, "%s", text);
    mics_utf8_make_line(shown.text); /* it may have been cut within a character */
    timespec_get(&now, TIME_UTC);
    const double unix_s = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    const double doing_s = now_s - (double)doing->since_ns * 1e-9;
    json_t *rest =
        json_pack("{s:I,s:I,s:s,s:I,s:f,s:s,s:s,s:I,s:s,s:f,s:o}", "rank", (json_int_t)world->rank,
                  "world_size", (json_int_t)world->size, "host", world->host_of_node[world->node],
                  "pid", (json_int_t)getpid(), "time", unix_s, "reason", reason_name(reason),
                  "text", shown.text, "step", (json_int_t)flight->run->submitted_step, "doing",
                  mics_run_activity_name(doing->what), "doing_s", fmax(doing_s, 0), "lost",
                  describe_lost(world, lost, lost_count));
    enum mics_status status = MICS_OK;

    if (!doc || !rest || json_object_update(doc, rest) != 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK && flight->suspended_s > 0 &&
        now_s - flight->suspended_until_s < suspension_counts_s &&
        (json_object_set_new(doc, "suspended_s", json_real(flight->suspended_s)) != 0 ||
         json_object_set_new(doc, "suspended_until",
                             json_real(unix_s - now_s + flight->suspended_until_s)) != 0))
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = add_ops(flight, doc, unix_s - now_s, err);
    json_decref(rest);
    if (status == MICS_OK)
        *out = doc;
    else
        json_decref(doc);
    return status;
}

/* Without fsync: the process may have little time left, and its node goes on. */
static enum mics_status write_doc(const struct mics_flight *flight, const json_t *doc,
                                  struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    enum mics_status status = mics_file_make_folders(flight->folder, err);

    if (status == MICS_OK)
        status = mics_file_create(flight->path, &writer, err);
    if (status == MICS_OK)
        status = mics_doc_write(mics_file_stream(writer), doc, MICS_DOC_MSGPACK, err);
    if (status == MICS_OK)
        return mics_file_publish(writer, err);
    mics_file_discard(writer);
    return status;
}

/* One write or removal after the other, the last that was asked for. */
static void *writer_main(void *context)
{
    struct mics_flight *flight = context;
    struct mics_err err;

    pthread_mutex_lock(&flight->lock);
    while (flight->pending) {
        json_t *doc = flight->doc;
        const bool writes = doc != NULL, removed = flight->removed;
        bool written = false;

        flight->doc = NULL;
        flight->pending = false;
        pthread_mutex_unlock(&flight->lock);
        if (writes)
            written = write_doc(flight, doc, &err) == MICS_OK;
        else
            (void)unlink(flight->path);
        if (removed)
            (void)rmdir(flight->folder); /* the last rank can */
        json_decref(doc);
        pthread_mutex_lock(&flight->lock);
        flight->written = written;
        if (writes && !written && !flight->pending)
            flight->taken = false; /* a later fault may have more luck */
    }
    flight->writing = false;
    const bool closed = flight->closed;
    pthread_cond_broadcast(&flight->idle);
    pthread_mutex_unlock(&flight->lock);
    if (closed)
        flight_free(flight);
    return NULL;
}

/* Let the writer replace the file by `doc`, which becomes its own, or, NULL, remove it. The caller
 * holds the lock. Without a thread the file stays as it is. */
static void ask_writer(struct mics_flight *flight, json_t *doc)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, before;

    json_decref(flight->doc);
    flight->doc = doc;
    flight->pending = flight->used = true;
    flight->written = false;
    if (flight->writing)
        return;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    flight->writing = pthread_create(&thread, &detached, writer_main, flight) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    if (flight->writing)
        return;
    flight->pending = flight->taken = false;
    json_decref(flight->doc);
    flight->doc = NULL;
}

/* The caller holds the lock. */
static void await_writer(struct mics_flight *flight, double seconds)
{
    const struct timespec until = mics_deadline(seconds);

    while (flight->writing && mics_cond_wait_until(&flight->idle, &flight->lock, &until))
        ;
}

void mics_flight_write(struct mics_flight *flight, enum mics_flight_reason reason, const char *text,
                       const struct mics_flight_lost *lost, size_t lost_count)
{
    json_t *doc = NULL;
    struct mics_err err;

    if (!flight)
        return;
    pthread_mutex_lock(&flight->lock);
    if (!flight->removed &&
        (!flight->taken || (flight->reason == MICS_FLIGHT_STOP && reason != MICS_FLIGHT_STOP)) &&
        describe(flight, reason, text, lost, lost_count, &doc, &err) == MICS_OK) {
        flight->taken = true;
        flight->reason = reason;
        ask_writer(flight, doc);
    }
    pthread_mutex_unlock(&flight->lock);
}

bool mics_flight_wait(struct mics_flight *flight)
{
    if (!flight)
        return false;
    pthread_mutex_lock(&flight->lock);
    await_writer(flight, fault_wait_s);
    const bool written = flight->written && !flight->writing;
    pthread_mutex_unlock(&flight->lock);
    return written;
}

void mics_flight_withdraw(struct mics_flight *flight, enum mics_flight_reason reason)
{
    if (!flight)
        return;
    pthread_mutex_lock(&flight->lock);
    if (!flight->removed && flight->taken && flight->reason == reason) {
        flight->taken = false;
        ask_writer(flight, NULL);
    }
    pthread_mutex_unlock(&flight->lock);
}

void mics_flight_remove(struct mics_flight *flight)
{
    if (!flight)
        return;
    pthread_mutex_lock(&flight->lock);
    flight->removed = true;
    if (flight->used) {
        ask_writer(flight, NULL);
        await_writer(flight, remove_wait_s);
    }
    pthread_mutex_unlock(&flight->lock);
}
