/* SPDX-License-Identifier: Apache-2.0 */
/* test_packet_loss.c - verdicts on synthetic counts with noise, and counts of a real connection. */
#include "probe/packet_loss.h"
#include "probe/pairs.h"
#include "tap.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEEDS = 40, SPREAD_SEEDS = 200, REPEATS = 8, MAX_NODES = 64 };

static uint64_t state;

/* Uniform in [0, 1). */
static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* Normal, with mean 0 and deviation 1. */
static double draw_normal(void)
{
    return sqrt(-2 * log(1 - draw())) * cos(2 * M_PI * draw());
}

/* Of `count` segments, those that are lost. */
static uint32_t draw_lost(uint32_t count, double share)
{
    uint32_t lost = 0;

    if (share <= 0)
        return 0;
    for (double at = 0; (at += floor(log(1 - draw()) / log1p(-share))) < count; at++)
        lost++;
    return lost;
}

struct cluster {
    uint32_t nodes, sent;                       /* segments of a pair in a transfer */
    double send[MAX_NODES], receive[MAX_NODES]; /* shares that are lost */
    double everywhere;
    double bursts; /* probability that a pair loses a queue of up to 40 segments */
};

static void send_round(const struct cluster *c, uint32_t times, uint32_t round, uint32_t from,
                       struct mics_segments *segments)
{
    const uint32_t to = mics_pair_partner(c->nodes, round, from);

    if (to == UINT32_MAX)
        return;
    struct mics_segments own = {.sent = (uint64_t)times * c->sent};
    own.again = draw_lost(times * c->sent, c->send[from] + c->receive[to] + c->everywhere);
    if (draw() < c->bursts)
        own.again += (uint64_t)(40 * draw());
    mics_segments_add(&segments[from * c->nodes + to], &own);
}

/* As mics_check_run() measures: all twice, then again, and longer, while more segments would
 * decide. */
static void judge(const struct cluster *c, struct mics_packet_loss *out)
{
    const size_t cells = (size_t)c->nodes * c->nodes;
    struct mics_segments *segments = calloc(cells, sizeof *segments);

    bool unsure = true;
    for (int repeat = 0; repeat <= REPEATS && unsure; repeat++) {
        for (uint32_t r = 0; r < mics_pair_rounds(c->nodes); r++)
            for (uint32_t a = 0; a < c->nodes; a++)
                send_round(c, repeat == 0 ? 2 : 5, r, a, segments);
        CHECK_INT(mics_packet_loss_judge(segments, c->nodes, out, &unsure, NULL), MICS_OK);
    }
    free(segments);
}

/* How many of SEEDS clusters have just these two directions of nodes named? */
static int count_right(struct cluster *c, uint32_t first, unsigned bits, uint32_t second,
                       unsigned second_bits)
{
    int right = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct mics_packet_loss out[MAX_NODES];
        bool same = true;

        state = seed * 31 + c->nodes;
        judge(c, out);
        for (uint32_t i = 0; i < c->nodes; i++)
            same &= out[i].bits == (i == first ? bits : i == second ? second_bits : 0);
        right += same;
    }
    printf("# %u nodes: %d of %d\n", c->nodes, right, SEEDS);
    return right;
}

/* As many segments as --quick sends at 200 Mbit/s. */
static struct cluster cluster_of(uint32_t nodes)
{
    return (struct cluster){.nodes = nodes, .sent = 320};
}

static void clusters_without_loss_are_not_blamed(void)
{
    for (uint32_t nodes = 2; nodes <= MAX_NODES; nodes *= 2) {
        struct cluster even = cluster_of(nodes), bursts = cluster_of(nodes);

        CHECK_INT(count_right(&even, nodes, 0, nodes, 0), SEEDS);
        even.everywhere = 0.005;
        CHECK(40 * count_right(&even, nodes, 0, nodes, 0) >= 39 * SEEDS);
        bursts.bursts = 0.01;
        CHECK(40 * count_right(&bursts, nodes, 0, nodes, 0) >= 39 * SEEDS);
    }
}

/* TCP loses a little everywhere, in some directions more: usually 0.03 %. */
static void a_spread_of_loss_is_not_blamed(void)
{
    static const double spreads[] = {0.5, 0.8};

    for (uint32_t nodes = 16; nodes <= 64; nodes += 48) {
        for (size_t s = 0; s < sizeof spreads / sizeof *spreads; s++) {
            int blamed = 0;

            for (uint64_t seed = 1; seed <= SPREAD_SEEDS; seed++) {
                struct cluster c = cluster_of(nodes);
                struct mics_packet_loss out[MAX_NODES];
                bool any = false;

                state = seed * 77 + nodes;
                for (uint32_t i = 0; i < nodes; i++) {
                    c.send[i] = 0.0003 * exp(spreads[s] * draw_normal());
                    c.receive[i] = 0.0003 * exp(spreads[s] * draw_normal());
                }
                judge(&c, out);
                for (uint32_t i = 0; i < nodes; i++)
                    any |= out[i].bits != 0;
                blamed += any;
            }
            printf("# %u nodes, spread %.1f: %d of %d\n", nodes, spreads[s], blamed, SPREAD_SEEDS);
            CHECK(40 * blamed <= SPREAD_SEEDS);
        }
    }
}

