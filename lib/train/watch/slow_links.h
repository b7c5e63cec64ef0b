/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_links.h - the nodes whose network is slow, in which direction, or towards which node.
 *
 * A slow link delays all collectives between nodes, and so all ranks alike: no rank's times tell
 * which it is. What a kernel counts of a connection (rates, retransmissions, times with full
 * buffers) does not either, because a connection waits for the slowest node of a collective,
 * whichever that is, and for processors. So where the ranks wait long enough for collectives, and
 * for no rank that is slow in itself, pairs of nodes are measured between two steps, as mics-check
 * does (probe/pair_rates.h), and judged by the same rules.
 *
 * A slow rate is named only if it explains the steps. What it has cost is at most the time that the
 * bytes of a step take longer at it than at the usual rate, and at most the time for which no rank
 * had anything else to do than wait for collectives. If the bytes would have taken longer than all
 * collectives did, then these do not use that link, or it was slow only while it was measured.
 */
#ifndef MICS_TRAIN_WATCH_SLOW_LINKS_H
#define MICS_TRAIN_WATCH_SLOW_LINKS_H

#include "probe/pairs.h"
#include "train/watch/slow_ranks.h"

/* Steps that all ranks have collected, in means of a step. */
struct mics_slow_waits {
    double step_s;
    double comm_s;    /* with a collective under way; on the rank with the most of it */
    double exposed_s; /* with one but without computing, on the rank with the least of it */
};

/* By the windows[size] of all ranks. */
struct mics_slow_waits mics_slow_waits_of(const struct mics_slow_window *windows, uint32_t size);

/* Do ranks wait so long for collectives that a slow link may have cost enough to be named? */
bool mics_slow_waits_are_long(const struct mics_slow_waits *waits);

enum mics_slow_direction {
    MICS_SLOW_SENDING,
    MICS_SLOW_RECEIVING,
    MICS_SLOW_BOTH,
    MICS_SLOW_PAIR,   /* sending from one node to one other */
    MICS_SLOW_GROUPS, /* all nodes of one group to and from all of another */
};

struct mics_slow_link {
    enum mics_slow_direction direction;
    uint32_t node, other;     /* `other`: of a pair; of groups: the first node of each */
    double rate, others_rate; /* bytes/s */
    double cost;              /* share of the time of the window, at most */
};

struct mics_slow_links;

enum mics_status mics_slow_links_open(uint32_t nodes, struct mics_slow_links **out,
                                      struct mics_err *err);
void mics_slow_links_close(struct mics_slow_links *links); /* NULL is fine */

/* Judge what was measured: `verdict`, which is sure, beside the usual rate `reference`;
 * sent_bytes[nodes] in a step to other nodes. Points *out to the links to name, whose number it
 * returns: those that have become slow since they were not; valid until the next call. Which are
 * slow is remembered. Allocates nothing. */
size_t mics_slow_links_judge(struct mics_slow_links *links, const struct mics_pair_verdict *verdict,
                             double reference, const struct mics_slow_waits *waits,
                             const double *sent_bytes, const struct mics_slow_link **out);

#endif
