/* SPDX-License-Identifier: Apache-2.0 */
/* pair_rates.c - the size of transfers, rounds, and what is measured again. */
#include "probe/pair_rates.h"

#include "base/clock.h"
#include "base/num.h"
#include "comm/agree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct mics_pair_transfers {
    struct mics_pair_rates_options options;
    uint32_t nodes, width; /* ranks of a node that take part */
    uint64_t bytes;        /* of a rank, in a transfer */
    double begin;
    double *rates; /* [2][nodes][nodes] of the last rounds */
    double *times; /* [rounds][2] seconds of what this rank has received; 0: nothing */
    struct mics_segments *counts;   /* [rounds * 2 + 1] of this rank, when each transfer began */
    struct mics_segments *segments; /* [nodes][nodes] what pairs have sent so far */
    char *buffer;                   /* [2][max_bytes] */
    bool *chosen;                   /* [nodes][nodes] pairs to measure */
};

/* All pairs are measured so often, then those that seem slow, as often as this or until none does;
 * the most in all. */
enum { REPEATS = 2, CONFIRMATIONS = 4, MAX_REPEATS = 16 };
enum { MIN_BYTES = 64 << 10 };
/* To count what is lost, transfers are so many times as long as to measure rates: there is more
 * data, and less between them. */
enum { SEND_AGAIN_TIMES = 5 };
/* A slow pair may take this many times as long as a usual one is meant to, if that leaves a
 * transfer a quarter of its size: a token bucket lets short ones pass. */
static const double slowest_times = 10, least_part = 0.25;

/* Transfers are made longer if rates are so many times those by which their size was chosen. A size
 * that was chosen for a slow pair is a quarter of the usual one. */
static const double most_lengthened = 6;

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
static enum mics_status transfer(const struct mics_pair_transfers *links, uint32_t round,
                                 bool lower_sends, struct mics_err *err)
{
    const struct mics_world *world = links->options.world;
    const uint32_t nodes = links->nodes, node = world->node;
    const uint32_t partner =
        world->local_rank < links->width ? mics_pair_partner(nodes, round, node) : UINT32_MAX;
    const bool forth = (node < partner) == lower_sends;
    const bool idle = partner == UINT32_MAX ||
                      !links->chosen[forth ? node * nodes + partner : partner * nodes + node];
    const bool sends = !idle && forth, receives = !idle && !forth;
    const int peer = idle ? -1 : (int)rank_of(world, partner, world->local_rank);
    const int to = sends ? peer : -1, from = receives ? peer : -1;
    struct mics_comm *comm = links->options.comm;
    char *in = links->buffer + links->options.max_bytes;
    enum mics_status status = mics_comm_barrier_now(comm, err);

    links->counts[2 * round + lower_sends] = mics_segments_now();
    const double begin = mics_now_s();
    if (status == MICS_OK)
        status = mics_comm_sendrecv_now(comm, links->buffer, receives, from, in, sends, to, 0, err);
    if (status == MICS_OK)
        status = mics_comm_sendrecv_now(comm, links->buffer, sends ? links->bytes : 0, to, in,
                                        receives ? links->bytes : 0, from, 0, err);
    links->times[2 * round + lower_sends] = receives ? mics_now_s() - begin : 0;
    if (links->options.transfers)
        atomic_fetch_add(links->options.transfers, 1);
    return status;
}

/* Add what each pair has sent in the first `rounds` rounds, of which each transfer ended with the
 * barrier before the next one. Collective. */
static enum mics_status add_segments(const struct mics_pair_transfers *links, uint32_t rounds,
                                     struct mics_err *err)
{
    const struct mics_world *world = links->options.world;
    const uint32_t nodes = links->nodes, transfers = 2 * rounds;
    struct mics_comm *comm = links->options.comm;
    enum mics_status status = mics_comm_barrier_now(comm, err);
    struct mics_segments *all = NULL;

