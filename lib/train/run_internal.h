/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_internal.h - what the files of a run share.
 *
 * `rank0_status` collects failures that only rank 0 may have met (of its observer, for example).
 * The ranks agree on it before the next checkpoint or at the end of a step.
 */
#ifndef MICS_TRAIN_RUN_INTERNAL_H
#define MICS_TRAIN_RUN_INTERNAL_H

#include "train/run.h"

/* The state of this rank, for checkpoints. Valid as long as `run`. */
struct mics_checkpoint mics_run_checkpoint(const struct mics_run *run);

/* Allocate what saving needs. Collective. */
enum mics_status mics_run_open_saver(struct mics_run *run, struct mics_err *err);

/* Begin a checkpoint of the current step, unless that step has one already; none may be under way.
 * All steps must be collected. Collective. */
enum mics_status mics_run_save(struct mics_run *run, struct mics_err *err);
/* Advance the checkpoint under way to its next stage; no rank may still be busy with the present
 * one. Collective. */
enum mics_status mics_run_advance_save(struct mics_run *run, enum mics_status *rank0_status,
                                       struct mics_err *err);
/* Wait for the checkpoint under way, if any, and agree on *rank0_status. Collective. */
enum mics_status mics_run_finish_save(struct mics_run *run, enum mics_status *rank0_status,
                                      struct mics_err *err);

/* Begin to keep the present state in memory; none may be under way, and all steps must be
 * collected. Collective. */
enum mics_status mics_run_begin_keep(struct mics_run *run, struct mics_err *err);
/* Complete the state under way while `step` is computed; waits for the threads of all ranks.
 * Collective. */
enum mics_status mics_run_end_keep(struct mics_run *run, uint64_t step,
                                   enum mics_status *rank0_status, struct mics_err *err);

/* What follows from the status of a state that was kept: after a failure of the node's memory or of
 * a copy, training goes on. */
enum mics_status mics_run_survive_keep(struct mics_run *run, uint64_t step, enum mics_status status,
                                       enum mics_status *rank0_status, struct mics_err *err);

/* *value = its sum over all ranks. Collective. */
enum mics_status mics_run_sum(struct mics_run *run, uint64_t *value, struct mics_err *err);

/* Find slow ranks: open and close what it takes, note the step that was just collected, and once
 * there is a window of them (run->slow.steps) judge all ranks and report those that have become
 * slow. open and judge are collective. */
enum mics_status mics_run_slow_open(struct mics_run *run, struct mics_err *err);
void mics_run_slow_close(struct mics_run *run);
void mics_run_slow_note(struct mics_run *run, const struct mics_step_result *result,
                        double seconds);
enum mics_status mics_run_slow_judge(struct mics_run *run, enum mics_status *rank0_status,
                                     struct mics_err *err);
/* Measure the links between nodes, when rank 0 has set run->slow.measure_links, and report those
 * that have become slow. All steps must be collected. Collective. */
enum mics_status mics_run_slow_measure_links(struct mics_run *run, enum mics_status *rank0_status,
                                             struct mics_err *err);
/* Training goes on, with no step in flight. */
void mics_run_slow_resume(struct mics_run *run);

/* A warning, on rank 0. */
void mics_run_warn(const struct mics_run *run, const char *fmt, ...) MICS_PRINTF(2, 3);
/* On rank 0, pass an event to the observer. Takes the reference. */
void mics_run_report_fault(const struct mics_run *run, json_t *event,
                           enum mics_status *rank0_status, struct mics_err *err);

/* Warn if experts with a capacity drop more than half of all rows in the first step. */
void mics_run_warn_dropped(const struct mics_run *run, const struct mics_step_record *record);

/* A step whose loss or gradient is not finite changed nothing, because the gradient is clipped.
 * Skip it, unless that is not asked for or was done too often in a row. */
enum mics_status mics_run_check_finite(struct mics_run *run, const struct mics_step_record *record,
                                       enum mics_status *rank0_status, struct mics_err *err);

/* What follows from the status of a save, the same on all ranks: after a failure of the disk,
 * training goes on unless it was one too many. */
enum mics_status mics_run_survive_save(struct mics_run *run, enum mics_status status,
                                       enum mics_status *rank0_status, struct mics_err *err);

/* Replace the initial parameters by those of options->init. Collective. */
enum mics_status mics_run_load_init(struct mics_run *run, struct mics_err *err);
/* fp16's first loss scale; nothing in other types. */
enum mics_status mics_run_start_loss_scale(struct mics_run *run, struct mics_err *err);

/* The member "training" of a checkpoint's manifest: data and settings. *out: a new reference. */
enum mics_status mics_run_training_json(const struct mics_run *run, json_t **out,
                                        struct mics_err *err);

#endif
