/* SPDX-License-Identifier: Apache-2.0 */
/* check_measure.c - rates of ranks; transfers between nodes in rounds, repeated while needed. */
#include "probe/check_measure.h"

#include "base/clock.h"
#include "base/units.h"
#include "comm/agree.h"
#include "measure/statistics.h"
#include "probe/findings_internal.h"
#include "probe/packet_loss.h"
#include "probe/pairs.h"
#include "topology/host_list.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Rates of a rank: products, memory, and copies of a GPU from and to the host. */
enum { ROUNDS = 5, PRODUCTS = 0, MEMORY, FROM_HOST, TO_HOST, RATES };

/* A rank is slow below this share of the median, and MICS_SLOW_MADS deviations below it. Hosts
 * share their processors with other programs. */
static const double host_share = 0.65, gpu_share = 0.87;

static const struct {
    const char *what, *key, *slows, *where; /* `where`: of which of two copies */
} rate_kinds[RATES] = {
    [PRODUCTS] = {"products", "flops_per_s", "compute", ""},
    [MEMORY] = {"memory_rate", "memory_bytes_per_s", "memory", ""},
    [FROM_HOST] = {"host_copies", "from_host_bytes_per_s", "copies", ", from host"},
    [TO_HOST] = {"host_copies", "to_host_bytes_per_s", "copies", ", to host"},
};

/* One measurement of all ranks; best[RATES][count] keeps the best of each, 0 what there is not. */
static enum mics_status measure_once(const struct mics_bench *bench, double seconds,
                                     struct mics_rates *rates, double *scratch, double *best,
                                     struct mics_err *err)
{
    const uint32_t count = bench->world->size;
    enum mics_status status = mics_bench_rates(bench, seconds, rates, err);

    if (status == MICS_OK && !bench->device->on_host)
        status = mics_bench_host_copy_rates(bench, scratch, scratch + count, err);
    for (uint32_t i = 0; i < count && status == MICS_OK; i++) {
        best[PRODUCTS * count + i] = fmax(best[PRODUCTS * count + i], rates[i].best_flops);
        best[MEMORY * count + i] = fmax(best[MEMORY * count + i], rates[i].best_memory_rate);
        if (bench->device->on_host)
            continue;
        best[FROM_HOST * count + i] = fmax(best[FROM_HOST * count + i], scratch[i]);
        best[TO_HOST * count + i] = fmax(best[TO_HOST * count + i], scratch[count + i]);
    }
    return status;
}

bool mics_check_is_slow(const struct mics_class *class, double rate, bool on_host)
{
    return rate < (on_host ? host_share : gpu_share) * class->median &&
           rate < class->median - MICS_SLOW_MADS * class->mad;
}

static enum mics_status add_rates(const struct mics_world *world, const double *best, json_t *nodes,
                                  struct mics_err *err)
{
    uint32_t rank = 0;

    for (uint32_t node = 0; node < world->node_count; node++) {
        json_t *list = json_array();
        bool ok = true;

        for (uint32_t i = 0; i < world->ranks_of_node[node]; i++, rank++) {
            json_t *own = json_object();

            for (int kind = 0; kind < RATES; kind++)
                if (best[(size_t)kind * world->size + rank] > 0)
                    ok = json_object_set_new(own, rate_kinds[kind].key,
                                             json_real(best[(size_t)kind * world->size + rank])) ==
                             0 &&
                         ok;
            ok = json_array_append_new(list, own) == 0 && ok;
        }
        if (json_object_set_new(json_array_get(nodes, node), "rates", list) != 0 || !ok)
            return mics_err_nomem(err);
    }
    return MICS_OK;
}

static void add_slow_rank(struct mics_findings *findings, const struct mics_world *world,
                          uint32_t rank, int kind, double rate, double median)
{
    const enum mics_figure_unit unit =
        kind == PRODUCTS ? MICS_FIGURE_FLOPS : MICS_FIGURE_BYTES_PER_S;
    char found[64], expected[64], where[64];
    uint32_t first;
    const uint32_t node = mics_world_node_of(world, rank, &first);

    snprintf(where, sizeof where, "local rank %u%s", rank - first, rate_kinds[kind].where);
    mics_findings_add_slow(findings, rate_kinds[kind].what, (int)node, where,
                           mics_figure(found, rate, unit), mics_figure(expected, median, unit),
                           (struct mics_slowdown){rate_kinds[kind].slows, median / rate, false});
}

