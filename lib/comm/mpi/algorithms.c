/* SPDX-License-Identifier: Apache-2.0 */
/*
 * algorithms.c - ring, tree and direct algorithms as state machines. Driver only.
 *
 * Ring and tree are described in backend.h, halving for short data in halving.c, messages between
 * pairs of ranks in pairs.c.
 *
 * Direct, for pieces too short for a ring. A reduce-scatter sends each piece straight to the rank
 * that keeps it, which adds what it receives in the order of the ring, so the bits are the ring's.
 * An all-gather takes rounds of distance d = 1, 2, 4, ...: rank i has the pieces i ... i + d - 1,
 * sends them to rank i - d and receives the next ones from rank i + d (Bruck et al. 1997). They are
 * packed into the staging buffer because blocks need not be adjacent. An all-reduce is both. Direct
 * sends the same bytes as the ring.
 */
#include "comm/mpi/mpi.h"

#include "base/num.h"

#include <string.h>

/* Messages ----------------------------------------------------------------------------------- */

int mics_mpi_send(struct mpi_comm *comm, const void *data, uint64_t bytes, int to, bool also_empty,
                  MPI_Request *request)
{
    const struct mpi_thread *thread = comm->thread;

    comm->transfer.sent.bytes += bytes;
    if (thread->nodes[comm->ranks[to]] != thread->node)
        comm->transfer.sent.net_bytes += bytes;
    *request = MPI_REQUEST_NULL;
    if (bytes == 0 && !also_empty)
        return MPI_SUCCESS;
    return (comm->transfer.synchronous ? MPI_Issend : MPI_Isend)(
        data, (int)bytes, MPI_BYTE, comm->ranks[to], comm->tag, thread->world, request);
}

int mics_mpi_receive(struct mpi_comm *comm, void *data, uint64_t bytes, int from, bool also_empty,
                     MPI_Request *request)
{
    *request = MPI_REQUEST_NULL;
    if (bytes == 0 && !also_empty)
        return MPI_SUCCESS;
    return MPI_Irecv(data, (int)bytes, MPI_BYTE, comm->ranks[from], comm->tag, comm->thread->world,
                     request);
}

/* One after another by MPI_Test: after progress, Open MPI's MPI_Testall leaves what has arrived to
 * the next call, before which this thread might yield. */
int mics_mpi_test_round(struct mpi_comm *comm, bool *complete)
{
    struct mpi_transfer *transfer = &comm->transfer;

    *complete = false;
    for (; transfer->requests_done < transfer->request_count; transfer->requests_done++) {
        int done = 0;
        const int code =
            MPI_Test(&comm->requests[transfer->requests_done], &done, MPI_STATUS_IGNORE);

        if (code != MPI_SUCCESS || !done)
            return code;
    }
    transfer->request_count = transfer->requests_done = 0;
    *complete = true;
    return MPI_SUCCESS;
}

/* Ring --------------------------------------------------------------------------------------- */

/*
 * Pieces are cut into segments. Packet t is segment t % segments of step t / segments; a batch of
 * calls has the segments of all of them, one call after another. A packet is sent as soon as its
 * segment of the previous step has arrived and, where the ring sums, been added; several packets
 * are in flight at once. Summands arrive in the staging buffer, everything else at its destination.
 */
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

