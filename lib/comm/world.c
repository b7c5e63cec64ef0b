/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - the ranks of a job in node order; MICS_NODE_RANKS. */
#include "comm/world.h"

#include "base/num.h"
#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the ranks exchange about themselves. */
struct rank_info {
    int rank;          /* at launch */
    int node;          /* lowest launch rank on its node */
    uint32_t per_node; /* MICS_NODE_RANKS; 0: not set; MALFORMED */
    char host[64];
};

#define MALFORMED UINT32_MAX

struct world {
    struct mics_world world;
    struct mics_err declared_err; /* what is wrong with MICS_NODE_RANKS; empty: nothing */
    struct mics_comm *launch;     /* ranks in launch order */
};

bool mics_comm_is_launched(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        if (getenv(variables[i]))
            return true;
    return false;
}

enum mics_status mics_comm_open(struct mics_comm **out, struct mics_err *err)
{
    return mics_comm_is_launched() ? mics_comm_new_mpi(out, err) : mics_comm_new_self(out, err);
}

/* *out = MICS_NODE_RANKS, or 0 if it is not set. Refuses a malformed value of it and of the
 * switches that jobs read later, where a rank that fails alone would leave the others waiting. */
static enum mics_status read_environment(uint32_t *out, struct mics_err *err)
{
    static const char *const switches[] = {"MICS_NODE_COPY", "MICS_SLOW_RANKS", "MICS_GPU_SHARE"};
    const char *text = getenv("MICS_NODE_RANKS");
    enum mics_status status = MICS_OK;
    bool on;
    char *end;

    *out = 0;
    for (size_t i = 0; i < sizeof switches / sizeof *switches && status == MICS_OK; i++)
        status = mics_read_switch(switches[i], &on, err);
    if (status != MICS_OK)
        return status;
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

static struct rank_info own_info(const struct mics_comm *comm, uint32_t per_node)
{
    struct rank_info info = {.rank = comm->rank, .node = comm->node, .per_node = per_node};

    if (gethostname(info.host, sizeof info.host) != 0)
        snprintf(info.host, sizeof info.host, "unknown");
    info.host[sizeof info.host - 1] = 0;
    return info;
}

/* All ranks check the same data, so all of them fail or none. */
static enum mics_status check_declared(const struct rank_info *all, uint32_t size,
                                       struct mics_err *err)
{
    const uint32_t per_node = all[0].per_node;

    for (uint32_t i = 0; i < size; i++)
        if (all[i].per_node == MALFORMED)
            return err->text[0]
                       ? MICS_ERR_ARG
                       : mics_err_set(err, MICS_ERR_ARG,
                                      "MICS_NODE_RANKS: not a number of ranks on rank %u", i);
    for (uint32_t i = 1; i < size; i++)
        if (all[i].per_node != per_node)
            return mics_err_set(err, MICS_ERR_ARG,
                                "MICS_NODE_RANKS: %u on rank 0, but %u on rank %u (0: not set)",
                                per_node, all[i].per_node, i);
    if (per_node > 0 && size % per_node != 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "this job has %u rank%s, but MICS_NODE_RANKS=%u needs a multiple of "
                            "%u: start it with 'mpirun -n %u'",
                            size, size == 1 ? "" : "s", per_node, per_node,
                            per_node * (size / per_node + 1 > 2 ? size / per_node + 1 : 2));
    return MICS_OK;
}

static void declare_nodes(struct rank_info *all, uint32_t size, uint32_t per_node)
{
    for (uint32_t i = 0; i < size; i++)
        all[i].node = (int)(i / per_node * per_node);
}

static int by_node(const void *left, const void *right)
{
    const struct rank_info *a = left, *b = right;

    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

/* The host, with a number if the node is declared: several may be on one host. */
static void name_node(char name[64], const struct rank_info *first, uint32_t node, bool declared)
{
    char number[16] = "";

    if (declared)
        snprintf(number, sizeof number, "#%u", node);
    snprintf(name, 64, "%.*s%s", (int)(63 - strlen(number)), first->host, number);
}

/* `all` is in node order. */
static enum mics_status describe_nodes(struct mics_world *world, const struct rank_info *all,
                                       int launch_rank, struct mics_err *err)
{
    world->ranks_of_node = calloc(world->size, sizeof *world->ranks_of_node);
    world->host_of_node = calloc(world->size, sizeof *world->host_of_node);
    if (!world->ranks_of_node || !world->host_of_node)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < world->size; i++) {
        if (i == 0 || all[i].node != all[i - 1].node) {
            name_node(world->host_of_node[world->node_count], &all[i], world->node_count,
                      world->declared);
            world->node_count++;
        }
        const uint32_t node = world->node_count - 1;
        if (all[i].rank == launch_rank) {
            world->rank = i;
            world->node = node;
            world->local_rank = world->ranks_of_node[node];
        }
        world->ranks_of_node[node]++;
    }
    world->local_size = world->ranks_of_node[world->node];
    return MICS_OK;
}

/* Nodes are as declared, or, if there is something wrong with that, as they are: the mistake is
 * kept for mics_world_check(). */
static enum mics_status find_nodes(struct world *own, uint32_t per_node, struct mics_err *err)
{
    struct mics_comm *launch = own->launch;
    const struct rank_info own_rank = own_info(launch, per_node);
    struct rank_info *all = calloc((size_t)launch->size, sizeof *all);
    enum mics_status status;