enum mics_status mics_check_measure_ranks(struct mics_findings *findings,
                                          const struct mics_bench *bench, double seconds,
                                          json_t *nodes, struct mics_err *err)
{
    const struct mics_world *world = bench->world;
    const uint32_t count = world->size;
    const bool on_host = bench->device->on_host;
    struct mics_rates *rates = calloc(count, sizeof *rates);
    double *best = calloc((RATES + 2) * (size_t)count, sizeof *best);
    double *scratch = best ? best + RATES * (size_t)count : NULL;
    struct mics_class classes[RATES] = {{0}};
    enum mics_status status = rates && best ? MICS_OK : mics_err_nomem(err);
    bool slow = true;

    for (int round = 0; round < ROUNDS && slow && status == MICS_OK; round++) {
        status = measure_once(bench, (1 << round) * seconds, rates, scratch, best, err);
        slow = false;
        for (int kind = 0; kind < RATES && status == MICS_OK; kind++) {
            const double *own = best + kind * (size_t)count;

            classes[kind] = mics_class_of(own, count, scratch);
            for (uint32_t i = 0; i < count; i++)
                slow |= mics_check_is_slow(&classes[kind], own[i], on_host);
        }
    }
    for (uint32_t i = 0; i < RATES * count && status == MICS_OK; i++)
        if (mics_check_is_slow(&classes[i / count], best[i], on_host))
            add_slow_rank(findings, world, i % count, (int)(i / count), best[i],
                          classes[i / count].median);
    if (status == MICS_OK)
        status = add_rates(world, best, nodes, err);
    free(best);
    free(rates);
    return status;
}

/* Transfers between nodes. */
struct links {
    const struct mics_world *world;
    uint32_t nodes, width; /* ranks of a node that take part */
    uint64_t bytes;        /* of a rank, in a transfer */
    double *times;         /* [rounds][2] seconds of what this rank has received; 0: nothing */
    struct mics_segments *counts;   /* [rounds * 2 + 1] of this rank, when each transfer began */
    struct mics_segments *segments; /* [nodes][nodes] what pairs have sent so far */
    double begin, limit_s;          /* of all that is measured again: a busy machine takes longer */
    char *buffer;                   /* [2][MAX_BYTES] */
    bool *chosen;                   /* [nodes][nodes] pairs to measure */
};

/* All pairs are measured so often, then those that seem slow, as often as this or until none does;
 * the most in all. */
enum { REPEATS = 2, CONFIRMATIONS = 4, MAX_REPEATS = 16, LOSS_REPEATS = 8 };
enum { MIN_BYTES = 64 << 10, FIRST_BYTES = 1 << 20, MAX_BYTES = 64 << 20 };
/* A slow pair may take this many times as long as a usual one is meant to, if that leaves a
 * transfer a quarter of its size: a token bucket lets short ones pass. */
static const double slowest_times = 10, least_part = 0.25;
/* Nothing is measured again after this many times the length of a transfer. */
static const double most_times = 250;

static uint32_t rank_of(const struct mics_world *world, uint32_t node, uint32_t local_rank)
{
    uint32_t rank = local_rank;

    for (uint32_t i = 0; i < node; i++)
        rank += world->ranks_of_node[i];
    return rank;
}

/* One direction of a round: the node of each pair with the lower number sends, or receives. All
 * begin together, but a rank may come late from the barrier, for lack of a processor. So the
 * receiver reads the clock and only then asks for the data, which else might be there before: a
 * disturbance must not make a rate higher. */
