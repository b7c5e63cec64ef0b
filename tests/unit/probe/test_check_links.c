/* SPDX-License-Identifier: Apache-2.0 */
/* test_check_links.c - rates between ranks that are threads, on links of a known rate. */
#include "comm/backend.h"
#include "probe/check_measure.h"
#include "tap.h"

#include <pthread.h>
#include <time.h>

enum { NODES = 3, LATE = 1 };

static const double link_rate = 10e6, transfer_s = 0.001, late_s = 0.03;

static char hosts[NODES][64] = {"a", "b", "c"};
static uint32_t ranks_of_node[NODES] = {1, 1, 1};

struct rank {
    struct mics_comm *comm;
    json_t *nodes, *list, *links;
    enum mics_status status;
    struct mics_err err;
    pthread_t thread;
};

static const struct comm_backend *threads_backend;

static void sleep_s(double seconds)
{
    const struct timespec time = {.tv_nsec = (long)(1e9 * seconds)};

    nanosleep(&time, NULL);
}

/* Data are on their way for as long as the link needs, whether their receiver waits or not, and
 * rank LATE gets its processor some time after each barrier. */
static enum mics_status execute(struct comm_base *base, const struct comm_call *calls, int count,
                                struct comm_sent *sent, struct mics_err *err)
{
    if (calls->kind == COMM_EXCHANGE && calls->bytes > 1)
        sleep_s((double)calls->bytes / link_rate);
    const enum mics_status status = threads_backend->execute(base, calls, count, sent, err);

    if (calls->kind == COMM_BARRIER && base->comm.rank == LATE)
        sleep_s(late_s);
    return status;
}

static void *measure(void *context)
{
    struct rank *rank = context;
    const uint32_t index = (uint32_t)rank->comm->rank;
    const struct mics_world world = {
        .comm = rank->comm,
        .rank = index,
        .size = NODES,
        .node = index,
        .node_count = NODES,
        .local_size = 1,
        .ranks_of_node = ranks_of_node,
        .host_of_node = hosts,
    };
    struct mics_findings findings = {.nodes = rank->nodes, .list = rank->list};

    rank->status =
        mics_check_measure_links(&findings, &world, transfer_s, &rank->links, &rank->err);
    return NULL;
}

static void no_rate_is_above_the_links_also_to_a_rank_that_comes_late(void)
{
    static struct comm_backend backend;
    struct mics_comm *comms[NODES];
    struct rank ranks[NODES];

    CHECK_INT(mics_comm_new_threads(NODES, comms, NULL), MICS_OK);
    threads_backend = ((struct comm_base *)comms[0])->backend;
    backend = *threads_backend;
    backend.execute = execute;
    for (int i = 0; i < NODES; i++) {
        ((struct comm_base *)comms[i])->backend = &backend;
        ranks[i] = (struct rank){
            .comm = comms[i],
            .nodes = json_pack("[{s:s}, {s:s}, {s:s}]", "host", "a", "host", "b", "host", "c"),
            .list = json_array()};
        pthread_create(&ranks[i].thread, NULL, measure, &ranks[i]);
    }
    for (int i = 0; i < NODES; i++) {
        pthread_join(ranks[i].thread, NULL);
        CHECK_INT(ranks[i].status, MICS_OK);
    }
    const json_t *pairs = json_object_get(ranks[0].links, "pairs");

    CHECK_INT(json_array_size(pairs), NODES * (NODES - 1));
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const double rate = json_real_value(json_array_get(json_array_get(pairs, i), 2));

        CHECK(rate > 0 && rate <= link_rate);
    }
    for (int i = 0; i < NODES; i++) {
        json_decref(ranks[i].nodes);
        json_decref(ranks[i].list);
        json_decref(ranks[i].links);
        mics_comm_free(comms[i]);
    }
}

int main(void)
{
    TAP_RUN(no_rate_is_above_the_links_also_to_a_rank_that_comes_late);
    return tap_done();
}