static void a_loss_of_one_in_a_thousand_is_named_with_its_direction(void)
{
    static const uint32_t sizes[] = {8, 16, 33, 64};

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct cluster sends = cluster_of(sizes[s]), receives = sends, both = sends, two = sends;

        sends.send[3] = receives.receive[5] = both.send[1] = both.receive[1] = 0.001;
        two.send[0] = two.receive[6] = 0.001;
        CHECK(100 * count_right(&sends, 3, MICS_LOSS_SEND, 0, 0) >= 95 * SEEDS);
        CHECK(100 * count_right(&receives, 5, MICS_LOSS_RECEIVE, 0, 0) >= 95 * SEEDS);
        CHECK(100 * count_right(&both, 1, MICS_LOSS_SEND | MICS_LOSS_RECEIVE, 0, 0) >= 90 * SEEDS);
        CHECK(100 * count_right(&two, 0, MICS_LOSS_SEND, 6, MICS_LOSS_RECEIVE) >= 90 * SEEDS);
    }
}

static void of_two_nodes_the_way_between_them_is_named(void)
{
    struct cluster c = cluster_of(2);

    c.sent = 40000;
    c.send[1] = 0.001;
    CHECK_INT(count_right(&c, 0, MICS_LOSS_RECEIVE, 1, MICS_LOSS_SEND), SEEDS);
}

static void a_burst_between_two_nodes_is_no_loss(void)
{
    struct mics_segments segments[4] = {{0}};
    struct mics_packet_loss out[2];
    bool unsure = true;

    for (int repeat = 0; repeat < 3; repeat++) {
        const struct mics_segments burst = {.sent = 18700, .again = repeat == 0 ? 20 : 0},
                                   back = {.sent = 18700};

        mics_segments_add(&segments[1], &burst);
        mics_segments_add(&segments[2], &back);
        CHECK_INT(mics_packet_loss_judge(segments, 2, out, &unsure, NULL), MICS_OK);
        CHECK_INT(unsure, repeat < 2);
        CHECK_INT(out[0].bits | out[1].bits, 0);
    }
}

struct connection {
    int server, client, peer;
};

static struct connection connect_here(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct connection c = {.server = socket(AF_INET, SOCK_STREAM, 0),
                           .client = socket(AF_INET, SOCK_STREAM, 0)};

    CHECK(bind(c.server, (struct sockaddr *)&address, size) == 0 && listen(c.server, 1) == 0);
    CHECK(getsockname(c.server, (struct sockaddr *)&address, &size) == 0);
    CHECK(connect(c.client, (struct sockaddr *)&address, size) == 0);
    c.peer = accept(c.server, NULL, NULL);
    return c;
}

static void end_connection(const struct connection *c)
{
    close(c->peer);
    close(c->client);
    close(c->server);
}

static void what_a_connection_sends_is_counted(void)
{
    static char data[1 << 20];
    const struct connection c = connect_here();
    const struct mics_segments before = mics_segments_now();

    for (int i = 0; i < 64; i++) {
        CHECK_INT(send(c.client, data, sizeof data / 64, 0), sizeof data / 64);
        CHECK_INT(recv(c.peer, data, sizeof data / 64, MSG_WAITALL), sizeof data / 64);
    }
    const struct mics_segments after = mics_segments_now();
    CHECK(mics_segments_between(&before, &after).sent >= 16);
    end_connection(&c);
    const struct mics_segments none = mics_segments_now();
    CHECK_INT(mics_segments_between(&after, &none).sent, 0);
}

/* The receiver's socket drops what arrives, until it has been sent again. */
static void what_is_lost_counts_as_sent_again(void)
{
    const struct connection c = connect_here();
    struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog drop = {.len = 1, .filter = &none};
    const struct mics_segments before = mics_segments_now();
    struct mics_segments now = before;
    char data[100] = {0};

    CHECK_INT(setsockopt(c.peer, SOL_SOCKET, SO_ATTACH_FILTER, &drop, sizeof drop), 0);
    CHECK_INT(send(c.client, data, sizeof data, 0), sizeof data);
    for (int i = 0; i < 3000 && mics_segments_between(&before, &now).again == 0; i++) {
        usleep(10000);
        now = mics_segments_now();
    }
    CHECK(mics_segments_between(&before, &now).again > 0);
    CHECK_INT(setsockopt(c.peer, SOL_SOCKET, SO_DETACH_FILTER, &(int){0}, sizeof(int)), 0);
    CHECK_INT(recv(c.peer, data, sizeof data, MSG_WAITALL), sizeof data);
    end_connection(&c);
}

/* Without a free descriptor the connections cannot be listed. */
static void what_is_not_known_is_no_transfer(void)
{
    const struct connection c = connect_here();
    const int lowest = dup(c.client);
    struct rlimit before, none;

    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    close(lowest);
    none = (struct rlimit){(rlim_t)lowest, before.rlim_max};
    CHECK_INT(send(c.client, "1", 1, 0), 1);
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const struct mics_segments unknown = mics_segments_now();
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct mics_segments known = mics_segments_now();
    CHECK(known.sent > 0);
    CHECK_INT(mics_segments_between(&unknown, &known).sent, 0);
    CHECK_INT(mics_segments_between(&known, &unknown).sent, 0);
    CHECK_INT(mics_segments_between(&unknown, &unknown).sent, 0);
    end_connection(&c);
}

int main(void)
{
    TAP_RUN(clusters_without_loss_are_not_blamed);
    TAP_RUN(a_spread_of_loss_is_not_blamed);
    TAP_RUN(a_loss_of_one_in_a_thousand_is_named_with_its_direction);
    TAP_RUN(of_two_nodes_the_way_between_them_is_named);
    TAP_RUN(a_burst_between_two_nodes_is_no_loss);
    TAP_RUN(what_a_connection_sends_is_counted);
    TAP_RUN(what_is_lost_counts_as_sent_again);
    TAP_RUN(what_is_not_known_is_no_transfer);
    return tap_done();
}
