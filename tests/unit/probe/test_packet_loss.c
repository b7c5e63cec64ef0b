/* SPDX-License-Identifier: Apache-2.0 */
/* test_packet_loss.c - verdicts on synthetic counts with noise, and counts of a real connection. */
#include "probe/packet_loss.h"
#include "probe/pairs.h"
#include "tap.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEEDS = 40, REPEATS = 8, MAX_NODES = 64 };

static uint64_t state;

/* Uniform in [0, 1). */
static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

struct cluster {
    uint32_t nodes, sent;                       /* segments of a pair */
    double send[MAX_NODES], receive[MAX_NODES]; /* shares that are lost */
    double everywhere;
    double bursts; /* probability that a pair loses a queue of up to 40 segments */
};

static void send_round(const struct cluster *c, uint32_t round, uint32_t from,
                       struct mics_segments *segments)
{
    const uint32_t to = mics_pair_partner(c->nodes, round, from);

    if (to == UINT32_MAX)
        return;
    struct mics_segments *pair = &segments[from * c->nodes + to];
    pair->sent += c->sent;
    for (uint32_t i = 0; i < c->sent; i++)
        pair->again += draw() < c->send[from] + c->receive[to] + c->everywhere;
    if (draw() < c->bursts)
        pair->again += (uint64_t)(40 * draw());
}

/* As mics_check_run() measures: again while more segments would decide. */
static void judge(const struct cluster *c, struct mics_packet_loss *out)
{
    const size_t cells = (size_t)c->nodes * c->nodes;
    struct mics_segments *segments = calloc(cells, sizeof *segments);

    bool unsure = true;
    for (int repeat = 0; repeat <= REPEATS && unsure; repeat++) {
        for (uint32_t r = 0; r < mics_pair_rounds(c->nodes); r++)
            for (uint32_t a = 0; a < c->nodes; a++)
                send_round(c, r, a, segments);
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

/* As many segments as in 2.5 MB, twice: --quick at 200 Mbit/s. */
static struct cluster cluster_of(uint32_t nodes)
{
    return (struct cluster){.nodes = nodes, .sent = 3450};
}

static void clusters_without_loss_are_not_blamed(void)
{
    for (uint32_t nodes = 2; nodes <= MAX_NODES; nodes *= 2) {
        struct cluster even = cluster_of(nodes), bursts = cluster_of(nodes);

        CHECK_INT(count_right(&even, nodes, 0, nodes, 0), SEEDS);
        even.everywhere = 0.005;
        CHECK(40 * count_right(&even, nodes, 0, nodes, 0) >= 39 * SEEDS);
        bursts.bursts = 0.01;
        CHECK(nodes == 2 || 40 * count_right(&bursts, nodes, 0, nodes, 0) >= 39 * SEEDS);
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

static void what_a_connection_sends_is_counted(void)
{
    static char data[1 << 20];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(bind(server, (struct sockaddr *)&address, size) == 0 && listen(server, 1) == 0);
    CHECK(getsockname(server, (struct sockaddr *)&address, &size) == 0);
    CHECK(connect(client, (struct sockaddr *)&address, size) == 0);
    const int peer = accept(server, NULL, NULL);
    const struct mics_segments before = mics_segments_now();
    for (int i = 0; i < 64; i++) {
        CHECK_INT(send(client, data, sizeof data / 64, 0), sizeof data / 64);
        CHECK_INT(recv(peer, data, sizeof data / 64, MSG_WAITALL), sizeof data / 64);
    }
    const struct mics_segments after = mics_segments_now();
    CHECK(mics_segments_between(&before, &after).sent >= 16);
    CHECK(mics_segments_between(&before, &after).again <= after.sent);
    close(peer);
    close(client);
    close(server);
    const struct mics_segments none = mics_segments_now();
    CHECK_INT(mics_segments_between(&after, &none).sent, 0);
}

int main(void)
{
    TAP_RUN(clusters_without_loss_are_not_blamed);
    TAP_RUN(a_loss_of_one_in_a_thousand_is_named_with_its_direction);
    TAP_RUN(of_two_nodes_the_way_between_them_is_named);
    TAP_RUN(what_a_connection_sends_is_counted);
    return tap_done();
}
