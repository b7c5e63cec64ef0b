/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is too short for a ring. A reduce-scatter sends each piece straight to the rank that keeps it, which
 * adds what arrives in the order of the ring, so that the bits are the ring's. An all-gather goes in rounds of distance
 * d = 1, 2, 4, ...: rank i has the pieces i ... i + d - 1, sends them to rank i - d and gets the next ones from rank
 * i + d (Bruck et al. 1997), packed into the staging buffer because blocks need not be neighbours. An all-reduce is both.
 */
#include "comm/mpi/mpi.h"

#if MICS_HAVE_MPI

#include "base/num.h"

#include <string.h>

/* Bytes of what one rank keeps or gives. */
static uint64_t piece_bytes(const struct mpi_comm *comm, const struct comm_call *call)
{
    return call->kind == COMM_ALL_REDUCE ? call->bytes / (uint64_t)comm->base.comm.size
                                         : call->bytes;
}

bool mics_mpi_takes_short(const struct mpi_comm *comm, const struct comm_call *call)
{
    const struct mics_comm_tuned *tuned = &comm->tuned;
    const uint64_t bytes = piece_bytes(comm, call);

    if (bytes == 0)
        return false;
    switch (call->kind) {
    case COMM_ALL_GATHER:
        return bytes <= tuned->gather_bytes;
    case COMM_REDUCE_SCATTER:
        return bytes <= tuned->reduce_bytes;
    case COMM_ALL_REDUCE:
        return call->count % (uint64_t)comm->base.comm.size == 0 &&
               bytes <= mics_min_u64(tuned->gather_bytes, tuned->reduce_bytes);
    default:
        return false;
    }
}

void mics_mpi_short_begin(struct mpi_comm *comm, const struct comm_call *call)
{
    comm->transfer = (struct mpi_transfer){
        .call = call,
        .route = MPI_ROUTE_SHORT,
        .piece = piece_bytes(comm, call),
        .adds = call->kind != COMM_ALL_GATHER,
        .distance = 1,
    };
}

/* The piece of the rank `ahead` of this one in the ring. */
static char *piece_at(const struct mpi_comm *comm, int ahead)
{
    const struct comm_call *call = comm->transfer.call;
    const int rank = comm_mod(comm->base.comm.rank + ahead, comm->base.comm.size);
    char *data = call->kind == COMM_REDUCE_SCATTER ? call->send : call->recv;
    const int block = call->kind == COMM_ALL_REDUCE ? rank : comm_block_of(&comm->base, call, rank);

    return data + (uint64_t)block * comm->transfer.piece;
}

/* The pieces of others go to them, theirs of mine come into the staging buffer. */
static int post_pieces(struct mpi_comm *comm)
{
    const int size = comm->base.comm.size, rank = comm->base.comm.rank;
    const uint64_t bytes = comm->transfer.piece;
    int code = MPI_SUCCESS;

    for (int i = 1; i < size && code == MPI_SUCCESS; i++)
        code = mics_mpi_recv(comm, comm->staging + (uint64_t)(i - 1) * bytes, bytes,
                             comm_mod(rank + i, size), false, &comm->requests[i - 1]);
    for (int i = 1; i < size && code == MPI_SUCCESS; i++)
        code = mics_mpi_send(comm, piece_at(comm, -i), bytes, comm_mod(rank - i, size), false,
                             &comm->requests[size - 2 + i]);
    comm->transfer.request_count = 2 * (size - 1);
    return code;
}

/* Of the next rank first, of this one last, as the ring does. */
static void add_pieces(const struct mpi_comm *comm)
{
    const struct comm_call *call = comm->transfer.call;
    const uint64_t bytes = comm->transfer.piece, count = bytes / mics_dtype_bytes(call->dtype);
    char *own = piece_at(comm, 0);
    char *out = call->kind == COMM_REDUCE_SCATTER ? call->recv : own;

    for (int i = 2; i < comm->base.comm.size; i++)
        mics_comm_accumulate(comm->staging, comm->staging + (uint64_t)(i - 1) * bytes, count,
                             call->dtype);
    if (out == own)
        mics_comm_accumulate(out, comm->staging, count, call->dtype);
    else
        mics_comm_sum(out, own, comm->staging, count, call->dtype);
}

/* Pieces that a round moves: as many as are there, or what is missing. */
static int pieces_of_round(const struct mpi_comm *comm)
{
    const int distance = comm->transfer.distance, missing = comm->base.comm.size - distance;

    return distance < missing ? distance : missing;
}

/* What is sent is packed at the beginning of the staging buffer, what comes goes behind it. */
static int post_round(struct mpi_comm *comm)
{
    const int size = comm->base.comm.size, rank = comm->base.comm.rank;
    const int distance = comm->transfer.distance, pieces = pieces_of_round(comm);
    const uint64_t each = comm->transfer.piece, bytes = (uint64_t)pieces * each;
    int code = mics_mpi_recv(comm, comm->staging + bytes, bytes, comm_mod(rank + distance, size),
                             false, &comm->requests[0]);

    if (code != MPI_SUCCESS)
        return code;
    for (int i = 0; i < pieces; i++)
        memcpy(comm->staging + (uint64_t)i * each, piece_at(comm, i), each);
    comm->transfer.request_count = 2;
    return mics_mpi_send(comm, comm->staging, bytes, comm_mod(rank - distance, size), false,
                         &comm->requests[1]);
}

static void unpack_round(struct mpi_comm *comm)
{
    const int pieces = pieces_of_round(comm);
    const uint64_t each = comm->transfer.piece;

    for (int i = 0; i < pieces; i++)
        memcpy(piece_at(comm, comm->transfer.distance + i),
               comm->staging + (uint64_t)(pieces + i) * each, each);
}

/* All messages of a stage are over. Returns whether it was the last. */
static bool finish_stage(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;

    transfer->request_count = 0;
    if (transfer->adds) {
        add_pieces(comm);
        transfer->adds = false;
        return transfer->call->kind == COMM_REDUCE_SCATTER;
    }
    unpack_round(comm);
    transfer->distance *= 2;
    return transfer->distance >= comm->base.comm.size;
}

int mics_mpi_short_progress(struct mpi_comm *comm, bool *moved, bool *done)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code = MPI_SUCCESS, over = 0;

    while (!*done) {
        if (transfer->request_count == 0)
            code = transfer->adds ? post_pieces(comm) : post_round(comm);
        if (code == MPI_SUCCESS)
            code = MPI_Testall(transfer->request_count, comm->requests, &over, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS || !over)
            return code;
        *moved = true;
        *done = finish_stage(comm);
    }
    return MPI_SUCCESS;
}

#endif