/* Segment `segment` of the piece of ring rank `rank`. */
static struct packet segment_at(const struct mpi_comm *comm, const struct comm_call *call, int rank,
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

/* `behind`: 1 for a packet to send, 2 for one to receive. */
static struct packet packet_at(const struct mpi_comm *comm, uint64_t index, int behind)
{
    const struct mpi_transfer *transfer = &comm->transfer;
    const struct comm_call *call = transfer->calls;
    const int size = comm->base.comm.size;
    const int step = transfer->first_step + (int)(index / transfer->segments);
    uint64_t segment = index % transfer->segments;

    for (; segment >= segments_of(comm, call); call++)
        segment -= segments_of(comm, call);
    struct packet packet =
        segment_at(comm, call, comm_mod(comm->base.comm.rank - behind - step, size), segment);

    packet.step = step;
    packet.sum = step < size - 1;
    return packet;
}

static void ring_begin(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const enum comm_call_kind kind = transfer->calls->kind;
    const int size = comm->base.comm.size;

    transfer->algorithm = MPI_ALGORITHM_RING;
    transfer->first_step = kind == COMM_ALL_GATHER ? size - 1 : 0;
    for (int i = 0; i < transfer->count; i++)
        transfer->segments += segments_of(comm, &transfer->calls[i]);
    transfer->packets =
        transfer->segments * (uint64_t)(size - 1) * (kind == COMM_ALL_REDUCE ? 2 : 1);
}

/* In its second half an all-reduce receives into memory that its first half sends from: that send
 * must be complete. */
static bool is_destination_free(const struct mpi_comm *comm, uint64_t index)
{
    const struct mpi_transfer *transfer = &comm->transfer;
    const uint64_t half = transfer->packets / 2;

    return transfer->calls->kind != COMM_ALL_REDUCE || index < half ||
           transfer->send_done > index - half;
}

static int ring_post_receives(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const int size = comm->base.comm.size, from = comm_mod(comm->base.comm.rank - 1, size);
    int code = MPI_SUCCESS;

    while (code == MPI_SUCCESS && transfer->recv_posted < transfer->packets &&
           transfer->recv_posted - transfer->recv_done < comm->window &&
           is_destination_free(comm, transfer->recv_posted)) {
        const uint64_t index = transfer->recv_posted++, slot = index % comm->window;
        const struct packet packet = packet_at(comm, index, 2);
        char *to = packet.sum ? comm->staging + slot * comm->segment : packet.data;

        code = mics_mpi_receive(comm, to, packet.bytes, from, false, &transfer->recvs[slot]);
    }
    return code;
}

static int ring_post_sends(struct mpi_comm *comm)
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

/* Add a received packet. The last sum of a reduce-scatter is written to the caller's buffer. */
static void add_packet(const struct mpi_comm *comm, uint64_t index)
{
    const struct packet packet = packet_at(comm, index, 2);
    const struct comm_call *call = packet.call;
    const char *received = comm->staging + index % comm->window * comm->segment;
    const uint64_t count = packet.bytes / mics_dtype_bytes(call->dtype);
    char *out = packet.data;

    if (!packet.sum || count == 0)
        return;
    if (call->kind == COMM_REDUCE_SCATTER && packet.step == comm->base.comm.size - 2)
        out = (char *)call->recv + packet.offset;
    if (out == packet.data)
        mics_comm_accumulate(out, received, count, call->dtype);
    else
        mics_comm_sum(out, packet.data, received, count, call->dtype);
}

static int ring_progress(struct mpi_comm *comm, bool *moved, bool *done)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code, received = 1, sent = 1;

    while (received || sent) {
        received = sent = 0;
        code = ring_post_receives(comm);
        if (code == MPI_SUCCESS)
            code = ring_post_sends(comm);
        if (code == MPI_SUCCESS && transfer->recv_done < transfer->recv_posted)
            code = MPI_Test(&transfer->recvs[transfer->recv_done % comm->window], &received,
                            MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && transfer->send_done < transfer->send_posted)
            code = MPI_Test(&transfer->sends[transfer->send_done % comm->window], &sent,
                            MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            return code;
        if (received)
            add_packet(comm, transfer->recv_done++);
        transfer->send_done += sent != 0;
        *moved |= received || sent;
    }
    *done = transfer->send_done == transfer->packets && transfer->recv_done == transfer->packets;
    return MPI_SUCCESS;
}

/* Tree --------------------------------------------------------------------------------------- */

/*
 * Up: each rank adds its children's data, in their order, and sends the sum to its parent. Down:
 * each rank forwards what it receives. All-reduce and barrier go up and down, broadcast only down.
 * A broad tree carries one packet; a chain carries many, with several in flight.
 */
static bool uses_tree(const struct mpi_comm *comm, const struct comm_call *call)
{
    switch (call->kind) {
    case COMM_BROADCAST:
    case COMM_BARRIER:
        return true;
    case COMM_ALL_REDUCE:
        return call->bytes <= MICS_COMM_TREE_REDUCE_BYTES && !mics_mpi_halves(comm, call, 1);
    default:
        return false;
    }
}

static void tree_begin(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const struct comm_call *call = transfer->calls;
    const int size = comm->base.comm.size;
    const int arity = call->kind == COMM_BROADCAST ? mics_comm_broadcast_arity(call->bytes)
                                                   : MICS_COMM_TREE_ARITY;
    const int rank_from_root = comm_mod(comm->base.comm.rank - call->root, size);
    const struct comm_children children = mics_comm_children(rank_from_root, size, arity);

    transfer->algorithm = MPI_ALGORITHM_TREE;
    transfer->parent =
        rank_from_root == 0 ? -1 : comm_mod((rank_from_root - 1) / arity + call->root, size);
    transfer->children = children.count;
    for (int i = 0; i < children.count; i++)
        transfer->child_ranks[i] = comm_mod(children.first + i + call->root, size);
    transfer->up = call->kind != COMM_BROADCAST;
    transfer->packets = mics_max_u64(1, mics_ceil_div(call->bytes, COMM_MPI_SEGMENT));
}

/* Children are added one after another, so that the order of summation is fixed. */
static int add_children(struct mpi_comm *comm, bool *moved)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const struct comm_call *call = transfer->calls;
    int code = MPI_SUCCESS, received = 1;

    for (int i = 0; !transfer->up_posted && i < transfer->children && code == MPI_SUCCESS; i++)
        code = mics_mpi_receive(comm, comm->staging + i * MICS_COMM_TREE_REDUCE_BYTES, call->bytes,
                                transfer->child_ranks[i], true, &transfer->recvs[i]);
    transfer->up_posted = true;
    while (code == MPI_SUCCESS && received && transfer->up_done < transfer->children) {
        code = MPI_Test(&transfer->recvs[transfer->up_done], &received, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS || !received)
            break;
        mics_comm_accumulate(call->recv,
                             comm->staging + transfer->up_done * MICS_COMM_TREE_REDUCE_BYTES,
                             call->count, call->dtype);
        transfer->up_done++;
        *moved = true;
    }
    return code;
}

