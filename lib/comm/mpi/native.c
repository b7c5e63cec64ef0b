/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native.c - communicators whose requests the driver carries out with one blocking MPI call.
 *
 * The driver creates and frees the MPI communicator as well: `action` selects what the next request
 * does.
 */
#include "comm/mpi/mpi.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct mpi_native {
    MPI_Comm comm;
    enum { NATIVE_OPEN, NATIVE_RUN, NATIVE_CLOSE } action;
};

bool mics_comm_has_native(const struct mics_comm *comm)
{
    return comm->size > 1 && comm->block == comm->rank && strcmp(comm->backend, "mpi") == 0;
}

/* In the driver ------------------------------------------------------------------------------ */

static int create_comm(struct mpi_comm *comm)
{
    MPI_Group world, group;
    int code = MPI_Comm_group(comm->thread->world, &world);

    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Group_incl(world, comm->base.comm.size, comm->ranks, &group);
    MPI_Group_free(&world);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Comm_create_group(comm->thread->world, group, comm->tag, &comm->native->comm);
    MPI_Group_free(&group);
    return code;
}

static MPI_Datatype type_of(enum mics_dtype dtype)
{
    return dtype == MICS_F64 ? MPI_DOUBLE : MPI_FLOAT;
}

static int all_gather(const struct mpi_comm *comm, const struct comm_call *call)
{
    char *own = (char *)call->recv + (uint64_t)comm->base.comm.rank * call->bytes;

    return MPI_Allgather(own == call->send ? MPI_IN_PLACE : call->send, (int)call->bytes, MPI_BYTE,
                         call->recv, (int)call->bytes, MPI_BYTE, comm->native->comm);
}

/* MPI's in-place form leaves the sum at the beginning of the array; ours is in the rank's block. */
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

static int all_to_all(const struct mpi_comm *comm, const struct comm_call *call)
{
    return MPI_Alltoall(call->send, (int)call->bytes, MPI_BYTE, call->recv, (int)call->bytes,
                        MPI_BYTE, comm->native->comm);
}

static int run_call(const struct mpi_comm *comm, const struct comm_call *call)
{
    const MPI_Comm native = comm->native->comm;

    switch (call->kind) {
    case COMM_ALL_GATHER:
        return all_gather(comm, call);
    case COMM_REDUCE_SCATTER:
        return reduce_scatter(comm, call);
    case COMM_ALL_REDUCE:
        return MPI_Allreduce(MPI_IN_PLACE, call->recv, (int)call->count, type_of(call->dtype),
                             MPI_SUM, native);
    case COMM_ALL_TO_ALL:
        return all_to_all(comm, call);
    case COMM_BROADCAST:
        return MPI_Bcast(call->recv, (int)call->bytes, MPI_BYTE, call->root, native);
    default:
        return MPI_Barrier(native);
    }
}

int mics_mpi_native_run(struct mpi_comm *comm, const struct comm_call *call)
{
    switch (comm->native->action) {
    case NATIVE_OPEN:
        return create_comm(comm);
    case NATIVE_CLOSE:
        return MPI_Comm_free(&comm->native->comm);
    default:
        return run_call(comm, call);
    }
}

/* In other threads --------------------------------------------------------------------------- */

static enum mics_status native_execute(struct comm_base *base, const struct comm_call *calls,
                                       int count, struct comm_sent *sent, struct mics_err *err)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;
    enum mics_status status = MICS_OK;

    for (int i = 0; i < count && status == MICS_OK; i++) {
        const struct comm_call *call = &calls[i];

        if (mics_dtype_is_half(call->dtype) &&
            (call->kind == COMM_REDUCE_SCATTER || call->kind == COMM_ALL_REDUCE))
            return mics_err_set(err, MICS_ERR_COMM, "MPI has no sum of bf16 or fp16");
        if (call->bytes > INT_MAX || call->count > INT_MAX)
            return mics_err_set(err, MICS_ERR_COMM,
                                "MPI's counts are limited to %d elements or bytes", INT_MAX);
        status = mics_mpi_thread_execute(comm, call, 1, sent, err);
    }
    return status;
}

/* Open or close the MPI communicator, by a request whose call is ignored. */
static enum mics_status native_act(struct mpi_comm *comm, int action, struct mics_err *err)
{
    const struct comm_call ignored = {.kind = COMM_BARRIER};
    struct comm_sent sent = {0};

    comm->native->action = action;
    const enum mics_status status = native_execute(&comm->base, &ignored, 1, &sent, err);

    comm->native->action = NATIVE_RUN;
    return status;
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

/* The communicator that it was made from keeps the progress thread alive. */
static void native_free(struct mics_comm *base)
{
    struct mpi_comm *comm = (struct mpi_comm *)base;

    native_act(comm, NATIVE_CLOSE, NULL);
    comm->thread->comms--;
    destroy(comm);
}

static void native_abort(struct mics_comm *comm, int code)
{
    mics_mpi_thread_abort(((struct mpi_comm *)comm)->thread, code);
}

static enum mics_status native_split(struct mics_comm *comm, int color, int key, int block,
                                     struct mics_comm **out, struct mics_err *err)
{
    (void)comm, (void)color, (void)key, (void)block, (void)out;
    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "communicators with MPI's own collectives cannot be split");
}

static const struct comm_backend native_backend = {.name = "mpi's own",
                                                   .split = native_split,
                                                   .free = native_free,
                                                   .abort = native_abort,
                                                   .submit = mics_comm_host_submit,
                                                   .execute = native_execute};

static struct mpi_comm *copy_of(const struct mpi_comm *like)
{
    const size_t size = (size_t)like->base.comm.size;
    struct mpi_comm *comm = calloc(1, sizeof *comm);

    if (!comm)
        return NULL;
    comm->base.comm = like->base.comm;
    mics_comm_base_init(&comm->base, &native_backend);
    comm->thread = like->thread;
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
    if (!mics_comm_has_native(like))
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "the ranks do not communicate over MPI");
    struct mpi_comm *comm = copy_of((const struct mpi_comm *)like);
    if (!comm)
        return mics_err_nomem(err);

    const enum mics_status status = native_act(comm, NATIVE_OPEN, err);
    if (status != MICS_OK) {
        destroy(comm);
        return status;
    }
    comm->thread->comms++;
    *out = &comm->base.comm;
    return MICS_OK;
}
