/* SPDX-License-Identifier: Apache-2.0 */
/* pair_rates.h - transfers between nodes in the rounds of pairs.h, repeated until the verdict is
 * sure. All functions that measure are collective, with the same results on all ranks. */
#ifndef MICS_PROBE_PAIR_RATES_H
#define MICS_PROBE_PAIR_RATES_H

#include "comm/world.h"
#include "probe/packet_loss.h"
#include "probe/pairs.h"

#include <stdatomic.h>

struct mics_pair_rates_options {
    const struct mics_world *world; /* of two nodes or more */
    struct mics_comm *comm;         /* its ranks in the same order */
    double seconds;                 /* of a transfer between usual nodes */
    double longest_s;               /* of one between the slowest, about; 0: any time */
    uint64_t first_bytes;           /* of a transfer of a rank, before a rate is known */
    uint64_t max_bytes;             /* likewise, at most; first_bytes or more */
    double limit_s;                 /* afterwards no transfer is repeated: a busy machine takes
                                     * longer */
    int stand_outs;                 /* repeats in which what seems slow stood out of the others that
                                     * are enough to be sure, also if all were disturbed; 0: none */
    atomic_uint *transfers;         /* counts them, for other threads; NULL: nothing does */
};

struct mics_pair_transfers;

struct mics_pair_rates {
    double *best;     /* [nodes][nodes] bytes/s from one node to another; 0: not measured */
    double reference; /* what is usual by them */
    uint64_t bytes;   /* of a transfer, all ranks of a node together */
    int repeats;
    struct mics_pair_verdict verdict;
    bool sure;
    uint32_t dropped; /* nodes and pairs that seemed slow, and are not in the verdict */
    struct mics_segments *segments; /* [nodes][nodes] what TCP has sent from one to another */
    struct mics_pair_transfers *transfers;
};

/* Measure all pairs of the rounds twice; those that seem slow again, and fast ones beside them,
 * until none does or they did often enough. As many ranks of each node take part as all nodes have.
 * If the network is too disturbed to be sure, only nodes below half of the usual rate, and two
 * groups that are clearly cut, stay in the verdict. mics_pair_rates_fini() frees *out, also after
 * an error. */
enum mics_status mics_pair_rates_measure(const struct mics_pair_rates_options *options,
                                         struct mics_pair_rates *out, struct mics_err *err);
void mics_pair_rates_fini(struct mics_pair_rates *rates);

/* Is the limit of time reached, by the clock of rank 0? */
bool mics_pair_rates_are_late(const struct mics_pair_rates *rates, enum mics_status *status,
                              struct mics_err *err);
/* All transfers once more, longer ones, but those that are slow, for rates->segments; other results
 * stay. */
enum mics_status mics_pair_rates_send_again(struct mics_pair_rates *rates, struct mics_err *err);

#endif
