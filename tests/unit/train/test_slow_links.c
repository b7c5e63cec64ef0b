/* SPDX-License-Identifier: Apache-2.0 */
/* test_slow_links.c - which links explain that ranks wait for collectives, and when they are
 * named. */
#include "tap.h"

#include "train/watch/slow_links.h"

#include <math.h>
#include <stdlib.h>

enum { NODES_MAX = 16 };

static const double usual = 1e9, slow = 0.2e9, sent = 100e6; /* 0.1 s of a step, or 0.5 s */

static uint32_t random_state;

/* In [0, 1). */
static double random_share(void)
{
    random_state = random_state * 1664525 + 1013904223;
    return (double)(random_state >> 8) / (1 << 24);
}

/* Steps of 1 s in which collectives take, and delay, as long as the slowest link lets them. */
static struct mics_slow_waits waits_at(double rate)
{
    return (struct mics_slow_waits){
        .step_s = 0.5 + sent / rate, .comm_s = 0.05 + sent / rate, .exposed_s = sent / rate};
}

/* What was measured, each rate lower by up to `noise`. */
struct cluster {
    uint32_t nodes;
    double send[NODES_MAX], receive[NODES_MAX];
    uint32_t from, to; /* a slow pair; equal: none */
    double uplink;     /* between the halves */
};

static struct cluster good_cluster(uint32_t nodes)
{
    struct cluster cluster = {.nodes = nodes, .uplink = usual};

    for (uint32_t i = 0; i < nodes; i++)
        cluster.send[i] = cluster.receive[i] = usual;
    return cluster;
}

static void measure(const struct cluster *cluster, double noise, double *rates)
{
    const uint32_t nodes = cluster->nodes;

    for (uint32_t i = 0; i < nodes * nodes; i++) {
        const uint32_t a = i / nodes, b = i % nodes;
        double rate = fmin(cluster->send[a], cluster->receive[b]);

        if ((a < nodes / 2) != (b < nodes / 2))
            rate = fmin(rate, cluster->uplink);
        if (cluster->from != cluster->to && a == cluster->from && b == cluster->to)
            rate = slow;
        rates[i] = a == b ? 0 : rate * (1 - noise * random_share());
    }
}

static struct mics_slow_links *open_links(uint32_t nodes)
{
    struct mics_slow_links *links = NULL;

    CHECK_INT(mics_slow_links_open(nodes, &links, NULL), MICS_OK);
    return links;
}

static size_t judge_with(struct mics_slow_links *links, const struct cluster *cluster, double noise,
                         const struct mics_slow_waits *waits, const struct mics_slow_link **out)
{
    double rates[NODES_MAX * NODES_MAX], sent_bytes[NODES_MAX];
    struct mics_pair_verdict verdict;

    for (uint32_t i = 0; i < cluster->nodes; i++)
        sent_bytes[i] = sent;
    measure(cluster, noise, rates);
    CHECK_INT(mics_pairs_judge(rates, cluster->nodes, &verdict, NULL), MICS_OK);
    const size_t count = mics_slow_links_judge(
        links, &verdict, mics_pairs_reference(rates, cluster->nodes), waits, sent_bytes, out);
    mics_pair_verdict_fini(&verdict);
    return count;
}

static size_t judge(struct mics_slow_links *links, const struct cluster *cluster,
                    const struct mics_slow_waits *waits, const struct mics_slow_link **out)
{
    return judge_with(links, cluster, 0, waits, out);
}

static void a_slow_node_is_named_with_its_direction_and_cost(void)
{
    const struct mics_slow_waits waits = waits_at(slow);

    for (uint32_t nodes = 3; nodes <= NODES_MAX; nodes++)
        for (int direction = MICS_SLOW_SENDING; direction <= MICS_SLOW_BOTH; direction++) {
            struct mics_slow_links *links = open_links(nodes);
            struct cluster cluster = good_cluster(nodes);
            const struct mics_slow_link *found;

            if (direction != MICS_SLOW_RECEIVING)
                cluster.send[nodes - 1] = slow;
            if (direction != MICS_SLOW_SENDING)
                cluster.receive[nodes - 1] = slow;
            CHECK_INT(judge(links, &cluster, &waits, &found), 1);
            CHECK_INT(found->direction, direction);
            CHECK_INT(found->node, nodes - 1);
            CHECK_NEAR(found->rate, slow, 1);
            CHECK_NEAR(found->others_rate, usual, 1);
            CHECK_NEAR(found->cost, 0.4 / 1, 1e-9);
            mics_slow_links_close(links);
        }
}

static void a_slow_pair_and_slow_links_between_groups_are_named(void)
{
    const struct mics_slow_waits waits = waits_at(slow);
    struct mics_slow_links *links = open_links(8);
    struct cluster cluster = good_cluster(8);
    const struct mics_slow_link *found;

    cluster.from = 2;
    cluster.to = 5;
    CHECK_INT(judge(links, &cluster, &waits, &found), 1);
    CHECK_INT(found->direction, MICS_SLOW_PAIR);
    CHECK_INT(found->node, 2);
    CHECK_INT(found->other, 5);
    CHECK_INT(judge(links, &cluster, &waits, &found), 0); /* again */
    cluster = good_cluster(8);
    cluster.uplink = slow;
    CHECK_INT(judge(links, &cluster, &waits, &found), 1);
    CHECK_INT(found->direction, MICS_SLOW_GROUPS);
    CHECK_INT(found->node, 0);
    CHECK_INT(found->other, 4);
    CHECK_INT(judge(links, &cluster, &waits, &found), 0);
    mics_slow_links_close(links);
}

