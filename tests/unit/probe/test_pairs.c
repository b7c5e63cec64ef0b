/* SPDX-License-Identifier: Apache-2.0 */
/* test_pairs.c - rounds, and verdicts on synthetic clusters with noise and one fault. */
#include "probe/pairs.h"
#include "tap.h"

#include <stdlib.h>

enum { SEEDS = 40, REPEATS = 6, MAX_NODES = 64 };

static uint64_t state;

/* Uniform in [0, 1). */
static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* A synthetic cluster: what each node sends and receives, and what one pair or the links between
 * two halves carry. */
struct cluster {
    uint32_t nodes;
    double send[MAX_NODES], receive[MAX_NODES];
    uint32_t pair_a, pair_b; /* a slow pair in both directions; equal: none */
    double pair, uplink;     /* of the pair; of the links between the halves; 1: as fast */
    double noise;            /* relative deviation of a rate */
    double disturbed;        /* probability of a rate between 0.2 and 0.7 of what it could be */
    double lossy;            /* node lossy_node's rates vary between 0.1 and this; 0: none */
    uint32_t lossy_node;
};

static struct cluster good_cluster(uint32_t nodes)
{
    struct cluster cluster = {
        .nodes = nodes, .pair = 1, .uplink = 1, .noise = 0.05, .disturbed = 0.02};

    for (uint32_t i = 0; i < nodes; i++)
        cluster.send[i] = cluster.receive[i] = 1;
    return cluster;
}

static double measure(const struct cluster *c, uint32_t a, uint32_t b)
{
    double rate = fmin(c->send[a], c->receive[b]);

    if (c->pair_a != c->pair_b &&
        ((a == c->pair_a && b == c->pair_b) || (a == c->pair_b && b == c->pair_a)))
        rate = fmin(rate, c->pair);
    if ((a < c->nodes / 2) != (b < c->nodes / 2))
        rate = fmin(rate, c->uplink);
    if (c->lossy > 0 && (a == c->lossy_node || b == c->lossy_node))
        rate *= 0.1 + (c->lossy - 0.1) * draw();
    rate *= 1 - c->noise * (draw() + draw());
    if (draw() < c->disturbed)
        rate *= 0.2 + 0.5 * draw();
    return rate * 12e9;
}

/* As mics_check_run() measures: twice, and again while something is slow; the best counts. */
static void judge(const struct cluster *c, struct mics_pair_verdict *out)
{
    const size_t cells = (size_t)c->nodes * c->nodes;
    double *best = calloc(cells, sizeof *best), *rates = calloc(cells, sizeof *rates);

    for (int repeat = 0; repeat < REPEATS; repeat++) {
        memset(rates, 0, cells * sizeof *rates);
        for (uint32_t r = 0; r < mics_pair_rounds(c->nodes); r++) {
            for (uint32_t a = 0; a < c->nodes; a++) {
                const uint32_t b = mics_pair_partner(c->nodes, r, a);

                if (b != UINT32_MAX)
                    rates[a * c->nodes + b] = measure(c, a, b);
            }
        }
        for (size_t i = 0; i < cells; i++)
            best[i] = fmax(best[i], rates[i]);
        if (repeat > 0)
            mics_pair_verdict_fini(out);
        CHECK_INT(mics_pairs_judge(best, c->nodes, out, NULL), MICS_OK);
        if (repeat > 0 && !mics_pair_verdict_is_bad(out))
            break;
    }
    free(best);
    free(rates);
}

/* One measurement of the chosen pairs; a busy node is slow with all. */
static void measure_chosen(const struct cluster *c, const bool *chosen, uint32_t busy,
                           double *rates)
{
    memset(rates, 0, (size_t)c->nodes * c->nodes * sizeof *rates);
    for (uint32_t r = 0; r < mics_pair_rounds(c->nodes); r++) {
        for (uint32_t a = 0; a < c->nodes; a++) {
            const uint32_t b = mics_pair_partner(c->nodes, r, a);

            if (b != UINT32_MAX && chosen[a * c->nodes + b])
                rates[a * c->nodes + b] = measure(c, a, b) * (a == busy || b == busy ? 0.3 : 1);
        }
    }
}

