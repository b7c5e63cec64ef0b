/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outputs.h - the files that are written during a run: metrics, TensorBoard, Prometheus.
 *
 * A failed output never stops training: it is reported once and tried again every half minute.
 *
 * Rank 0 writes them from the training loop while the next step computes. Nothing is fsynced, and
 * TensorBoard and Prometheus get a write each second at most.
 */
#ifndef MICS_TRAIN_REPORT_OUTPUTS_H
#define MICS_TRAIN_REPORT_OUTPUTS_H

#include "train/report/metrics_writer.h"
#include "train/report/prometheus.h"
#include "train/report/tensorboard.h"

enum mics_output { MICS_OUTPUT_METRICS, MICS_OUTPUT_TENSORBOARD, MICS_OUTPUT_PROMETHEUS };
enum { MICS_OUTPUT_COUNT = MICS_OUTPUT_PROMETHEUS + 1 };

/* The strings outlive the outputs. */
struct mics_outputs_options {
    const char *paths[MICS_OUTPUT_COUNT]; /* NULL: not wanted */
    bool append;                          /* to the metrics: this is not the run's first start */
    uint64_t restarts;                    /* at least so many starts were before; 0: not known */
    uint64_t first_step;                  /* of this run */
    struct mics_prometheus_labels labels;
    void (*warn)(const char *text); /* NULL: failures are not reported */
};

struct mics_outputs {
    struct mics_outputs_options options;
    struct mics_metrics *metrics;
    struct mics_tensorboard *tensorboard;
    struct mics_prometheus_values values; /* the caller's to keep up to date */
    json_t *run;                          /* the first line of the metrics, until it is written */
    double retry_s[MICS_OUTPUT_COUNT];    /* when to open it again; 0: it is open */
    bool warned[MICS_OUTPUT_COUNT];
    double published_s; /* when Prometheus' file was written */
};

/* `run`: the event "run", which the outputs take; NULL: out of memory. At a run's first start all
 * outputs must open, else the first failure is returned and nothing stays open; later starts go on
 * without those that fail, and try them again. */
enum mics_status mics_outputs_open(struct mics_outputs *outputs,
                                   const struct mics_outputs_options *options, json_t *run,
                                   struct mics_err *err);
/* The values of a step. `utilization`: model FLOPs utilisation. */
void mics_outputs_step(struct mics_outputs *outputs, const struct mics_step_record *record,
                       double utilization);
void mics_outputs_val(struct mics_outputs *outputs, uint64_t step, double loss);
/* Write an event to the metrics, and release the reference. */
void mics_outputs_event(struct mics_outputs *outputs, json_t *event);
/* Write what is not written yet. All zeros is fine. */
void mics_outputs_close(struct mics_outputs *outputs);

#endif