static int tree_go_up(struct mpi_comm *comm, bool *moved)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const struct comm_call *call = transfer->calls;
    int sent = 0, code = add_children(comm, moved);

    if (code != MPI_SUCCESS || transfer->up_done < transfer->children)
        return code;
    if (transfer->parent < 0) {
        transfer->up = false;
        return MPI_SUCCESS;
    }
    if (transfer->up_done == transfer->children) {
        transfer->up_done++;
        code = mics_mpi_send(comm, call->recv, call->bytes, transfer->parent, true,
                             &transfer->sends[0]);
    }
    if (code == MPI_SUCCESS)
        code = MPI_Test(&transfer->sends[0], &sent, MPI_STATUS_IGNORE);
    if (sent)
        transfer->up = false;
    *moved |= sent != 0;
    return code;
}

static char *tree_packet(const struct mpi_transfer *transfer, uint64_t index, uint64_t *bytes)
{
    const uint64_t offset = index * COMM_MPI_SEGMENT;

    *bytes = mics_min_u64(COMM_MPI_SEGMENT, transfer->calls->bytes - offset);
    return *bytes ? (char *)transfer->calls->recv + offset : NULL;
}

/* The root has everything from the beginning. */
static int receive_down(struct mpi_comm *comm, int *received)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code = MPI_SUCCESS;

    if (transfer->parent < 0) {
        transfer->recv_done = transfer->packets;
        return MPI_SUCCESS;
    }
    while (code == MPI_SUCCESS && transfer->recv_posted < transfer->packets &&
           transfer->recv_posted - transfer->recv_done < COMM_MPI_WINDOW) {
        uint64_t bytes, index = transfer->recv_posted++;
        char *data = tree_packet(transfer, index, &bytes);

        code = mics_mpi_receive(comm, data, bytes, transfer->parent, true,
                                &transfer->recvs[index % COMM_MPI_WINDOW]);
    }
    if (code == MPI_SUCCESS && transfer->recv_done < transfer->recv_posted)
        code = MPI_Test(&transfer->recvs[transfer->recv_done % COMM_MPI_WINDOW], received,
                        MPI_STATUS_IGNORE);
    transfer->recv_done += *received != 0;
    return code;
}

/* In a chain each packet has a request; the only packet of a broad tree has one for each child. */
static MPI_Request *down_request(struct mpi_transfer *transfer, uint64_t index, int child)
{
    return &transfer->sends[transfer->children == 1 ? index % COMM_MPI_WINDOW : (uint64_t)child];
}

