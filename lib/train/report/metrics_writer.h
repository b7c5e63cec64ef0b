/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_writer.h - writes the metrics of a run (report/metrics.h). */
#ifndef MICS_TRAIN_REPORT_METRICS_WRITER_H
#define MICS_TRAIN_REPORT_METRICS_WRITER_H

#include "comm/comm.h"
#include "model/model.h"
#include "plan/op_class.h"
#include "report/metrics.h"

#include <stdint.h>

struct mics_step_record {
    uint64_t step;
    double loss, lr, grad_norm;
    double seconds, tokens_per_s;
    double compute_s, comm_s, exposed_s; /* of rank 0's timeline */
    struct mics_comm_cpu cpu;            /* of rank 0, for communication */
    /* Sent by all ranks in second hops, and what exact ones of all units would have sent; 0: that
     * is what they are. */
    uint64_t sync_bytes, exact_sync_bytes;
    /* In fp16: the loss scale of the step and of the next; else 0. After an overflow nothing was
     * updated; at_minimum: and the loss scale is the least already. With outer steps of any
     * replica, `skipped` of them; the scale is that of the first. */
    double loss_scale, next_loss_scale;
    bool overflow, at_minimum;
    uint32_t skipped;
    /* Statistics of the step of a model with experts, and their summary; else NULL. */
    const struct mics_model *model;
    const double *stats;
    const struct mics_router_summary *router;
    /* The same by class; NULL: not sampled in this step. */
    const struct mics_class_times *classes;
};

struct mics_metrics;

/* Overwrite the file, or append to it after removing an incomplete last line. NULL path: *out is
 * NULL, and the functions below do nothing. Errors begin with the path. */
enum mics_status mics_metrics_open(const char *path, bool append, struct mics_metrics **out,
                                   struct mics_err *err);
enum mics_status mics_metrics_close(struct mics_metrics *metrics, struct mics_err *err);

/* Write the line of a step. Allocates nothing. */
enum mics_status mics_metrics_step(struct mics_metrics *metrics,
                                   const struct mics_step_record *record, struct mics_err *err);
/* Write the line of any other event, and release the reference. NULL means out of memory. */
enum mics_status mics_metrics_event(struct mics_metrics *metrics, json_t *event,
                                    struct mics_err *err);

#endif
