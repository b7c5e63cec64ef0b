/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c - rounds by the circle method of tournaments, and verdicts by the best of each node. */
#include "probe/pairs.h"

#include "measure/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Slow is below this share of the usual rate, if that is so many deviations below it, and always
 * below half of it: each rate is the best of several. */
static const double slow_share = 0.7, slow_mads = 4, always_slow_share = 0.5;

/* A confirmation does not count if more than a quarter of the other pairs are below this share of
 * their best. */
static const double calm_share = 0.8;

/* What a confirmation may take, in usual transfers one after the other: where nodes or the links
 * between groups are slow, it measures only a part of the rounds, MIN_ROUNDS or more. */
static const double most_transfers = 24;
enum { MIN_ROUNDS = 2, MAX_PARTS = 4 };

/* Both groups of a clear cut have so many nodes or more. */
enum { CLEAR_NODES = 4 };

/* With an odd number, one more place, whose partner has none. */
static uint32_t places_of(uint32_t nodes)
{
    return nodes + nodes % 2;
}

uint32_t mics_pair_rounds(uint32_t nodes)
{
    const uint32_t all = places_of(nodes) - 1;
    uint32_t rounds = 2;

    for (uint32_t reached = 2; reached < nodes; reached *= 2)
        rounds += 2;
    return rounds < all ? rounds : all;
}

/* The circle method: in its round c, places i and j with i + j = c modulo places - 1 are partners,
 * and the last place is the partner of the i with 2 i = c. Rounds are spread over those of it. */
uint32_t mics_pair_partner(uint32_t nodes, uint32_t round, uint32_t node)
{
    const uint32_t last = places_of(nodes) - 1;
    const uint32_t c = round * last / mics_pair_rounds(nodes);
    uint32_t partner;

    if (node == last)
        partner = c % 2 == 0 ? c / 2 : (c + last) / 2;
    else
        partner = (c + last - node) % last;
    if (partner == node)
        partner = last;
    return partner < nodes ? partner : UINT32_MAX;
}

/* The best of each node in each direction, [nodes]. */
static void find_best(const double *rates, uint32_t nodes, double *send, double *receive)
{
    for (uint32_t a = 0; a < nodes; a++) {
        for (uint32_t b = 0; b < nodes; b++) {
            send[a] = fmax(send[a], rates[a * nodes + b]);
            receive[b] = fmax(receive[b], rates[a * nodes + b]);
        }
    }
}

/* The class of all that is above 0 among two arrays; `scratch` holds 4 x count. */
static struct mics_class class_of_both(const double *first, const double *second, uint32_t count,
                                       double *scratch)
{
    size_t known = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (first[i] > 0)
            scratch[known++] = first[i];
        if (second[i] > 0)
            scratch[known++] = second[i];
    }
    if (known == 0)
        return (struct mics_class){0};
    return mics_class_of(scratch, known, scratch + 2 * count);
}

/* The least rate that is not slow. */
static double least_rate(double usual, double deviation)
{
    return fmax(fmin(slow_share * usual, usual - slow_mads * deviation), always_slow_share * usual);
}

static bool is_slow(const struct mics_class *class, double rate)
{
    return rate > 0 && rate < least_rate(class->median, class->mad);
}

static int descending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a < b) - (a > b);
}

double mics_pairs_reference(const double *rates, uint32_t nodes)
{
    double *best = calloc(2 * (size_t)nodes, sizeof *best), reference;

    if (!best)
        return 0;
    find_best(rates, nodes, best, best + nodes);
    qsort(best, 2 * (size_t)nodes, sizeof *best, descending);
    reference = best[nodes / 2];
    free(best);
    return reference;
}

static enum mics_status add_pair(struct mics_pair_verdict *out, uint32_t from, uint32_t to,
                                 double rate, struct mics_err *err)
{
    struct mics_slow_pair *grown = out->pairs;

    if ((out->pair_count & (out->pair_count - 1)) == 0)
        grown = realloc(out->pairs, (out->pair_count ? 2 * out->pair_count : 1) * sizeof *grown);
    if (!grown)
        return mics_err_nomem(err);
    out->pairs = grown;
    out->pairs[out->pair_count++] = (struct mics_slow_pair){from, to, rate};
    return MICS_OK;
}

/* Of two nodes the slower direction, where the other one shows that the link can be faster. */
static enum mics_status judge_two(const double *rates, struct mics_pair_verdict *out,
                                  struct mics_err *err)
{
    const double there = rates[1], back = rates[2];

    if (!(there > 0 && back > 0) || fmin(there, back) >= slow_share * fmax(there, back))
        return MICS_OK;
    out->undecidable = true;
    return add_pair(out, there < back ? 0 : 1, there < back ? 1 : 0, fmin(there, back), err);
}