/* How long rounds take in which these rates are measured. */
static double cost_of(const double *rates, uint32_t nodes)
{
    double cost = 0;

    for (uint32_t r = 0; r < mics_pair_rounds(nodes); r++) {
        double slowest[2] = {0};

        for (uint32_t a = 0; a < nodes; a++) {
            const uint32_t b = mics_pair_partner(nodes, r, a);

            if (b != UINT32_MAX && rates[a * nodes + b] > 0)
                slowest[a < b] = fmax(slowest[a < b], 1 / rates[a * nodes + b]);
        }
        cost += slowest[0] + slowest[1];
    }
    return cost;
}

/* As mics_check_run() confirms: four times while the other pairs are as fast as before. best
 * becomes the best of all; the node is busy for some measurements. *cost: of these, in those of
 * the first. */
static bool is_confirmed(const struct cluster *c, double *best, uint32_t node, int busy_for,
                         double *cost)
{
    const size_t cells = (size_t)c->nodes * c->nodes;
    const double pass = cost_of(best, c->nodes);
    double *rates = calloc(cells, sizeof *rates);
    bool *chosen = malloc(cells * sizeof *chosen);
    struct mics_pair_verdict verdict;
    int confirmed = 0;

    *cost = 0;
    CHECK_INT(mics_pairs_judge(best, c->nodes, &verdict, NULL), MICS_OK);
    for (int repeat = 0; repeat < 14 && confirmed < 4; repeat++) {
        if (!mics_pair_verdict_is_bad(&verdict))
            break;
        mics_pairs_choose_suspects(&verdict, best, (uint32_t)repeat, chosen);
        measure_chosen(c, chosen, repeat < busy_for ? node : UINT32_MAX, rates);
        *cost += cost_of(rates, c->nodes) / pass;
        confirmed += mics_pairs_are_calm(&verdict, best, rates);
        for (size_t i = 0; i < cells; i++)
            best[i] = fmax(best[i], rates[i]);
        mics_pair_verdict_fini(&verdict);
        CHECK_INT(mics_pairs_judge(best, c->nodes, &verdict, NULL), MICS_OK);
    }
    mics_pair_verdict_fini(&verdict);
    free(rates);
    free(chosen);
    return confirmed == 4;
}

/* Rates of a measurement of all pairs, to be freed. */
static double *measure_all(const struct cluster *c)
{
    const size_t cells = (size_t)c->nodes * c->nodes;
    double *rates = calloc(cells, sizeof *rates);
    bool *chosen = malloc(cells * sizeof *chosen);

    memset(chosen, true, cells * sizeof *chosen);
    measure_chosen(c, chosen, UINT32_MAX, rates);
    free(chosen);
    return rates;
}

/* The pair of the node in round 1 seems slow in the first measurement. */
static bool is_slow_pair_confirmed(const struct cluster *c, uint32_t node, int busy_for)
{
    double *best = measure_all(c), cost;

    best[node * c->nodes + mics_pair_partner(c->nodes, 1, node)] *= 0.3;
    const bool confirmed = is_confirmed(c, best, node, busy_for, &cost);
    free(best);
    return confirmed;
}

static void a_pair_of_a_node_that_is_busy_is_not_confirmed(void)
{
    int blamed = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct cluster cluster = good_cluster(16);

        state = seed * 131;
        cluster.disturbed = 0.01;
        blamed += is_slow_pair_confirmed(&cluster, (uint32_t)(draw() * 16), 4 + (int)(6 * draw()));
    }
    printf("# %d of %d pairs blamed\n", blamed, SEEDS);
    CHECK(40 * blamed <= SEEDS);
}

