/* SPDX-License-Identifier: Apache-2.0 */
/* How the thread of MPI comes and goes. */
#include "comm/mpi/mpi.h"

#if MICS_HAVE_MPI

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

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

#endif
