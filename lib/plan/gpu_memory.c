/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_memory.c - device memory of NCCL's communicators, by channels, peers and buffer sizes.
 *
 * Source: NCCL 2.28.9, src/init.cc (buffer sizes), src/channel.cc (tables), src/transport/p2p.cc
 * and net.cc (connections), src/transport/nvls.cc, src/transport/generic.cc (peers). Every
 * communicator of mics is created by ncclCommInitRankConfig() and shares nothing with others.
 *
 * Assumed: NCCL allocates with cuMemCreate() in pieces of 2 MiB (NCCL_CUMEM_ENABLE, its default),
 * so that algorithms are connected when they are first used; GPUDirect RDMA between nodes, without
 * which buffers are in host memory; both ring and tree for an all-reduce, since the size decides
 * which one is used; and no environment variable that changes buffers or channels.
 */
#include "plan/gpu_memory.h"

#include "base/num.h"
#include "plan/schedule/schedule.h"

#define MIB ((uint64_t)1 << 20)

/* Buffers of each channel and connection, by protocol (Simple, LL128, LL): 4 MiB; 640 threads x 120
 * elements x 8 steps x 8 bytes; 512 threads x 8 lines x 8 steps x 16 bytes. In addition a page of
 * flags. */
static const uint64_t simple_bytes = 4 * MIB, ll128_bytes = 640 * 120 * 8 * 8,
                      ll_bytes = 512 * 8 * 8 * 16, flags_bytes = 4096;
static const uint64_t piece_bytes = 2 * MIB, nvls_buffer_bytes = MIB;

/* NCCL's code, once for a process that has a communicator: three of two ranks over sockets, whose
 * buffers are in host memory, took 433 MiB of an H100 (NCCL 2.28.3), of which tables are 48. */
static const uint64_t code_bytes = 385 * MIB;

enum { TREE_NET_PEERS = 3, PAIRS_CHANNELS_MAX = 32 };

static uint64_t allocated(uint64_t bytes)
{
    return mics_round_up(bytes, piece_bytes);
}

/* Sending to one peer and receiving from one, on one channel: 12 MiB inside a node, where the
 * receiver has the buffers, and 20 MiB over the network, where both ends have. */
static uint64_t connection_bytes(bool net)
{
    const uint64_t receive = allocated(simple_bytes + ll128_bytes + ll_bytes + flags_bytes);
    const uint64_t send = net ? allocated(simple_bytes + ll128_bytes) : allocated(flags_bytes);

    return receive + send;
}

/* Tables of peers and ranks: three per channel and two of the communicator; with NVLink SHARP one
 * more per channel, and the credits. An entry of a table has less than 1 KiB. */
static uint64_t table_bytes(uint64_t ranks, uint64_t channels, bool nvls)
{
    const uint64_t table = allocated(ranks * 1024);

    return (3 * channels + 2) * table + (nvls ? (channels + 1) * piece_bytes : 0);
}

/* The ring, which every collective may use. The ends of the rings at a node are spread over its
 * ranks. */
static uint64_t ring_bytes(const struct mics_nccl_comm *comm, uint64_t channels)
{
    const uint64_t inside = connection_bytes(false), outside = connection_bytes(true);

    if (comm->nodes == 1)
        return channels * inside;
    return channels * inside + mics_ceil_div(channels, comm->per_node) * (outside - inside);
}

/* What the two trees of an all-reduce need in addition to the ring: the other direction to both
 * neighbours inside the node, and at a node's end of the tree a parent and two children on other
 * nodes. */
static uint64_t tree_bytes(const struct mics_nccl_comm *comm, uint64_t channels)
{
    const uint64_t peers = mics_min_u64(TREE_NET_PEERS, comm->nodes - 1);
    uint64_t bytes = mics_ceil_div(channels, comm->per_node) * peers * connection_bytes(true);

    if ((uint64_t)comm->nodes * comm->per_node > 2 && comm->per_node > 1)
        bytes += channels * connection_bytes(false);
    return bytes;
}

/* Communicators with one rank on each node may gather and reduce by binary trees of ranks ("PAT",
 * since 2.23): peers at distances 1, 2, 4, ... on both sides, of which the ring has one direction.
 */
static uint64_t pat_bytes(const struct mics_nccl_comm *comm, uint64_t channels)
{
    uint64_t connections = 0;

    for (uint64_t distance = 1; distance < comm->nodes; distance *= 2)
        connections += 2 * distance == comm->nodes ? 1 : 2;
    return channels * (connections - 1) * connection_bytes(true);
}

/* Send and receive, of which an all-to-all consists: inside a node a connection to each peer on
 * each channel, of which there is a power of two (8 H100 took 3128 MiB: nccl issue 1685); between
 * nodes a pool that all messages share (nccl issue 2363). */
static uint64_t pairs_bytes(const struct mics_nccl_comm *comm, uint64_t channels)
{
    const uint64_t pool = 512 * MIB;
    uint64_t used = 1;

    while (used < channels && used < PAIRS_CHANNELS_MAX)
        used *= 2;
    return (comm->per_node - 1) * used * connection_bytes(false) + (comm->nodes > 1 ? pool : 0);
}

