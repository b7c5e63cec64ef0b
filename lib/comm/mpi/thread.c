/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.c - the progress thread, which makes all MPI calls.
 *
 * While transfers are in progress it polls: a few times at full speed, then yielding the core, then
 * sleeping for a tenth of the time since anything last moved. Waiting so costs little CPU time and
 * delays a transfer by a tenth of its time at most. A new request ends the sleep. Without transfers
 * it still polls now and then, because MPI may not have sent yet what it has accepted.
 */
#include "comm/mpi/mpi.h"

#include "base/clock.h"
#include "comm/cpu_time.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { TIMER_SLACK_NS = 1000 }; /* the default, 50000, is longer than the shortest sleep */

static const int spins = 5;
static const double yield_s = 5e-6, sleep_min_s = 20e-6, sleep_max_s = 500e-6, idle_max_s = 20e-3;
static const double abort_timeout_s = 3;

/* MICS_ERR_COMM with "<what>: <text of MPI's error code>". */
static enum mics_status mpi_failure(struct mics_err *err, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;

    MPI_Error_string(code, text, &length);
    return mics_err_set(err, MICS_ERR_COMM, "%s: %s", what, text);
}

/* Requests ----------------------------------------------------------------------------------- */

static void begin_request(struct mpi_comm *comm)
{
    if (!comm->native)
        mics_mpi_transfer_begin(comm);
}

/* Move posted requests to the queues of their communicators. The thread's lock is held. */
static void take_posted(struct mpi_thread *thread)
{
    while (thread->head) {
        struct mpi_request *request = thread->head;
        struct mpi_comm *comm = request->comm;

        thread->head = request->next;
        request->next = NULL;
        if (comm->head) {
            comm->tail = comm->tail->next = request;
            continue;
        }
        comm->head = comm->tail = request;
        comm->next_active = thread->active;
        thread->active = comm;
        begin_request(comm);
    }
    thread->tail = NULL;
}

/* Once `done` is set, the waiting thread may free the request and its communicator. */
static void complete_request(struct mpi_thread *thread, struct mpi_request *request, int code)
{
    const enum mics_status status =
        code == MPI_SUCCESS ? MICS_OK : mpi_failure(&request->err, "MPI", code);

    mics_comm_cpu_publish();
    pthread_mutex_lock(&thread->lock);
    request->status = status;
    request->done = true;
    pthread_cond_broadcast(&thread->complete);
    pthread_mutex_unlock(&thread->lock);
}

/* Returns whether the communicator has more to do; if not, it may have been freed. */
static bool progress_comm(struct mpi_comm *comm, bool *moved)
{
    bool done = false;
    int code;

    if (comm->native) {
        *moved = done = true;
        code = mics_mpi_native_run(comm, comm->head->calls);
    } else {
        code = mics_mpi_transfer_progress(comm, moved, &done);
    }
    if (code == MPI_SUCCESS && !done)
        return true;

    struct mpi_request *request = comm->head;
    const bool more = request->next != NULL;
    comm->head = request->next;
    comm->broken |= code != MPI_SUCCESS;
    request->sent = comm->transfer.sent;
    complete_request(comm->thread, request, code);
    if (more)
        begin_request(comm);
    return more;
}

static bool progress_all(struct mpi_thread *thread)
{
    bool moved = false;
    struct mpi_comm **link = &thread->active;

    while (*link) {
        struct mpi_comm *comm = *link, *next = comm->next_active;

        if (progress_comm(comm, &moved))
            link = &comm->next_active;
        else
            *link = next; /* `comm` may have been freed */
    }
    return moved;
}

enum mics_status mics_mpi_thread_execute(struct mpi_comm *comm, const struct comm_call *calls,
                                         int count, struct comm_sent *sent, struct mics_err *err)
{
    struct mpi_request request = {.calls = calls, .count = count, .comm = comm};
    struct mpi_thread *thread = comm->thread;

    pthread_mutex_lock(&thread->lock);
    if (thread->head)
        thread->tail->next = &request;
    else
        thread->head = &request;
    thread->tail = &request;
    pthread_cond_signal(&thread->posted);
    while (!request.done)
        pthread_cond_wait(&thread->complete, &thread->lock);
    pthread_mutex_unlock(&thread->lock);
    sent->bytes += request.sent.bytes;
    sent->net_bytes += request.sent.net_bytes;
    if (request.status != MICS_OK)
        mics_err_set(err, request.status, "%s", request.err.text);
    return request.status;
}