static enum mics_status transfer(const struct links *links, uint32_t round, bool lower_sends,
                                 struct mics_err *err)
{
    const struct mics_world *world = links->world;
    const uint32_t partner = world->local_rank < links->width
                                 ? mics_pair_partner(links->nodes, round, world->node)
                                 : UINT32_MAX;
    const bool idle = partner == UINT32_MAX || !links->chosen[world->node * links->nodes + partner];
    const bool sends = !idle && (world->node < partner) == lower_sends, receives = !idle && !sends;
    const int peer = idle ? -1 : (int)rank_of(world, partner, world->local_rank);
    const int to = sends ? peer : -1, from = receives ? peer : -1;
    char *in = links->buffer + MAX_BYTES;
    enum mics_status status = mics_comm_barrier_now(world->comm, err);

    links->counts[2 * round + lower_sends] = mics_segments_now();
    const double begin = mics_now_s();
    if (status == MICS_OK)
        status = mics_comm_sendrecv_now(world->comm, links->buffer, receives, from, in, sends, to,
                                        0, err);
    if (status == MICS_OK)
        status = mics_comm_sendrecv_now(world->comm, links->buffer, sends ? links->bytes : 0, to,
                                        in, receives ? links->bytes : 0, from, 0, err);
    links->times[2 * round + lower_sends] = receives ? mics_now_s() - begin : 0;
    return status;
}

/* Add what each pair has sent in the first `rounds` rounds, of which each transfer ended with the
 * barrier before the next one. Collective. */
static enum mics_status add_segments(const struct links *links, uint32_t rounds,
                                     struct mics_err *err)
{
    const struct mics_world *world = links->world;
    const uint32_t nodes = links->nodes, transfers = 2 * rounds;
    enum mics_status status = mics_comm_barrier_now(world->comm, err);
    struct mics_segments *all = NULL;

    links->counts[transfers] = mics_segments_now();
    for (uint32_t i = 0; i < transfers; i++)
        links->counts[i] = mics_segments_between(&links->counts[i], &links->counts[i + 1]);
    if (status == MICS_OK)
        all = mics_all_gather(world->comm, links->counts, transfers * sizeof *all, &status, err);
    for (uint32_t i = 0; status == MICS_OK && i < transfers * nodes; i++) {
        const uint32_t from = i % nodes, transfer = i / nodes, lower_sends = transfer % 2;
        const uint32_t to = mics_pair_partner(nodes, transfer / 2, from);

        if (to == UINT32_MAX || (from < to) != (lower_sends == 1) ||
            !links->chosen[from * nodes + to])
            continue;
        struct mics_segments *pair = &links->segments[from * nodes + to];
        for (uint32_t l = 0; l < links->width; l++) {
            const struct mics_segments *own =
                &all[(size_t)rank_of(world, from, l) * transfers + transfer];

            pair->sent += own->sent;
            pair->again += own->again;
        }
    }
    free(all);
    return status;
}

/* The rates of the first `rounds` rounds, [nodes][nodes]; others are 0. A pair is as fast as the
 * slowest of its ranks. */
static enum mics_status measure_rounds(const struct links *links, uint32_t rounds, double *rates,
                                       struct mics_err *err)
{
    const struct mics_world *world = links->world;
    const uint32_t nodes = links->nodes, all = mics_pair_rounds(nodes);
    enum mics_status status = MICS_OK;
    double *times = NULL;

    memset(rates, 0, (size_t)nodes * nodes * sizeof *rates);
    memset(links->times, 0, 2 * (size_t)all * sizeof *links->times);
    for (uint32_t r = 0; r < 2 * rounds && status == MICS_OK; r++)
        status = transfer(links, r / 2, r % 2, err);
    if (status == MICS_OK)
        status = add_segments(links, rounds, err);
    if (status == MICS_OK)
        times = mics_all_gather(world->comm, links->times, 2 * all * sizeof *times, &status, err);
    for (uint32_t i = 0; status == MICS_OK && i < 2 * rounds * nodes; i++) {
        const uint32_t to = i % nodes, round = i / nodes / 2, lower_sends = i / nodes % 2;
        const uint32_t from = mics_pair_partner(nodes, round, to);
        double slowest = 0;

        if (from == UINT32_MAX || (from < to) != (lower_sends == 1) ||
            !links->chosen[from * nodes + to])
            continue;
        for (uint32_t l = 0; l < links->width; l++)
            slowest = fmax(
                slowest, times[(size_t)rank_of(world, to, l) * 2 * all + 2 * round + lower_sends]);
        if (slowest > 0)
            rates[from * nodes + to] = (double)(links->width * links->bytes) / slowest;
    }
    free(times);
    return status;
}