/* Two buffers per channel and rank of the node, and the tree between nodes. */
static uint64_t nvls_bytes(const struct mics_nccl_node *node, const struct mics_nccl_comm *comm)
{
    const uint64_t channels = node->nvls_channels;
    const uint64_t peers = mics_min_u64(TREE_NET_PEERS, comm->nodes - 1);

    return channels * 2 * nvls_buffer_bytes * comm->per_node +
           mics_ceil_div(channels, comm->per_node) * peers * connection_bytes(true);
}

uint64_t mics_nccl_comm_bytes(const struct mics_nccl_node *node, const struct mics_nccl_comm *comm)
{
    const uint64_t ranks = (uint64_t)comm->nodes * comm->per_node;
    const bool nvls = node->nvls_channels > 0 && comm->per_node > 1;
    const uint64_t channels = mics_nccl_channels(node, comm->nodes, comm->per_node);
    uint64_t bytes;

    if (ranks <= 1)
        return 0;
    bytes = table_bytes(ranks, nvls ? mics_max_u64(channels, node->nvls_channels) : channels, nvls);
    if (comm->collective == MICS_ALL_TO_ALL)
        return bytes + pairs_bytes(comm, channels);
    bytes += ring_bytes(comm, channels);
    if (comm->collective != MICS_ALL_REDUCE)
        return comm->per_node == 1 ? bytes + pat_bytes(comm, channels) : bytes;
    bytes += tree_bytes(comm, channels);
    return nvls && comm->per_node > 2 && !comm->scalars ? bytes + nvls_bytes(node, comm) : bytes;
}

static uint64_t exchange_comms_bytes(const struct mics_nccl_node *node,
                                     const struct mics_plan_choice *choice,
                                     const struct mics_exchange *exchange)
{
    uint64_t bytes = 0;

    for (uint32_t h = 0; h < exchange->hop_count; h++) {
        const struct mics_hop *hop = &exchange->hops[h];
        struct mics_group_position position;

        if (!mics_op_is_comm(hop->kind))
            continue;
        mics_shape_position(&choice->shapes[hop->groups], hop->comm, 0, &position);
        const struct mics_nccl_comm comm = {position.nodes, position.per_node, hop->collective,
                                            false};
        bytes += mics_nccl_comm_bytes(node, &comm);
    }
    return bytes;
}

/* The communicators of the routes. */
static uint64_t route_comms_bytes(const struct mics_nccl_node *node,
                                  const struct mics_plan_choice *choice,
                                  const struct mics_routes *routes)
{
    uint64_t bytes = exchange_comms_bytes(node, choice, &routes->first_gather);

    for (int kind = 0; kind < MICS_OP_KIND_COUNT; kind++)
        bytes += exchange_comms_bytes(node, choice, &routes->of[kind]);
    return bytes;
}

/* Those of tokens that are sent to experts, which in one of them gather their counts. */
static uint64_t dispatch_comms_bytes(const struct mics_nccl_node *node,
                                     const struct mics_plan_choice *choice)
{
    struct mics_group_position at;

    if (mics_choice_expert_ranks(choice, MICS_UNIT_EXPERT) == 0)
        return 0;
    mics_shape_position(&choice->shapes[MICS_UNIT_EXPERT], MICS_COMM_DISPATCH, 0, &at);
    const struct mics_nccl_comm rows = {at.nodes, at.per_node, MICS_ALL_TO_ALL, false};
    const struct mics_nccl_comm counts = {at.nodes, at.per_node, MICS_ALL_GATHER, false};
    return 2 * mics_nccl_comm_bytes(node, &rows) + mics_nccl_comm_bytes(node, &counts);
}

/* The communicators that the engine creates: those of the routes, and the world; with outer steps
 * also that of a replica, for scalars. */
uint64_t mics_nccl_communicators_bytes(const struct mics_topology *topology,
                                       const struct mics_model *model,
                                       const struct mics_plan_choice *choice)
{
    const struct mics_nccl_node node = mics_nccl_node_from_topology(topology);
    const struct mics_nccl_comm world = {topology->nodes, topology->per_node, MICS_ALL_REDUCE,
                                         true};
    uint64_t bytes = mics_nccl_comm_bytes(&node, &world);

    if (choice->outer_steps > 0) {
        struct mics_group_position replica;

        mics_shape_position(&choice->shapes[0], MICS_COMM_OPTIM, 0, &replica);
        bytes +=
            mics_nccl_comm_bytes(&node, &(struct mics_nccl_comm){replica.nodes, replica.per_node,
                                                                 MICS_ALL_REDUCE, true});
    }
    for (int i = 0; i < MICS_UNIT_KIND_COUNT; i++) {
        const enum mics_unit_kind kind = (enum mics_unit_kind)i;
        const struct mics_routes routes = mics_choice_routes(choice, kind);

        const struct mics_routes exact = mics_choice_exact_routes(choice, kind);
        uint64_t of_kind = route_comms_bytes(&node, choice, &routes);

        if (choice->sync_exact_units)
            of_kind = mics_max_u64(of_kind, route_comms_bytes(&node, choice, &exact));
        const struct mics_routes drain = mics_choice_drain_routes(choice, kind);
        if (mics_choice_has_drain(choice))
            of_kind = mics_max_u64(of_kind, route_comms_bytes(&node, choice, &drain));
        if (mics_choice_uses_groups(model, choice, kind))
            bytes += of_kind;
    }
    bytes += dispatch_comms_bytes(&node, choice);
    return bytes > 0 ? bytes + code_bytes : 0;
}
