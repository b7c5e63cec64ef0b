/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_ranks.h - the ranks that all others wait for, and what they are slow in.
 *
 * All ranks of a job have the same step time, so a slow rank does not show in it. The slow one is
 * the one that waits least: it computes, or waits for its samples, for longer than the others,
 * which meanwhile wait for it in collectives. A rank is judged by windows of steps. In a window it
 * is slow if it is above the median of the other ranks in three of four steps, and on the whole by
 * more than noise would put it there; from then on it is slow until that costs little, noise or
 * not. What that costs is the median difference, or the time by which the others have waited longer
 * than it in collectives, if that is less: a delay that communication hides costs nothing.
 *
 * Each rank collects its own steps; the windows of all ranks are judged together.
 */
#ifndef MICS_TRAIN_WATCH_SLOW_RANKS_H
#define MICS_TRAIN_WATCH_SLOW_RANKS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MICS_SLOW_WINDOW = 20, /* steps */
    MICS_SLOW_SKIPPED = 2, /* steps at the beginning of a run, in which libraries settle */
};

enum mics_slow_cause { MICS_SLOW_COMPUTING, MICS_SLOW_READING, MICS_SLOW_CAUSES };

/* What a rank did in a step, in seconds. */
struct mics_slow_step {
    float step_s;    /* the whole of it */
    float compute_s; /* computing what all ranks compute */
    float read_s;    /* without a step to compute, because its samples were not read yet */
    float comm_s;    /* with a collective under way, also one that waits for other ranks */
    float exposed_s; /* the part of comm_s without computing */
};

/* The steps of one rank. */
struct mics_slow_window {
    struct mics_slow_step steps[MICS_SLOW_WINDOW];
};

struct mics_slow_rank {
    enum mics_slow_cause cause;
    uint32_t rank;      /* of several of a node the slowest */
    uint32_t ranks;     /* of its node that are slow in this and were not in the window before */
    double s, others_s; /* medians over steps: of the rank, and of the median of the others */
    double cost;        /* share of the time of the window */
};

struct mics_slow_ranks;

/* node_of[size]: the node of each rank, ascending. It is copied. size >= 2. */
enum mics_status mics_slow_ranks_open(uint32_t size, const uint32_t *node_of,
                                      struct mics_slow_ranks **out, struct mics_err *err);
void mics_slow_ranks_close(struct mics_slow_ranks *slow); /* NULL is fine */

/* Judge the windows[size] of all ranks. Points *out to the `count` ranks to name: those that have
 * become slow in something since they were not; valid until the next call. Which ranks are slow is
 * remembered. Allocates nothing. */
size_t mics_slow_ranks_judge(struct mics_slow_ranks *slow, const struct mics_slow_window *windows,
                             const struct mics_slow_rank **out);

const char *mics_slow_cause_name(enum mics_slow_cause cause); /* "computing" */

#endif
