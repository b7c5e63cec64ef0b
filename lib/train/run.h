/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - a training run: steps, validation, checkpoints, wishes.
 *
 * Every rank of a job calls the same functions in the same order. A failure that all ranks share (the loss
 * is not finite, a checkpoint cannot be written) is returned by all of them; after a failure of one alone
 * (its device, its communicators) `alone` is set there, and it must end the job by abort.
 */
#ifndef MICS_TRAIN_RUN_H
#define MICS_TRAIN_RUN_H

#include "ckpt/saver.h"
#include "data/data.h"
#include "engine/engine.h"
#include "train/report/metrics.h"
#include "train/settings.h"
#include "train/report/trace.h"

#include <stdatomic.h>

/* Told on rank 0 only, between steps. A failure ends the run on all ranks. Members may be NULL. */
struct mics_run_observer {
    enum mics_status (*step)(void *context, const struct mics_step_record *record,
                             struct mics_err *err);
    enum mics_status (*val)(void *context, uint64_t step, double loss, double tokens,
                            double seconds, struct mics_err *err);
    enum mics_status (*saved)(void *context, uint64_t step, const struct mics_saved *saved,
                              double seconds, struct mics_err *err);
    void (*note)(const struct mics_device_note *note); /* a line of the device; on every rank */
    void *context;
};

/* All outlive the run. */
struct mics_run_options {
    const struct mics_settings *settings; /* resolved */
    const struct mics_plan *plan;
    json_t *plan_doc, *history; /* for the checkpoints; rank 0 needs them */
    struct mics_world *world;
    struct mics_comm *control; /* of all ranks in world order, for nothing else */
    struct mics_engine *engine;
    struct mics_device *device; /* the engine's */
    const struct mics_data *data;
    const char *out;     /* folder of the run */
    const char *init;    /* model on disk whose parameters a new run begins with, or NULL */
    uint64_t save_every; /* 0: at the end only */
    struct mics_keep keep;
    bool paced; /* nothing is computed, so nothing is begun, validated or saved */
    struct mics_run_observer observer;
    struct mics_trace *trace; /* of this rank; NULL: none */
};

enum mics_run_end { MICS_RUN_DONE, MICS_RUN_STOPPED };

struct mics_run {
    struct mics_run_options options;
    struct mics_ckpt_form form;
    struct mics_lr lr;
    uint64_t step, samples; /* done */
    uint64_t base_step, base_samples;
    uint64_t global_batch;
    double pause_s;              /* since the last step ended */
    double slowest_s;            /* step */
    struct mics_step_record sum; /* over the steps of this run: times */
    uint64_t counted;            /* steps in `sum` */
    uint64_t net_bytes;          /* sent between nodes by all ranks, once all steps are done */
    double recent_loss[50];      /* ring of the last losses */
    struct mics_saver *saver;
    char last_checkpoint[MICS_PATH_MAX]; /* empty: none */
    uint64_t saved_step;                 /* begun */
    atomic_bool saves;                   /* a checkpoint is being written; the watchdog looks */
    atomic_uint_fast64_t told_step;      /* the step that was submitted last, for the same */
    uint32_t *words; /* [world_size] what the ranks tell each other once a step */
    bool alone;      /* a failure that the other ranks may not know of: the job must be aborted */
};

enum mics_status mics_run_init(struct mics_run *run, const struct mics_run_options *options,
                               struct mics_err *err);
void mics_run_fini(struct mics_run *run); /* of zeros is fine */

/* Parameters from the seed, or from options->init. */
enum mics_status mics_run_begin(struct mics_run *run, struct mics_err *err);

/* State, step and samples of a checkpoint whose manifest is `doc`. Its data must be the present data
 * (same fingerprint, split and sequence length), unless `other_data` allows others. */
enum mics_status mics_run_resume(struct mics_run *run, const char *folder, json_t *doc,
                                 bool other_data, struct mics_err *err);
/* The settings in a manifest. */
enum mics_status mics_run_read_settings(const json_t *doc, struct mics_settings *settings,
                                        struct mics_err *err);

/* Train to the last step, or until all ranks agree to stop; then a checkpoint has been written. */
enum mics_status mics_run_steps(struct mics_run *run, enum mics_run_end *end, struct mics_err *err);

/* Mark a failure as this rank's alone. Returns `status`. */
enum mics_status mics_run_alone(struct mics_run *run, enum mics_status status);

/* Mean loss of the last steps of this run, at most 50. NaN: no steps. */
double mics_run_recent_loss(const struct mics_run *run);

#endif