static void of_two_nodes_only_the_slower_direction_is_named(void)
{
    const struct mics_slow_waits waits = waits_at(slow);
    struct mics_slow_links *links = open_links(2);
    struct cluster cluster = good_cluster(2);
    const struct mics_slow_link *found;

    cluster.send[1] = cluster.receive[1] = slow;
    CHECK_INT(judge(links, &cluster, &waits, &found), 0);
    cluster.receive[1] = usual;
    CHECK_INT(judge(links, &cluster, &waits, &found), 1);
    CHECK_INT(found->direction, MICS_SLOW_PAIR);
    CHECK_INT(found->node, 1);
    CHECK_INT(found->other, 0);
    mics_slow_links_close(links);
}

static void a_link_is_named_again_only_after_it_was_measured_as_fast(void)
{
    const struct mics_slow_waits waits = waits_at(slow);
    struct mics_slow_links *links = open_links(4);
    struct cluster cluster = good_cluster(4), good = good_cluster(4);
    const struct mics_slow_link *found;

    cluster.send[2] = slow;
    CHECK_INT(judge(links, &cluster, &waits, &found), 1);
    CHECK_INT(judge(links, &cluster, &waits, &found), 0);
    cluster.receive[2] = slow; /* the other direction, too */
    CHECK_INT(judge(links, &cluster, &waits, &found), 1);
    CHECK_INT(judge(links, &good, &waits, &found), 0);
    CHECK_INT(judge(links, &cluster, &waits, &found), 1);
    mics_slow_links_close(links);
}

static void a_link_that_does_not_explain_the_steps_is_not_named(void)
{
    struct mics_slow_links *links = open_links(4);
    struct cluster cluster = good_cluster(4);
    struct mics_slow_waits waits = waits_at(slow);
    const struct mics_slow_link *found;

    cluster.send[2] = slow;
    waits.exposed_s = 0.04 * waits.step_s; /* communication is hidden */
    CHECK(!mics_slow_waits_are_long(&waits));
    CHECK_INT(judge(links, &cluster, &waits, &found), 0);
    waits = waits_at(usual); /* collectives use other links, or it was slow for a moment */
    CHECK(mics_slow_waits_are_long(&waits));
    CHECK_INT(judge(links, &cluster, &waits, &found), 0);
    waits = waits_at(slow);
    waits.step_s = 20; /* what is exposed is little of the step */
    CHECK_INT(judge(links, &cluster, &waits, &found), 0);
    mics_slow_links_close(links);
}

/* Rates are up to a quarter lower at random; collectives wait for latency and for processors. */
static void noise_alone_names_no_link_and_hides_none(void)
{
    const double noise = 0.25;
    int named = 0, hidden = 0;

    random_state = 7;
    for (int i = 0; i < 1000; i++) {
        const uint32_t nodes = 3 + (uint32_t)(random_share() * (NODES_MAX - 2));
        const uint32_t node = (uint32_t)(random_share() * nodes);
        struct mics_slow_links *links = open_links(nodes);
        struct cluster cluster = good_cluster(nodes);
        struct mics_slow_waits waits = {.step_s = 1, .comm_s = 0.9, .exposed_s = 0.8};
        const struct mics_slow_link *found;

        named += judge_with(links, &cluster, noise, &waits, &found) > 0;
        cluster.send[node] = slow;
        waits = waits_at(slow);
        hidden += judge_with(links, &cluster, noise, &waits, &found) != 1 || found->node != node ||
                  found->direction != MICS_SLOW_SENDING;
        mics_slow_links_close(links);
    }
    CHECK_INT(named, 0);
    CHECK_INT(hidden, 0);
}

static void waits_are_those_of_the_rank_that_waits_least(void)
{
    struct mics_slow_window windows[2];

    for (int i = 0; i < MICS_SLOW_WINDOW; i++) {
        windows[0].steps[i] =
            (struct mics_slow_step){.step_s = 1, .comm_s = 0.7f, .exposed_s = 0.5f};
        windows[1].steps[i] =
            (struct mics_slow_step){.step_s = 1, .comm_s = 0.3f, .exposed_s = i % 2 ? 0.1f : 0.7f};
    }
    const struct mics_slow_waits waits = mics_slow_waits_of(windows, 2);

    CHECK_NEAR(waits.step_s, 1, 1e-6);
    CHECK_NEAR(waits.comm_s, 0.7, 1e-6);
    CHECK_NEAR(waits.exposed_s, 0.3, 1e-6);
}

int main(void)
{
    TAP_RUN(a_slow_node_is_named_with_its_direction_and_cost);
    TAP_RUN(a_slow_pair_and_slow_links_between_groups_are_named);
    TAP_RUN(of_two_nodes_only_the_slower_direction_is_named);
    TAP_RUN(a_link_is_named_again_only_after_it_was_measured_as_fast);
    TAP_RUN(a_link_that_does_not_explain_the_steps_is_not_named);
    TAP_RUN(noise_alone_names_no_link_and_hides_none);
    TAP_RUN(waits_are_those_of_the_rank_that_waits_least);
    return tap_done();
}
