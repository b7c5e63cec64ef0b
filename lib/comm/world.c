/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/world.h"

#include "base/num.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What each rank tells the others about itself. */
struct card {
    int rank;          /* at launch */
    int node;          /* lowest launch rank on its node: the nodes are in this order */
    uint32_t per_node; /* as declared; 0: not */
    char host[64];
};

struct world {
    struct mics_world world;
    struct mics_comm *launch; /* in the order of the launcher */
};

/* *out = MICS_NODE_RANKS, or 0 when it is not set. */
static enum mics_status read_declared(uint32_t *out, struct mics_err *err)
{
    const char *text = getenv("MICS_NODE_RANKS");
    char *end;

    *out = 0;
    if (!text || !*text)
        return MICS_OK;
    errno = 0;
    long ranks = strtol(text, &end, 10);
    if (*end || errno || ranks < 1 || ranks > INT32_MAX)
        return mics_err_set(err, MICS_ERR_ARG,
                            "MICS_NODE_RANKS: expected a number of ranks, found \"%s\"", text);
    *out = (uint32_t)ranks;
    return MICS_OK;
}

static struct card own_card(const struct mics_comm *comm, uint32_t per_node)
{
    struct card card = {.rank = comm->rank, .node = comm->node, .per_node = per_node};

    if (gethostname(card.host, sizeof card.host) != 0)
        snprintf(card.host, sizeof card.host, "unknown");
    card.host[sizeof card.host - 1] = 0;
    return card;
}

/* Every rank reads the same cards, so all come to the same verdict. */
static enum mics_status check_declared(const struct card *cards, uint32_t size,
                                       struct mics_err *err)
{
    const uint32_t per_node = cards[0].per_node;

    for (uint32_t i = 1; i < size; i++)
        if (cards[i].per_node != per_node)
            return mics_err_set(err, MICS_ERR_ARG,
                                "MICS_NODE_RANKS: %u on rank 0, but %u on rank %u (0: not set)",
                                per_node, cards[i].per_node, i);
    if (per_node > 0 && size % per_node != 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "MICS_NODE_RANKS: %u ranks cannot be divided into nodes of %u", size,
                            per_node);
    return MICS_OK;
}

static void declare_nodes(struct card *cards, uint32_t size, uint32_t per_node)
{
    for (uint32_t i = 0; i < size; i++)
        cards[i].node = (int)(i / per_node * per_node);
}

static int by_node(const void *left, const void *right)
{
    const struct card *a = left, *b = right;

    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

/* Declared nodes may share a host: number them, so that people can tell them apart. */
static void name_node(char name[64], const struct card *first, uint32_t node, bool declared)
{
    char number[16] = "";

    if (declared)
        snprintf(number, sizeof number, "#%u", node);
    snprintf(name, 64, "%.*s%s", (int)(63 - strlen(number)), first->host, number);
}

/* The cards are in node order. */
static enum mics_status describe_nodes(struct mics_world *world, const struct card *cards,
                                       int launch_rank, struct mics_err *err)
{
    world->ranks_of_node = calloc(world->size, sizeof *world->ranks_of_node);
    world->host_of_node = calloc(world->size, sizeof *world->host_of_node);
    if (!world->ranks_of_node || !world->host_of_node)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < world->size; i++) {
        if (i == 0 || cards[i].node != cards[i - 1].node) {
            name_node(world->host_of_node[world->node_count], &cards[i], world->node_count,
                      world->declared);
            world->node_count++;
        }
        const uint32_t node = world->node_count - 1;
        if (cards[i].rank == launch_rank) {
            world->rank = i;
            world->node = node;
            world->local_rank = world->ranks_of_node[node];
        }
        world->ranks_of_node[node]++;
    }
    world->local_size = world->ranks_of_node[world->node];
    return MICS_OK;
}

static enum mics_status find_places(struct world *own, uint32_t per_node, struct mics_err *err)
{
    struct mics_comm *launch = own->launch;
    const struct card card = own_card(launch, per_node);
    struct card *cards = calloc((size_t)launch->size, sizeof *cards);
    enum mics_status status;

    if (!cards)
        return mics_err_nomem(err);
    own->world.size = (uint32_t)launch->size;
    own->world.declared = per_node > 0;
    status = launch->ops->all_gather_now(launch, &card, cards, sizeof card, err);
    if (status == MICS_OK)
        status = check_declared(cards, own->world.size, err);
    if (status == MICS_OK) {
        if (per_node > 0)
            declare_nodes(cards, own->world.size, per_node);
        qsort(cards, own->world.size, sizeof *cards, by_node);
        status = describe_nodes(&own->world, cards, launch->rank, err);
    }
    free(cards);
    return status;
}

static enum mics_status make_communicators(struct world *own, struct mics_err *err)
{
    struct mics_world *world = &own->world;
    struct mics_comm *launch = own->launch;
    const int rank = (int)world->rank, local_rank = (int)world->local_rank;
    enum mics_status status = launch->ops->split(launch, 0, rank, rank, &world->comm, err);

    if (status != MICS_OK)
        return status;
    return world->comm->ops->split(world->comm, (int)world->node, local_rank, local_rank,
                                   &world->node_comm, err);
}

enum mics_status mics_world_open_over(struct mics_comm *comm, uint32_t ranks_per_node,
                                      struct mics_world **out, struct mics_err *err)
{
    struct world *own = calloc(1, sizeof *own);
    enum mics_status status;

    if (!own) {
        comm->ops->free(comm);
        return mics_err_nomem(err);
    }
    own->launch = comm;
    status = find_places(own, ranks_per_node, err);
    if (status == MICS_OK)
        status = make_communicators(own, err);
    if (status == MICS_OK)
        *out = &own->world;
    else
        mics_world_close(&own->world);
    return status;
}

enum mics_status mics_world_open(struct mics_world **out, struct mics_err *err)
{
    struct mics_comm *comm;
    uint32_t per_node;
    enum mics_status status = read_declared(&per_node, err);

    if (status != MICS_OK)
        return status;
    status = mics_comm_launched_by_mpi() ? mics_comm_new_mpi(&comm, err)
                                         : mics_comm_new_self(&comm, err);
    if (status != MICS_OK)
        return status;
    return mics_world_open_over(comm, per_node, out, err);
}

void mics_world_close(struct mics_world *world)
{
    struct world *own = (struct world *)world;

    if (!world)
        return;
    if (world->node_comm)
        world->node_comm->ops->free(world->node_comm);
    if (world->comm)
        world->comm->ops->free(world->comm);
    own->launch->ops->free(own->launch);
    free(world->ranks_of_node);
    free(world->host_of_node);
    free(own);
}

bool mics_world_is_even(const struct mics_world *world)
{
    for (uint32_t i = 1; i < world->node_count; i++)
        if (world->ranks_of_node[i] != world->ranks_of_node[0])
            return false;
    return true;
}

uint32_t mics_world_host_ranks(const struct mics_world *world)
{
    const char *own = world->host_of_node[world->node];
    const size_t length = strcspn(own, "#"); /* the number of a declared node follows */
    uint32_t ranks = 0;

    if (!world->declared)
        return world->local_size;
    for (uint32_t i = 0; i < world->node_count; i++) {
        const char *host = world->host_of_node[i];

        if (strcspn(host, "#") == length && strncmp(host, own, length) == 0)
            ranks += world->ranks_of_node[i];
    }
    return ranks;
}
