/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/mpi/mpi.h"

#include "comm/comm.h"

#include <stdlib.h>

int mics_comm_launched_by_mpi(void)
{
    static const char *const signs[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (getenv(signs[i]))
            return 1;
    return 0;
}

#if MICS_HAVE_MPI

#include "base/num.h"

#include <string.h>

static_assert(COMM_MPI_STAGING <= MICS_COMM_STAGING_BYTES, "what the planner was promised");
static_assert(COMM_TREE_ARITY * COMM_TREE_REDUCE_BYTES <= COMM_MPI_STAGING, "all children fit");
static_assert((int)COMM_TREE_BROADCAST_BYTES <= (int)COMM_MPI_SEGMENT,
              "a broad tree carries one packet");
static_assert((int)COMM_MPI_NODE_WINDOW * COMM_MPI_NODE_SEGMENT <= (int)COMM_MPI_STAGING,
              "the staging memory is for either kind of messages");
static_assert((int)COMM_MPI_WINDOW <= (int)COMM_TREE_ARITY, "a slot for each message under way");

/* This rank's own piece of what is gathered. */
static void place_own(const struct comm_base *base, const struct comm_call *call)
{
    char *own =
        (char *)call->recv + (uint64_t)comm_block_of(base, call, base->comm.rank) * call->bytes;

    if (own != call->send && call->bytes > 0)
        memcpy(own, call->send, call->bytes);
}

static enum mics_status carry_out(struct mpi_comm *comm, const struct comm_call *call,
                                  struct comm_sent *sent, struct mics_err *err)
{
    struct mpi_request request = {.call = call, .comm = comm};

    for (const struct comm_call *each = call; each; each = each->next)
        if (each->kind == COMM_ALL_GATHER)
            place_own(&comm->base, each);
    mics_mpi_engine_execute(comm->engine, &request);
    sent->bytes += request.sent.bytes;
    sent->net_bytes += request.sent.net_bytes;
    if (request.status != MICS_OK)
        mics_err_set(err, request.status, "%s", request.err.text);
    return request.status;
}

/* Only a ring carries several calls. What goes by tree adds in another order, joined or not. */
static bool joins_well(const struct comm_call *call)
{
    for (; call; call = call->next)
        if (mics_mpi_takes_tree(call))
            return false;
    return true;
}

static enum mics_status mpi_execute(struct comm_base *base, const struct comm_call *call,
                                    struct comm_sent *sent, struct mics_err *err)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    enum mics_status status = MICS_OK;

    if (comm->broken)
        return mics_err_set(err, MICS_ERR_COMM, "an earlier collective failed");
    if (joins_well(call))
        return carry_out(comm, call, sent, err);
    for (; call && status == MICS_OK; call = call->next) {
        struct comm_call alone = *call;

        alone.next = NULL;
        status = carry_out(comm, &alone, sent, err);
    }
    return status;
}

static void comm_destroy(struct mpi_comm *comm)
{
    if (!comm)
        return;
    free(comm->base.blocks);
    free(comm->ranks);
    free(comm->staging);
    free(comm->requests);
    free(comm);
}

static void mpi_free(struct mics_comm *base)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    struct mpi_engine *engine = comm->engine;

    comm_destroy(comm);
    if (--engine->comms == 0)
        mics_mpi_engine_stop(engine);
}

static void mpi_abort(struct mics_comm *comm, int code)
{
    mics_mpi_engine_abort(((struct mpi_comm *)comm)->engine, code);
}

static enum mics_status mpi_split(struct mics_comm *comm, int color, int key, int block,
                                  struct mics_comm **out, struct mics_err *err);

static const struct mics_comm_ops mpi_ops = {.split = mpi_split,
                                             .free = mpi_free,
                                             .abort = mpi_abort,
                                             .tell = mics_mpi_tell,
                                             .heard = mics_mpi_heard,
                                             COMM_BASE_OPS};

/* Without ranks and blocks, which the caller fills. NULL: no memory. */
static struct mpi_comm *comm_new(struct mpi_engine *engine, int rank, int size, uint64_t tag)
{
    struct mpi_comm *comm = calloc(1, sizeof *comm);