static void a_slow_pair_is_confirmed_also_beside_disturbances(void)
{
    int found = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct cluster cluster = good_cluster(16);

        state = seed * 17;
        cluster.pair_a = (uint32_t)(draw() * 16);
        cluster.pair_b = mics_pair_partner(16, 1, cluster.pair_a);
        cluster.pair = 0.3;
        found += is_slow_pair_confirmed(&cluster, cluster.pair_a, 0);
    }
    printf("# %d of %d confirmed\n", found, SEEDS);
    CHECK(100 * found >= 95 * SEEDS);
}

static void where_all_pairs_seem_slow_nothing_is_confirmed(void)
{
    const double rates[] = {0, 1, 1, 1, 0, 1, 1, 1, 0};
    unsigned char slow[] = {1, 1, 1};
    const struct mics_pair_verdict verdict = {.nodes = 3, .slow = slow};

    CHECK(!mics_pairs_are_calm(&verdict, rates, rates));
    slow[0] = slow[1] = 0;
    CHECK(mics_pairs_are_calm(&verdict, rates, rates));
}

/* Node 2 sends at 0.3 of the usual rate, to all or to node 1, and all others are disturbed. */
static void slow_nodes_and_pairs_stand_out_of_disturbed_ones(void)
{
    enum { NODES = 4, CELLS = NODES * NODES };
    unsigned char slow[] = {0, 0, MICS_SLOW_SEND, 0}, none[NODES] = {0};
    struct mics_slow_pair pair = {.from = 2, .to = 1};

    for (int of_pair = 0; of_pair < 2; of_pair++) {
        const struct mics_pair_verdict verdict = {.nodes = NODES,
                                                  .slow = of_pair ? none : slow,
                                                  .pairs = &pair,
                                                  .pair_count = of_pair ? 1 : 0};
        double best[CELLS], rates[CELLS];

        for (int i = 0; i < CELLS; i++) {
            const int from = i / NODES, to = i % NODES;

            best[i] = from == to ? 0 : from == 2 && (to == 1 || !of_pair) ? 0.3 : 1;
            rates[i] = best[i] == 1 ? 0.7 : best[i];
        }
        CHECK(!mics_pairs_are_calm(&verdict, best, rates));
        CHECK(mics_pairs_stand_out(&verdict, rates));
        rates[2 * NODES + 1] = 0.5;
        CHECK(!mics_pairs_stand_out(&verdict, rates));
        rates[2 * NODES + 1] = 0.3;
        rates[0 * NODES + 3] = 0.4; /* one other may be as slow, and not more */
        CHECK(mics_pairs_stand_out(&verdict, rates));
        rates[3 * NODES + 0] = rates[0 * NODES + 1] = rates[1 * NODES + 0] = 0.4;
        CHECK(!mics_pairs_stand_out(&verdict, rates));
        memset(rates, 0, sizeof rates);
        CHECK(!mics_pairs_stand_out(&verdict, rates));
    }
}

/* Only these nodes are slow, in these directions, and no pair. */
static bool names_only(const struct mics_pair_verdict *verdict, uint32_t first, uint32_t second,
                       unsigned bits)
{
    for (uint32_t i = 0; i < verdict->nodes; i++)
        if (verdict->slow[i] != (i == first || i == second ? bits : 0))
            return false;
    return verdict->pair_count == 0;
}

