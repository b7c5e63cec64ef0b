/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairs.c - all_to_all, and the exchange of one rank with one other. Driver only.
 *
 * In step s = 1 ... m - 1 of an all_to_all, rank i sends to rank i + s and receives from rank
 * i - s. Ranks are in node order, so in each step every node sends as much as it receives. A rank
 * does not wait for the end of a step: it has a window of packets in flight, whichever steps they
 * belong to, so its card is busy until the last one. A packet leaves the window when its receiver
 * has asked for it, not when it is in a buffer of the kernel: else ranks run ahead of each other by
 * megabytes, and then some cards receive from several nodes while others are idle (in a cluster of
 * 4 nodes x 2 ranks, 0.58 of the links' rate instead of 0.99). Packets are posted in the order of
 * steps on both sides. So the first packet in that order that has not arrived has been posted by
 * its sender and by its receiver, whose windows hold only later ones: it cannot deadlock.
 *
 * An exchange gives way: while another communicator of this process moves more than a packet, it
 * sends one packet at a time, and seldom.
 */
#include "comm/mpi/mpi.h"

#include "base/clock.h"
#include "base/num.h"

/* Packet `index` of those to send, or to receive; `peer`: the other rank. */
struct packet {
    char *data;
    uint64_t bytes;
    int peer;
};

static struct packet exchange_packet(const struct mpi_comm *comm, uint64_t index, bool to_send)
{
    const struct comm_call *call = comm->transfer.calls;
    const uint64_t offset = index * comm->segment, total = to_send ? call->bytes : call->count;

    return (struct packet){.data = (char *)(to_send ? call->send : call->recv) + offset,
                           .bytes = mics_min_u64(comm->segment, total - offset),
                           .peer = to_send ? call->root : call->from};
}

/* Each step has the segments of all calls of the batch, one call after another. */
static struct packet all_to_all_packet(const struct mpi_comm *comm, uint64_t index, bool to_send)
{
    const struct mpi_transfer *transfer = &comm->transfer;
    const struct comm_call *call = transfer->calls;
    const int size = comm->base.comm.size, step = 1 + (int)(index / transfer->segments);
    const int peer = comm_mod(comm->base.comm.rank + (to_send ? step : -step), size);
    uint64_t segment = index % transfer->segments;

    for (; segment >= mics_ceil_div(call->bytes, comm->segment); call++)
        segment -= mics_ceil_div(call->bytes, comm->segment);

    const uint64_t offset = segment * comm->segment;
    const uint64_t block = (uint64_t)comm_block_of(&comm->base, call, peer);
    return (struct packet){.data = (char *)(to_send ? call->send : call->recv) +
                                   block * call->bytes + offset,
                           .bytes = mics_min_u64(comm->segment, call->bytes - offset),
                           .peer = peer};
}

static struct packet packet_at(const struct mpi_comm *comm, uint64_t index, bool to_send)
{
    return comm->transfer.calls->kind == COMM_EXCHANGE ? exchange_packet(comm, index, to_send)
                                                       : all_to_all_packet(comm, index, to_send);
}

void mics_mpi_pairs_begin(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const struct comm_call *call = transfer->calls;

    transfer->algorithm = MPI_ALGORITHM_PAIRS;
    transfer->begun_s = mics_now_s();
    if (call->kind == COMM_EXCHANGE) {
        transfer->packets = mics_ceil_div(call->count, comm->segment);
        transfer->packets_out = mics_ceil_div(call->bytes, comm->segment);
        transfer->synchronous = call->within_s > 0;
        return;
    }
    for (int i = 0; i < transfer->count; i++)
        transfer->segments += mics_ceil_div(call[i].bytes, comm->segment);
    transfer->packets = transfer->segments * (uint64_t)(comm->base.comm.size - 1);
    transfer->packets_out = transfer->packets;
    transfer->synchronous = transfer->packets > comm->window;
}

/* What is under way when others begin to transfer delays them: an exchange that gives way has two
 * packets under way, unless it is late. */
static bool may_send(const struct mpi_comm *comm)
{
    const struct mpi_transfer *transfer = &comm->transfer;
    const uint64_t posted = transfer->send_posted, under_way = posted - transfer->send_done;
    const double within_s = transfer->calls->within_s;

    if (posted == transfer->packets_out || under_way == comm->window)
        return false;
    if (!(within_s > 0))
        return true;
    if (atomic_load(comm->thread->traffic) == 0)
        return under_way < 2;
    return (double)posted / (double)transfer->packets_out <
           (mics_now_s() - transfer->begun_s) / within_s;
}

static int post(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code = MPI_SUCCESS;

    while (code == MPI_SUCCESS && transfer->recv_posted < transfer->packets &&
           transfer->recv_posted - transfer->recv_done < comm->window) {
        const uint64_t index = transfer->recv_posted++;
        const struct packet packet = packet_at(comm, index, false);

        code = mics_mpi_receive(comm, packet.data, packet.bytes, packet.peer, false,
                                &transfer->recvs[index % comm->window]);
    }
    while (code == MPI_SUCCESS && may_send(comm)) {
        const uint64_t index = transfer->send_posted++;
        const struct packet packet = packet_at(comm, index, true);

        code = mics_mpi_send(comm, packet.data, packet.bytes, packet.peer, false,
                             &transfer->sends[index % comm->window]);
    }
    return code;
}

int mics_mpi_pairs_progress(struct mpi_comm *comm, bool *moved, bool *done)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int received = 1, sent = 1;

    while (received || sent) {
        int code = post(comm);

        received = sent = 0;
        if (code == MPI_SUCCESS && transfer->recv_done < transfer->recv_posted)
            code = MPI_Test(&transfer->recvs[transfer->recv_done % comm->window], &received,
                            MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && transfer->send_done < transfer->send_posted)
            code = MPI_Test(&transfer->sends[transfer->send_done % comm->window], &sent,
                            MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            return code;
        transfer->recv_done += received != 0;
        transfer->send_done += sent != 0;
        *moved |= received || sent;
    }
    *done =
        transfer->send_done == transfer->packets_out && transfer->recv_done == transfer->packets;
    return MPI_SUCCESS;
}
