/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that makes all MPI calls. While transfers are under way it polls, a little at full speed, then
 * giving the core away, then sleeping for a tenth of the time that nothing has moved: so waiting costs
 * little of the core and at most a tenth of the time. A new request ends the sleep. Without transfers it
 * still looks in now and then, for what MPI has accepted may not have left yet.
 */
#include "comm/mpi/mpi.h"

#if MICS_HAVE_MPI

#include "base/clock.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

static const int spins = 5;
static const double yield_s = 5e-6, nap_min_s = 20e-6, nap_max_s = 500e-6, idle_max_s = 20e-3;
static const double abort_patience_s = 3;

enum mics_status mics_mpi_failure(struct mics_err *err, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;

    MPI_Error_string(code, text, &length);
    return mics_err_set(err, MICS_ERR_COMM, "%s: %s", what, text);
}

int mics_mpi_send(struct mpi_comm *comm, const void *data, uint64_t bytes, int to, bool empty_too,
                  MPI_Request *request)
{
    const struct mpi_engine *engine = comm->engine;

    comm->transfer.sent.bytes += bytes;
    if (engine->nodes[comm->ranks[to]] != engine->node)
        comm->transfer.sent.net_bytes += bytes;
    *request = MPI_REQUEST_NULL;
    if (bytes == 0 && !empty_too)
        return MPI_SUCCESS;
    return MPI_Isend(data, (int)bytes, MPI_BYTE, comm->ranks[to], comm->tag, engine->world,
                     request);
}

int mics_mpi_recv(struct mpi_comm *comm, void *data, uint64_t bytes, int from, bool empty_too,
                  MPI_Request *request)
{
    *request = MPI_REQUEST_NULL;
    if (bytes == 0 && !empty_too)
        return MPI_SUCCESS;
    return MPI_Irecv(data, (int)bytes, MPI_BYTE, comm->ranks[from], comm->tag, comm->engine->world,
                     request);
}

static void begin_transfer(struct mpi_comm *comm)
{
    const struct comm_call *call = comm->head->call;

    if (comm->native)
        return;
    if (mics_mpi_takes_tree(call))
        mics_mpi_tree_begin(comm, call);
    else if (!call->next && mics_mpi_takes_short(comm, call))
        mics_mpi_short_begin(comm, call);
    else
        mics_mpi_ring_begin(comm, call);
}

/* Move posted requests to their communicators. The engine is locked. */
static void take_posted(struct mpi_engine *engine)
{
    while (engine->head) {
        struct mpi_request *request = engine->head;
        struct mpi_comm *comm = request->comm;

        engine->head = request->next;
        request->next = NULL;
        if (comm->head) {
            comm->tail = comm->tail->next = request;
            continue;
        }
        comm->head = comm->tail = request;
        comm->next_active = engine->active;
        engine->active = comm;
        begin_transfer(comm);
    }
    engine->tail = NULL;
}

/* From the moment it is done the request may be gone, and its communicator, too. */
static void answer(struct mpi_engine *engine, struct mpi_request *request, int code)
{
    const enum mics_status status =
        code == MPI_SUCCESS ? MICS_OK : mics_mpi_failure(&request->err, "MPI", code);

    pthread_mutex_lock(&engine->lock);
    request->status = status;
    request->done = true;
    pthread_cond_broadcast(&engine->done);
    pthread_mutex_unlock(&engine->lock);
}

static int progress_transfer(struct mpi_comm *comm, bool *moved, bool *done)
{
    if (comm->native) {
        *moved = *done = true;
        return mics_mpi_native_run(comm, comm->head->call);
    }
    switch (comm->transfer.route) {
    case MPI_ROUTE_TREE:
        return mics_mpi_tree_progress(comm, moved, done);
    case MPI_ROUTE_SHORT:
        return mics_mpi_short_progress(comm, moved, done);
    default:
        return mics_mpi_ring_progress(comm, moved, done);
    }
}

