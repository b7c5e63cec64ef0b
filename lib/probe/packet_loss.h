/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packet_loss.h - which nodes lose packets? By what TCP had to send again while pairs of nodes
 * exchanged data.
 *
 * TCP recovers from a loss of one packet in a thousand, so rates do not show it between nodes that
 * are near each other; across longer ways, or with many connections, they fall.
 */
#ifndef MICS_PROBE_PACKET_LOSS_H
#define MICS_PROBE_PACKET_LOSS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct mics_segments {
    uint64_t sent;  /* by TCP, with those that were sent again */
    uint64_t again; /* without those that the receiver turned out to have */
    /* Of a sum: how many were added up, and those of them with a loss. */
    uint32_t transfers, lossy;
};

/* Count what the open TCP connections of this process have sent so far; 0: it has none. */
struct mics_segments mics_segments_now(void);

/* What was sent between two of them; 0 where one is unknown, or connections were closed
 * meanwhile. */
struct mics_segments mics_segments_between(const struct mics_segments *before,
                                           const struct mics_segments *after);

/* Add what was sent in a transfer, unless nothing was. */
void mics_segments_add(struct mics_segments *sum, const struct mics_segments *transfer);

enum { MICS_LOSS_SEND = 1, MICS_LOSS_RECEIVE = 2 }; /* bits */

/* What a node loses in a direction with all its partners but the worst. */
struct mics_packet_loss {
    unsigned bits;
    struct mics_segments of; /* in these directions */
};

/* Name the nodes that lose packets, by segments[from * nodes + to]: of what they send or receive
 * more than 0.02 % is sent again, also without their worst partner, by at least half of their
 * pairs, in transfers that are not only a few, and much more than what is usual: five times, and so
 * many times as ten median deviations of all nodes are. `out` has room for all nodes. *unsure: more
 * segments would decide whether another one loses as much. With two nodes, loss from one to the
 * other, in at least half of three or more transfers, has the bits of both; as much both ways is
 * not named. */
enum mics_status mics_packet_loss_judge(const struct mics_segments *segments, uint32_t nodes,
                                        struct mics_packet_loss *out, bool *unsure,
                                        struct mics_err *err);

#endif
