/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_check.h - compares what a plan predicted with what a run measured, by class of operation,
 * and finds the assumption of the prediction that was off most.
 */
#ifndef MICS_REPORT_PLAN_CHECK_H
#define MICS_REPORT_PLAN_CHECK_H

#include "plan/plan.h"

#include <stdio.h>

#define MICS_PLAN_CHECK_VERSION 1

/* Medians over steps. */
struct mics_step_times {
    double step_s;
    struct mics_class_times classes;
};

struct mics_step_sample {
    uint64_t step;
    struct mics_step_times times;
};

struct mics_step_samples {
    struct mics_step_sample *items;
    size_t count, capacity;
};

/* What was measured of one start of a run. */
struct mics_measured {
    struct mics_step_samples steps;   /* all, with step_s only */
    struct mics_step_samples sampled; /* those with times by class */
    size_t limit;                     /* of each, the last ones are kept; 0: no limit */
    uint64_t comm_bytes;              /* of the communicators of rank 0, on a GPU */
    uint64_t peak_rss_bytes;          /* of rank 0 */
    const char *state;                /* "done", "stopped", or "not ended" */
};

/* Add a step to `steps` or, with `classes`, to `sampled`. */
enum mics_status mics_measured_add(struct mics_measured *measured, uint64_t step, double step_s,
                                   const struct mics_class_times *classes, struct mics_err *err);
/* Forget everything but the limit. */
void mics_measured_clear(struct mics_measured *measured);
/* All zeros is fine. */
void mics_measured_fini(struct mics_measured *measured);

/* What the prediction rests on. */
enum mics_assumption {
    MICS_ASSUME_COMPUTE, /* FLOP/s of forward and backward */
    MICS_ASSUME_UPDATE,  /* memory bandwidth of norms and updates */
    MICS_ASSUME_NET,     /* bytes/s through a node's network cards */
    MICS_ASSUME_NODE,    /* bytes/s that a rank sends inside its node */
    MICS_ASSUME_OFFLOAD, /* bytes/s of copies of optimizer states to and from host memory */
    MICS_ASSUME_SCALARS, /* seconds of the sums of scalars of a step: latency */
    MICS_ASSUME_OTHER,   /* seconds of a step without computation or exposed exchange */
    MICS_ASSUME_COUNT
};

struct mics_assumption_check {
    double predicted, measured; /* 0: the step has nothing of it */
    double added_s;    /* by which it made a step longer than predicted; negative: shorter */
    double busy_ratio; /* measured / predicted seconds in which it was in use; NAN: none */
};

struct mics_plan_check {
    char metrics[1024]; /* path; empty: measured in this process */
    struct mics_plan *plan;
    const char *state;    /* as in struct mics_measured */
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

/* Compare. `plan` stays the caller's, and the check must not outlive it; its times by class are
 * computed if it has none. MICS_ERR_INFEASIBLE: there is no step. MICS_ERR_FORMAT: there are no
 * times by class. */
enum mics_status mics_plan_check_measured(struct mics_plan *plan,
                                          const struct mics_measured *measured,
                                          struct mics_plan_check *out, struct mics_err *err);

/* `path`: the folder of a run, or its metrics; only the last start in them counts. `plan_path`:
 * NULL: plan.mp beside the metrics. On success the caller calls mics_plan_check_fini().
 * MICS_ERR_FORMAT: the metrics are damaged, have no times by class, or are of another plan.
 * MICS_ERR_INFEASIBLE: no step is complete. Errors begin with the path. */
enum mics_status mics_plan_check_run(const char *path, const char *plan_path,
                                     struct mics_plan_check *out, struct mics_err *err);
void mics_plan_check_fini(struct mics_plan_check *check);

/* The assumption with the largest |added_s|; MICS_ASSUME_COUNT: none adds or saves 2 % of the
 * predicted step. */
enum mics_assumption mics_plan_check_worst(const struct mics_plan_check *check);

/* Where the measured step is, relative to the predicted range. */
enum mics_range_verdict {
    MICS_RANGE_UNKNOWN, /* the plan has no range */
    MICS_RANGE_INSIDE,
    MICS_RANGE_SHORTER,
    MICS_RANGE_LONGER,
    MICS_RANGE_VERDICT_COUNT
};
enum mics_range_verdict mics_plan_check_range(const struct mics_plan_check *check);

/* The document "mics.plan_check", which belongs to the caller. */
enum mics_status mics_plan_check_to_doc(const struct mics_plan_check *check, json_t **out,
                                        struct mics_err *err);

/* Only times by class of operation, and the sentence on the worst assumption. */
enum mics_status mics_plan_check_print_brief(FILE *out, const struct mics_plan_check *check,
                                             struct mics_err *err);

/* Tables, and a sentence on the worst assumption. */
enum mics_status mics_plan_check_print(FILE *out, const struct mics_plan_check *check, int tsv,
                                       struct mics_err *err);

#endif
