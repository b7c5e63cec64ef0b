/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - all that a training run needs, opened in order and closed in reverse.
 *
 * Every rank calls the same functions; a failure of any rank in opening is a failure of all, with one
 * text. Only rank 0 reads the plan and changes the output folder.
 */
#ifndef MICS_TRAIN_JOB_H
#define MICS_TRAIN_JOB_H

#include "comm/job_device.h"
#include "train/watch/fault.h"
#include "train/run.h"
#include "train/watch/startup.h"

#define MICS_JOB_MAX_GIVEN 64

/* A setting of the command line: it holds over a checkpoint's. */
struct mics_given {
    const char *name, *text;
};

struct mics_job_options {
    const char *plan;            /* path, "-" for standard input; NULL: the checkpoint's own plan */
    const char *const *patterns; /* of the data */
    size_t pattern_count;
    const char *out;
    const char
        *resume; /* path of a checkpoint or of a run's folder; "auto": in `out`, if any; NULL */
    const char *init; /* as in struct mics_run_options */
    bool other_data, overwrite;
    uint64_t save_every;
    struct mics_keep keep;
    enum mics_device_kind kind;
    bool paced;        /* nothing is computed: operations only take their time */
    const char *pace;  /* path of the plan whose times they are; NULL: the plan itself */
    const char *trace; /* file for the trace; NULL: none */
    uint64_t trace_first, trace_last; /* steps in it; 0: the last three of the run */
    struct mics_given given[MICS_JOB_MAX_GIVEN];
    size_t given_count;
    int argc; /* for the history */
    char **argv;
    bool no_history;
    struct mics_startup *startup; /* told what the start is at; or NULL */
};

struct mics_job {
    const struct mics_job_options *options;
    struct mics_world *world;
    struct mics_comm *control;
    json_t *plan_doc, *history_doc, *checkpoint_doc; /* the last NULL: a new run */
    char out[MICS_PATH_MAX], checkpoint[MICS_PATH_MAX];
    struct mics_settings settings;
    struct mics_plan *plan;
    struct mics_data data;
    int lock; /* of `out`, on rank 0; -1 */
    unsigned threads;
    struct mics_job_device chosen;
    struct mics_device *device; /* the chosen one */
    struct mics_comm *comm;     /* the world's ranks, for memory of the device */
    struct mics_fault fault;
    struct mics_engine *engine;
    struct mics_trace trace; /* of options->trace */
    double *pace;            /* of options->paced */
};

/* The world and the control communicator: before it there is no way to fail together. */
enum mics_status mics_job_join(struct mics_job *job, const struct mics_job_options *options,
                               struct mics_err *err);
/* Everything else. Collective. */
enum mics_status mics_job_open(struct mics_job *job, struct mics_err *err);
/* Begin or resume. Collective; run->alone tells of a failure that is this rank's alone. */
enum mics_status mics_job_start(struct mics_job *job, const struct mics_run_observer *observer,
                                struct mics_run *run, struct mics_err *err);
/* Write the trace that was asked for; *steps is how many are in it. Collective. */
enum mics_status mics_job_write_trace(struct mics_job *job, uint32_t *steps, struct mics_err *err);
/* Collective. What was not opened is passed over. */
void mics_job_close(struct mics_job *job);

#endif
