/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that makes all MPI calls. While transfers are under way it polls, a little at full speed, then
 * giving the core away, then sleeping for a tenth of the time that nothing has moved: so waiting costs
 * little of the core and at most a tenth of the time. A new request ends the sleep. Without transfers it
 * still looks in now and then, for what MPI has accepted may not have left yet.
 */
#include "comm/mpi/mpi.h"
#include "base/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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

/* How the thread of MPI comes and goes. */



enum { TIMER_SLACK_NS = 1000 }; /* the system's 50000 would be most of a short nap */

/* The lowest rank of this node, by what the processes can really share. */
static int find_node(MPI_Comm world, int rank)
{
    MPI_Comm node;
    int lowest = rank;

    if (MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node) != MPI_SUCCESS)
        return -1;
    if (MPI_Bcast(&lowest, 1, MPI_INT, 0, node) != MPI_SUCCESS)
        lowest = -1;
    MPI_Comm_free(&node);
    return lowest;
}

/* The node of every rank. */
static enum mics_status find_nodes(struct mpi_engine *engine)
{
    engine->node = find_node(engine->world, engine->world_rank);
    if (engine->node < 0)
        return mics_err_set(&engine->start_err, MICS_ERR_COMM,
                            "MPI: cannot find out which ranks share a node");
    engine->nodes = calloc((size_t)engine->world_size, sizeof *engine->nodes);
    if (!engine->nodes)
        return mics_err_nomem(&engine->start_err);
    const int code =
        MPI_Allgather(&engine->node, 1, MPI_INT, engine->nodes, 1, MPI_INT, engine->world);
    return code == MPI_SUCCESS ? MICS_OK
                               : mics_mpi_failure(&engine->start_err, "MPI_Allgather", code);
}

static enum mics_status start_mpi(struct mpi_engine *engine)
{
    int provided, used = 0, has_bound = 0, *bound;

    MPI_Initialized(&used);
    if (used)
        return mics_err_set(&engine->start_err, MICS_ERR_ARG,
                            "MPI: this process has used it already");
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS)
        return mics_mpi_failure(&engine->start_err, "MPI_Init_thread", code);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Comm_dup(MPI_COMM_WORLD, &engine->world);
    if (code != MPI_SUCCESS)
        return mics_mpi_failure(&engine->start_err, "MPI_Comm_dup", code);
    MPI_Comm_set_errhandler(engine->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(engine->world, &engine->world_rank);
    MPI_Comm_size(engine->world, &engine->world_size);
    MPI_Comm_get_attr(engine->world, MPI_TAG_UB, &bound, &has_bound);
    engine->last_tag =
        has_bound ? (uint64_t)*bound : 32767; /* the least that the standard grants */
    const enum mics_status status = find_nodes(engine);
    return status == MICS_OK ? mics_mpi_pulse_init(engine) : status;
}

static void *engine_main(void *context)
{
    struct mpi_engine *engine = context;
    enum mics_status status = start_mpi(engine);

    prctl(PR_SET_TIMERSLACK, (unsigned long)TIMER_SLACK_NS);
    pthread_mutex_lock(&engine->lock);
    engine->start_status = status;
    engine->started = true;
    pthread_cond_broadcast(&engine->done);
    pthread_mutex_unlock(&engine->lock);
    if (status != MICS_OK)
        return NULL;

    mics_mpi_serve(engine);
    if (engine->aborting)
        MPI_Abort(MPI_COMM_WORLD, engine->abort_code);
    mics_mpi_pulse_fini(engine);
    MPI_Comm_free(&engine->world);
    MPI_Finalize();
    return NULL;
}

static void engine_free(struct mpi_engine *engine)
{
    pthread_cond_destroy(&engine->done);
    pthread_cond_destroy(&engine->posted);
    pthread_mutex_destroy(&engine->lock);
    free(engine->pulse.heard);
    free(engine->nodes);
    free(engine);
}

static struct mpi_engine *engine_new(void)
{
    struct mpi_engine *engine = calloc(1, sizeof *engine);
    pthread_condattr_t monotonic;

    if (!engine)
        return NULL;
    engine->next_tag = 1; /* 0 is for signs of life */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->posted, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&engine->done, NULL);
    pthread_mutex_init(&engine->lock, NULL);
    return engine;
}

enum mics_status mics_mpi_engine_start(struct mpi_engine **out, struct mics_err *err)
{
    struct mpi_engine *engine = engine_new();
    if (!engine)
        return mics_err_nomem(err);

    int code = pthread_create(&engine->thread, NULL, engine_main, engine);
    if (code != 0) {
        engine_free(engine);
        return mics_err_set(err, MICS_ERR_NOMEM, "MPI: cannot start a thread: %s", strerror(code));
    }
    pthread_setname_np(engine->thread, "mics-mpi");

    pthread_mutex_lock(&engine->lock);
    while (!engine->started)
        pthread_cond_wait(&engine->done, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
    if (engine->start_status != MICS_OK) {
        pthread_join(engine->thread, NULL);
        mics_err_set(err, engine->start_status, "%s", engine->start_err.text);
        const enum mics_status status = engine->start_status;
        engine_free(engine);
        return status;
    }
    *out = engine;
    return MICS_OK;
}

void mics_mpi_engine_stop(struct mpi_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->stop = true;
    pthread_cond_signal(&engine->posted);
    pthread_mutex_unlock(&engine->lock);
    pthread_join(engine->thread, NULL);
    engine_free(engine);
}
