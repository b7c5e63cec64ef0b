/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.c - which thread calls MPI, and how it waits.
 *
 * One thread at a time drives: it makes all MPI calls and progresses the transfers of all
 * communicators. A thread that waits for its own request drives until the request is complete, if
 * no other thread does: so a collective wakes no other thread. Then it leaves the rest to a thread
 * that waits for one of the remaining requests. While no request is in progress, the progress
 * thread drives now and then: for heartbeats, and because MPI may not have sent yet what it has
 * accepted. If MPI allows calls from one thread only (MPI_THREAD_FUNNELED), the progress thread
 * drives always.
 *
 * While transfers are in progress the driver polls: a few times at full speed, then yielding the
 * core, then sleeping for a tenth of the time since anything last moved, or of the usual time
 * between two messages. Waiting so costs little CPU time and delays a transfer by a tenth of its
 * time at most. A new request ends the sleep. For short data it yields for longer, because waking
 * up takes as long as their messages; but not where other threads compute on the core, for each
 * yield then gives them a whole time slice. Transfers that give way to others sleep five times as
 * long.
 */
#include "comm/mpi/mpi.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/threads.h"
#include "base/timed_wait.h"
#include "comm/cpu_time.h"

#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#if MICS_HAVE_PMIX
#include <pmix.h>
#endif

enum {
    TIMER_SLACK_NS = 1000, /* the default, 50000, is longer than the shortest sleep */
    SHORT_BYTES = 16384,   /* of one rank's data */
    CROWDED_DRIVES = 16,   /* without long yields, after one that took a time slice */
    PROCESS_THREADS = 20   /* of Open MPI and of mics, but for those that compute */
};

static const int spins = 5;
static const double yield_s = 5e-6, short_yield_s = 1e-3, time_slice_s = 300e-6;
static const double sleep_min_s = 20e-6, sleep_max_s = 500e-6;
static const double patient_sleep_max_s = 5e-3;
static const double idle_min_s = 1e-3, idle_max_s = 20e-3; /* from one idle poll to the next */
static const double abort_timeout_s = 3;
/* Address space that Open MPI 4.1.4 and its plug-ins take in a job on one node. */
static const uint64_t library_address_bytes = (uint64_t)288 << 20;

/* MICS_ERR_COMM with "<what>: <text of MPI's error code>". */
static enum mics_status mpi_failure(struct mics_err *err, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;

    MPI_Error_string(code, text, &length);
    return mics_err_set(err, MICS_ERR_COMM, "%s: %s", what, text);
}

/* Requests ----------------------------------------------------------------------------------- */

/* Does the communicator's first request move more than a packet? Then exchanges give way to it. */
static bool is_traffic(const struct mpi_comm *comm)
{
    const struct comm_call *call = comm->head->calls;

    return call->kind != COMM_EXCHANGE && call->bytes > COMM_MPI_SEGMENT;
}

