/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halving.c - short collectives of a power of two of ranks, in log2(m) rounds. Driver only.
 *
 * Halving and doubling are described in backend.h. In each round a rank exchanges one message with
 * one other rank, in which the pieces of all calls of the batch are packed: blocks need not be
 * adjacent. Ranks are in node order, so the rounds of short distances stay inside a node; these are
 * the ones that carry most pieces.
 */
#include "comm/mpi/mpi.h"

#include "base/num.h"

#include <string.h>

bool mics_mpi_halves(const struct mpi_comm *comm, const struct comm_call *calls, int count)
{
    for (int i = 0; i < count; i++)
        if (!mics_comm_is_short(comm->base.comm.size, &calls[i]))
            return false;
    return count > 0;
}

void mics_mpi_halving_begin(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const int size = comm->base.comm.size;

    transfer->algorithm = MPI_ALGORITHM_HALVING;
    transfer->reducing = transfer->calls->kind != COMM_ALL_GATHER;
    transfer->distance = transfer->reducing ? 1 : size / 2;
}

/* What happens to the pieces of a round: they are packed into a message, or it is unpacked. */
enum unpacking { PACK, STORE, ADD };

static char *piece_at(const struct mpi_comm *comm, const struct comm_call *call, int piece,
                      int pieces, uint64_t *bytes)
{
    if (call->kind == COMM_ALL_REDUCE) {
        const uint64_t each = mics_dtype_bytes(call->dtype);
        const struct comm_piece part = mics_comm_piece(call->count, pieces, piece);

        *bytes = part.count * each;
        return (char *)call->recv + part.begin * each;
    }
    *bytes = call->bytes;
    return (char *)(call->kind == COMM_REDUCE_SCATTER ? call->send : call->recv) +
           (uint64_t)comm_block_of(&comm->base, call, piece) * call->bytes;
}

static void move(char *piece, char *message, uint64_t bytes, enum unpacking what,
                 enum mics_dtype dtype)
{
    if (bytes == 0)
        return;
    if (what == PACK)
        memcpy(message, piece, bytes);
    else if (what == STORE)
        memcpy(piece, message, bytes);
    else
        mics_comm_accumulate(piece, message, bytes / mics_dtype_bytes(dtype), dtype);
}

/* The pieces that `rank` holds after a round of the reduction at this distance, or sends in a round
 * of the gather: those of the ranks that differ from it by multiples of twice the distance.
 * `message` NULL: only count. Returns their bytes. */
static uint64_t move_pieces(const struct mpi_comm *comm, int rank, char *message,
                            enum unpacking what)
{
    const struct mpi_transfer *transfer = &comm->transfer;
    uint64_t total = 0, bytes;

    for (int i = 0; i < transfer->count; i++) {
        const struct comm_call *call = &transfer->calls[i];
        const int pieces = mics_comm_halving_pieces(comm->base.comm.size, call);
        const int stride = 2 * transfer->distance < pieces ? 2 * transfer->distance : pieces;

        if (!transfer->reducing && transfer->distance >= pieces)
            continue;
        for (int piece = rank % stride; piece < pieces; piece += stride, total += bytes) {
            char *data = piece_at(comm, call, piece, pieces, &bytes);

            if (message)
                move(data, message + total, bytes, what, call->dtype);
        }
    }
    return total;
}

static int partner_of(const struct mpi_comm *comm)
{
    return comm->base.comm.rank ^ comm->transfer.distance;
}

/* A reduction sends the partner the pieces that the partner keeps; a gather those of this rank. */
static int post_round(struct mpi_comm *comm)
{
    const int rank = comm->base.comm.rank, partner = partner_of(comm);
    const bool reducing = comm->transfer.reducing;
    const uint64_t sent = move_pieces(comm, reducing ? partner : rank, comm->staging, PACK);
    const uint64_t received = move_pieces(comm, reducing ? rank : partner, NULL, PACK);
    const int code =
        mics_mpi_receive(comm, comm->staging + sent, received, partner, false, &comm->requests[0]);

    comm->transfer.request_count = 2;
    comm->transfer.message_bytes = sent;
    if (code != MPI_SUCCESS)
        return code;
    return mics_mpi_send(comm, comm->staging, sent, partner, false, &comm->requests[1]);
}

/* A reduce-scatter leaves its sum in the caller's send buffer. */
static void deliver(const struct mpi_comm *comm)
{
    const struct mpi_transfer *transfer = &comm->transfer;
    uint64_t bytes;

    for (int i = 0; i < transfer->count; i++) {
        const struct comm_call *call = &transfer->calls[i];
        const char *sum = piece_at(comm, call, comm->base.comm.rank, comm->base.comm.size, &bytes);

        if (call->recv != sum && bytes > 0)
            memcpy(call->recv, sum, bytes);
    }
}

/* Returns whether the transfer is finished. */
static bool finish_round(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const int size = comm->base.comm.size;
    char *message = comm->staging + transfer->message_bytes;

    if (!transfer->reducing) {
        move_pieces(comm, partner_of(comm), message, STORE);
        transfer->distance /= 2;
        return transfer->distance == 0;
    }
    move_pieces(comm, comm->base.comm.rank, message, ADD);
    transfer->distance *= 2;
    if (transfer->distance < size)
        return false;
    transfer->reducing = false;
    transfer->distance = 0;
    if (transfer->calls->kind == COMM_REDUCE_SCATTER) {
        deliver(comm);
        return true;
    }
    for (int i = 0; i < transfer->count; i++) {
        const int pieces = mics_comm_halving_pieces(size, &transfer->calls[i]);

        if (pieces / 2 > transfer->distance)
            transfer->distance = pieces / 2;
    }
    return transfer->distance == 0;
}

int mics_mpi_halving_progress(struct mpi_comm *comm, bool *moved, bool *done)
{
    int code = MPI_SUCCESS;
    bool complete = false;

    while (!*done) {
        if (comm->transfer.request_count == 0)
            code = post_round(comm);
        if (code == MPI_SUCCESS)
            code = mics_mpi_test_round(comm, &complete);
        if (code != MPI_SUCCESS || !complete)
            return code;
        *moved = true;
        *done = finish_round(comm);
    }
    return MPI_SUCCESS;
}
