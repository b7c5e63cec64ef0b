/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/copies.h"

#include "base/num.h"

/* Nodes of an optimizer group. */
static uint32_t group_nodes(const struct mics_shape *shape)
{
    return shape->p_optim <= shape->per_node ? 1 : shape->p_optim / shape->per_node;
}

struct mics_copies mics_copies_make(const struct mics_shape *shape, uint32_t wanted)
{
    struct mics_copies copies = {.shape = *shape, .held = shape->nodes / group_nodes(shape)};

    wanted = wanted < shape->nodes ? wanted : shape->nodes;
    copies.rounds = wanted > copies.held ? wanted - copies.held : 0;
    return copies;
}

bool mics_copies_keeps_own(const struct mics_copies *copies, uint32_t rank)
{
    return rank % copies->shape.per_node < copies->shape.p_optim;
}

/* The nodes that hold a shard are q = group_nodes() apart; the others follow the first of them, in
 * order, and each round takes one. The groups that hold the shard take turns in sending. */
int64_t mics_copies_target(const struct mics_copies *copies, uint32_t rank, uint32_t round)
{
    const struct mics_shape *shape = &copies->shape;
    const uint32_t q = group_nodes(shape), node = rank / shape->per_node;

    if (round >= copies->rounds || node / q != round % copies->held)
        return -1;
    /* One of q nodes in a row holds the shard. */
    const uint32_t distance = round / (q - 1) * q + round % (q - 1) + 1;

    return (int64_t)((node % q + distance) % shape->nodes) * shape->per_node +
           rank % shape->per_node;
}

int64_t mics_copies_source(const struct mics_copies *copies, uint32_t rank, uint32_t round)
{
    const struct mics_shape *shape = &copies->shape;

    for (uint32_t node = 0; node < shape->nodes; node++) {
        const uint32_t other = node * shape->per_node + rank % shape->per_node;

        if (mics_copies_target(copies, other, round) == (int64_t)rank)
            return other;
    }
    return -1;
}

uint32_t mics_copies_per_node(const struct mics_copies *copies)
{
    const struct mics_shape *shape = &copies->shape;
    uint32_t most = 0;

    for (uint32_t node = 0; node < shape->nodes; node++) {
        uint32_t kept = 0;

        for (uint32_t i = 0; i < shape->per_node; i++) {
            const uint32_t rank = node * shape->per_node + i;

            kept += mics_copies_keeps_own(copies, rank);
            for (uint32_t round = 0; round < copies->rounds; round++)
                kept += mics_copies_source(copies, rank, round) >= 0;
        }
        most = kept > most ? kept : most;
    }
    return most;
}

uint32_t mics_copies_sent_per_node(const struct mics_copies *copies)
{
    /* The first group of nodes sends in rounds 0, held, 2 held, ... */
    return (uint32_t)mics_ceil_div(copies->rounds, copies->held) * copies->shape.per_node;
}

uint32_t mics_copies_nodes_to_lose(const struct mics_copies *copies)
{
    return copies->held + copies->rounds - 1;
}