/* Choose the size of a transfer by a first round, the better of two. `rates` has room for two. */
static enum mics_status choose_bytes(struct links *links, double seconds, double *rates,
                                     struct mics_err *err)
{
    const uint32_t cells = links->nodes * links->nodes;
    double slowest = INFINITY;
    enum mics_status status;

    links->bytes = FIRST_BYTES;
    memset(links->chosen, true, cells * sizeof *links->chosen);
    status = measure_rounds(links, 1, rates, err);
    if (status == MICS_OK)
        status = measure_rounds(links, 1, rates + cells, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < cells; i++) {
        rates[i] = fmax(rates[i], rates[cells + i]);
        slowest = rates[i] > 0 ? fmin(slowest, rates[i]) : slowest;
    }
    const double usual = mics_pairs_reference(rates, links->nodes);
    const double rate = fmax(fmin(usual, slowest_times * slowest), least_part * usual);
    links->bytes = (uint64_t)fmin(fmax(rate * seconds / links->width, MIN_BYTES), MAX_BYTES);
    return MICS_OK;
}

static json_t *rates_of_nodes(const double *rates, uint32_t nodes)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < nodes; i++)
        json_array_append_new(list, json_real(rates[i]));
    return list;
}

static enum mics_status describe(const struct links *links, const struct mics_pair_verdict *verdict,
                                 const double *best, double reference, int repeats, json_t **out,
                                 struct mics_err *err)
{
    const uint32_t nodes = links->nodes;
    json_t *pairs = json_array(), *groups = json_array(), *segments = json_array();
    json_t *doc =
        json_pack("{s:I, s:i, s:i, s:f, s:o, s:o, s:o, s:o}", "bytes",
                  (json_int_t)(links->width * links->bytes), "rounds", (int)mics_pair_rounds(nodes),
                  "repeats", repeats, "reference_bytes_per_s", reference, "send",
                  rates_of_nodes(verdict->send, nodes), "receive",
                  rates_of_nodes(verdict->receive, nodes), "pairs", pairs, "segments", segments);
    bool ok = doc != NULL;

    for (uint32_t i = 0; i < nodes * nodes && ok; i++)
        if (best[i] > 0)
            ok = json_array_append_new(pairs, json_pack("[i, i, f]", (int)(i / nodes),
                                                        (int)(i % nodes), best[i])) == 0;
    for (uint32_t i = 0; i < nodes * nodes && ok; i++)
        if (links->segments[i].sent > 0)
            ok = json_array_append_new(segments,
                                       json_pack("[i, i, I, I]", (int)(i / nodes), (int)(i % nodes),
                                                 (json_int_t)links->segments[i].sent,
                                                 (json_int_t)links->segments[i].again)) == 0;
    for (uint32_t i = 0; verdict->group && i < nodes && ok; i++)
        ok = json_array_append_new(groups, json_integer(verdict->group[i])) == 0;
    if (ok && verdict->group)
        ok = json_object_set(doc, "groups", groups) == 0;
    json_decref(groups);
    if (ok) {
        *out = doc;
        return MICS_OK;
    }
    json_decref(doc);
    return mics_err_nomem(err);
}

