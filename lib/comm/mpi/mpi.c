/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - communicators over MPI: table, split, allocation. */
#include "comm/mpi/mpi.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

static_assert(COMM_MPI_STAGING <= MICS_COMM_STAGING_BYTES, "the bound in comm.h holds");
static_assert(MICS_COMM_TREE_ARITY * MICS_COMM_TREE_REDUCE_BYTES <= COMM_MPI_STAGING,
              "all children fit");
static_assert((int)MICS_COMM_GROUP_MAX * MICS_COMM_HALVING_BYTES <= COMM_MPI_STAGING,
              "a batch fits");
static_assert((int)MICS_COMM_TREE_BROADCAST_BYTES <= (int)COMM_MPI_SEGMENT,
              "a broad tree carries one packet");
static_assert((int)COMM_MPI_NODE_WINDOW * COMM_MPI_NODE_SEGMENT <= (int)COMM_MPI_STAGING,
              "the staging memory holds either kind of segments");
static_assert((int)COMM_MPI_WINDOW <= (int)MICS_COMM_TREE_ARITY,
              "a request for each message in flight");

static enum mics_status mpi_execute(struct comm_base *base, const struct comm_call *calls,
                                    int count, struct comm_sent *sent, struct mics_err *err)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    const int step = mics_mpi_can_coalesce(comm, calls, count) ? count : 1;
    enum mics_status status = MICS_OK;

    if (comm->broken)
        return mics_err_set(err, MICS_ERR_COMM, "an earlier collective failed");
    for (int i = 0; i < count; i++)
        if (calls[i].kind == COMM_ALL_GATHER || calls[i].kind == COMM_ALL_TO_ALL)
            mics_comm_copy_own(base, &calls[i]);
    for (int i = 0; i < count && status == MICS_OK; i += step)
        status = comm->node && calls[i].kind != COMM_EXCHANGE
                     ? mics_mpi_node_execute(comm, &calls[i], step, sent, err)
                     : mics_mpi_thread_execute(comm, &calls[i], step, sent, err);
    return status;
}

static void comm_destroy(struct mpi_comm *comm)
{
    if (!comm)
        return;
    mics_mpi_node_close(comm);
    free(comm->base.blocks);
    free(comm->ranks);
    free(comm->staging);
    free(comm->requests);
    free(comm);
}

static void mpi_free(struct mics_comm *base)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    struct mpi_thread *thread = comm->thread;

    comm_destroy(comm);
    if (--thread->comms == 0)
        mics_mpi_thread_stop(thread);
}

static void mpi_abort(struct mics_comm *comm, int code)
{
    mics_mpi_thread_abort(((struct mpi_comm *)comm)->thread, code);
}

static enum mics_status mpi_split(struct mics_comm *comm, int color, int key, int block,
                                  struct mics_comm **out, struct mics_err *err);

static const struct comm_backend mpi_backend = {.name = "mpi",
                                                .heartbeat = &mics_mpi_heartbeat_ops,
                                                .split = mpi_split,
                                                .free = mpi_free,
                                                .abort = mpi_abort,
                                                .submit = mics_comm_host_submit,
                                                .execute = mpi_execute};

/* NULL: out of memory. The caller fills ranks and blocks and then calls open_comm(). */
static struct mpi_comm *comm_new(struct mpi_thread *thread, int rank, int size, uint64_t tag)
{
    struct mpi_comm *comm = calloc(1, sizeof *comm);

    if (!comm)
        return NULL;
    comm->thread = thread;
    comm->tag = (int)tag;
    comm->ranks = calloc((size_t)size, sizeof *comm->ranks);
    comm->base.blocks = calloc((size_t)size, sizeof *comm->base.blocks);
    comm->staging = size > 1 ? malloc(COMM_MPI_STAGING) : NULL;
    comm->requests = calloc(2 * (size_t)size, sizeof(MPI_Request));
    if (!comm->ranks || !comm->base.blocks || !comm->requests || (size > 1 && !comm->staging)) {
        comm_destroy(comm);
        return NULL;
    }
    mics_comm_base_init(&comm->base, &mpi_backend);
    comm->base.comm.rank = rank;
    comm->base.comm.size = size;
    comm->base.comm.node = thread->node;
    return comm;
}