    if (!comm)
        return NULL;
    comm->engine = engine;
    comm->tag = (int)tag;
    comm->ranks = calloc((size_t)size, sizeof *comm->ranks);
    comm->base.blocks = calloc((size_t)size, sizeof *comm->base.blocks);
    comm->staging = size > 1 ? malloc(COMM_MPI_STAGING) : NULL;
    comm->requests = calloc(2 * (size_t)size, sizeof(MPI_Request));
    if (!comm->ranks || !comm->base.blocks || !comm->requests || (size > 1 && !comm->staging)) {
        comm_destroy(comm);
        return NULL;
    }
    comm->base.execute = mpi_execute;
    comm->base.takes_joined = true;
    comm->base.comm.ops = &mpi_ops;
    comm->base.comm.backend = "mpi";
    comm->base.comm.rank = rank;
    comm->base.comm.size = size;
    comm->base.comm.node = engine->node;
    return comm;
}

/* Tags grow: no two communicators that share two ranks have the same one. */
static enum mics_status take_tag(struct mpi_engine *engine, uint64_t greatest, struct mics_err *err)
{
    engine->next_tag = mics_max_u64(engine->next_tag, greatest + 1);
    if (greatest > engine->last_tag)
        return mics_err_set(err, MICS_ERR_COMM, "split: MPI has no more than %llu tags",
                            (unsigned long long)engine->last_tag);
    return MICS_OK;
}

static void size_messages(struct mpi_comm *comm)
{
    const int *nodes = comm->engine->nodes;
    bool one_node = true;

    for (int i = 1; i < comm->base.comm.size; i++)
        one_node = one_node && nodes[comm->ranks[i]] == nodes[comm->ranks[0]];
    comm->window = one_node ? COMM_MPI_NODE_WINDOW : COMM_MPI_WINDOW;
    comm->segment = one_node ? COMM_MPI_NODE_SEGMENT : COMM_MPI_SEGMENT;
}

/* The same ranks in the same order as the parent's need no times of their own. */
static enum mics_status tune_like(struct mpi_comm *comm, const struct mpi_comm *parent,
                                  struct mics_err *err)
{
    const size_t size = (size_t)comm->base.comm.size;

    if (comm->base.comm.size != parent->base.comm.size ||
        memcmp(comm->ranks, parent->ranks, size * sizeof *comm->ranks) != 0)
        return mics_mpi_tune(comm, err);
    comm->tuned = parent->tuned;
    return MICS_OK;
}

static enum mics_status mpi_split(struct mics_comm *base, int color, int key, int block,
                                  struct mics_comm **out, struct mics_err *err)
{
    struct mpi_comm *parent = (struct mpi_comm *)base, *comm = NULL;
    struct mpi_engine *engine = parent->engine;
    struct comm_split split;
    enum mics_status status =
        mics_comm_split_init(base, color, key, block, engine->next_tag, &split, err);

    if (status != MICS_OK)
        return status;
    status = take_tag(engine, split.greatest_tag, err);
    if (status != MICS_OK)
        goto out;
    if (color >= 0) {
        comm = comm_new(engine, split.rank, split.size, split.greatest_tag);
        if (!comm) {
            status = mics_err_nomem(err);
            goto out;
        }
        for (int i = 0; i < split.size; i++) {
            comm->ranks[i] = parent->ranks[split.parents[i]];
            comm->base.blocks[i] = split.blocks[i];
        }
        comm->base.comm.block = block;
        size_messages(comm);
        engine->comms++;
        status = tune_like(comm, parent, err);
    }
    if (status != MICS_OK) {
        mpi_free(&comm->base.comm);
        goto out;
    }
    *out = comm ? &comm->base.comm : NULL;
out:
    mics_comm_split_fini(&split);
    return status;
}

enum mics_status mics_comm_new_mpi(struct mics_comm **out, struct mics_err *err)
{
    struct mpi_engine *engine;
    enum mics_status status = mics_mpi_engine_start(&engine, err);

    if (status != MICS_OK)
        return status;

    struct mpi_comm *comm =
        comm_new(engine, engine->world_rank, engine->world_size, engine->next_tag++);
    if (!comm) {
        mics_mpi_engine_stop(engine);
        return mics_err_nomem(err);
    }
    for (int i = 0; i < engine->world_size; i++)
        comm->ranks[i] = comm->base.blocks[i] = i;
    comm->base.comm.block = engine->world_rank;
    size_messages(comm);
    engine->comms = 1;
    status = mics_mpi_tune(comm, err);
    if (status == MICS_OK)
        *out = &comm->base.comm;
    else
        mpi_free(&comm->base.comm);
    return status;
}

#else

enum mics_status mics_comm_new_mpi(struct mics_comm **out, struct mics_err *err)
{
    (void)out;
    return mics_err_set(err, MICS_ERR_UNSUPPORTED, "this build is without MPI");
}

#endif