/* The loop ----------------------------------------------------------------------------------- */

/* Sleep until the time has passed or something is posted. The lock is held. */
static void sleep_locked(struct mpi_thread *thread, double seconds)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&thread->posted, &thread->lock, &until);
}

static bool has_posted(const struct mpi_thread *thread)
{
    return thread->head || thread->stop || thread->aborting;
}

/* Transfers are in progress, but nothing has moved in `polls` polls and `still_s` seconds. The lock
 * is held. */
static void back_off(struct mpi_thread *thread, int polls, double still_s)
{
    if (polls < spins)
        return;
    if (still_s < yield_s) {
        pthread_mutex_unlock(&thread->lock);
        sched_yield();
        pthread_mutex_lock(&thread->lock);
        return;
    }

    const double sleep_s = still_s / 10 > sleep_min_s ? still_s / 10 : sleep_min_s;

    sleep_locked(thread, sleep_s < sleep_max_s ? sleep_s : sleep_max_s);
}

/* No transfers. Probing for a message that is never sent makes MPI progress its own. The lock is
 * held. */
static void idle(struct mpi_thread *thread, double still_s)
{
    int found;

    sleep_locked(thread, still_s < idle_max_s ? sleep_max_s + still_s / 10 : idle_max_s);
    if (has_posted(thread))
        return;
    pthread_mutex_unlock(&thread->lock);
    MPI_Iprobe(thread->world_rank, 0, thread->world, &found, MPI_STATUS_IGNORE);
    pthread_mutex_lock(&thread->lock);
}

/* Until a stop is posted and all requests are complete, or until an abort is posted. */
static void serve(struct mpi_thread *thread)
{
    double moved_at = mics_now_s();
    int polls = 0;

    pthread_mutex_lock(&thread->lock);
    while (!thread->aborting && (thread->active || !thread->stop || thread->head)) {
        bool moved = thread->head != NULL;

        take_posted(thread);
        pthread_mutex_unlock(&thread->lock);
        if (thread->active)
            moved |= progress_all(thread);
        mics_mpi_heartbeat_progress(thread);
        pthread_mutex_lock(&thread->lock);
        if (moved) {
            moved_at = mics_now_s();
            polls = 0;
        } else if (thread->active && !has_posted(thread)) {
            back_off(thread, polls++, mics_now_s() - moved_at);
        } else if (!has_posted(thread)) {
            idle(thread, mics_now_s() - moved_at);
        }
    }
    pthread_mutex_unlock(&thread->lock);
}

/* Start and end ------------------------------------------------------------------------------ */

/* The lowest rank of this node: ranks that can share memory are on one node. -1: MPI failed. */
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
static enum mics_status find_nodes(struct mpi_thread *thread)
{
    thread->node = find_node(thread->world, thread->world_rank);
    if (thread->node < 0)
        return mics_err_set(&thread->start_err, MICS_ERR_COMM,
                            "MPI: cannot find out which ranks share a node");
    thread->nodes = calloc((size_t)thread->world_size, sizeof *thread->nodes);
    if (!thread->nodes)
        return mics_err_nomem(&thread->start_err);
    const int code =
        MPI_Allgather(&thread->node, 1, MPI_INT, thread->nodes, 1, MPI_INT, thread->world);
    return code == MPI_SUCCESS ? MICS_OK : mpi_failure(&thread->start_err, "MPI_Allgather", code);
}

static enum mics_status start_mpi(struct mpi_thread *thread)
{
    int provided, used = 0, has_bound = 0, *bound;