static void rounds_pair_each_node_with_others_once(void)
{
    for (uint32_t nodes = 2; nodes <= 130; nodes++) {
        const uint32_t rounds = mics_pair_rounds(nodes);
        unsigned char *met = calloc(nodes, nodes);
        uint32_t fewest = UINT32_MAX;

        CHECK(rounds <= 2 * (uint32_t)ceil(log2(nodes)));
        for (uint32_t a = 0; a < nodes; a++) {
            uint32_t partners = 0;

            for (uint32_t r = 0; r < rounds; r++) {
                const uint32_t b = mics_pair_partner(nodes, r, a);

                if (b == UINT32_MAX)
                    continue;
                CHECK(b < nodes && b != a);
                CHECK_INT(mics_pair_partner(nodes, r, b), a);
                CHECK_INT(met[a * nodes + b]++, 0);
                partners++;
            }
            fewest = partners < fewest ? partners : fewest;
        }
        CHECK(fewest >= (nodes > 2 ? 2 : 1));
        free(met);
    }
}

static void good_clusters_are_hardly_ever_blamed(void)
{
    static const uint32_t sizes[] = {2, 3, 4, 5, 8, 16, 33, 64};
    static const double noises[] = {0.01, 0.05, 0.1, 0.15, 0.25};
    int blamed = 0, runs = 0;

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t n = 0; n < sizeof noises / sizeof *noises; n++) {
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                struct cluster cluster = good_cluster(sizes[s]);
                struct mics_pair_verdict verdict;

                state = seed * 977 + s;
                cluster.noise = noises[n];
                judge(&cluster, &verdict);
                blamed += mics_pair_verdict_is_bad(&verdict);
                runs++;
                mics_pair_verdict_fini(&verdict);
            }
        }
    }
    printf("# %d of %d good clusters blamed\n", blamed, runs);
    CHECK(40 * blamed <= runs);
}

/* How many of SEEDS clusters are judged so; a fault of `nodes` clusters that `change` makes. */
static void expect(const char *fault, uint32_t nodes,
                   void (*change)(struct cluster *cluster, uint32_t *first, uint32_t *second),
                   unsigned bits)
{
    int found = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct cluster cluster = good_cluster(nodes);
        struct mics_pair_verdict verdict;
        uint32_t first = UINT32_MAX, second = UINT32_MAX;

        state = seed * 31 + nodes;
        change(&cluster, &first, &second);
        judge(&cluster, &verdict);
        if (bits)
            found += names_only(&verdict, first, second, bits);
        else if (cluster.uplink < 1)
            found += verdict.group &&
                     names_only(&(struct mics_pair_verdict){.nodes = nodes, .slow = verdict.slow},
                                UINT32_MAX, UINT32_MAX, 0) &&
                     verdict.group[0] != verdict.group[nodes - 1];
        else
            found += verdict.pair_count > 0 && verdict.pair_count <= 2 && !verdict.group &&
                     (verdict.pairs[0].from == cluster.pair_a ||
                      verdict.pairs[0].from == cluster.pair_b);
        mics_pair_verdict_fini(&verdict);
    }
    printf("# %s of %u nodes: %d of %d\n", fault, nodes, found, SEEDS);
    CHECK(100 * found >= 95 * SEEDS);
}

static uint32_t any_node(const struct cluster *cluster)
{
    return (uint32_t)(draw() * cluster->nodes);
}

static void slow_card(struct cluster *cluster, uint32_t *first, uint32_t *second)
{
    *first = *second = any_node(cluster);
    cluster->send[*first] = cluster->receive[*first] = 0.5;
}

static void slow_send(struct cluster *cluster, uint32_t *first, uint32_t *second)
{
    *first = *second = any_node(cluster);
    cluster->send[*first] = 0.1 + 0.4 * draw();
}

static void slow_receive(struct cluster *cluster, uint32_t *first, uint32_t *second)
{
    *first = *second = any_node(cluster);
    cluster->receive[*first] = 0.1 + 0.4 * draw();
}

static void loss(struct cluster *cluster, uint32_t *first, uint32_t *second)
{
    *first = *second = cluster->lossy_node = any_node(cluster);
    cluster->lossy = 0.6;
}

