/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - everything that a training run needs, opened in order and closed in reverse.
 *
 * Every rank calls the same functions. While a job is opened, a failure on any rank is returned on
 * all ranks with the same text. Only rank 0 reads the plan and changes the output folder.
 */
#ifndef MICS_TRAIN_JOB_H
#define MICS_TRAIN_JOB_H

#include "ckpt/memory/memory_saver.h"
#include "ckpt/memory/recover.h"
#include "comm/job_device.h"
#include "data/disk_tokenizer.h"
#include "train/run.h"
#include "train/watch/fault_injection.h"
#include "train/watch/startup_watchdog.h"

#define MICS_JOB_MAX_OVERRIDES 64

struct mics_job_options {
    const char *plan;            /* path, "-" for standard input; NULL: the checkpoint's own plan */
    const char *const *patterns; /* of the data */
    size_t pattern_count;
    const char *const
        *val_patterns; /* of data for validation only; with `eval` of what to evaluate */
    size_t val_pattern_count;
    const char *tokenizer;  /* file or folder, "bytes"; NULL: bytes */
    const char *end_token;  /* what ends documents, an id or a text; NULL: as the tokenizer says */
    const char *mask_token; /* what masks tokens, likewise */
    const char *pack; /* see mics_pack_parse(); NULL: the checkpoint's, concat for a new run */
    bool mask_prompt, binary; /* see struct mics_data_options */
    bool mask_whole_words;    /* see struct mics_masking_options */
    uint64_t bad_lines;
    const char *out;
    const char *resume; /* a checkpoint or a run's folder; "auto": `out` if it has one; or NULL */
    const char *init;   /* as in struct mics_run_options */
    bool other_data, overwrite;
    bool eval; /* of `init` on all of the data; nothing is trained or written */
    uint64_t save_every;
    struct mics_keep keep;
    int64_t memory_every;  /* steps between states kept in memory, 0: none; -1: as the plan says */
    int64_t memory_copies; /* nodes that have each shard of them; -1: as the plan says */
    uint64_t max_save_failures, max_nonfinite, skip_first, skip_last; /* struct mics_run_options */
    enum mics_device_kind kind;
    bool paced;        /* nothing is computed: each operation only takes its predicted time */
    const char *pace;  /* path of the plan whose predicted times are used; NULL: the job's plan */
    const char *trace; /* path for the trace; NULL: none */
    uint64_t trace_first, trace_last; /* steps in it; 0: the last three of the run */
    struct mics_train_setting_override overrides[MICS_JOB_MAX_OVERRIDES];
    size_t override_count;
    int argc; /* for the history */
    char **argv;
    bool no_history;
    struct mics_startup_watchdog *startup; /* informed of each start-up phase; or NULL */
};

/* State in the memory of nodes: job_memory.h. */
struct mics_job_memory {
    struct mics_memory_ckpt_record record;
    bool has_record;
    bool retained; /* nothing is kept, but the state that the job continued from is still there */
    struct mics_memory_state state;         /* with a document: the job continues from it */
    char folder[MICS_PATH_MAX];             /* of this node */
    int lock;                               /* of this rank in it; -1: none */
    struct mics_memory_saver *memory_saver; /* NULL: none is kept */
    uint64_t every;                         /* steps; 0: none is kept */
    uint32_t copies;
    char disk[MICS_PATH_MAX]; /* the newest checkpoint, if the job continues from memory */
    char note[2][MICS_PATH_MAX +
                 512]; /* for people, on rank 0: why not from memory, why none is kept; or empty */
};

struct mics_job {
    const struct mics_job_options *options;
    struct mics_world *world;
    struct mics_comm *control;
    json_t *plan_doc, *history_doc;
    json_t *checkpoint_doc; /* NULL: a new run */
    char out[MICS_PATH_MAX], checkpoint[MICS_PATH_MAX];
    struct mics_train_settings settings;
    struct mics_plan *plan;
    struct mics_disk_tokenizer tokenizer; /* job_tokenizer.h */
    json_t *tokenizer_doc;                /* for checkpoints; NULL: not known */
    struct mics_data data;
    struct mics_masking masking; /* of `data`, if the model predicts masked tokens */
    struct mics_lock lock;       /* of `out`, on rank 0 */
    struct mics_job_memory memory;
    unsigned threads;
    struct mics_job_device chosen;
    struct mics_device *device; /* the chosen one */
    struct mics_comm *comm;     /* all ranks, for memory of the device */
    struct mics_fault_injection fault;
    struct mics_engine *engine;
    struct mics_trace trace; /* if options->trace */
    double *op_durations;    /* [operations] seconds, if options->paced */
};

/* Open the world and the control communicator. Before that, ranks cannot agree on a failure. */
enum mics_status mics_job_join(struct mics_job *job, const struct mics_job_options *options,
                               struct mics_err *err);
/* Open everything else. Collective. */
enum mics_status mics_job_open(struct mics_job *job, struct mics_err *err);
/* Initialise or resume the run. Collective; run->local_failure is set if only this rank failed. */
enum mics_status mics_job_start(struct mics_job *job, const struct mics_run_observer *observer,
                                struct mics_run *run, struct mics_err *err);
/* Write the trace to options->trace; *steps: how many it has. Collective. */
enum mics_status mics_job_write_trace(struct mics_job *job, uint32_t *steps, struct mics_err *err);
/* Close whatever has been opened. Collective. */
void mics_job_close(struct mics_job *job);

#endif
