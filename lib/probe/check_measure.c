/* SPDX-License-Identifier: Apache-2.0 */
/* check_measure.c - rates of ranks; findings by them and by those of pairs of nodes. */
#include "probe/check_measure.h"

#include "base/units.h"
#include "measure/statistics.h"
#include "probe/findings_internal.h"
#include "probe/pair_rates.h"
#include "topology/host_list.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static json_t *rates_of_nodes(const double *rates, uint32_t nodes)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < nodes; i++)
        json_array_append_new(list, json_real(rates[i]));
    return list;
}

static enum mics_status describe(const struct mics_pair_rates *rates, json_t **out,
                                 struct mics_err *err)
{
    const struct mics_pair_verdict *verdict = &rates->verdict;
    const struct mics_segments *sent = rates->segments;
    const uint32_t nodes = verdict->nodes;
    json_t *pairs = json_array(), *groups = json_array(), *segments = json_array();
    json_t *doc = json_pack(
        "{s:I, s:i, s:i, s:f, s:o, s:o, s:o, s:o}", "bytes", (json_int_t)rates->bytes, "rounds",
        (int)mics_pair_rounds(nodes), "repeats", rates->repeats, "reference_bytes_per_s",
        rates->reference, "send", rates_of_nodes(verdict->send, nodes), "receive",
        rates_of_nodes(verdict->receive, nodes), "pairs", pairs, "segments", segments);
    bool ok = doc != NULL;

    for (uint32_t i = 0; i < nodes * nodes && ok; i++)
        if (rates->best[i] > 0)
            ok = json_array_append_new(pairs, json_pack("[i, i, f]", (int)(i / nodes),
                                                        (int)(i % nodes), rates->best[i])) == 0;
    for (uint32_t i = 0; i < nodes * nodes && ok; i++)
        if (sent[i].sent > 0)
            ok = json_array_append_new(
                     segments, json_pack("[i, i, I, I]", (int)(i / nodes), (int)(i % nodes),
                                         (json_int_t)sent[i].sent, (json_int_t)sent[i].again)) == 0;
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

        if (mics_pair_is_between_groups(verdict, pair->from, pair->to)) {
            most = fmax(most, pair->rate);
            continue;
        }
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

static void add_loss(struct mics_findings *findings, int node, const char *where,
                     const struct mics_segments *of)
{
    char found[96];

    snprintf(found, sizeof found, "%.2f %% of %" PRIu64 " segments sent again",
             100.0 * (double)of->again / (double)of->sent, of->sent);
    mics_findings_add(findings, "packet_loss", node, where, found, "less than 0.02 %");
}

enum { LOSS_REPEATS = 8 };

/* Transfers are repeated, up to LOSS_REPEATS times, while more of them would decide. Losses of what
 * is slow tell nothing: queues before a bottleneck overflow. */
static enum mics_status find_packet_loss(struct mics_findings *findings,
                                         struct mics_pair_rates *rates, struct mics_err *err)
{
    static const char *const wheres[] = {[MICS_LOSS_SEND] = "sending",
                                         [MICS_LOSS_RECEIVE] = "receiving",
                                         [MICS_LOSS_SEND | MICS_LOSS_RECEIVE] =
                                             "sending and receiving"};
    const struct mics_pair_verdict *verdict = &rates->verdict;
    const uint32_t nodes = verdict->nodes;
    struct mics_packet_loss *loss = calloc(nodes, sizeof *loss);
    enum mics_status status = loss ? MICS_OK : mics_err_nomem(err);
    char where[2 * MICS_HOST_NAME + 32];
    bool unsure = true;

    for (int repeat = 0; repeat <= LOSS_REPEATS && unsure && status == MICS_OK; repeat++) {
        if (repeat > 0 && (mics_pair_rates_are_late(rates, &status, err) || status != MICS_OK))
            break;
        if (repeat > 0)
            status = mics_pair_rates_send_again(rates, err);
        for (uint32_t i = 0; i < nodes * nodes; i++)
            if (mics_pair_is_slow(verdict, i / nodes, i % nodes))
                rates->segments[i] = (struct mics_segments){0};
        if (status == MICS_OK)
            status = mics_packet_loss_judge(rates->segments, nodes, loss, &unsure, err);
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

/* Of a transfer of a rank. */
enum { FIRST_BYTES = 1 << 20, MAX_BYTES = 64 << 20 };
/* Nothing is measured again after this many times the length of a transfer. */
static const double most_times = 300;

enum mics_status mics_check_measure_links(struct mics_findings *findings,
                                          const struct mics_world *world, double seconds,
                                          json_t **out, struct mics_err *err)
{
    const struct mics_pair_rates_options options = {.world = world,
                                                    .comm = world->comm,
                                                    .seconds = seconds,
                                                    .first_bytes = FIRST_BYTES,
                                                    .max_bytes = MAX_BYTES,
                                                    .limit_s = most_times * seconds};
    struct mics_pair_rates rates;
    enum mics_status status = mics_pair_rates_measure(&options, &rates, err);
    char found[64];

    if (status == MICS_OK) {
        snprintf(found, sizeof found, "%u nodes or pairs of nodes seem slow", rates.dropped);
        if (rates.dropped > 0)
            mics_findings_add(findings, "links_vary", -1, NULL, found, NULL);
        for (uint32_t i = 0; i < world->node_count; i++)
            if (rates.verdict.slow[i])
                add_slow_node(findings, &rates.verdict, i, rates.reference);
        add_slow_pairs(findings, &rates.verdict, rates.reference);
        find_unused_rdma(findings, rates.reference);
        status = find_packet_loss(findings, &rates, err);
    }
    if (status == MICS_OK)
        status = describe(&rates, out, err);
    mics_pair_rates_fini(&rates);
    return status;
}
