/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/world.h"
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_RANKS = 8 };

/* One rank: its inputs and results. */
struct rank {
    struct mics_comm *comm;
    uint32_t declared;
    enum mics_status status;
    struct mics_err err;
    struct mics_world seen; /* its numbers, for use after the world is closed */
    int node_size, comm_rank, local_rank, even;
    uint32_t host_ranks;
    char last_host[64];
    pthread_t thread;
};

static void *rank_main(void *context)
{
    struct rank *rank = context;
    struct mics_world *world = NULL;

    rank->status = mics_world_open_over(rank->comm, rank->declared, &world, &rank->err);
    if (rank->status != MICS_OK)
        return NULL;
    rank->seen = *world;
    rank->node_size = world->node_comm->size;
    rank->comm_rank = world->comm->rank;
    rank->local_rank = world->node_comm->rank;
    rank->even = mics_world_is_even(world);
    rank->host_ranks = mics_world_host_ranks(world);
    strcpy(rank->last_host, world->host_of_node[world->node_count - 1]);
    mics_world_close(world);
    return NULL;
}

/* nodes[i]: node of launch rank i, NULL: one node. */
static void open_worlds(struct rank *ranks, int size, uint32_t declared, const int *nodes)
{
    struct mics_comm *comms[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads(size, comms, NULL), MICS_OK);
    for (int i = 0; i < size; i++) {
        ranks[i] = (struct rank){.comm = comms[i], .declared = declared};
        if (nodes)
            comms[i]->node = nodes[i];
        pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]);
    }
    for (int i = 0; i < size; i++)
        pthread_join(ranks[i].thread, NULL);
}

static void ranks_are_numbered_node_by_node(void)
{
    static const int nodes[6] = {0, 1, 0, 1, 0, 1}; /* placed round robin */
    struct rank ranks[6];

    open_worlds(ranks, 6, 0, nodes);
    for (int i = 0; i < 6; i++) {
        CHECK_INT(ranks[i].status, MICS_OK);
        CHECK_INT(ranks[i].seen.rank, i % 2 * 3 + i / 2);
        CHECK_INT(ranks[i].comm_rank, ranks[i].seen.rank);
        CHECK_INT(ranks[i].seen.node, i % 2);
        CHECK_INT(ranks[i].seen.local_rank, i / 2);
        CHECK_INT(ranks[i].local_rank, i / 2);
        CHECK_INT(ranks[i].seen.local_size, 3);
        CHECK_INT(ranks[i].node_size, 3);
        CHECK_INT(ranks[i].seen.node_count, 2);
        CHECK(ranks[i].even && !ranks[i].seen.declared);
        CHECK_INT(ranks[i].host_ranks, 3);
    }
}

static void nodes_of_different_sizes_are_uneven(void)
{
    static const int nodes[5] = {0, 1, 1, 0, 0};
    struct rank ranks[5];

    open_worlds(ranks, 5, 0, nodes);
    CHECK_INT(ranks[4].seen.rank, 2);
    CHECK_INT(ranks[1].seen.rank, 3);
    CHECK_INT(ranks[1].seen.local_size, 2);
    CHECK(!ranks[0].even);
}

static void declared_nodes_are_runs_of_ranks_with_numbered_hosts(void)
{
    struct rank ranks[8];
    char host[64] = "", want[80];

    open_worlds(ranks, 8, 2, NULL);
    for (int i = 0; i < 8; i++) {
        CHECK_INT(ranks[i].seen.rank, i);
        CHECK_INT(ranks[i].seen.node, i / 2);
        CHECK_INT(ranks[i].node_size, 2);
        CHECK(ranks[i].seen.declared);
        CHECK_INT(ranks[i].host_ranks, 8); /* all are on this machine */
    }
    gethostname(host, sizeof host - 1);
    snprintf(want, sizeof want, "%.61s#3", host);
    CHECK_STR(ranks[5].last_host, want);
}

static void a_declaration_that_does_not_divide_is_refused(void)
{
    struct rank ranks[3];

    open_worlds(ranks, 3, 2, NULL);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(ranks[i].status, MICS_ERR_ARG);
        CHECK_STR(ranks[i].err.text,
                  "this job has 3 ranks, but MICS_NODE_RANKS=2 needs a multiple of 2: start it "
                  "with 'mpirun -n 4'");
    }
}

static void a_process_without_a_launcher_is_a_world_of_one(void)
{
    struct mics_world *world = NULL;
    struct mics_err err = {""};

    unsetenv("OMPI_COMM_WORLD_RANK"), unsetenv("PMIX_RANK"), unsetenv("PMI_RANK");
    unsetenv("MICS_NODE_RANKS");
    CHECK_INT(mics_world_open(&world, &err), MICS_OK);
    CHECK_INT(world->size, 1);
    CHECK_INT(world->node_count, 1);
    CHECK_INT(world->ranks_of_node[0], 1);
    CHECK_STR(world->comm->backend, "self");
    mics_world_close(world);
    mics_world_close(NULL);
    setenv("MICS_NODE_RANKS", "two", 1);
    CHECK_INT(mics_world_open(&world, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "MICS_NODE_RANKS: expected a number of ranks, found \"two\"");
    setenv("MICS_NODE_RANKS", "2", 1);
    CHECK_INT(mics_world_open(&world, &err), MICS_ERR_ARG);
    unsetenv("MICS_NODE_RANKS");
}

int main(void)
{
    TAP_RUN(ranks_are_numbered_node_by_node);
    TAP_RUN(nodes_of_different_sizes_are_uneven);
    TAP_RUN(declared_nodes_are_runs_of_ranks_with_numbered_hosts);
    TAP_RUN(a_declaration_that_does_not_divide_is_refused);
    TAP_RUN(a_process_without_a_launcher_is_a_world_of_one);
    return tap_done();
}
