/* SPDX-License-Identifier: Apache-2.0 */
/* packet_loss.c - counters of TCP connections, and verdicts by all partners of a node. */
#include "probe/packet_loss.h"

#include "measure/statistics.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A share below this, or below so many times the usual one, or as many times as so many median
 * deviations are, is no finding: what partners lose, too, makes the deviations small. */
static const double least_share = 0.0002, least_times = 5, least_mads = 10;
/* Shares below this are alike. */
static const double no_share = 0.00004;
/* The probability that any of those that are judged together is named by chance. A check judges up
 * to nine times. */
static const double chance = 0.001;
/* So many make it worth to measure again; so many transfers tell a loss from a burst. Of fewer
 * segments a loss of 0.1 % may leave no trace. */
enum { SUSPECT_AGAIN = 2, MIN_TRANSFERS = 3, MIN_SEGMENTS = 8000 };

struct mics_segments mics_segments_now(void)
{
    struct mics_segments sum = {0};
    DIR *folder = opendir("/proc/self/fd");

    if (!folder)
        return (struct mics_segments){.sent = UINT64_MAX};
    for (const struct dirent *entry; (entry = readdir(folder));) {
        struct tcp_info info = {0};
        socklen_t size = sizeof info;

        if (entry->d_name[0] == '.' ||
            getsockopt(atoi(entry->d_name), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
            continue;
        sum.sent += info.tcpi_segs_out;
        sum.again += info.tcpi_total_retrans > info.tcpi_dsack_dups
                         ? info.tcpi_total_retrans - info.tcpi_dsack_dups
                         : 0;
    }
    closedir(folder);
    return sum;
}

struct mics_segments mics_segments_between(const struct mics_segments *before,
                                           const struct mics_segments *after)
{
    if (after->sent < before->sent || after->sent == UINT64_MAX)
        return (struct mics_segments){0};
    return (struct mics_segments){
        .sent = after->sent - before->sent,
        .again = after->again > before->again ? after->again - before->again : 0};
}

void mics_segments_add(struct mics_segments *sum, const struct mics_segments *transfer)
{
    sum->sent += transfer->sent;
    sum->again += transfer->again;
    sum->transfers += transfer->sent > 0;
    sum->lossy += transfer->again > 0;
}

/* What a node has sent, or received. */
struct direction {
    struct mics_segments all, rest; /* rest: without the partner with the largest share */
    uint32_t partners, lossy;       /* of them those with a loss */
    double usually_lossy;           /* transfers with a loss, if each segment is as likely lost */
};

static double share_of(const struct mics_segments *of)
{
    return of->sent > 0 ? (double)of->again / (double)of->sent : 0;
}

static struct direction sum_of(const struct mics_segments *segments, uint32_t nodes, uint32_t node,
                               bool receives)
{
    struct direction out = {0};
    struct mics_segments worst = {0};
    double worst_share = -1;

    for (uint32_t i = 0; i < nodes; i++) {
        const struct mics_segments *pair =
            &segments[receives ? i * nodes + node : node * nodes + i];

        if (pair->sent == 0)
            continue;
        out.partners++;
        out.lossy += pair->again > 0;
        out.all.sent += pair->sent;
        out.all.again += pair->again;
        out.all.transfers += pair->transfers;
        out.all.lossy += pair->lossy;
        if (share_of(pair) > worst_share) {
            worst_share = share_of(pair);
            worst = *pair;
        }
    }
    out.rest = (struct mics_segments){.sent = out.all.sent - worst.sent,
                                      .again = out.all.again - worst.again};
    if (out.all.transfers > 0)
        out.usually_lossy =
            out.all.transfers * (1 - exp(-(double)out.all.again / out.all.transfers));
    return out;
}

/* The probability of so many events, 1 or more, or of more, where `mean` are usual. */
static double probability_of(uint64_t events, double mean)
{
    const double count = (double)events;
    double term = exp(count * log(mean) - mean - lgamma(count + 1)), sum = 0;

    for (double next = count + 1; term > sum * 1e-9; next++) {
        sum += term;
        term *= mean / next;
    }
    return sum;
}

/* The least share that explains what was counted, if `judged` of them are judged together: of a
 * smaller one that much would be chance. */
static double sure_share(const struct mics_segments *of, uint32_t judged)
{
    double low = 0, high = (double)of->again;

    if (of->again == 0)
        return 0;
    while (high - low > 0.001 * high) {
        const double mean = (low + high) / 2;

        *(probability_of(of->again, mean) < chance / judged ? &low : &high) = mean;
    }
    return low / (double)of->sent;
}

/* With two nodes, judge each direction by itself: the other one is all to compare it with. A queue
 * that overflows for a moment is a loss in one transfer. */
static void judge_two(const struct mics_segments *segments, struct mics_packet_loss *out,
                      bool *unsure)
{
    *unsure = false;
    for (uint32_t from = 0; from < 2; from++) {
        const struct mics_segments *own = &segments[from == 0 ? 1 : 2],
                                   *other = &segments[from == 0 ? 2 : 1];

        const double least = fmax(least_share, least_times * share_of(other));
        if (share_of(own) < least || 2 * own->lossy < own->transfers)
            continue;
        if (own->transfers < MIN_TRANSFERS || sure_share(own, 2) < least) {
            *unsure |= own->again >= SUSPECT_AGAIN;
            continue;
        }
        out[from].bits |= MICS_LOSS_SEND;
        out[1 - from].bits |= MICS_LOSS_RECEIVE;
        out[from].of = out[1 - from].of = *own;
    }
}

/* A queue that overflows for a moment is a loss to few partners, and in few transfers; a bad cable
 * is one to most, and in most of as many as so many losses are spread over by chance. */
static bool is_spread(const struct direction *of)
{
    return of->partners > 1 && 2 * of->lossy >= of->partners &&
           2 * of->all.lossy >= of->usually_lossy;
}

/* The share that is much beside those of all directions, of which each is without its worst
 * partner. Shares differ by factors, so their logarithms are compared. `shares` and `scratch` hold
 * 2 x nodes. */
static double much_beside(const struct mics_segments *left, uint32_t nodes, double *shares,
                          double *scratch)
{
    uint32_t known = 0;

    for (uint32_t i = 0; i < 2 * nodes; i++) {
        const struct direction own = sum_of(left, nodes, i / 2, i % 2);

        if (own.rest.sent > 0)
            shares[known++] = log(fmax(share_of(&own.rest), no_share));
    }
    if (known == 0)
        return least_share;
    const struct mics_class class = mics_class_of(shares, known, scratch);
    return fmax(least_share, exp(class.median + fmax(log(least_times), least_mads * class.mad)));
}

/* Name the worst direction of a node, and take away its pairs, until none is left that loses much:
 * a node that loses what it sends makes that of its partners worse. `left` becomes what is not
 * explained; shares holds 4 x nodes. */
static bool name_worst(struct mics_segments *left, uint32_t nodes, double *shares,
                       struct mics_packet_loss *out, bool *unsure)
{
    const double least = much_beside(left, nodes, shares, shares + 2 * (size_t)nodes);
    uint32_t worst = 0;
    double most = 0;

    *unsure = false;
    for (uint32_t i = 0; i < 2 * nodes; i++) {
        const struct direction own = sum_of(left, nodes, i / 2, i % 2);

        *unsure |= own.all.sent > 0 && own.all.sent < MIN_SEGMENTS;
        if (share_of(&own.rest) < least)
            continue;
        *unsure |= own.rest.again >= SUSPECT_AGAIN;
        const double sure = sure_share(&own.rest, 2 * nodes);
        if (!is_spread(&own) || sure <= most)
            continue;
        most = sure;
        worst = i;
    }
    if (most < least)
        return false;
    const struct direction named = sum_of(left, nodes, worst / 2, worst % 2);
    struct mics_packet_loss *loss = &out[worst / 2];
    loss->bits |= worst % 2 ? MICS_LOSS_RECEIVE : MICS_LOSS_SEND;
    loss->of.sent += named.all.sent;
    loss->of.again += named.all.again;
    for (uint32_t i = 0; i < nodes; i++)
        left[worst % 2 ? i * nodes + worst / 2 : worst / 2 * nodes + i] = (struct mics_segments){0};
    return true;
}

enum mics_status mics_packet_loss_judge(const struct mics_segments *segments, uint32_t nodes,
                                        struct mics_packet_loss *out, bool *unsure,
                                        struct mics_err *err)
{
    const size_t cells = (size_t)nodes * nodes;

    memset(out, 0, nodes * sizeof *out);
    if (nodes == 2) {
        judge_two(segments, out, unsure);
        return MICS_OK;
    }
    struct mics_segments *left = malloc(cells * sizeof *left);
    double *shares = calloc(4 * (size_t)nodes, sizeof *shares);
    const enum mics_status status = left && shares ? MICS_OK : mics_err_nomem(err);
    if (status == MICS_OK) {
        memcpy(left, segments, cells * sizeof *left);
        while (name_worst(left, nodes, shares, out, unsure))
            ;
    }
    free(left);
    free(shares);
    return status;
}
