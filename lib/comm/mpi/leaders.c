/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaders.c - short collectives of several nodes, of which one rank exchanges messages for all of
 * its node.
 *
 * The time of a short collective is that of its messages, each of which costs both ends CPU time,
 * however few bytes it has. So the ranks of a node pass their data to the first of them, the
 * leader, through shared memory (node.c); the leaders reduce or gather by halving and doubling
 * (halving.c); and the others copy the result. In these steps they sleep. A node sends as many
 * bytes as by halving among all ranks, but in a p-th of the messages for p ranks per node.
 *
 * Sums are those of halving among all ranks: ranks are in node order, so the first distances stay
 * inside a node.
 *
 * A communicator has leaders if it is of 2^l ranks that are in node order, as many of each node,
 * more than one, and all of them may copy from the others of their node.
 */
#include "comm/mpi/mpi.h"

#include <stdlib.h>
#include <string.h>

enum { NODE_SUM_BYTES = 128 * 1024 }; /* that one rank reads for a sum */

struct mpi_leaders {
    struct mpi_comm *node;   /* the ranks of this node */
    struct mpi_comm *across; /* the leaders; NULL on other ranks */
};

static uint64_t total_bytes(const struct mpi_comm *comm, const struct comm_call *calls, int count)
{
    const uint64_t size = (uint64_t)comm->base.comm.size;
    uint64_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += calls[i].kind == COMM_ALL_REDUCE ? calls[i].bytes : calls[i].bytes * size;
    return bytes;
}

bool mics_mpi_leaders_suit(const struct mpi_comm *comm, const struct comm_call *calls, int count)
{
    if (!comm->leaders || !mics_mpi_halves(comm, calls, count))
        return false;

    const uint64_t bytes = total_bytes(comm, calls, count);
    const uint64_t ranks = (uint64_t)comm->leaders->node->base.comm.size;
    return bytes <= MICS_COMM_HALVING_BYTES &&
           (calls->kind == COMM_ALL_GATHER || bytes * ranks <= NODE_SUM_BYTES);
}

/* Data in the order of ranks, and for each rank in the order of calls ------------------------- */

/* A rank's piece of a call; an all-reduce has one for all ranks. */
static char *piece_at(const struct mpi_comm *comm, const struct comm_call *call, int rank)
{
    if (call->kind == COMM_ALL_REDUCE)
        return call->recv;
    return (char *)(call->kind == COMM_REDUCE_SCATTER ? call->send : call->recv) +
           (uint64_t)comm_block_of(&comm->base, call, rank) * call->bytes;
}

/* Copy pieces of the ranks [first, end) to `packed` or, if `unpack`, from there. */
static void pack(const struct mpi_comm *comm, const struct comm_call *calls, int count, int first,
                 int end, char *packed, bool unpack)
{
    for (int rank = first; rank < end; rank++)
        for (int i = 0; i < count; i++) {
            char *piece = piece_at(comm, &calls[i], rank);

            if (calls[i].bytes > 0)
                memcpy(unpack ? piece : packed, unpack ? packed : piece, calls[i].bytes);
            packed += calls[i].bytes;
        }
}

/* Collectives -------------------------------------------------------------------------------- */

/* What the ranks of a node pass to their leader is packed at the beginning of the staging memory,
 * and becomes what the leaders exchange; the result of an all-gather is there as well, and that of
 * a reduce-scatter behind it. */
struct steps {
    struct comm_call collect, exchange, spread;
};

static struct steps plan_steps(const struct mpi_comm *comm, const struct comm_call *calls,
                               int count)
{
    const struct mpi_comm *node = comm->leaders->node;
    const uint64_t ranks = (uint64_t)node->base.comm.size, bytes = total_bytes(comm, calls, count);
    const uint64_t own = bytes / (uint64_t)comm->base.comm.size;
    const uint64_t place = (uint64_t)(comm->base.comm.rank / node->base.comm.size) * ranks * own;
    struct comm_call call = {.kind = calls->kind, .dtype = calls->dtype, .in_rank_order = true};
    struct steps steps = {call, call, call};
    char *all = comm->staging;

    steps.spread.kind = COMM_BROADCAST;
    steps.spread.recv = all;
    steps.spread.bytes = bytes;
    switch (calls->kind) {
    case COMM_ALL_GATHER:
        steps.exchange.send = steps.collect.recv = all + place;
        steps.exchange.recv = all;
        steps.collect.send = all + place + (uint64_t)node->base.comm.rank * own;
        steps.collect.bytes = own;
        steps.exchange.bytes = ranks * own;
        break;
    case COMM_REDUCE_SCATTER:
        steps.collect.send = steps.collect.recv = steps.exchange.send = all;
        steps.exchange.recv = steps.spread.recv = all + bytes;
        steps.collect.bytes = bytes / ranks;
        steps.exchange.bytes = steps.spread.bytes = ranks * own;
        break;
    default:
        steps.collect.recv = steps.exchange.recv = all;
        steps.collect.bytes = steps.exchange.bytes = bytes;
    }
    steps.collect.count = steps.collect.bytes / mics_dtype_bytes(call.dtype);
    steps.exchange.count = steps.exchange.bytes / mics_dtype_bytes(call.dtype);
    return steps;
}