static void add_slow_node(struct mics_findings *findings, const struct mics_pair_verdict *verdict,
                          uint32_t node, double reference)
{
    const unsigned slow = verdict->slow[node];
    const double rate = slow == MICS_SLOW_SEND ? verdict->send[node]
                        : slow == MICS_SLOW_RECEIVE
                            ? verdict->receive[node]
                            : fmax(verdict->send[node], verdict->receive[node]);
    /* collectives wait for the slower direction */
    const double least = slow == MICS_SLOW_SEND || slow == MICS_SLOW_RECEIVE
                             ? rate
                             : fmin(verdict->send[node], verdict->receive[node]);
    char found[64], expected[64];

    mics_findings_add_slow(findings,
                           slow == MICS_SLOW_SEND      ? "slow_send"
                           : slow == MICS_SLOW_RECEIVE ? "slow_receive"
                                                       : "slow_card",
                           (int)node, NULL, mics_format_rate(rate, found, sizeof found),
                           mics_format_rate(reference, expected, sizeof expected),
                           (struct mics_slowdown){"net", reference / least, false});
}

static const char *host_of(const struct mics_findings *findings, uint32_t node)
{
    return json_string_value(json_object_get(json_array_get(findings->nodes, node), "host"));
}

static void add_slow_pairs(struct mics_findings *findings, const struct mics_pair_verdict *verdict,
                           double reference)
{
    char found[64], expected[64], where[2 * MICS_HOST_NAME + 32];
    double most = 0;

    mics_format_rate(reference, expected, sizeof expected);
    for (uint32_t i = 0; i < verdict->pair_count; i++) {
        const struct mics_slow_pair *pair = &verdict->pairs[i];

        most = fmax(most, pair->rate);
        if (verdict->group)
            continue;
        snprintf(where, sizeof where, "from %s to %s", host_of(findings, pair->from),
                 host_of(findings, pair->to));
        mics_findings_add_slow(
            findings, verdict->undecidable ? "slow_link" : "slow_pair", -1, where,
            mics_format_rate(pair->rate, found, sizeof found), expected,
            (struct mics_slowdown){"net", reference / pair->rate, !verdict->undecidable});
    }
    if (!verdict->group)
        return;
    uint32_t other = 0;
    while (verdict->group[other] == 0)
        other++;
    snprintf(where, sizeof where, "between the groups of %s and %s", host_of(findings, 0),
             host_of(findings, other));
    mics_findings_add_slow(findings, "slow_groups", -1, where,
                           mics_format_rate(most, found, sizeof found), expected,
                           (struct mics_slowdown){"net", reference / most, true});
}

/* Have ranks measured for longer than this, by the clock of rank 0? Collective. */
static bool is_late(const struct links *links, enum mics_status *status, struct mics_err *err)
{
    const double spent = mics_now_s() - links->begin;
    double *all = mics_all_gather(links->world->comm, &spent, sizeof spent, status, err);
    const bool late = all && all[0] > links->limit_s;

    free(all);
    return late;
}

static void add_loss(struct mics_findings *findings, int node, const char *where,
                     const struct mics_segments *of)
{
    char found[96];

    snprintf(found, sizeof found, "%.2f %% of %" PRIu64 " segments sent again",
             100.0 * (double)of->again / (double)of->sent, of->sent);
    mics_findings_add(findings, "packet_loss", node, where, found, "less than 0.02 %");
}

/* Transfers are repeated, up to LOSS_REPEATS times, while more of them would decide. Losses of
 * pairs that are slow tell nothing: queues before a bottleneck overflow. */
static enum mics_status find_packet_loss(struct mics_findings *findings, const struct links *links,
                                         const struct mics_pair_verdict *verdict, double *rates,
                                         struct mics_err *err)
{
    static const char *const wheres[] = {[MICS_LOSS_SEND] = "sending",
                                         [MICS_LOSS_RECEIVE] = "receiving",
                                         [MICS_LOSS_SEND | MICS_LOSS_RECEIVE] =
                                             "sending and receiving"};
    const uint32_t nodes = links->nodes;
    struct mics_packet_loss *loss = calloc(nodes, sizeof *loss);
    enum mics_status status = loss ? MICS_OK : mics_err_nomem(err);
    char where[2 * MICS_HOST_NAME + 32];
    bool unsure = true;