/* Is the node slow in itself, in this direction? Then its pairs tell nothing. */
static bool has_slow_end(const struct mics_pair_verdict *verdict, size_t from, size_t to)
{
    return (verdict->slow[from] & MICS_SLOW_SEND) || (verdict->slow[to] & MICS_SLOW_RECEIVE);
}

/* Pairs of nodes that are both faster with others, by far. Their shares of what both can do are
 * compared with the upper quartile of all shares, because a slow uplink makes half of all pairs
 * slow; how far that is below 1 tells how much rates vary. */
static enum mics_status judge_pairs(const double *rates, struct mics_pair_verdict *out,
                                    struct mics_err *err)
{
    const uint32_t nodes = out->nodes;
    const size_t cells = (size_t)nodes * nodes;
    double *shares = calloc(2 * cells, sizeof *shares), *sorted = shares + cells;
    enum mics_status status = shares ? MICS_OK : mics_err_nomem(err);
    size_t known = 0;

    for (size_t i = 0; i < cells && status == MICS_OK; i++)
        if (rates[i] > 0 && !has_slow_end(out, i / nodes, i % nodes))
            sorted[known++] = shares[i] =
                rates[i] / fmin(out->send[i / nodes], out->receive[i % nodes]);
    if (known == 0) {
        free(shares);
        return status;
    }
    qsort(sorted, known, sizeof *sorted, descending);
    const double usual = sorted[known / 4];
    const double least = least_rate(usual, 1 - usual);
    for (size_t i = 0; i < cells && status == MICS_OK; i++)
        if (shares[i] > 0 && shares[i] < least)
            status = add_pair(out, (uint32_t)(i / nodes), (uint32_t)(i % nodes), rates[i], err);
    free(shares);
    return status;
}

bool mics_pair_is_between_groups(const struct mics_pair_verdict *verdict, uint32_t a, uint32_t b)
{
    return verdict->group && verdict->group[a] != verdict->group[b];
}

bool mics_pairs_are_clearly_cut(const struct mics_pair_verdict *verdict, double reference)
{
    uint32_t second = 0;

    for (uint32_t i = 0; verdict->group && i < verdict->nodes; i++)
        second += verdict->group[i];
    for (uint32_t i = 0; verdict->group && i < verdict->pair_count; i++) {
        const struct mics_slow_pair *pair = &verdict->pairs[i];

        if (mics_pair_is_between_groups(verdict, pair->from, pair->to) &&
            pair->rate >= always_slow_share * reference)
            return false;
    }
    return second >= CLEAR_NODES && verdict->nodes - second >= CLEAR_NODES;
}

static bool is_slow_either_way(const struct mics_pair_verdict *verdict, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < verdict->pair_count; i++) {
        const struct mics_slow_pair *pair = &verdict->pairs[i];

        if ((pair->from == a && pair->to == b) || (pair->from == b && pair->to == a))
            return true;
    }
    return false;
}

bool mics_pair_is_slow(const struct mics_pair_verdict *verdict, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < verdict->pair_count; i++)
        if (verdict->pairs[i].from == from && verdict->pairs[i].to == to)
            return true;
    return has_slow_end(verdict, from, to);
}

/* Nodes that are connected by pairs that are not slow are one group. If that makes two groups of
 * two nodes or more, with two slow pairs or more between them, and more than inside them, the
 * groups are the finding. */
static enum mics_status find_groups(const double *rates, struct mics_pair_verdict *out,
                                    struct mics_err *err)
{
    const uint32_t nodes = out->nodes;
    unsigned char *group = malloc(nodes);
    uint32_t sizes[2] = {0};
    bool changed = true;
    uint32_t between = 0;

    if (!group)
        return mics_err_nomem(err);
    memset(group, 1, nodes);
    group[0] = 0;
    while (changed) { /* what node 0 reaches */
        changed = false;
        for (uint32_t a = 0; a < nodes; a++) {
            for (uint32_t b = 0; b < nodes; b++) {
                if (group[a] != 0 || group[b] == 0 || !(rates[a * nodes + b] > 0) ||
                    is_slow_either_way(out, a, b))
                    continue;
                group[b] = 0;
                changed = true;
            }
        }
    }
    for (uint32_t i = 0; i < nodes; i++)
        sizes[group[i]]++;
    for (uint32_t i = 0; i < out->pair_count; i++)
        between += group[out->pairs[i].from] != group[out->pairs[i].to];
    if (sizes[0] >= 2 && sizes[1] >= 2 && between >= 2 && 2 * between > out->pair_count)
        out->group = group;
    else
        free(group);
    return MICS_OK;
}