static void begin_request(struct mpi_comm *comm)
{
    if (is_traffic(comm))
        atomic_fetch_add(comm->thread->traffic, 1);
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

    mics_comm_cpu_count_mpi();
    pthread_mutex_lock(&thread->lock);
    request->status = status;
    request->done = true;
    pthread_cond_signal(&request->changed);
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
    if (is_traffic(comm))
        atomic_fetch_sub(comm->thread->traffic, 1);
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

/* Driving ------------------------------------------------------------------------------------ */

/* Sleep until `seconds` have passed or `condition` is signalled. Returns whether they have passed.
 * The lock is held. */
static bool sleep_locked(struct mpi_thread *thread, pthread_cond_t *condition, double seconds)
{
    return !mics_cond_wait_for(condition, &thread->lock, seconds);
}

static bool has_posted(const struct mpi_thread *thread)
{
    return thread->head || thread->stop || thread->aborting;
}

/* How long a driver has waited. */
struct waiting {
    double moved_at;
    double interval_s; /* usual time between two messages */
    double yield_s;    /* for how long to yield before sleeping */
    int polls;         /* since anything moved */
    bool is_precise;   /* this thread's sleeps are */
};

/* Do all transfers in progress give way to others? */
static bool can_wait(const struct mpi_thread *thread)
{
    for (const struct mpi_comm *comm = thread->active; comm; comm = comm->next_active)
        if (!(comm->head->calls->within_s > 0))
            return false;
    return true;
}

static void note_move(const struct mpi_thread *thread, struct waiting *waiting)
{
    const double now = mics_now_s();

    if (waiting->polls > (can_wait(thread) ? 0 : spins))
        waiting->interval_s += (now - waiting->moved_at - waiting->interval_s) / 4;
    waiting->moved_at = now;
    waiting->polls = 0;
}

/* Transfers are in progress, but nothing has moved. The lock is held. */
static void back_off(struct mpi_thread *thread, struct waiting *waiting)
{
    const double still_s = mics_now_s() - waiting->moved_at;
    const bool patient = can_wait(thread);

    if (waiting->polls++ < spins && !patient)
        return;
    if (still_s < waiting->yield_s && !patient) {
        pthread_mutex_unlock(&thread->lock);
        sched_yield();
        if (mics_now_s() - waiting->moved_at - still_s > time_slice_s) {
            waiting->yield_s = 0;
            thread->crowded = CROWDED_DRIVES;
        }
        pthread_mutex_lock(&thread->lock);
        return;
    }
    if (!waiting->is_precise)
        prctl(PR_SET_TIMERSLACK, (unsigned long)TIMER_SLACK_NS);
    waiting->is_precise = true;

    const double sleep_s =
        fmax(sleep_min_s, fmax(still_s, waiting->interval_s) / (patient ? 2 : 10));

    sleep_locked(thread, &thread->posted,
                 fmin(sleep_s, patient ? patient_sleep_max_s : sleep_max_s));
}

/* Wake a thread that can drive next. The lock is held. */
static void hand_over(struct mpi_thread *thread)
{
    struct mpi_request *next = thread->active ? thread->active->head : thread->head;

    if (thread->aborting || thread->stop)
        pthread_cond_signal(&thread->idle);
    else if (next && thread->is_shared)
        pthread_cond_signal(&next->changed);
    else if (thread->idle_until_s > thread->moved_at + 2 * idle_min_s)
        pthread_cond_signal(&thread->idle); /* to poll earlier than that */
}

static bool is_short(const struct mpi_request *request)
{
    uint64_t bytes = 0;

    for (int i = 0; i < request->count; i++)
        bytes += request->calls[i].bytes;
    return bytes <= SHORT_BYTES;
}

/* Until `own` is complete or, if that is NULL, until no request is in progress; or until an abort
 * is posted. The lock is held, and no other thread drives. */
static void drive(struct mpi_thread *thread, const struct mpi_request *own)
{
    struct waiting waiting = {.moved_at = mics_now_s(), .yield_s = yield_s};

    if (thread->crowded > 0)
        thread->crowded--;
    else if (own && is_short(own))
        waiting.yield_s = short_yield_s;
    thread->is_driven = true;
    if (own)
        mics_comm_cpu_begin_mpi();
    while (!thread->aborting && (own ? !own->done : thread->active || thread->head)) {
        bool moved = thread->head != NULL;

        take_posted(thread);
        pthread_mutex_unlock(&thread->lock);
        moved |= progress_all(thread);
        mics_mpi_heartbeat_progress(thread);
        pthread_mutex_lock(&thread->lock);
        if (moved)
            note_move(thread, &waiting);
        else if (!has_posted(thread))
            back_off(thread, &waiting);
    }
    mics_comm_cpu_count_mpi();
    thread->moved_at = waiting.moved_at;
    thread->is_driven = false;
    hand_over(thread);
}

enum mics_status mics_mpi_thread_execute(struct mpi_comm *comm, const struct comm_call *calls,
                                         int count, struct comm_sent *sent, struct mics_err *err)
{
    struct mpi_request request = {
        .calls = calls, .count = count, .comm = comm, .changed = PTHREAD_COND_INITIALIZER};
    struct mpi_thread *thread = comm->thread;

    pthread_mutex_lock(&thread->lock);
    if (thread->head)
        thread->tail->next = &request;
    else
        thread->head = &request;
    thread->tail = &request;
    if (thread->is_driven)
        pthread_cond_signal(&thread->posted);
    else if (!thread->is_shared)
        pthread_cond_signal(&thread->idle);
    while (!request.done)
        if (thread->is_shared && !thread->is_driven && !thread->aborting)
            drive(thread, &request);
        else
            pthread_cond_wait(&request.changed, &thread->lock);
    pthread_mutex_unlock(&thread->lock);
    pthread_cond_destroy(&request.changed);
    sent->bytes += request.sent.bytes;
    sent->net_bytes += request.sent.net_bytes;
    if (request.status != MICS_OK)
        mics_err_set(err, request.status, "%s", request.err.text);
    return request.status;
}

/* Probing for a message that is never sent makes MPI progress its own. The lock is held, and no
 * other thread drives. */
static void poll_idle(struct mpi_thread *thread)
{
    int found;

    thread->is_driven = true;
    pthread_mutex_unlock(&thread->lock);
    MPI_Iprobe(thread->world_rank, 0, thread->world, &found, MPI_STATUS_IGNORE);
    mics_mpi_heartbeat_progress(thread);
    mics_comm_cpu_count_mpi();
    pthread_mutex_lock(&thread->lock);
    thread->is_driven = false;
    hand_over(thread);
}

/* In the progress thread, until a stop or an abort is posted. */
static void serve(struct mpi_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    while (!thread->stop && !thread->aborting) {
        const double now = mics_now_s(), still_s = now - thread->moved_at;
        const double sleep_s = fmin(fmax(idle_min_s, still_s), idle_max_s);

        thread->idle_until_s = now + sleep_s;
        if (thread->head && !thread->is_shared)
            drive(thread, NULL);
        else if (sleep_locked(thread, &thread->idle, sleep_s) && !thread->is_driven &&
                 mics_now_s() > thread->moved_at + idle_min_s)
            poll_idle(thread);
    }
    while (thread->is_driven)
        pthread_cond_wait(&thread->idle, &thread->lock);
    pthread_mutex_unlock(&thread->lock);
}

/* Start and end ------------------------------------------------------------------------------ */

/* Count the transfers of all ranks of a node together, as far as they can share memory. */
static int share_traffic(struct mpi_thread *thread, MPI_Comm node)
{
    const bool creates = thread->node == thread->world_rank;
    char name[64] = "";
    unsigned random = 0;

    if (creates && getrandom(&random, sizeof random, 0) == sizeof random) {
        snprintf(name, sizeof name, "/mics-traffic-%ld-%08x", (long)getpid(), random);
        thread->traffic = mics_mpi_map_shared(name, true, sizeof *thread->traffic);
    }
    int code = MPI_Bcast(name, sizeof name, MPI_CHAR, 0, node);
    if (code == MPI_SUCCESS && !creates)
        thread->traffic = mics_mpi_map_shared(name, false, sizeof *thread->traffic);
    if (code == MPI_SUCCESS)
        code = MPI_Barrier(node);
    if (creates && thread->traffic)
        shm_unlink(name);
    if (!thread->traffic)
        thread->traffic = &thread->own_traffic;
    return code;
}

/* Sets thread->node: ranks that can share memory are on one node. */
static int find_node(struct mpi_thread *thread)
{
    MPI_Comm node;
    int code = MPI_Comm_split_type(thread->world, MPI_COMM_TYPE_SHARED, thread->world_rank,
                                   MPI_INFO_NULL, &node);

    if (code != MPI_SUCCESS)
        return code;
    thread->node = thread->world_rank;
    code = MPI_Bcast(&thread->node, 1, MPI_INT, 0, node);
    if (code == MPI_SUCCESS)
        code = share_traffic(thread, node);
    MPI_Comm_free(&node);
    return code;
}

/* The node of every rank. */
static enum mics_status find_nodes(struct mpi_thread *thread)
{
    int code = find_node(thread);

    if (code != MPI_SUCCESS)
        return mpi_failure(&thread->start_err, "MPI: finding the ranks of a node", code);
    thread->nodes = calloc((size_t)thread->world_size, sizeof *thread->nodes);
    if (!thread->nodes)
        return mics_err_nomem(&thread->start_err);
    code = MPI_Allgather(&thread->node, 1, MPI_INT, thread->nodes, 1, MPI_INT, thread->world);
    return code == MPI_SUCCESS ? MICS_OK : mpi_failure(&thread->start_err, "MPI_Allgather", code);
}

static bool is_there(const char *pattern)
{
    glob_t found;
    const bool is = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;

    globfree(&found);
    return is;
}

/* Open MPI asks libfabric and the libraries of InfiniPath and Omni-Path whether there are cards of
 * theirs. This takes them two tenths of a second, most of it in clocks that they compare. */
static void leave_out_absent_cards(void)
{
    static const char *const cards[] = {"/sys/class/infiniband/*", "/sys/class/cxi/*", "/dev/hfi1*",
                                        "/dev/ipath*", "/dev/kgni*"};

    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        if (is_there(cards[i]))
            return;
    setenv("OMPI_MCA_mtl", "^psm,psm2,ofi", 0);
}

/*
 * Wait until every rank has left MPI_Init_thread.
 *
 * Open MPI ends it with a fence, but under Slurm (22.05) the ranks of a node leave a fence without
 * data when they alone are in it. A message then crashes a rank of another node that has not
 * prepared to receive (open-mpi/ompi#12495). A fence that collects data is one of all ranks. This
 * takes the PMIx that Open MPI has opened; one that is built into Open MPI cannot be reached.
 */
static void wait_for_all_ranks(void)
{
#if MICS_HAVE_PMIX
    void *pmix = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD);
    __typeof__(PMIx_Fence) *fence;
    pmix_info_t collect;

    if (!pmix)
        return;
    memset(&collect, 0, sizeof collect);
    snprintf(collect.key, sizeof collect.key, "%s", PMIX_COLLECT_DATA);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    *(void **)&fence = dlsym(pmix, "PMIx_Fence");
    if (fence)
        fence(NULL, 0, &collect, 1);
    dlclose(pmix);
#endif
}