    memset(links->chosen, true, (size_t)nodes * nodes * sizeof *links->chosen);
    for (int repeat = 0; repeat <= LOSS_REPEATS && unsure && status == MICS_OK; repeat++) {
        if (repeat > 0 && (is_late(links, &status, err) || status != MICS_OK))
            break;
        if (repeat > 0)
            status = measure_rounds(links, mics_pair_rounds(nodes), rates, err);
        for (uint32_t i = 0; i < verdict->pair_count; i++)
            links->segments[verdict->pairs[i].from * nodes + verdict->pairs[i].to] =
                (struct mics_segments){0};
        if (status == MICS_OK)
            status = mics_packet_loss_judge(links->segments, nodes, loss, &unsure, err);
    }
    for (uint32_t i = 0; i < nodes && status == MICS_OK; i++) {
        if (nodes > 2 && loss[i].bits)
            add_loss(findings, (int)i, wheres[loss[i].bits], &loss[i].of);
        if (nodes > 2 || !(loss[i].bits & MICS_LOSS_SEND))
            continue;
        snprintf(where, sizeof where, "from %s to %s", host_of(findings, i),
                 host_of(findings, 1 - i));
        add_loss(findings, -1, where, &loss[i].of);
    }
    free(loss);
    return status;
}

/* An active port of RDMA of a node that carries much more than nodes exchange, in all of them. */
static const double used_share = 0.3;

static void find_unused_rdma(struct mics_findings *findings, double reference)
{
    double least = INFINITY;
    char found[64], expected[64];

    for (size_t i = 0; i < json_array_size(findings->nodes); i++) {
        const json_t *facts = json_object_get(json_array_get(findings->nodes, i), "facts");
        const json_t *ports = json_object_get(facts, "rdma");
        double most = 0;

        for (size_t p = 0; p < json_array_size(ports); p++) {
            const json_t *port = json_array_get(ports, p);
            const char *state = json_string_value(json_object_get(port, "state"));

            if (state && strcmp(state, "ACTIVE") == 0)
                most = fmax(most, json_number_value(json_object_get(port, "gbit_per_s")) * 1e9 / 8);
        }
        least = fmin(least, most);
    }
    if (reference < used_share * least)
        mics_findings_add(findings, "rdma_unused", -1, NULL,
                          mics_format_rate(reference, found, sizeof found),
                          mics_format_rate(least, expected, sizeof expected));
}