    links->counts[transfers] = mics_segments_now();
    for (uint32_t i = 0; i < transfers; i++)
        links->counts[i] = mics_segments_between(&links->counts[i], &links->counts[i + 1]);
    if (status == MICS_OK)
        all = mics_all_gather(comm, links->counts, transfers * sizeof *all, &status, err);
    for (uint32_t i = 0; status == MICS_OK && i < transfers * nodes; i++) {
        const uint32_t from = i % nodes, transfer = i / nodes, lower_sends = transfer % 2;
        const uint32_t to = mics_pair_partner(nodes, transfer / 2, from);

        if (to == UINT32_MAX || (from < to) != (lower_sends == 1) ||
            !links->chosen[from * nodes + to])
            continue;
        struct mics_segments sum = {0};

        for (uint32_t l = 0; l < links->width; l++) {
            const struct mics_segments *own =
                &all[(size_t)rank_of(world, from, l) * transfers + transfer];

            sum.sent += own->sent;
            sum.again += own->again;
        }
        mics_segments_add(&links->segments[from * nodes + to], &sum);
    }
    free(all);
    return status;
}

/* The rates of the first `rounds` rounds, [nodes][nodes]; others are 0. A pair is as fast as the
 * slowest of its ranks. */
static enum mics_status measure_rounds(const struct mics_pair_transfers *links, uint32_t rounds,
                                       double *rates, struct mics_err *err)
{
    const struct mics_world *world = links->options.world;
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
        times = mics_all_gather(links->options.comm, links->times, 2 * all * sizeof *times, &status,
                                err);
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

static double slowest_of(const double *rates, uint32_t cells)
{
    double slowest = INFINITY;

    for (uint32_t i = 0; i < cells; i++)
        slowest = rates[i] > 0 ? fmin(slowest, rates[i]) : slowest;
    return slowest;
}

/* Of a transfer, of each rank: as long as it is meant to be at this rate of a pair, but not longer
 * than it may be at the slowest. */
static uint64_t bytes_at(const struct mics_pair_transfers *links, double rate, double slowest)
{
    const struct mics_pair_rates_options *options = &links->options;
    double bytes = rate * options->seconds;

    if (options->longest_s > 0)
        bytes = fmin(bytes, slowest * options->longest_s);
    return (uint64_t)fmin(fmax(bytes / links->width, MIN_BYTES), (double)options->max_bytes);
}

/* Choose the size of a transfer by a first round, the better of two. `rates` has room for two. */
static enum mics_status choose_bytes(struct mics_pair_transfers *links, double *rates,
                                     struct mics_err *err)
{
    const uint32_t cells = links->nodes * links->nodes;
    enum mics_status status;

    links->bytes = links->options.first_bytes;
    memset(links->chosen, true, cells * sizeof *links->chosen);
    status = measure_rounds(links, 1, rates, err);
    if (status == MICS_OK)
        status = measure_rounds(links, 1, rates + cells, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < cells; i++)
        rates[i] = fmax(rates[i], rates[cells + i]);
    const double usual = mics_pairs_reference(rates, links->nodes);
    const double slowest = slowest_of(rates, cells);

    links->bytes =
        bytes_at(links, fmax(fmin(usual, slowest_times * slowest), least_part * usual), slowest);
    return MICS_OK;
}

/* Were transfers much shorter than they are meant to be, because a disturbance had made the first
 * round slow? Then bursts pass, and rates are too high: measure longer ones, from the beginning. */
static bool lengthen(struct mics_pair_rates *out)
{
    struct mics_pair_transfers *links = out->transfers;
    const uint32_t cells = links->nodes * links->nodes;
    const uint64_t bytes = bytes_at(links, mics_pairs_reference(out->best, links->nodes),
                                    slowest_of(out->best, cells));

    if ((double)bytes < most_lengthened * (double)links->bytes)
        return false;
    links->bytes = bytes;
    memset(out->best, 0, cells * sizeof *out->best);
    return true;
}

/* Other programs keep a processor for a while: what seems slow is measured again later. */
static void wait_before_confirmation(int confirmed)
{
    const long ms = 100L << (confirmed < 3 ? confirmed : 3);

    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Nothing seems slow, or it did often enough. */
static bool is_sure(const struct mics_pair_rates *out, int calm, int stood_out)
{
    const int enough = out->transfers->options.stand_outs;

    return calm == CONFIRMATIONS || (enough > 0 && stood_out >= enough) ||
           !mics_pair_verdict_is_bad(&out->verdict);
}

/* out->best become the best rates: of all pairs twice, if the limit of time is not reached before,
 * then of those that seem slow until none does, or it has seemed so often enough. */
static enum mics_status repeat_rounds(struct mics_pair_rates *out, struct mics_err *err)
{
    struct mics_pair_transfers *links = out->transfers;
    const uint32_t nodes = links->nodes, cells = nodes * nodes;
    enum mics_status status = MICS_OK;
    int calm = 0, stood_out = 0;

    for (out->repeats = 0; out->repeats < MAX_REPEATS && status == MICS_OK; ++out->repeats) {
        const bool confirms = out->repeats >= REPEATS;

        if (confirms && is_sure(out, calm, stood_out))
            break;
        if (out->repeats > 0 && (mics_pair_rates_are_late(out, &status, err) || status != MICS_OK))
            break;
        if (confirms) {
            mics_pairs_choose_suspects(&out->verdict, out->best, (uint32_t)out->repeats,
                                       links->chosen);
            wait_before_confirmation(calm > stood_out ? calm : stood_out);
        }
        status = measure_rounds(links, mics_pair_rounds(nodes), links->rates, err);
        if (status != MICS_OK)
            break;
        calm += confirms && mics_pairs_are_calm(&out->verdict, out->best, links->rates);
        stood_out += confirms && mics_pairs_stand_out(&out->verdict, links->rates);
        for (uint32_t i = 0; i < cells; i++)
            out->best[i] = fmax(out->best[i], links->rates[i]);
        if (out->repeats < REPEATS && lengthen(out)) {
            out->repeats = -1;
            continue;
        }
        mics_pair_verdict_fini(&out->verdict);
        status = mics_pairs_judge(out->best, nodes, &out->verdict, err);
    }
    out->sure = is_sure(out, calm, stood_out);
    return status;
}

/* Keep only a clear cut between two groups, and nodes that are below half of the usual rate: for
 * these there are many rates, for a slow pair there is one. Where such nodes are more than two, and
 * more than a quarter of all, the disturbance is everywhere, and none is kept. */
static void drop_unsure(struct mics_pair_rates *rates)
{
    struct mics_pair_verdict *verdict = &rates->verdict;
    const bool cut = mics_pairs_are_clearly_cut(verdict, rates->reference);
    uint32_t kept = 0, between = 0;

    for (uint32_t i = 0; cut && i < verdict->pair_count; i++)
        if (mics_pair_is_between_groups(verdict, verdict->pairs[i].from, verdict->pairs[i].to))
            verdict->pairs[between++] = verdict->pairs[i];
    rates->dropped = verdict->pair_count - between;
    verdict->pair_count = between;
    for (uint32_t i = 0; i < verdict->nodes; i++) {
        unsigned char *slow = &verdict->slow[i];
        const unsigned before = *slow;

        if ((*slow & MICS_SLOW_SEND) && verdict->send[i] >= rates->reference / 2)
            *slow &= (unsigned char)~MICS_SLOW_SEND;
        if ((*slow & MICS_SLOW_RECEIVE) && verdict->receive[i] >= rates->reference / 2)
            *slow &= (unsigned char)~MICS_SLOW_RECEIVE;
        rates->dropped += *slow != before;
        kept += *slow != 0;
    }
    if (kept > 2 && 4 * kept > verdict->nodes) {
        memset(verdict->slow, 0, verdict->nodes * sizeof *verdict->slow);
        rates->dropped += kept;
    }
    if (cut)
        return;
    free(verdict->group);
    verdict->group = NULL;
}

static enum mics_status open_transfers(const struct mics_pair_rates_options *options,
                                       struct mics_pair_rates *out, struct mics_err *err)
{
    const struct mics_world *world = options->world;
    const uint32_t nodes = world->node_count, rounds = mics_pair_rounds(nodes);
    const size_t cells = (size_t)nodes * nodes;
    struct mics_pair_transfers *links = calloc(1, sizeof *links);

    *out = (struct mics_pair_rates){.best = calloc(cells, sizeof *out->best), .transfers = links};
    if (!links)
        return mics_err_nomem(err);
    *links = (struct mics_pair_transfers){
        .options = *options,
        .nodes = nodes,
        .width = world->ranks_of_node[0],
        .begin = mics_now_s(),
        .rates = calloc(2 * cells, sizeof *links->rates),
        .times = calloc(2 * (size_t)rounds, sizeof *links->times),
        .counts = calloc(2 * (size_t)rounds + 1, sizeof *links->counts),
        .segments = calloc(cells, sizeof *links->segments),
        .buffer = calloc(2, options->max_bytes),
        .chosen = calloc(cells, sizeof *links->chosen),
    };
    for (uint32_t i = 0; i < nodes; i++)
        if (world->ranks_of_node[i] < links->width)
            links->width = world->ranks_of_node[i];
    out->segments = links->segments;
    return out->best && links->rates && links->times && links->counts && links->segments &&
                   links->buffer && links->chosen
               ? MICS_OK
               : mics_err_nomem(err);
}

enum mics_status mics_pair_rates_measure(const struct mics_pair_rates_options *options,
                                         struct mics_pair_rates *out, struct mics_err *err)
{
    enum mics_status status = open_transfers(options, out, err);

    if (status == MICS_OK)
        status = choose_bytes(out->transfers, out->transfers->rates, err);
    if (status == MICS_OK)
        status = repeat_rounds(out, err);
    if (status != MICS_OK)
        return status;
    out->bytes = out->transfers->width * out->transfers->bytes;
    out->reference = mics_pairs_reference(out->best, out->transfers->nodes);
    if (!out->sure)
        drop_unsure(out);
    return MICS_OK;
}

bool mics_pair_rates_are_late(const struct mics_pair_rates *rates, enum mics_status *status,
                              struct mics_err *err)
{
    const struct mics_pair_transfers *links = rates->transfers;
    const double spent = mics_now_s() - links->begin;
    double *all = mics_all_gather(links->options.comm, &spent, sizeof spent, status, err);
    const bool late = all && all[0] > links->options.limit_s;

    free(all);
    return late;
}

enum mics_status mics_pair_rates_send_again(struct mics_pair_rates *rates, struct mics_err *err)
{
    struct mics_pair_transfers *links = rates->transfers;
    const uint64_t bytes = links->bytes;
    const uint32_t nodes = links->nodes;

    for (uint32_t i = 0; i < nodes * nodes; i++)
        links->chosen[i] = !mics_pair_is_slow(&rates->verdict, i / nodes, i % nodes);
    links->bytes = mics_min_u64(SEND_AGAIN_TIMES * bytes, links->options.max_bytes);
    const enum mics_status status =
        measure_rounds(links, mics_pair_rounds(nodes), links->rates, err);
    links->bytes = bytes;
    return status;
}

void mics_pair_rates_fini(struct mics_pair_rates *rates)
{
    struct mics_pair_transfers *links = rates->transfers;

    if (links) {
        free(links->rates);
        free(links->times);
        free(links->counts);
        free(links->segments);
        free(links->buffer);
        free(links->chosen);
        free(links);
    }
    mics_pair_verdict_fini(&rates->verdict);
    free(rates->best);
    *rates = (struct mics_pair_rates){0};
}
