/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of comm_wire.h, cut into packets; the segments of calls that have joined come one after another. Packet t is segment t % segments of step t / segments. A packet
 * is sent on as soon as its segment of the step before has arrived and, where it sums, been added; a few
 * packets are under way at once. What is to be added arrives in the staging buffer, the rest in its place.
 */
#include "comm/mpi/mpi.h"
#include "base/num.h"

#include <string.h>

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

/*
 * The tree of comm_wire.h. Up: each rank adds what its children send, in their order, and sends the sum to its
 * parent; down: each passes on what it gets. All-reduce and barrier go up and down, broadcast only down. A
 * broad tree carries one packet; a chain carries many, a few of them under way at once.
 */



bool mics_mpi_takes_tree(const struct comm_call *call)
{
    switch (call->kind) {
    case COMM_BROADCAST:
    case COMM_BARRIER:
        return true;
    case COMM_ALL_REDUCE:
        return call->bytes <= COMM_TREE_REDUCE_BYTES;
    default:
        return false;
    }
}

void mics_mpi_tree_begin(struct mpi_comm *comm, const struct comm_call *call)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const int size = comm->base.comm.size;
    const int arity =
        call->kind == COMM_BROADCAST ? mics_comm_broadcast_arity(call->bytes) : COMM_TREE_ARITY;
    const int place = comm_mod(comm->base.comm.rank - call->root, size);
    const struct comm_children children = mics_comm_children(place, size, arity);

    *transfer = (struct mpi_transfer){.call = call, .route = MPI_ROUTE_TREE, .place = place};
    transfer->parent = place == 0 ? -1 : comm_mod((place - 1) / arity + call->root, size);
    transfer->children = children.count;
    for (int i = 0; i < children.count; i++)
        transfer->child_ranks[i] = comm_mod(children.first + i + call->root, size);
    transfer->up = call->kind != COMM_BROADCAST;
    transfer->packets = mics_max_u64(1, mics_ceil_div(call->bytes, COMM_MPI_SEGMENT));
}

/* Wait for the children one after the other, so that the order of summation is theirs. */
static int add_children(struct mpi_comm *comm, bool *moved)
{
    struct mpi_transfer *transfer = &comm->transfer;
    const struct comm_call *call = transfer->call;
    int code = MPI_SUCCESS, came = 1;

    for (int i = 0; !transfer->up_posted && i < transfer->children && code == MPI_SUCCESS; i++)
        code = mics_mpi_recv(comm, comm->staging + i * COMM_TREE_REDUCE_BYTES, call->bytes,
                             transfer->child_ranks[i], true, &transfer->recvs[i]);
    transfer->up_posted = true;
    while (code == MPI_SUCCESS && came && transfer->up_done < transfer->children) {
        code = MPI_Test(&transfer->recvs[transfer->up_done], &came, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS || !came)
            break;
        mics_comm_accumulate(call->recv, comm->staging + transfer->up_done * COMM_TREE_REDUCE_BYTES,
                             call->count, call->dtype);
        transfer->up_done++;
        *moved = true;
    }
    return code;
}

/* Add the children's parts, then tell the parent; up_done counts both. */
static int go_up(struct mpi_comm *comm, bool *moved)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int left = 0, code = add_children(comm, moved);

    if (code != MPI_SUCCESS || transfer->up_done < transfer->children)
        return code;
    if (transfer->parent < 0) {
        transfer->up = false;
        return MPI_SUCCESS;
    }
    if (transfer->up_done == transfer->children) {
        transfer->up_done++;
        code = mics_mpi_send(comm, transfer->call->recv, transfer->call->bytes, transfer->parent,
                             true, &transfer->sends[0]);
    }
    if (code == MPI_SUCCESS)
        code = MPI_Test(&transfer->sends[0], &left, MPI_STATUS_IGNORE);
    if (left)
        transfer->up = false;
    *moved |= left != 0;
    return code;
}

static char *packet_data(const struct mpi_transfer *transfer, uint64_t index, uint64_t *bytes)
{
    const uint64_t offset = index * COMM_MPI_SEGMENT;

    *bytes = mics_min_u64(COMM_MPI_SEGMENT, transfer->call->bytes - offset);
    return *bytes ? (char *)transfer->call->recv + offset : NULL;
}

/* The root has everything from the beginning. */
static int receive_down(struct mpi_comm *comm, int *came)
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
        char *data = packet_data(transfer, index, &bytes);

        code = mics_mpi_recv(comm, data, bytes, transfer->parent, true,
                             &transfer->recvs[index % COMM_MPI_WINDOW]);
    }
    if (code == MPI_SUCCESS && transfer->recv_done < transfer->recv_posted)
        code = MPI_Test(&transfer->recvs[transfer->recv_done % COMM_MPI_WINDOW], came,
                        MPI_STATUS_IGNORE);
    transfer->recv_done += *came != 0;
    return code;
}

/* Packets of a chain have a slot each; the only packet of a broad tree has one for each child. */
static MPI_Request *send_slot(struct mpi_transfer *transfer, uint64_t index, int child)
{
    return &transfer->sends[transfer->children == 1 ? index % COMM_MPI_WINDOW : (uint64_t)child];
}

static int send_down(struct mpi_comm *comm, int *left)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code = MPI_SUCCESS;

    while (transfer->send_posted < transfer->recv_done &&
           transfer->send_posted - transfer->send_done < COMM_MPI_WINDOW) {
        uint64_t bytes, index = transfer->send_posted++;
        char *data = packet_data(transfer, index, &bytes);

        for (int i = 0; i < transfer->children && code == MPI_SUCCESS; i++)
            code = mics_mpi_send(comm, data, bytes, transfer->child_ranks[i], true,
                                 send_slot(transfer, index, i));
        if (code != MPI_SUCCESS)
            return code;
    }
    if (transfer->send_done == transfer->send_posted)
        return MPI_SUCCESS;
    *left = 1;
    for (int i = 0; i < transfer->children && *left && code == MPI_SUCCESS; i++)
        code = MPI_Test(send_slot(transfer, transfer->send_done, i), left, MPI_STATUS_IGNORE);
    transfer->send_done += *left != 0;
    return code;
}

int mics_mpi_tree_progress(struct mpi_comm *comm, bool *moved, bool *done)
{
    struct mpi_transfer *transfer = &comm->transfer;
    int code = MPI_SUCCESS, came = 1, left = 1;

    if (transfer->up)
        code = go_up(comm, moved);
    while (code == MPI_SUCCESS && !transfer->up && (came || left)) {
        came = left = 0;
        code = receive_down(comm, &came);
        if (code == MPI_SUCCESS)
            code = send_down(comm, &left);
        *moved |= came || left;
    }
    *done = transfer->recv_done == transfer->packets && transfer->send_done == transfer->packets;
    return code;
}

/*
 * What is too short for a ring. A reduce-scatter sends each piece straight to the rank that keeps it, which
 * adds what arrives in the order of the ring, so that the bits are the ring's. An all-gather goes in rounds of distance
 * d = 1, 2, 4, ...: rank i has the pieces i ... i + d - 1, sends them to rank i - d and gets the next ones from rank
 * i + d (Bruck et al. 1997), packed into the staging buffer because blocks need not be neighbours. An all-reduce is both.
 */




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