enum mics_status mics_pairs_judge(const double *rates, uint32_t nodes,
                                  struct mics_pair_verdict *out, struct mics_err *err)
{
    double *scratch = calloc(4 * (size_t)nodes, sizeof *scratch);
    enum mics_status status = MICS_OK;

    *out = (struct mics_pair_verdict){
        .nodes = nodes,
        .send = calloc(nodes, sizeof *out->send),
        .receive = calloc(nodes, sizeof *out->receive),
        .slow = calloc(nodes, sizeof *out->slow),
    };
    if (!scratch || !out->send || !out->receive || !out->slow)
        status = mics_err_nomem(err);
    if (status == MICS_OK) {
        find_best(rates, nodes, out->send, out->receive);
        if (nodes == 2)
            status = judge_two(rates, out, err);
    }
    if (status != MICS_OK || nodes <= 2)
        goto out;
    const struct mics_class class = class_of_both(out->send, out->receive, nodes, scratch);
    for (uint32_t i = 0; i < nodes; i++)
        out->slow[i] = (unsigned char)((is_slow(&class, out->send[i]) ? MICS_SLOW_SEND : 0) |
                                       (is_slow(&class, out->receive[i]) ? MICS_SLOW_RECEIVE : 0));
    status = judge_pairs(rates, out, err);
    if (status == MICS_OK && out->pair_count > 0)
        status = find_groups(rates, out, err);
out:
    free(scratch);
    return status;
}

void mics_pair_verdict_fini(struct mics_pair_verdict *verdict)
{
    free(verdict->send);
    free(verdict->receive);
    free(verdict->slow);
    free(verdict->pairs);
    free(verdict->group);
    *verdict = (struct mics_pair_verdict){0};
}

bool mics_pair_verdict_is_bad(const struct mics_pair_verdict *verdict)
{
    for (uint32_t i = 0; i < verdict->nodes; i++)
        if (verdict->slow[i])
            return true;
    return verdict->pair_count > 0;
}

/* Does the pair seem slow, or one of its nodes? */
static bool is_suspect(const struct mics_pair_verdict *verdict, uint32_t a, uint32_t b)
{
    return verdict->slow[a] || verdict->slow[b] || is_slow_either_way(verdict, a, b);
}

/* Is the pair one of many that show the same fault, so that a part of them will do? */
static bool is_one_of_many(const struct mics_pair_verdict *verdict, uint32_t a, uint32_t b)
{
    if (is_slow_either_way(verdict, a, b))
        return mics_pair_is_between_groups(verdict, a, b);
    return verdict->slow[a] || verdict->slow[b];
}

/* What pairs of which a part will do take in a round, in usual transfers; 0: there are none. */
static double cost_of_round(const struct mics_pair_verdict *verdict, const double *best,
                            uint32_t round)
{
    const uint32_t nodes = verdict->nodes;
    const double usual = mics_pairs_reference(best, nodes);
    double slowest[2] = {0};

    for (uint32_t a = 0; a < nodes; a++) {
        const uint32_t b = mics_pair_partner(nodes, round, a);

        if (b != UINT32_MAX && is_one_of_many(verdict, a, b) && best[a * nodes + b] > 0)
            slowest[a < b] = fmax(slowest[a < b], usual / best[a * nodes + b]);
    }
    return slowest[0] + slowest[1];
}

/* A pair that does not seem slow is the reference of its nodes. */
static void choose_reference_of(const struct mics_pair_verdict *verdict, const double *best,
                                uint32_t node, bool *chosen)
{
    const uint32_t nodes = verdict->nodes;
    uint32_t fastest = UINT32_MAX;

    for (uint32_t i = 0; i < nodes; i++)
        if (best[node * nodes + i] > 0 && !is_suspect(verdict, node, i) &&
            (fastest == UINT32_MAX || best[node * nodes + i] > best[node * nodes + fastest]))
            fastest = i;
    if (fastest != UINT32_MAX)
        chosen[node * nodes + fastest] = chosen[fastest * nodes + node] = true;
}

/* Choose the suspects of a round, those of many only if it is their turn, and the fastest other
 * pair, beside slow links between groups all pairs. */
static void choose_in_round(const struct mics_pair_verdict *verdict, const double *best,
                            uint32_t round, bool turn, bool *chosen)
{
    const uint32_t nodes = verdict->nodes;
    uint32_t reference = UINT32_MAX;
    bool any = false;

    for (uint32_t a = 0; a < nodes; a++) {
        const uint32_t b = mics_pair_partner(nodes, round, a);

        if (b == UINT32_MAX)
            continue;
        const bool suspect = is_suspect(verdict, a, b);
        if (suspect || verdict->group) {
            chosen[a * nodes + b] = turn || (suspect && !is_one_of_many(verdict, a, b));
            any |= chosen[a * nodes + b];
        } else if (reference == UINT32_MAX || best[a * nodes + b] > best[reference]) {
            reference = a * nodes + b;
        }
    }
    if (any && reference != UINT32_MAX)
        chosen[reference] = chosen[reference % nodes * nodes + reference / nodes] = true;
}

