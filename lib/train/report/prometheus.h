/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prometheus.h - the state of a run in Prometheus' text format, for the textfile collector of its
 * node exporter.
 */
#ifndef MICS_TRAIN_REPORT_PROMETHEUS_H
#define MICS_TRAIN_REPORT_PROMETHEUS_H

#include "base/err.h"

/* Gauges and counters; NaN: not known, and not written. */
struct mics_prometheus_values {
    double step, last_step; /* done; of the whole run */
    double epoch;
    double loss, validation_loss, grad_norm, learning_rate;
    double tokens; /* trained on, since the beginning of training */
    double step_seconds, exposed_seconds, remaining_seconds;
    double utilization;          /* model FLOP/s of the peak, 0 to 1 */
    double step_timestamp;       /* Unix seconds at the end of the last step */
    double checkpoint_step;      /* of the last checkpoint */
    double checkpoint_timestamp; /* when it was complete */
    double restarts;             /* starts of the run after its first */
    double finished;             /* 1: the last step is done */
};

/* Labels that distinguish the runs of a machine. */
struct mics_prometheus_labels {
    const char *run; /* the run's folder, absolute; on each metric */
    const char *model;
    const char *job_id; /* of the batch system; "" : none */
};

/* Replace the file at once. It is not fsynced: it is rewritten all the time, and old values are
 * useless after a crash of the machine. Errors begin with the path. */
enum mics_status mics_prometheus_write(const char *path,
                                       const struct mics_prometheus_labels *labels,
                                       const struct mics_prometheus_values *values,
                                       struct mics_err *err);

/* The number of restarts in an earlier file of the same run; -1: there is none. */
double mics_prometheus_read_restarts(const char *path, const struct mics_prometheus_labels *labels);

#endif
