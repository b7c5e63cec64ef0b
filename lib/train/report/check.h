/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - compares what a plan predicted with what a run measured, by class of operation, and
 * finds the assumption of the prediction that was off most.
 */
#ifndef MICS_TRAIN_REPORT_CHECK_H
#define MICS_TRAIN_REPORT_CHECK_H

#include "plan/plan.h"

#include <stdio.h>

#define MICS_CHECK_VERSION 1

/* Medians over steps. */
struct mics_step_times {
    double step_s;
    struct mics_class_times classes;
};

/* What the prediction rests on. */
enum mics_assumption {
    MICS_ASSUME_COMPUTE, /* FLOP/s of forward and backward */
    MICS_ASSUME_UPDATE,  /* memory bandwidth of norms and updates */
    MICS_ASSUME_NET,     /* bytes/s through a node's network cards */
    MICS_ASSUME_NODE,    /* bytes/s that a rank sends inside its node */
    MICS_ASSUME_SCALARS, /* seconds of the sums of scalars of a step: latency */
    MICS_ASSUME_OTHER,   /* seconds of a step without computation or exposed exchange */
    MICS_ASSUME_COUNT
};

struct mics_assumption_check {
    double predicted, measured; /* 0: the step has nothing of it */
    double added_s;    /* by which it made a step longer than predicted; negative: shorter */
    double busy_ratio; /* measured / predicted seconds in which it was in use; NAN: none */
};

struct mics_check {
    char metrics[1024]; /* path */
    struct mics_plan *plan;
    const char *state;    /* "done", "stopped", or "not ended" */
    uint64_t first, last; /* steps that were measured; without the first of the run, which
                                 * includes the start, if there are more */
    uint64_t samples;     /* of them with times by class */
    struct mics_step_times measured, predicted;
    double tokens_per_s;      /* measured */
    uint64_t memory_bytes;    /* of rank 0, measured: resident in host memory (its peak), or on a
                                 * GPU the arena and the communicators */
    uint64_t predicted_bytes; /* the same, predicted */
    struct mics_assumption_check assumptions[MICS_ASSUME_COUNT];
};

/* `path`: the folder of a run, or its metrics; only the last start in them counts. `plan_path`:
 * NULL: plan.mp beside the metrics. On success the caller calls mics_check_fini().
 * MICS_ERR_FORMAT: the metrics are damaged, have no times by class, or are of another plan.
 * MICS_ERR_INFEASIBLE: no step is complete. Errors begin with the path. */
enum mics_status mics_check_run(const char *path, const char *plan_path, struct mics_check *out,
                                struct mics_err *err);
void mics_check_fini(struct mics_check *check);

/* The assumption with the largest |added_s|; MICS_ASSUME_COUNT: none adds or saves 2 % of the
 * predicted step. */
enum mics_assumption mics_check_worst(const struct mics_check *check);

/* The document "mics.check", which belongs to the caller. */
enum mics_status mics_check_to_doc(const struct mics_check *check, json_t **out,
                                   struct mics_err *err);

/* Tables, and a sentence on the worst assumption. */
enum mics_status mics_check_print(FILE *out, const struct mics_check *check, int tsv,
                                  struct mics_err *err);

#endif
