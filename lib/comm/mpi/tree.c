/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of comm_wire.h. Up: each rank adds what its children send, in their order, and sends the sum to its
 * parent; down: each passes on what it gets. All-reduce and barrier go up and down, broadcast only down. A
 * broad tree carries one packet; a chain carries many, a few of them under way at once.
 */
#include "comm/mpi/mpi.h"

#if MICS_HAVE_MPI

#include "base/num.h"

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

#endif
