/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of comm_wire.h, cut into packets; the segments of calls that have joined come one after another. Packet t is segment t % segments of step t / segments. A packet
 * is sent on as soon as its segment of the step before has arrived and, where it sums, been added; a few
 * packets are under way at once. What is to be added arrives in the staging buffer, the rest in its place.
 */
#include "comm/mpi/mpi.h"

#if MICS_HAVE_MPI

#include "base/num.h"

struct packet {
    const struct comm_call *call;
    char *data;
    uint64_t bytes;
    uint64_t offset; /* in the piece */
    bool sum;
    int step;
};

/* Segments of the longest piece of a call. */
static uint64_t segments_of(const struct mpi_comm *comm, const struct comm_call *call)
{
    const uint64_t size = (uint64_t)comm->base.comm.size;
    const uint64_t longest = call->kind == COMM_ALL_REDUCE
                                 ? mics_ceil_div(call->count, size) * mics_dtype_bytes(call->dtype)
                                 : call->bytes;

    return mics_ceil_div(longest, comm->segment);
}

/* Segment `segment` of the piece of ring rank `rank` in a call. */
static struct packet locate(const struct mpi_comm *comm, const struct comm_call *call, int rank,
                            uint64_t segment)
{
    uint64_t begin, bytes = call->bytes;

    if (call->kind == COMM_ALL_REDUCE) {
        const uint64_t each = mics_dtype_bytes(call->dtype);
        const struct comm_piece piece = mics_comm_piece(call->count, comm->base.comm.size, rank);

        begin = piece.begin * each;
        bytes = piece.count * each;
    } else {
        begin = (uint64_t)comm_block_of(&comm->base, call, rank) * bytes;
    }

    const uint64_t offset = mics_min_u64(segment * comm->segment, bytes);
    char *data = call->kind == COMM_REDUCE_SCATTER ? call->send : call->recv;
    return (struct packet){.call = call,
                           .data = data + begin + offset,
                           .bytes = mics_min_u64(comm->segment, bytes - offset),
                           .offset = offset};
}

/* `behind`: 1 for what is sent, 2 for what is received. */
static struct packet packet_at(const struct mpi_comm *comm, uint64_t index, int behind)
{
    const struct mpi_transfer *transfer = &comm->transfer;
    const struct comm_call *call = transfer->call;
    const int size = comm->base.comm.size;
    const int step = transfer->first_step + (int)(index / transfer->segments);
    uint64_t segment = index % transfer->segments;

    for (; segment >= segments_of(comm, call); call = call->next)
        segment -= segments_of(comm, call);
    struct packet packet =
        locate(comm, call, comm_mod(comm->base.comm.rank - behind - step, size), segment);

    packet.step = step;
    packet.sum = step < size - 1;
    return packet;
}

void mics_mpi_ring_begin(struct mpi_comm *comm, const struct comm_call *call)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const uint64_t size = (uint64_t)comm->base.comm.size;
    const bool all_reduce = call->kind == COMM_ALL_REDUCE;

    *transfer = (struct mpi_transfer){.call = call};
    transfer->first_step = call->kind == COMM_ALL_GATHER ? comm->base.comm.size - 1 : 0;
    for (; call; call = call->next)
        transfer->segments += segments_of(comm, call);
    transfer->packets = transfer->segments * (size - 1) * (all_reduce ? 2 : 1);
}

/* In the second half of an all-reduce a packet goes where one of the first half was sent from: that must
 * have left. */
static bool place_is_free(const struct mpi_comm *comm, uint64_t index)
{
    const struct mpi_transfer *transfer = &comm->transfer;
    const uint64_t half = transfer->packets / 2;

    return transfer->call->kind != COMM_ALL_REDUCE || index < half ||
           transfer->send_done > index - half;
}

static int post_recvs(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const int size = comm->base.comm.size, from = comm_mod(comm->base.comm.rank - 1, size);
    int code = MPI_SUCCESS;

    while (code == MPI_SUCCESS && transfer->recv_posted < transfer->packets &&
           transfer->recv_posted - transfer->recv_done < comm->window &&
           place_is_free(comm, transfer->recv_posted)) {
        const uint64_t index = transfer->recv_posted++, slot = index % comm->window;
        const struct packet packet = packet_at(comm, index, 2);

        code = mics_mpi_recv(comm, packet.sum ? comm->staging + slot * comm->segment : packet.data,
                             packet.bytes, from, false, &transfer->recvs[slot]);
    }
    return code;
}

static int post_sends(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const int to = comm_mod(comm->base.comm.rank + 1, comm->base.comm.size);
    int code = MPI_SUCCESS;

    while (code == MPI_SUCCESS && transfer->send_posted < transfer->packets &&
           transfer->send_posted - transfer->send_done < comm->window &&
           transfer->send_posted < transfer->recv_done + transfer->segments) {
        const uint64_t index = transfer->send_posted++;
        const struct packet packet = packet_at(comm, index, 1);

        code = mics_mpi_send(comm, packet.data, packet.bytes, to, false,
                             &transfer->sends[index % comm->window]);
    }
    return code;
}

/* The last sum of a reduce-scatter goes where the caller wants it. */
static void add_packet(const struct mpi_comm *comm, uint64_t index)
{
    const struct packet packet = packet_at(comm, index, 2);
    const struct comm_call *call = packet.call;
    const char *arrived = comm->staging + index % comm->window * comm->segment;
    const uint64_t count = packet.bytes / mics_dtype_bytes(call->dtype);
    char *out = packet.data;

    if (!packet.sum || count == 0)
        return;
    if (call->kind == COMM_REDUCE_SCATTER && packet.step == comm->base.comm.size - 2)
        out = (char *)call->recv + packet.offset;
    if (out == packet.data)
        mics_comm_accumulate(out, arrived, count, call->dtype);
    else
        mics_comm_sum(out, packet.data, arrived, count, call->dtype);
}

int mics_mpi_ring_progress(struct mpi_comm *comm, bool *moved, bool *done)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code, came = 1, left = 1;

    while (came || left) {
        came = left = 0;
        code = post_recvs(comm);
        if (code == MPI_SUCCESS)
            code = post_sends(comm);
        if (code == MPI_SUCCESS && transfer->recv_done < transfer->recv_posted)
            code = MPI_Test(&transfer->recvs[transfer->recv_done % comm->window], &came,
                            MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && transfer->send_done < transfer->send_posted)
            code = MPI_Test(&transfer->sends[transfer->send_done % comm->window], &left,
                            MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            return code;
        if (came)
            add_packet(comm, transfer->recv_done++);
        transfer->send_done += left != 0;
        *moved |= came || left;
    }
    *done = transfer->send_done == transfer->packets && transfer->recv_done == transfer->packets;
    return MPI_SUCCESS;
}

#endif
