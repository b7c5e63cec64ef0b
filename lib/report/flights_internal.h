/* SPDX-License-Identifier: Apache-2.0 */
/* flights_internal.h - documents mics.flight as read, for lib/report/flights*.c. */
#ifndef MICS_REPORT_FLIGHTS_INTERNAL_H
#define MICS_REPORT_FLIGHTS_INTERNAL_H

#include "doc/cursor.h"
#include "report/flights.h"

#include <stdint.h>

#define FLIGHT_NONE UINT32_MAX

enum flight_state { FLIGHT_ENDED, FLIGHT_RUNNING, FLIGHT_DUE };

/* Strings, here and below, belong to the document. */
struct flight_group {
    const char *communicator;
    uint32_t *ranks; /* ascending */
    size_t count;
};

struct flight_op {
    enum flight_state state;
    uint64_t number; /* with `index` the same on all ranks */
    uint32_t step, index, micro_step, sequence;
    const char *of, *does, *subject, *stream;
    const struct flight_group *group; /* NULL: no collective */
    double since, end;                /* seconds of the day's clock; `end` of one that has ended */
};

struct flight_lost {
    uint32_t rank;
    bool dead;
    const char *host, *last_seen;
};

struct flight_rank {
    uint32_t rank, world_size;
    const char *host, *reason, *text, *doing;
    double time, doing_s;
    double suspended_s, suspended_until; /* 0: it was not */
    struct flight_group *groups;
    struct flight_op *ops; /* ended, running, due; each in the order of `since` */
    struct flight_lost *lost;
    size_t group_count, op_count, lost_count;
};

/* *out is the caller's, to flight_rank_fini(), also after an error of the cursor's document. */
void flight_rank_read(const struct mics_cursor *cursor, struct flight_rank *out);
void flight_rank_fini(struct flight_rank *rank);

/* The operation that ended last; the one that the rank is at: what it computes or should begin,
 * before what it waits for. NULL: none. */
const struct flight_op *flight_last_ended(const struct flight_rank *rank);
const struct flight_op *flight_current(const struct flight_rank *rank);

/* "gather of h.2, micro-step 1" */
void flight_op_name(const struct flight_op *op, char *text, size_t size);

#endif
