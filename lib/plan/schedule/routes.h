/* SPDX-License-Identifier: Apache-2.0 */
/*
 * routes.h - which communicator and stream each exchange of a strategy takes.
 *
 * Exchanges between nodes go to the net streams, those inside a node to the node streams, so that the two
 * stages of a hierarchical one can overlap, and gathers never queue behind reductions.
 */
#ifndef MICS_PLAN_SCHEDULE_ROUTES_H
#define MICS_PLAN_SCHEDULE_ROUTES_H

#include "plan/schedule/schedule.h"

/* One stage of an exchange: `share` of the segment's elements is the gathered size, as 1 / divisor. */
struct mics_hop {
    enum mics_comm_kind comm;
    enum mics_stream_kind stream;
    uint32_t divisor; /* gathered size = segment_count / divisor */
};

/* Hops in the order in which they run; a count of 0 means that there is nothing to exchange. */
struct mics_exchange {
    struct mics_hop hops[2];
    uint32_t hop_count;
};

struct mics_wiring {
    struct mics_exchange gather, reduce, scatter, sync, publish;
    enum mics_stream_kind accumulate; /* stream of the last reduce hop */
};

struct mics_wiring mics_wiring_of(const struct mics_plan_choice *choice);

#endif