static int send_down(struct mpi_comm *comm, int *sent)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code = MPI_SUCCESS;

    while (transfer->send_posted < transfer->recv_done &&
           transfer->send_posted - transfer->send_done < COMM_MPI_WINDOW) {
        uint64_t bytes, index = transfer->send_posted++;
        char *data = tree_packet(transfer, index, &bytes);

        for (int i = 0; i < transfer->children && code == MPI_SUCCESS; i++)
            code = mics_mpi_send(comm, data, bytes, transfer->child_ranks[i], true,
                                 down_request(transfer, index, i));
        if (code != MPI_SUCCESS)
            return code;
    }
    if (transfer->send_done == transfer->send_posted)
        return MPI_SUCCESS;
    *sent = 1;
    for (int i = 0; i < transfer->children && *sent && code == MPI_SUCCESS; i++)
        code = MPI_Test(down_request(transfer, transfer->send_done, i), sent, MPI_STATUS_IGNORE);
    transfer->send_done += *sent != 0;
    return code;
}

static int tree_progress(struct mpi_comm *comm, bool *moved, bool *done)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code = MPI_SUCCESS, received = 1, sent = 1;

    if (transfer->up)
        code = tree_go_up(comm, moved);
    while (code == MPI_SUCCESS && !transfer->up && (received || sent)) {
        received = sent = 0;
        code = receive_down(comm, &received);
        if (code == MPI_SUCCESS)
            code = send_down(comm, &sent);
        *moved |= received || sent;
    }
    *done = transfer->recv_done == transfer->packets && transfer->send_done == transfer->packets;
    return code;
}

/* Direct ------------------------------------------------------------------------------------- */

/* Bytes that one rank keeps or contributes. */
static uint64_t piece_bytes(const struct mpi_comm *comm, const struct comm_call *call)
{
    return call->kind == COMM_ALL_REDUCE ? call->bytes / (uint64_t)comm->base.comm.size
                                         : call->bytes;
}

static bool uses_direct(const struct mpi_comm *comm, const struct comm_call *call)
{
    const struct mpi_direct_limits *limits = &comm->direct;
    const uint64_t bytes = piece_bytes(comm, call);

    if (bytes == 0)
        return false;
    switch (call->kind) {
    case COMM_ALL_GATHER:
        return bytes <= limits->gather_bytes;
    case COMM_REDUCE_SCATTER:
        return bytes <= limits->reduce_bytes;
    case COMM_ALL_REDUCE:
        return call->count % (uint64_t)comm->base.comm.size == 0 &&
               bytes <= mics_min_u64(limits->gather_bytes, limits->reduce_bytes);
    default:
        return false;
    }
}

static void direct_begin(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;

    transfer->algorithm = MPI_ALGORITHM_DIRECT;
    transfer->piece_bytes = piece_bytes(comm, transfer->calls);
    transfer->reducing = transfer->calls->kind != COMM_ALL_GATHER;
    transfer->distance = 1;
}

/* The piece of the rank `ahead` of this one in the ring. */
static char *piece_at(const struct mpi_comm *comm, int ahead)
{
    const struct comm_call *call = comm->transfer.calls;
    const int rank = comm_mod(comm->base.comm.rank + ahead, comm->base.comm.size);
    char *data = call->kind == COMM_REDUCE_SCATTER ? call->send : call->recv;
    const int block = call->kind == COMM_ALL_REDUCE ? rank : comm_block_of(&comm->base, call, rank);

    return data + (uint64_t)block * comm->transfer.piece_bytes;
}

/* Send the pieces of other ranks to them; receive their summands of this rank's piece into
 * staging. */
static int post_reduction(struct mpi_comm *comm)
{
    const int size = comm->base.comm.size, rank = comm->base.comm.rank;
    const uint64_t bytes = comm->transfer.piece_bytes;
    int code = MPI_SUCCESS;

    for (int i = 1; i < size && code == MPI_SUCCESS; i++)
        code = mics_mpi_receive(comm, comm->staging + (uint64_t)(i - 1) * bytes, bytes,
                                comm_mod(rank + i, size), false, &comm->requests[i - 1]);
    for (int i = 1; i < size && code == MPI_SUCCESS; i++)
        code = mics_mpi_send(comm, piece_at(comm, -i), bytes, comm_mod(rank - i, size), false,
                             &comm->requests[size - 2 + i]);
    comm->transfer.request_count = 2 * (size - 1);
    return code;
}