static void two_nodes(struct cluster *cluster, uint32_t *first, uint32_t *second)
{
    *first = any_node(cluster);
    *second = (*first + 1 + (uint32_t)(draw() * (cluster->nodes - 1))) % cluster->nodes;
    cluster->send[*first] = cluster->receive[*first] = 0.5;
    cluster->send[*second] = cluster->receive[*second] = 0.2;
}

static void slow_uplink(struct cluster *cluster, uint32_t *first, uint32_t *second)
{
    (void)first, (void)second;
    cluster->uplink = 0.4;
}

static void very_slow_uplink(struct cluster *cluster, uint32_t *first, uint32_t *second)
{
    (void)first, (void)second;
    cluster->uplink = 0.2;
}

/* Only of pairs that meet. */
static void slow_pair(struct cluster *cluster, uint32_t *first, uint32_t *second)
{
    (void)first, (void)second;
    cluster->pair_a = any_node(cluster);
    cluster->pair_b = mics_pair_partner(cluster->nodes, 0, cluster->pair_a);
    if (cluster->pair_b == UINT32_MAX)
        cluster->pair_b = mics_pair_partner(cluster->nodes, 1, cluster->pair_a);
    cluster->pair = 0.3;
}

static void slow_nodes_are_named_with_their_direction(void)
{
    static const uint32_t sizes[] = {3, 4, 8, 16, 64};

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        expect("slow card", sizes[s], slow_card, MICS_SLOW_SEND | MICS_SLOW_RECEIVE);
        expect("slow send", sizes[s], slow_send, MICS_SLOW_SEND);
        expect("slow receive", sizes[s], slow_receive, MICS_SLOW_RECEIVE);
    }
    for (size_t s = 2; s < sizeof sizes / sizeof *sizes; s++)
        expect("two slow nodes", sizes[s], two_nodes, MICS_SLOW_SEND | MICS_SLOW_RECEIVE);
}

static void loss_makes_a_slow_card(void)
{
    expect("loss", 8, loss, MICS_SLOW_SEND | MICS_SLOW_RECEIVE);
    expect("loss", 16, loss, MICS_SLOW_SEND | MICS_SLOW_RECEIVE);
}

static void slow_pairs_and_uplinks_blame_no_node(void)
{
    static const uint32_t sizes[] = {4, 8, 16, 64};

    for (size_t s = 1; s < sizeof sizes / sizeof *sizes; s++)
        expect("slow pair", sizes[s], slow_pair, 0);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        expect("slow uplink", sizes[s], slow_uplink, 0);
}

/* Four confirmations of what many pairs show take no longer than measuring all pairs so many times,
 * and also succeed beside disturbances. The nodes of *first and *second, or the halves, are
 * what is named. */
static void expect_soon(const char *fault, uint32_t nodes, double measurements,
                        void (*change)(struct cluster *cluster, uint32_t *first, uint32_t *second))
{
    double most = 0;
    int found = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct cluster cluster = good_cluster(nodes);
        struct mics_pair_verdict verdict;
        uint32_t first = UINT32_MAX, second = UINT32_MAX;
        double cost;

        state = seed * 71 + nodes;
        change(&cluster, &first, &second);
        double *best = measure_all(&cluster), *again = measure_all(&cluster);
        for (uint32_t i = 0; i < nodes * nodes; i++)
            best[i] = fmax(best[i], again[i]);
        const bool confirmed = is_confirmed(&cluster, best, 0, 0, &cost);
        CHECK_INT(mics_pairs_judge(best, nodes, &verdict, NULL), MICS_OK);
        found += confirmed && (first == UINT32_MAX) == (verdict.group != NULL) &&
                 (first == UINT32_MAX || verdict.slow[first]);
        most = fmax(most, cost);
        mics_pair_verdict_fini(&verdict);
        free(best);
        free(again);
    }
    printf("# %s of %u nodes: %d of %d, %.2f measurements of all pairs\n", fault, nodes, found,
           SEEDS, most);
    CHECK(100 * found >= 95 * SEEDS);
    CHECK(most <= measurements);
}