    if (!all)
        return mics_err_nomem(err);
    own->world.size = (uint32_t)launch->size;
    status = mics_comm_all_gather_now(launch, &own_rank, all, sizeof own_rank, err);
    if (status == MICS_OK) {
        if (check_declared(all, own->world.size, &own->declared_err) != MICS_OK)
            per_node = 0;
        own->world.declared = per_node > 0;
        if (per_node > 0)
            declare_nodes(all, own->world.size, per_node);
        qsort(all, own->world.size, sizeof *all, by_node);
        status = describe_nodes(&own->world, all, launch->rank, err);
    }
    free(all);
    return status;
}

static enum mics_status open_comms(struct world *own, struct mics_err *err)
{
    struct mics_world *world = &own->world;
    struct mics_comm *launch = own->launch;
    const int rank = (int)world->rank, local_rank = (int)world->local_rank;
    enum mics_status status = mics_comm_split(launch, 0, rank, rank, &world->comm, err);

    if (status != MICS_OK)
        return status;
    return mics_comm_split(world->comm, (int)world->node, local_rank, local_rank, &world->node_comm,
                           err);
}

enum mics_status mics_world_check(const struct mics_world *world, struct mics_err *err)
{
    const struct world *own = (const struct world *)world;

    if (!own->declared_err.text[0])
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "%s", own->declared_err.text);
}

static enum mics_status check_or_close(struct mics_world **world, struct mics_err *err)
{
    const enum mics_status status = mics_world_check(*world, err);

    if (status != MICS_OK) {
        mics_world_close(*world);
        *world = NULL;
    }
    return status;
}

/* `declared_err`: why ranks_per_node is MALFORMED, or empty. */
static enum mics_status open_over(struct mics_comm *comm, uint32_t ranks_per_node,
                                  const struct mics_err *declared_err, struct mics_world **out,
                                  struct mics_err *err)
{
    struct world *own = calloc(1, sizeof *own);
    enum mics_status status;

    if (!own) {
        mics_comm_free(comm);
        return mics_err_nomem(err);
    }
    own->launch = comm;
    own->declared_err = *declared_err;
    status = find_nodes(own, ranks_per_node, err);
    if (status == MICS_OK)
        status = open_comms(own, err);
    if (status == MICS_OK)
        *out = &own->world;
    else
        mics_world_close(&own->world);
    return status;
}

enum mics_status mics_world_open_over(struct mics_comm *comm, uint32_t ranks_per_node,
                                      struct mics_world **out, struct mics_err *err)
{
    const struct mics_err none = {""};
    enum mics_status status = open_over(comm, ranks_per_node, &none, out, err);

    return status == MICS_OK ? check_or_close(out, err) : status;
}

enum mics_status mics_world_open_unchecked(struct mics_world **out, struct mics_err *err)
{
    struct mics_err declared_err = {""};
    struct mics_comm *comm;
    uint32_t per_node;
    enum mics_status status;

    if (read_environment(&per_node, &declared_err) != MICS_OK)
        per_node = MALFORMED;
    status = mics_comm_open(&comm, err);
    return status == MICS_OK ? open_over(comm, per_node, &declared_err, out, err) : status;
}

enum mics_status mics_world_open(struct mics_world **out, struct mics_err *err)
{
    const enum mics_status status = mics_world_open_unchecked(out, err);

    return status == MICS_OK ? check_or_close(out, err) : status;
}

void mics_world_close(struct mics_world *world)
{
    struct world *own = (struct world *)world;

    if (!world)
        return;
    if (world->node_comm)
        mics_comm_free(world->node_comm);
    if (world->comm)
        mics_comm_free(world->comm);
    mics_comm_free(own->launch);
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

size_t mics_world_host_length(const char *host)
{
    return strcspn(host, "#");
}

/* Ranks on this rank's machine that are on the nodes [0, node_end). */
static uint32_t count_host_ranks(const struct mics_world *world, uint32_t node_end)
{
    const char *own = world->host_of_node[world->node];
    const size_t length = mics_world_host_length(own);
    uint32_t ranks = 0;

    for (uint32_t i = 0; i < node_end; i++) {
        const char *host = world->host_of_node[i];

        if (mics_world_host_length(host) == length && strncmp(host, own, length) == 0)
            ranks += world->ranks_of_node[i];
    }
    return ranks;
}

uint32_t mics_world_host_ranks(const struct mics_world *world)
{
    return world->declared ? count_host_ranks(world, world->node_count) : world->local_size;
}

uint32_t mics_world_host_rank(const struct mics_world *world)
{
    return (world->declared ? count_host_ranks(world, world->node) : 0) + world->local_rank;
}

uint32_t mics_world_node_of(const struct mics_world *world, uint32_t rank, uint32_t *first)
{
    uint32_t node = 0;

    *first = 0;
    while (rank >= *first + world->ranks_of_node[node])
        *first += world->ranks_of_node[node++];
    return node;
}