/* Without a reference in the rounds of the suspects, as among three nodes, or between two groups of
 * two, the fastest pair of other rounds is one. */
static void choose_any_reference(const struct mics_pair_verdict *verdict, const double *best,
                                 bool *chosen)
{
    const uint32_t nodes = verdict->nodes;
    uint32_t fastest = UINT32_MAX;

    for (uint32_t i = 0; i < nodes * nodes; i++) {
        const uint32_t a = i / nodes, b = i % nodes;

        if (!(best[i] > 0) || is_suspect(verdict, a, b))
            continue;
        if (chosen[i])
            return;
        if (fastest == UINT32_MAX || best[i] > best[fastest])
            fastest = i;
    }
    if (fastest != UINT32_MAX)
        chosen[fastest] = chosen[fastest % nodes * nodes + fastest / nodes] = true;
}

void mics_pairs_choose_suspects(const struct mics_pair_verdict *verdict, const double *best,
                                uint32_t confirmation, bool *chosen)
{
    const uint32_t nodes = verdict->nodes, rounds = mics_pair_rounds(nodes);
    uint32_t count = 0, parts = 1;
    double cost = 0;

    memset(chosen, false, (size_t)nodes * nodes * sizeof *chosen);
    for (uint32_t round = 0; round < rounds; round++) {
        const double own = cost_of_round(verdict, best, round);

        cost += own;
        count += own > 0;
    }
    while (parts < MAX_PARTS && parts < count / MIN_ROUNDS && cost > parts * most_transfers)
        parts++;
    count = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        const bool turn =
            cost_of_round(verdict, best, round) > 0 && count++ % parts == confirmation % parts;

        choose_in_round(verdict, best, round, turn, chosen);
    }
    for (uint32_t i = 0; i < verdict->pair_count; i++) {
        const struct mics_slow_pair *pair = &verdict->pairs[i];

        if (mics_pair_is_between_groups(verdict, pair->from, pair->to))
            continue;
        choose_reference_of(verdict, best, pair->from, chosen);
        choose_reference_of(verdict, best, pair->to, chosen);
    }
    choose_any_reference(verdict, best, chosen);
}

/* Was the node slow with all that do not seem slow? */
static bool is_busy(const struct mics_pair_verdict *verdict, const double *best,
                    const double *rates, uint32_t node)
{
    const uint32_t nodes = verdict->nodes;
    uint32_t measured = 0;

    for (uint32_t i = 0; i < 2 * nodes; i++) {
        const uint32_t cell = i % 2 ? node * nodes + i / 2 : i / 2 * nodes + node;

        if (!(rates[cell] > 0) || is_suspect(verdict, node, i / 2))
            continue;
        measured++;
        if (rates[cell] >= calm_share * best[cell])
            return false;
    }
    return measured > 0;
}

bool mics_pairs_are_calm(const struct mics_pair_verdict *verdict, const double *best,
                         const double *rates)
{
    const uint32_t nodes = verdict->nodes;
    uint32_t measured = 0, slower = 0;

    for (uint32_t i = 0; i < nodes * nodes; i++) {
        if (!(rates[i] > 0) || is_suspect(verdict, i / nodes, i % nodes))
            continue;
        measured++;
        slower += rates[i] < calm_share * best[i];
    }
    for (uint32_t i = 0; i < verdict->pair_count; i++) {
        const struct mics_slow_pair *pair = &verdict->pairs[i];

        if (!mics_pair_is_between_groups(verdict, pair->from, pair->to) &&
            (is_busy(verdict, best, rates, pair->from) || is_busy(verdict, best, rates, pair->to)))
            return false;
    }
    return nodes == 2 || (measured > 0 && 4 * slower <= measured);
}

bool mics_pairs_stand_out(const struct mics_pair_verdict *verdict, const double *rates)
{
    const uint32_t nodes = verdict->nodes;
    uint32_t measured = 0, slower = 0;
    double fastest = 0;

    for (uint32_t i = 0; i < nodes * nodes; i++)
        if (mics_pair_is_slow(verdict, i / nodes, i % nodes))
            fastest = fmax(fastest, rates[i]);
    for (uint32_t i = 0; i < nodes * nodes; i++) {
        if (!(rates[i] > 0) || is_suspect(verdict, i / nodes, i % nodes))
            continue;
        measured++;
        slower += always_slow_share * rates[i] < fastest;
    }
    return fastest > 0 && measured > 0 && 4 * slower <= measured;
}