/* In the order of the ring: the next rank first, this one last. */
static void add_pieces(const struct mpi_comm *comm)
{
    const struct comm_call *call = comm->transfer.calls;
    const uint64_t bytes = comm->transfer.piece_bytes;
    const uint64_t count = bytes / mics_dtype_bytes(call->dtype);
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

/* Pieces that the current round of a gather moves: those this rank has, or those still missing. */
static int round_pieces(const struct mpi_comm *comm)
{
    const int distance = comm->transfer.distance, missing = comm->base.comm.size - distance;

    return distance < missing ? distance : missing;
}

/* The first half of the staging buffer's pieces are sent, the second half received. */
static int post_round(struct mpi_comm *comm)
{
    const int size = comm->base.comm.size, rank = comm->base.comm.rank;
    const int distance = comm->transfer.distance, pieces = round_pieces(comm);
    const uint64_t each = comm->transfer.piece_bytes, bytes = (uint64_t)pieces * each;
    const int code = mics_mpi_receive(comm, comm->staging + bytes, bytes,
                                      comm_mod(rank + distance, size), false, &comm->requests[0]);

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
    const int pieces = round_pieces(comm);
    const uint64_t each = comm->transfer.piece_bytes;

    for (int i = 0; i < pieces; i++)
        memcpy(piece_at(comm, comm->transfer.distance + i),
               comm->staging + (uint64_t)(pieces + i) * each, each);
}

/* All messages of the reduction or of a round are complete. Returns whether the transfer is. */
static bool finish_round(struct mpi_comm *comm)
{
    struct mpi_transfer *transfer = &comm->transfer;

    if (transfer->reducing) {
        add_pieces(comm);
        transfer->reducing = false;
        return transfer->calls->kind == COMM_REDUCE_SCATTER;
    }
    unpack_round(comm);
    transfer->distance *= 2;
    return transfer->distance >= comm->base.comm.size;
}

static int direct_progress(struct mpi_comm *comm, bool *moved, bool *done)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code = MPI_SUCCESS;
    bool complete = false;

    while (!*done) {
        if (transfer->request_count == 0)
            code = transfer->reducing ? post_reduction(comm) : post_round(comm);
        if (code == MPI_SUCCESS)
            code = mics_mpi_test_round(comm, &complete);
        if (code != MPI_SUCCESS || !complete)
            return code;
        *moved = true;
        *done = finish_round(comm);
    }
    return MPI_SUCCESS;
}

/* Doubling gathers pieces in as many rounds as direct, and moves most of them inside the nodes. */
static void short_begin(struct mpi_comm *comm)
{
    if (comm->transfer.calls->kind == COMM_ALL_GATHER &&
        mics_comm_short_bytes(comm->base.comm.size) > 0)
        mics_mpi_halving_begin(comm);
    else
        direct_begin(comm);
}

/* Selection ---------------------------------------------------------------------------------- */

/* The order of a sum must not depend on the other calls of its batch. */
bool mics_mpi_can_coalesce(const struct mpi_comm *comm, const struct comm_call *calls, int count)
{
    const bool halves = mics_mpi_halves(comm, &calls[0], 1);

    for (int i = 0; i < count; i++)
        if (uses_tree(comm, &calls[i]) || mics_mpi_halves(comm, &calls[i], 1) != halves)
            return false;
    return true;
}

void mics_mpi_transfer_begin(struct mpi_comm *comm)
{
    const struct mpi_request *request = comm->head;

    comm->transfer = (struct mpi_transfer){.calls = request->calls, .count = request->count};
    if (request->calls->kind == COMM_EXCHANGE || request->calls->kind == COMM_ALL_TO_ALL)
        mics_mpi_pairs_begin(comm);
    else if (mics_mpi_halves(comm, request->calls, request->count))
        mics_mpi_halving_begin(comm);
    else if (uses_tree(comm, request->calls))
        tree_begin(comm);
    else if (request->count == 1 && uses_direct(comm, request->calls))
        short_begin(comm);
    else
        ring_begin(comm);
}

int mics_mpi_transfer_progress(struct mpi_comm *comm, bool *moved, bool *done)
{
    switch (comm->transfer.algorithm) {
    case MPI_ALGORITHM_TREE:
        return tree_progress(comm, moved, done);
    case MPI_ALGORITHM_DIRECT:
        return direct_progress(comm, moved, done);
    case MPI_ALGORITHM_HALVING:
        return mics_mpi_halving_progress(comm, moved, done);
    case MPI_ALGORITHM_PAIRS:
        return mics_mpi_pairs_progress(comm, moved, done);
    default:
        return ring_progress(comm, moved, done);
    }
}