static enum mics_status start_mpi(struct mpi_thread *thread)
{
    /* of srun, not of an mpirun in a job of Slurm */
    const bool by_slurm =
        getenv("PMIX_RANK") && getenv("SLURM_PROCID") && !getenv("OMPI_COMM_WORLD_SIZE");
    int provided, used = 0, has_bound = 0, *bound;

    MPI_Initialized(&used);
    if (used)
        return mics_err_set(&thread->start_err, MICS_ERR_ARG,
                            "MPI: this process has already used it");
    leave_out_absent_cards();
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (code != MPI_SUCCESS)
        return mpi_failure(&thread->start_err, "MPI_Init_thread", code);
    if (by_slurm)
        wait_for_all_ranks();
    thread->is_shared = provided >= MPI_THREAD_SERIALIZED;
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
    mics_thread_shorten_slices();
    pthread_mutex_lock(&thread->lock);
    thread->start_status = status;
    thread->started = true;
    pthread_cond_signal(&thread->start);
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
    pthread_cond_destroy(&thread->start);
    pthread_cond_destroy(&thread->idle);
    pthread_cond_destroy(&thread->posted);
    pthread_mutex_destroy(&thread->lock);
    if (thread->traffic && thread->traffic != &thread->own_traffic)
        munmap(thread->traffic, sizeof *thread->traffic);
    free(thread->heartbeat.received);
    free(thread->nodes);
    free(thread);
}