/* Between ring and direct. A communicator of the same ranks in the same order as `parent` takes
 * over its measurement. Collective. */
static enum mics_status choose_algorithms(struct mpi_comm *comm, const struct mpi_comm *parent,
                                          struct mics_err *err)
{
    const int size = comm->base.comm.size;

    if (!parent || parent->base.comm.size != size ||
        memcmp(comm->ranks, parent->ranks, (size_t)size * sizeof *comm->ranks) != 0)
        return mics_mpi_tune(comm, err);
    comm->direct = parent->direct;
    return MICS_OK;
}

/* Choose message sizes and algorithms. Collective. On failure `comm` is freed. */
static enum mics_status open_comm(struct mpi_comm *comm, const struct mpi_comm *parent,
                                  struct mics_comm **out, struct mics_err *err)
{
    const int *nodes = comm->thread->nodes, size = comm->base.comm.size;
    enum mics_status status = MICS_OK;
    bool one_node = true;

    comm->thread->comms++;
    comm->base.comm.block = comm->base.blocks[comm->base.comm.rank];
    for (int i = 1; i < size; i++)
        one_node = one_node && nodes[comm->ranks[i]] == nodes[comm->ranks[0]];
    comm->window = one_node ? COMM_MPI_NODE_WINDOW : COMM_MPI_WINDOW;
    comm->segment = one_node ? COMM_MPI_NODE_SEGMENT : COMM_MPI_SEGMENT;
    if (one_node && size > 1)
        status = mics_mpi_node_open(comm, err);
    if (status == MICS_OK && !comm->node)
        status = choose_algorithms(comm, parent, err);
    if (status == MICS_OK)
        *out = &comm->base.comm;
    else
        mpi_free(&comm->base.comm);
    return status;
}

/* Tags increase, so that two communicators that share two ranks never have the same tag. */
static enum mics_status take_tag(struct mpi_thread *thread, uint64_t tag, struct mics_err *err)
{
    thread->next_tag = mics_max_u64(thread->next_tag, tag + 1);
    if (tag > thread->last_tag)
        return mics_err_set(err, MICS_ERR_COMM, "split: MPI has no more than %llu tags",
                            (unsigned long long)thread->last_tag);
    return MICS_OK;
}

static enum mics_status mpi_split(struct mics_comm *base, int color, int key, int block,
                                  struct mics_comm **out, struct mics_err *err)
{
    struct mpi_comm *parent = (struct mpi_comm *)base, *comm = NULL;
    struct mpi_thread *thread = parent->thread;
    struct comm_split split;
    enum mics_status status =
        mics_comm_split_init(base, color, key, block, thread->next_tag, &split, err);

    if (status != MICS_OK)
        return status;
    status = take_tag(thread, split.max_tag, err);
    if (status == MICS_OK && color >= 0) {
        comm = comm_new(thread, split.rank, split.size, split.max_tag);
        status = comm ? MICS_OK : mics_err_nomem(err);
    }
    for (int i = 0; comm && i < split.size; i++) {
        comm->ranks[i] = parent->ranks[split.parents[i]];
        comm->base.blocks[i] = split.blocks[i];
    }
    mics_comm_split_fini(&split);
    if (comm)
        return open_comm(comm, parent, out, err);
    if (status == MICS_OK)
        *out = NULL;
    return status;
}

enum mics_status mics_comm_new_mpi(struct mics_comm **out, struct mics_err *err)
{
    struct mpi_thread *thread;
    const enum mics_status status = mics_mpi_thread_start(&thread, err);

    if (status != MICS_OK)
        return status;

    struct mpi_comm *comm =
        comm_new(thread, thread->world_rank, thread->world_size, thread->next_tag++);
    if (!comm) {
        mics_mpi_thread_stop(thread);
        return mics_err_nomem(err);
    }
    for (int i = 0; i < thread->world_size; i++)
        comm->ranks[i] = comm->base.blocks[i] = i;
    return open_comm(comm, NULL, out, err);
}