static void what_many_pairs_show_is_confirmed_by_a_part_of_them(void)
{
    static const uint32_t sizes[] = {16, 33, 64};

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        expect_soon("very slow uplink", sizes[s], 2, very_slow_uplink);
        expect_soon("two slow nodes", sizes[s], 2, two_nodes);
    }
    /* The references are in other rounds than the suspects. */
    expect_soon("slow card", 3, 8, slow_card);
    expect_soon("very slow uplink", 4, 8, very_slow_uplink);
}

static bool is_clearly_cut(struct cluster *cluster)
{
    struct mics_pair_verdict verdict;
    double *best = measure_all(cluster), *again = measure_all(cluster);

    for (uint32_t i = 0; i < cluster->nodes * cluster->nodes; i++)
        best[i] = fmax(best[i], again[i]);
    CHECK_INT(mics_pairs_judge(best, cluster->nodes, &verdict, NULL), MICS_OK);
    const bool cut =
        mics_pairs_are_clearly_cut(&verdict, mics_pairs_reference(best, cluster->nodes));
    mics_pair_verdict_fini(&verdict);
    free(best);
    free(again);
    return cut;
}

static void two_measurements_show_a_clear_cut_and_no_other(void)
{
    static const double disturbed[] = {0.02, 0.1, 0.2, 0.4, 0.6, 0.8};
    int found = 0, blamed = 0;

    for (uint64_t seed = 1; seed <= 6 * SEEDS; seed++) {
        struct cluster cluster = good_cluster(seed % 2 ? 16 : 8);

        state = seed * 53;
        cluster.disturbed = disturbed[seed / 2 % 6];
        blamed += is_clearly_cut(&cluster);
        cluster.uplink = 0.2;
        cluster.disturbed = 0.15;
        found += is_clearly_cut(&cluster);
    }
    printf("# %d of %d found, %d blamed\n", found, 6 * SEEDS, blamed);
    CHECK(100 * found >= 95 * 6 * SEEDS);
    CHECK_INT(blamed, 0);
}

static void of_two_nodes_it_cannot_be_told_which_is_slow(void)
{
    const double one_way[] = {0, 1.2, 0.4, 0}, both[] = {0, 1, 0.9, 0};
    struct mics_pair_verdict verdict;

    CHECK_INT(mics_pairs_judge(one_way, 2, &verdict, NULL), MICS_OK);
    CHECK(verdict.undecidable && verdict.pair_count == 1);
    CHECK_INT(verdict.pairs[0].from, 1);
    CHECK(!verdict.slow[0] && !verdict.slow[1]);
    mics_pair_verdict_fini(&verdict);
    CHECK_INT(mics_pairs_judge(both, 2, &verdict, NULL), MICS_OK);
    CHECK(!mics_pair_verdict_is_bad(&verdict));
    mics_pair_verdict_fini(&verdict);
}

int main(void)
{
    TAP_RUN(rounds_pair_each_node_with_others_once);
    TAP_RUN(good_clusters_are_hardly_ever_blamed);
    TAP_RUN(slow_nodes_are_named_with_their_direction);
    TAP_RUN(loss_makes_a_slow_card);
    TAP_RUN(slow_pairs_and_uplinks_blame_no_node);
    TAP_RUN(what_many_pairs_show_is_confirmed_by_a_part_of_them);
    TAP_RUN(two_measurements_show_a_clear_cut_and_no_other);
    TAP_RUN(a_pair_of_a_node_that_is_busy_is_not_confirmed);
    TAP_RUN(a_slow_pair_is_confirmed_also_beside_disturbances);
    TAP_RUN(where_all_pairs_seem_slow_nothing_is_confirmed);
    TAP_RUN(slow_nodes_and_pairs_stand_out_of_disturbed_ones);
    TAP_RUN(of_two_nodes_it_cannot_be_told_which_is_slow);
    return tap_done();
}
