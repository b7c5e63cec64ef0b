/* SPDX-License-Identifier: Apache-2.0 */
/* test_pair_rates.c - transfers between ranks that are threads, on links of a known rate. */
#include "comm/backend.h"
#include "probe/pair_rates.h"
#include "tap.h"

#include <pthread.h>
#include <time.h>

enum { NODES = 3, BYTES = 64 << 10, LATE = 1 };

static const double late_s = 0.015;
static double link_rate = 10e6, longest_s;
/* So many transfers that each rank takes part in are delayed, by so many seconds. */
static uint32_t disturbed[NODES];
static const double disturbed_s = 0.1;

static char hosts[NODES][64] = {"a", "b", "c"};
static uint32_t ranks_of_node[NODES] = {1, 1, 1};

struct rank {
    struct mics_comm *comm;
    struct mics_pair_rates rates;
    double seconds, limit_s;
    uint64_t max_bytes;
    atomic_uint transfers;
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
    if (calls->kind == COMM_EXCHANGE && calls->bytes > 1) {
        if (disturbed[base->comm.rank] > 0) {
            disturbed[base->comm.rank]--;
            sleep_s(disturbed_s);
        }
        sleep_s((double)calls->bytes / link_rate);
    }
    const enum mics_status status = threads_backend->execute(base, calls, count, sent, err);

    if (calls->kind == COMM_BARRIER && base->comm.rank == LATE)
        sleep_s(late_s);
    return status;
}

static void *measure(void *context)
{
    struct rank *rank = context;
    const uint32_t index = (uint32_t)rank->comm->rank;
    struct mics_world world = {
        .comm = rank->comm,
        .rank = index,
        .size = NODES,
        .node = index,
        .node_count = NODES,
        .local_size = 1,
        .ranks_of_node = ranks_of_node,
        .host_of_node = hosts,
    };
    const struct mics_pair_rates_options options = {
        .world = &world,
        .comm = rank->comm,
        .seconds = rank->seconds,
        .longest_s = longest_s,
        .first_bytes = BYTES,
        .max_bytes = rank->max_bytes,
        .limit_s = rank->limit_s,
        .transfers = &rank->transfers,
    };

    rank->status = mics_pair_rates_measure(&options, &rank->rates, &rank->err);
    return NULL;
}

static void measure_all(struct rank *ranks, double seconds, uint64_t max_bytes, double limit_s)
{
    static struct comm_backend backend;
    struct mics_comm *comms[NODES];

    CHECK_INT(mics_comm_new_threads(NODES, comms, NULL), MICS_OK);
    threads_backend = ((struct comm_base *)comms[0])->backend;
    backend = *threads_backend;
    backend.execute = execute;
    for (int i = 0; i < NODES; i++) {
        ((struct comm_base *)comms[i])->backend = &backend;
        ranks[i] = (struct rank){
            .comm = comms[i], .seconds = seconds, .max_bytes = max_bytes, .limit_s = limit_s};
        pthread_create(&ranks[i].thread, NULL, measure, &ranks[i]);
    }
    for (int i = 0; i < NODES; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < NODES; i++) {
        CHECK_INT(ranks[i].status, MICS_OK);
        mics_comm_free(comms[i]);
    }
}

static void no_rate_is_above_the_links_also_to_a_rank_that_comes_late(void)
{
    struct rank ranks[NODES];

    measure_all(ranks, 0.001, BYTES, 60);
    for (int i = 0; i < NODES; i++) {
        CHECK_INT(ranks[i].rates.bytes, BYTES);
        CHECK(ranks[i].rates.repeats >= 2);
        for (int pair = 0; pair < NODES * NODES; pair++) {
            const double rate = ranks[i].rates.best[pair];

            CHECK(pair % (NODES + 1) == 0 ? rate == 0 : rate > 0 && rate <= link_rate);
            CHECK(rate == ranks[0].rates.best[pair]);
        }
    }
    for (int i = 0; i < NODES; i++)
        mics_pair_rates_fini(&ranks[i].rates);
}

/* The size is chosen by a first round of two directions, twice. */
static void at_the_limit_nothing_is_repeated(void)
{
    struct rank ranks[NODES];

    measure_all(ranks, 0.001, BYTES, 0);
    for (int i = 0; i < NODES; i++) {
        CHECK_INT(ranks[i].rates.repeats, 1);
        CHECK_INT(ranks[i].transfers, 2 * 2 + 2 * mics_pair_rounds(NODES));
        mics_pair_rates_fini(&ranks[i].rates);
    }
}

/* The first rounds are so slow that transfers of BYTES seem long enough. */
static void transfers_are_made_longer_after_disturbed_first_rounds(void)
{
    struct rank ranks[NODES];

    link_rate = 100e6;
    for (int i = 0; i < NODES; i++)
        disturbed[i] = 2;
    measure_all(ranks, 0.1, 16 * BYTES, 0);
    for (int i = 0; i < NODES; i++) {
        CHECK(ranks[i].rates.bytes >= 6 * BYTES);
        for (int pair = 0; pair < NODES * NODES; pair++)
            CHECK(ranks[i].rates.best[pair] <= link_rate);
        mics_pair_rates_fini(&ranks[i].rates);
    }
}

/* A transfer that is meant to take 10 s takes no longer than allowed. */
static void no_transfer_takes_much_longer_than_it_may(void)
{
    struct rank ranks[NODES];

    link_rate = 10e6;
    longest_s = 0.05;
    measure_all(ranks, 10, 160 * BYTES, 0);
    for (int i = 0; i < NODES; i++) {
        CHECK(ranks[i].rates.bytes <= longest_s * link_rate);
        mics_pair_rates_fini(&ranks[i].rates);
    }
    longest_s = 0;
}

int main(void)
{
    TAP_RUN(no_rate_is_above_the_links_also_to_a_rank_that_comes_late);
    TAP_RUN(at_the_limit_nothing_is_repeated);
    TAP_RUN(transfers_are_made_longer_after_disturbed_first_rounds);
    TAP_RUN(no_transfer_takes_much_longer_than_it_may);
    return tap_done();
}
