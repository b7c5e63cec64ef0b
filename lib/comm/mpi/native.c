/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native.c - a communicator whose requests the thread of MPI answers with one blocking call.
 *
 * The MPI communicator is made and freed on that thread, too: `action` says what the next request is for.
 */
#include "comm/mpi/native.h"
#include "comm/mpi/mpi.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool mics_comm_has_native(const struct mics_comm *comm)
{
    return comm->size > 1 && comm->block == comm->rank && strcmp(comm->backend, "mpi") == 0;
}

#if MICS_HAVE_MPI

struct mpi_native {
    MPI_Comm comm;
    enum { NATIVE_OPEN, NATIVE_RUN, NATIVE_CLOSE } action;
};

static int open_native(struct mpi_comm *comm)
{
    MPI_Group world, group;
    int code = MPI_Comm_group(comm->engine->world, &world);

    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Group_incl(world, comm->base.comm.size, comm->ranks, &group);
    MPI_Group_free(&world);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Comm_create_group(comm->engine->world, group, comm->tag, &comm->native->comm);
    MPI_Group_free(&group);
    return code;
}

static MPI_Datatype type_of(enum mics_dtype dtype)
{
    return dtype == MICS_F64 ? MPI_DOUBLE : MPI_FLOAT;
}

static int gather(const struct mpi_comm *comm, const struct comm_call *call)
{
    char *own = (char *)call->recv + (uint64_t)comm->base.comm.rank * call->bytes;

    return MPI_Allgather(own == call->send ? MPI_IN_PLACE : call->send, (int)call->bytes, MPI_BYTE,
                         call->recv, (int)call->bytes, MPI_BYTE, comm->native->comm);
}

/* MPI's own in-place form leaves the sum at the beginning of the array: it is moved to the rank's block. */
static int reduce_scatter(const struct mpi_comm *comm, const struct comm_call *call)
{
    char *own = (char *)call->send + (uint64_t)comm->base.comm.rank * call->bytes;
    const bool in_place = own == call->recv;
    const int code = MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : call->send,
                                              in_place ? call->send : call->recv, (int)call->count,
                                              type_of(call->dtype), MPI_SUM, comm->native->comm);

    if (code == MPI_SUCCESS && in_place && own != call->send)
        memmove(own, call->send, call->bytes);
    return code;
}

static int run(const struct mpi_comm *comm, const struct comm_call *call)
{
    const MPI_Comm native = comm->native->comm;

    switch (call->kind) {
    case COMM_ALL_GATHER:
        return gather(comm, call);
    case COMM_REDUCE_SCATTER:
        return reduce_scatter(comm, call);
    case COMM_ALL_REDUCE:
        return MPI_Allreduce(MPI_IN_PLACE, call->recv, (int)call->count, type_of(call->dtype),
                             MPI_SUM, native);
    case COMM_BROADCAST:
        return MPI_Bcast(call->recv, (int)call->bytes, MPI_BYTE, call->root, native);
    default:
        return MPI_Barrier(native);
    }
}

int mics_mpi_native_run(struct mpi_comm *comm, const struct comm_call *call)
{
    comm->transfer.sent = (struct comm_sent){0};
    switch (comm->native->action) {
    case NATIVE_OPEN:
        return open_native(comm);
    case NATIVE_CLOSE:
        return MPI_Comm_free(&comm->native->comm);
    default:
        return run(comm, call);
    }
}

static enum mics_status native_execute(struct comm_base *base, const struct comm_call *call,
                                       struct comm_sent *sent, struct mics_err *err)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    struct mpi_request request = {.call = call, .comm = comm};

    *sent = (struct comm_sent){0};
    if (call->dtype == MICS_BF16 &&
        (call->kind == COMM_REDUCE_SCATTER || call->kind == COMM_ALL_REDUCE))
        return mics_err_set(err, MICS_ERR_COMM, "MPI cannot add numbers of bf16");
    if (call->bytes > INT_MAX || call->count > INT_MAX)
        return mics_err_set(err, MICS_ERR_COMM, "MPI cannot count so many elements");
    mics_mpi_engine_execute(comm->engine, &request);
    if (request.status != MICS_OK)
        mics_err_set(err, request.status, "%s", request.err.text);
    return request.status;
}

static void destroy(struct mpi_comm *comm)
{
    if (!comm)
        return;
    free(comm->native);
    free(comm->base.blocks);
    free(comm->ranks);
    free(comm);
}

/* The world, from which the ranks come, keeps the engine alive. */
static void native_free(struct mics_comm *base)
{
    const struct comm_call nothing = {.kind = COMM_BARRIER};
    struct mpi_comm *comm = (struct mpi_comm *)base;
    struct comm_sent sent;

    comm->native->action = NATIVE_CLOSE;
    native_execute(&comm->base, &nothing, &sent, NULL);
    comm->engine->comms--;
    destroy(comm);
}

static void native_abort(struct mics_comm *comm, int code)
{
    mics_mpi_engine_abort(((struct mpi_comm *)comm)->engine, code);
}

static enum mics_status native_split(struct mics_comm *comm, int color, int key, int block,
                                     struct mics_comm **out, struct mics_err *err)
{
    (void)comm, (void)color, (void)key, (void)block, (void)out;
    return mics_err_set(err, MICS_ERR_UNSUPPORTED, "MPI's own communicators are not split");
}

static const struct mics_comm_ops native_ops = {
    .split = native_split, .free = native_free, .abort = native_abort, COMM_BASE_OPS};

static struct mpi_comm *copy_of(const struct mpi_comm *like)
{
    const size_t size = (size_t)like->base.comm.size;
    struct mpi_comm *comm = calloc(1, sizeof *comm);

    if (!comm)
        return NULL;
    comm->base.comm = like->base.comm;
    comm->base.comm.ops = &native_ops;
    comm->base.comm.backend = "mpi's own";
    comm->base.comm.counts = (struct mics_comm_counts){0};
    comm->base.execute = native_execute;
    comm->engine = like->engine;
    comm->tag = like->tag;
    comm->base.blocks = calloc(size, sizeof *comm->base.blocks);
    comm->ranks = calloc(size, sizeof *comm->ranks);
    comm->native = calloc(1, sizeof *comm->native);
    if (!comm->base.blocks || !comm->ranks || !comm->native) {
        destroy(comm);
        return NULL;
    }
    memcpy(comm->base.blocks, like->base.blocks, size * sizeof *comm->base.blocks);
    memcpy(comm->ranks, like->ranks, size * sizeof *comm->ranks);
    return comm;
}

enum mics_status mics_comm_new_native(struct mics_comm *like, struct mics_comm **out,
                                      struct mics_err *err)
{
    const struct comm_call nothing = {.kind = COMM_BARRIER};
    struct mpi_comm *comm;
    enum mics_status status;
    struct comm_sent sent;

    if (!mics_comm_has_native(like))
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "these ranks do not talk by MPI");
    comm = copy_of((const struct mpi_comm *)like);
    if (!comm)
        return mics_err_nomem(err);
    comm->native->action = NATIVE_OPEN;
    status = native_execute(&comm->base, &nothing, &sent, err);
    if (status != MICS_OK) {
        destroy(comm);
        return status;
    }
    comm->native->action = NATIVE_RUN;
    comm->engine->comms++;
    *out = &comm->base.comm;
    return MICS_OK;
}

#else

enum mics_status mics_comm_new_native(struct mics_comm *comm, struct mics_comm **out,
                                      struct mics_err *err)
{
    (void)comm, (void)out;
    return mics_err_set(err, MICS_ERR_UNSUPPORTED, "this build is without MPI");
}

#endif