enum mics_status mics_mpi_leaders_execute(struct mpi_comm *comm, const struct comm_call *calls,
                                          int count, struct comm_sent *sent, struct mics_err *err)
{
    const struct mpi_leaders *leaders = comm->leaders;
    const int rank = comm->base.comm.rank, size = comm->base.comm.size;
    const struct steps steps = plan_steps(comm, calls, count);
    struct comm_sent exchanged = {0};

    if (calls->kind == COMM_ALL_GATHER)
        pack(comm, calls, count, rank, rank + 1, steps.collect.send, false);
    else
        pack(comm, calls, count, 0, calls->kind == COMM_ALL_REDUCE ? 1 : size, comm->staging,
             false);

    enum mics_status status = mics_mpi_node_collect(leaders->node, &steps.collect, err);
    if (leaders->across && status == MICS_OK)
        status = mics_mpi_thread_execute(leaders->across, &steps.exchange, 1, &exchanged, err);
    status = mics_mpi_node_spread(leaders->node, &steps.spread, status, err);
    comm->broken |= status != MICS_OK;
    if (status != MICS_OK)
        return status;

    if (calls->kind == COMM_ALL_GATHER) {
        pack(comm, calls, count, 0, size, comm->staging, true);
    } else if (calls->kind == COMM_ALL_REDUCE) {
        pack(comm, calls, count, 0, 1, comm->staging, true);
    } else {
        const char *sum = (const char *)steps.spread.recv +
                          (uint64_t)leaders->node->base.comm.rank *
                              (total_bytes(comm, calls, count) / (uint64_t)size);

        for (int i = 0; i < count; sum += calls[i].bytes, i++)
            if (calls[i].bytes > 0)
                memcpy(calls[i].recv, sum, calls[i].bytes);
    }
    for (int i = 0; i < count; i++)
        sent->bytes += mics_comm_call_sent(&comm->base, &calls[i]);
    sent->net_bytes += exchanged.net_bytes;
    return MICS_OK;
}

/* Opening ------------------------------------------------------------------------------------ */

/* Ranks of each node; 0: the communicator can have no leaders. */
static int ranks_per_node(const struct mpi_comm *comm)
{
    const int size = comm->base.comm.size, *nodes = comm->thread->nodes;
    int ranks = 1;

    while (ranks < size && nodes[comm->ranks[ranks]] == nodes[comm->ranks[0]])
        ranks++;
    if (mics_comm_short_bytes(size) == 0 || ranks == 1 || ranks == size || size % ranks != 0)
        return 0;
    for (int i = 0; i < size; i++)
        if (nodes[comm->ranks[i]] != nodes[comm->ranks[i - i % ranks]] ||
            (i % ranks == 0 && i > 0 && nodes[comm->ranks[i]] == nodes[comm->ranks[i - 1]]))
            return 0;
    return ranks;
}

/* The ranks first, first + stride, ... of a communicator; NULL: out of memory. Its tag is the
 * communicator's, none of whose messages is under way while those of a part are. */
static struct mpi_comm *part_of(const struct mpi_comm *comm, int first, int stride, int count)
{
    struct mpi_comm *part = mics_mpi_comm_new(comm->thread, (comm->base.comm.rank - first) / stride,
                                              count, (uint64_t)comm->tag);

    for (int i = 0; part && i < count; i++) {
        part->ranks[i] = comm->ranks[first + i * stride];
        part->base.blocks[i] = i;
    }
    return part;
}

enum mics_status mics_mpi_leaders_open(struct mpi_comm *comm, struct mics_err *err)
{
    const int ranks = ranks_per_node(comm), rank = comm->base.comm.rank;

    if (ranks == 0)
        return MICS_OK;

    struct mpi_leaders *leaders = calloc(1, sizeof *leaders);
    if (leaders) {
        leaders->node = part_of(comm, rank - rank % ranks, 1, ranks);
        if (rank % ranks == 0)
            leaders->across = part_of(comm, 0, ranks, comm->base.comm.size / ranks);
    }
    bool usable = leaders && leaders->node && (rank % ranks > 0 || leaders->across);
    enum mics_status status = mics_mpi_agree(comm, usable, &usable, err);
    if (status == MICS_OK && usable)
        status = mics_mpi_node_open(leaders->node, err);
    if (status == MICS_OK && usable)
        status = mics_mpi_agree(comm, leaders->node->node != NULL, &usable, err);
    comm->leaders = leaders;
    if (status != MICS_OK || !usable)
        mics_mpi_leaders_close(comm);
    return status;
}

void mics_mpi_leaders_close(struct mpi_comm *comm)
{
    if (comm->leaders) {
        mics_mpi_comm_destroy(comm->leaders->node);
        mics_mpi_comm_destroy(comm->leaders->across);
    }
    free(comm->leaders);
    comm->leaders = NULL;
}