/* Returns whether the communicator has more to do; if not, it may be gone. */
static bool progress_comm(struct mpi_comm *comm, bool *moved)
{
    bool done = false;
    int code = progress_transfer(comm, moved, &done);

    if (code == MPI_SUCCESS && !done)
        return true;

    struct mpi_request *request = comm->head;
    const bool more = request->next != NULL;
    comm->head = request->next;
    comm->broken |= code != MPI_SUCCESS;
    request->sent = comm->transfer.sent;
    answer(comm->engine, request, code);
    if (more)
        begin_transfer(comm);
    return more;
}

static bool progress_all(struct mpi_engine *engine)
{
    bool moved = false;
    struct mpi_comm **link = &engine->active;

    while (*link) {
        struct mpi_comm *comm = *link, *next = comm->next_active;

        if (progress_comm(comm, &moved))
            link = &comm->next_active;
        else
            *link = next; /* `comm` may be gone */
    }
    return moved;
}

/* Sleep, or less when something is posted. The engine is locked. */
static void sleep_locked(struct mpi_engine *engine, double seconds)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&engine->posted, &engine->lock, &until);
}

static bool has_news(const struct mpi_engine *engine)
{
    return engine->head || engine->stop || engine->aborting;
}

/* Nothing moved for a while. The engine is locked. */
static void back_off(struct mpi_engine *engine, int polls, double still_s)
{
    if (polls < spins)
        return;
    if (still_s < yield_s) {
        pthread_mutex_unlock(&engine->lock);
        sched_yield();
        pthread_mutex_lock(&engine->lock);
        return;
    }

    double nap_s = still_s / 10;
    if (nap_s < nap_min_s)
        nap_s = nap_min_s;
    sleep_locked(engine, nap_s < nap_max_s ? nap_s : nap_max_s);
}

/* Nothing is under way here. Asking for a message that nobody sends makes MPI look after its own. */
static void idle(struct mpi_engine *engine, double still_s)
{
    int found;

    sleep_locked(engine, still_s < idle_max_s ? nap_max_s + still_s / 10 : idle_max_s);
    if (has_news(engine))
        return;
    pthread_mutex_unlock(&engine->lock);
    MPI_Iprobe(engine->world_rank, 0, engine->world, &found, MPI_STATUS_IGNORE);
    pthread_mutex_lock(&engine->lock);
}

void mics_mpi_serve(struct mpi_engine *engine)
{
    double moved_at = mics_now_s();
    int polls = 0;

    pthread_mutex_lock(&engine->lock);
    while (!engine->aborting && (engine->active || !engine->stop || engine->head)) {
        bool moved = engine->head != NULL;

        take_posted(engine);
        pthread_mutex_unlock(&engine->lock);
        if (engine->active)
            moved |= progress_all(engine);
        mics_mpi_pulse_beat(engine);
        pthread_mutex_lock(&engine->lock);
        if (moved) {
            moved_at = mics_now_s();
            polls = 0;
        } else if (engine->active && !has_news(engine)) {
            back_off(engine, polls++, mics_now_s() - moved_at);
        } else if (!has_news(engine)) {
            idle(engine, mics_now_s() - moved_at);
        }
    }
    pthread_mutex_unlock(&engine->lock);
}

void mics_mpi_engine_execute(struct mpi_engine *engine, struct mpi_request *request)
{
    pthread_mutex_lock(&engine->lock);
    request->next = NULL;
    if (engine->head)
        engine->tail->next = request;
    else
        engine->head = request;
    engine->tail = request;
    pthread_cond_signal(&engine->posted);
    while (!request->done)
        pthread_cond_wait(&engine->done, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
}

/* The thread of MPI may itself be stuck in a dead connection: then the launcher sees this process go. */
_Noreturn void mics_mpi_engine_abort(struct mpi_engine *engine, int code)
{
    pthread_mutex_lock(&engine->lock);
    engine->aborting = true;
    engine->abort_code = code;
    pthread_cond_signal(&engine->posted);
    pthread_mutex_unlock(&engine->lock);
    mics_sleep_s(abort_patience_s);
    _exit(code);
}

#endif