/* Other programs keep a processor for a while: what seems slow is measured again later. */
static void wait_before_confirmation(int confirmed)
{
    const long ms = 100L << (confirmed < 3 ? confirmed : 3);

    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* best[nodes][nodes] become the best rates: of all pairs twice, then of those that seem slow until
 * none does, or it has seemed so often enough. *sure: it has, or nothing seems slow. */
static enum mics_status repeat_rounds(const struct links *links, double *best, double *rates,
                                      int *repeats, struct mics_pair_verdict *verdict, bool *sure,
                                      struct mics_err *err)
{
    const uint32_t nodes = links->nodes, cells = nodes * nodes;
    enum mics_status status = MICS_OK;
    int confirmed = 0;

    for (*repeats = 0; *repeats < MAX_REPEATS && status == MICS_OK; ++*repeats) {
        const bool confirms = *repeats >= REPEATS;

        if (confirms && (confirmed == CONFIRMATIONS || !mics_pair_verdict_is_bad(verdict)))
            break;
        if (confirms && (is_late(links, &status, err) || status != MICS_OK))
            break;
        if (confirms) {
            mics_pairs_choose_suspects(verdict, best, links->chosen);
            wait_before_confirmation(confirmed);
        }
        status = measure_rounds(links, mics_pair_rounds(nodes), rates, err);
        if (status != MICS_OK)
            break;
        confirmed += confirms && mics_pairs_are_calm(verdict, best, rates);
        for (uint32_t i = 0; i < cells; i++)
            best[i] = fmax(best[i], rates[i]);
        mics_pair_verdict_fini(verdict);
        status = mics_pairs_judge(best, nodes, verdict, err);
    }
    *sure = confirmed == CONFIRMATIONS || !mics_pair_verdict_is_bad(verdict);
    return status;
}

/* Keep only nodes that are below half of the usual rate: of a slow node there are many rates, of a
 * slow pair there is one. Where these are more than two and a quarter of all, the disturbance is
 * everywhere, and none is kept. */
static void drop_unsure(struct mics_findings *findings, struct mics_pair_verdict *verdict,
                        double reference)
{
    uint32_t dropped = verdict->pair_count, kept = 0;
    char found[64];

    for (uint32_t i = 0; i < verdict->nodes; i++) {
        unsigned char *slow = &verdict->slow[i];
        const unsigned before = *slow;

        if ((*slow & MICS_SLOW_SEND) && verdict->send[i] >= reference / 2)
            *slow &= (unsigned char)~MICS_SLOW_SEND;
        if ((*slow & MICS_SLOW_RECEIVE) && verdict->receive[i] >= reference / 2)
            *slow &= (unsigned char)~MICS_SLOW_RECEIVE;
        dropped += *slow != before;
        kept += *slow != 0;
    }
    if (kept > 2 && 4 * kept > verdict->nodes) {
        memset(verdict->slow, 0, verdict->nodes * sizeof *verdict->slow);
        dropped += kept;
    }
    snprintf(found, sizeof found, "%u nodes or pairs of nodes seem slow", dropped);
    if (dropped > 0)
        mics_findings_add(findings, "links_vary", -1, NULL, found, NULL);
    free(verdict->group);
    verdict->group = NULL;
    verdict->pair_count = 0;
}

enum mics_status mics_check_measure_links(struct mics_findings *findings,
                                          const struct mics_world *world, double seconds,
                                          json_t **out, struct mics_err *err)
{
    const uint32_t nodes = world->node_count;
    const size_t cells = (size_t)nodes * nodes;
    struct links links = {.world = world,
                          .nodes = nodes,
                          .width = world->ranks_of_node[0],
                          .begin = mics_now_s(),
                          .limit_s = most_times * seconds};
    struct mics_pair_verdict verdict = {0};
    double *best = calloc(3 * cells, sizeof *best);
    int repeats = 0;
    bool sure = false;
    enum mics_status status;

    for (uint32_t i = 0; i < nodes; i++)
        if (world->ranks_of_node[i] < links.width)
            links.width = world->ranks_of_node[i];
    links.times = calloc(2 * (size_t)mics_pair_rounds(nodes), sizeof *links.times);
    links.counts = calloc(2 * (size_t)mics_pair_rounds(nodes) + 1, sizeof *links.counts);
    links.segments = calloc(cells, sizeof *links.segments);
    links.buffer = calloc(2, MAX_BYTES);
    links.chosen = calloc(cells, sizeof *links.chosen);
    status = best && links.times && links.counts && links.segments && links.buffer && links.chosen
                 ? MICS_OK
                 : mics_err_nomem(err);
    if (status == MICS_OK)
        status = choose_bytes(&links, seconds, best + cells, err);
    if (status == MICS_OK)
        status = repeat_rounds(&links, best, best + cells, &repeats, &verdict, &sure, err);
    if (status == MICS_OK && !sure)
        drop_unsure(findings, &verdict, mics_pairs_reference(best, nodes));
    if (status == MICS_OK) {
        const double reference = mics_pairs_reference(best, nodes);

        for (uint32_t i = 0; i < nodes; i++)
            if (verdict.slow[i])
                add_slow_node(findings, &verdict, i, reference);
        add_slow_pairs(findings, &verdict, reference);
        find_unused_rdma(findings, reference);
        status = find_packet_loss(findings, &links, &verdict, best + cells, err);
    }
    if (status == MICS_OK) {
        const double reference = mics_pairs_reference(best, nodes);

        status = describe(&links, &verdict, best, reference, repeats, out, err);
    }
    mics_pair_verdict_fini(&verdict);
    free(links.times);
    free(links.counts);
    free(links.segments);
    free(links.buffer);
    free(links.chosen);
    free(best);
    return status;
}