static struct mpi_thread *thread_new(void)
{
    struct mpi_thread *thread = calloc(1, sizeof *thread);

    if (!thread)
        return NULL;
    thread->next_tag = 1; /* 0 is for heartbeats */
    mics_cond_init_timed(&thread->posted);
    mics_cond_init_timed(&thread->idle);
    pthread_cond_init(&thread->start, NULL);
    pthread_mutex_init(&thread->lock, NULL);
    return thread;
}

enum mics_status mics_mpi_thread_start(struct mpi_thread **out, struct mics_err *err)
{
    /* Open MPI crashes, or waits for ever, where it gets no thread or no memory. */
    enum mics_status status = mics_limits_try_threads(PROCESS_THREADS, err);
    if (status == MICS_OK)
        status = mics_limits_try_memory(library_address_bytes, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "MPI");
        return status;
    }

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
        pthread_cond_wait(&thread->start, &thread->lock);
    pthread_mutex_unlock(&thread->lock);
    if (thread->start_status != MICS_OK) {
        pthread_join(thread->id, NULL);
        mics_err_set(err, thread->start_status, "%s", thread->start_err.text);
        const enum mics_status failure = thread->start_status;
        thread_free(thread);
        return failure;
    }
    *out = thread;
    return MICS_OK;
}

void mics_mpi_thread_stop(struct mpi_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    thread->stop = true;
    pthread_cond_signal(&thread->idle);
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
    pthread_cond_signal(&thread->idle);
    pthread_mutex_unlock(&thread->lock);
    mics_sleep_s(abort_timeout_s);
    _exit(code);
}