    MPI_Initialized(&used);
    if (used)
        return mics_err_set(&thread->start_err, MICS_ERR_ARG,
                            "MPI: this process has already used it");
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS)
        return mpi_failure(&thread->start_err, "MPI_Init_thread", code);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Comm_dup(MPI_COMM_WORLD, &thread->world);
    if (code != MPI_SUCCESS)
        return mpi_failure(&thread->start_err, "MPI_Comm_dup", code);
    MPI_Comm_set_errhandler(thread->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(thread->world, &thread->world_rank);
    MPI_Comm_size(thread->world, &thread->world_size);
    MPI_Comm_get_attr(thread->world, MPI_TAG_UB, &bound, &has_bound);
    thread->last_tag = has_bound ? (uint64_t)*bound : 32767; /* the minimum in the standard */
    const enum mics_status status = find_nodes(thread);
    return status == MICS_OK ? mics_mpi_heartbeat_init(thread) : status;
}

static void *thread_main(void *context)
{
    struct mpi_thread *thread = context;
    const enum mics_status status = start_mpi(thread);

    prctl(PR_SET_TIMERSLACK, (unsigned long)TIMER_SLACK_NS);
    pthread_mutex_lock(&thread->lock);
    thread->start_status = status;
    thread->started = true;
    pthread_cond_broadcast(&thread->complete);
    pthread_mutex_unlock(&thread->lock);
    if (status != MICS_OK)
        return NULL;

    serve(thread);
    if (thread->aborting)
        MPI_Abort(MPI_COMM_WORLD, thread->abort_code);
    mics_mpi_heartbeat_fini(thread);
    MPI_Comm_free(&thread->world);
    MPI_Finalize();
    return NULL;
}

static void thread_free(struct mpi_thread *thread)
{
    pthread_cond_destroy(&thread->complete);
    pthread_cond_destroy(&thread->posted);
    pthread_mutex_destroy(&thread->lock);
    free(thread->heartbeat.received);
    free(thread->nodes);
    free(thread);
}

static struct mpi_thread *thread_new(void)
{
    struct mpi_thread *thread = calloc(1, sizeof *thread);
    pthread_condattr_t monotonic;

    if (!thread)
        return NULL;
    thread->next_tag = 1; /* 0 is for heartbeats */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&thread->posted, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&thread->complete, NULL);
    pthread_mutex_init(&thread->lock, NULL);
    return thread;
}

enum mics_status mics_mpi_thread_start(struct mpi_thread **out, struct mics_err *err)
{
    struct mpi_thread *thread = thread_new();
    if (!thread)
        return mics_err_nomem(err);

    const int code = pthread_create(&thread->id, NULL, thread_main, thread);
    if (code != 0) {
        thread_free(thread);
        return mics_err_set(err, MICS_ERR_NOMEM, "MPI: cannot start a thread: %s", strerror(code));
    }
    pthread_setname_np(thread->id, "mics-mpi");

    pthread_mutex_lock(&thread->lock);
    while (!thread->started)
        pthread_cond_wait(&thread->complete, &thread->lock);
    pthread_mutex_unlock(&thread->lock);
    if (thread->start_status != MICS_OK) {
        pthread_join(thread->id, NULL);
        mics_err_set(err, thread->start_status, "%s", thread->start_err.text);
        const enum mics_status status = thread->start_status;
        thread_free(thread);
        return status;
    }
    *out = thread;
    return MICS_OK;
}

void mics_mpi_thread_stop(struct mpi_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    thread->stop = true;
    pthread_cond_signal(&thread->posted);
    pthread_mutex_unlock(&thread->lock);
    pthread_join(thread->id, NULL);
    thread_free(thread);
}

/* The progress thread may hang in a dead connection and never call MPI_Abort. The launcher then
 * notices the exit of this process. */
_Noreturn void mics_mpi_thread_abort(struct mpi_thread *thread, int code)
{
    pthread_mutex_lock(&thread->lock);
    thread->aborting = true;
    thread->abort_code = code;
    pthread_cond_signal(&thread->posted);
    pthread_mutex_unlock(&thread->lock);
    mics_sleep_s(abort_timeout_s);
    _exit(code);
}
