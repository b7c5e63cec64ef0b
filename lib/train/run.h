/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - a training run: steps, validation, checkpoints, requests to save or stop.
 *
 * Every rank of a job calls the same functions in the same order. A failure that all ranks share
 * (the loss is not finite, a checkpoint cannot be written) is returned on all of them. After a
 * failure that the other ranks may not know of (this rank's device, its communicators)
 * `local_failure` is set, and the rank must end the job by aborting it.
 */
#ifndef MICS_TRAIN_RUN_H
#define MICS_TRAIN_RUN_H

#include "ckpt/memory/memory_saver.h"
#include "ckpt/memory/recover.h"
#include "ckpt/saver.h"
#include "data/data.h"
#include "engine/engine.h"
#include "train/batch_reader.h"
#include "train/report/metrics_writer.h"
#include "train/report/run_trace.h"
#include "train/train_settings.h"
#include "train/watch/slow_links.h"
#include "train/watch/slow_ranks.h"

#include <stdatomic.h>

struct mics_eval;

/* Called between steps, on rank 0 only (`note` on every rank). A failure ends the run on all ranks.
 * Members may be NULL. */
struct mics_run_observer {
    enum mics_status (*step)(void *context, const struct mics_step_record *record,
                             struct mics_err *err);
    enum mics_status (*val)(void *context, uint64_t step, const struct mics_eval *eval,
                            struct mics_err *err);
    enum mics_status (*saved)(void *context, uint64_t step, const struct mics_saved *saved,
                              double seconds, struct mics_err *err);
    /* A state is complete in the memory of nodes, on all nodes `sent_bytes` were sent. */
    enum mics_status (*kept)(void *context, const struct mics_memory_ckpt *kept,
                             struct mics_err *err);
    /* A fault that the run survives: an event for the metrics, which belongs to the callee; NULL:
     * out of memory. */
    enum mics_status (*fault)(void *context, json_t *event, struct mics_err *err);
    /* A message of the device, or (on rank 0) a warning. */
    void (*note)(const struct mics_device_note *note);
    void *context;
};

/* Everything that the options point to outlives the run. */
struct mics_run_options {
    const struct mics_train_settings *settings; /* resolved */
    const struct mics_plan *plan;
    json_t *plan_doc, *history; /* for the checkpoints; needed on rank 0 */
    struct mics_world *world;
    struct mics_comm *control; /* all ranks in world order; used by the run only */
    struct mics_engine *engine;
    struct mics_device *device; /* the engine's */
    const struct mics_data *data;
    const struct mics_tokenizer_files *tokenizer_files; /* for the checkpoints; or NULL */
    json_t *tokenizer_doc;                              /* what they say of it; or NULL */
    const char *out;                                    /* folder of the run */
    const char *init;    /* model on disk with the initial parameters of a new run, or NULL */
    uint64_t save_every; /* steps; 0: save at the end only */
    struct mics_keep keep;
    uint64_t max_save_failures; /* in a row, which end the run; 0 or 1: the first one does */
    uint64_t max_nonfinite;     /* steps in a row that are not finite and are skipped; 0: none */
    /* Samples that are not learned, in the order of training, from 1; 0: none. */
    uint64_t skip_first, skip_last;
    bool eval;  /* for mics_run_eval(): nothing is trained or saved */
    bool paced; /* nothing is computed, so parameters are not initialised, validated or saved */
    void (*before_read)(void *context); /* of mics_reader_options */
    void *before_read_context;
    struct mics_run_observer observer;
    struct mics_trace *trace; /* of this rank; NULL: none */
};

enum mics_run_end { MICS_RUN_DONE, MICS_RUN_STOPPED };

enum { MICS_RUN_RECENT_STEPS = 50 };

/* Checkpoints on disk. */
struct mics_run_disk {
    struct mics_saver *saver;
    char last[MICS_PATH_MAX]; /* folder of the last complete checkpoint; empty: none */
    uint64_t begun_step;      /* of the checkpoint that was begun last */
    uint64_t failures;        /* since the last checkpoint */
    double retry_s;           /* when a failed save is due again; 0: none has failed */
    atomic_bool waiting;      /* the ranks wait for a checkpoint; read by the watchdog */
};

/* Checkpoints in the memory of nodes. */
struct mics_run_memory_ckpt {
    struct mics_memory_saver *saver;        /* of the job; NULL: no state is kept in memory */
    uint64_t every;                         /* steps that the loss of a node may cost */
    uint64_t begun_step;                    /* of the state that was begun last */
    uint64_t steps;                         /* that a state takes until it is complete */
    struct mics_memory_ckpt_record *record; /* of what is kept; written by rank 0 */
    double pause_s;                         /* for the state under way */
    bool now;                               /* the loaded state has lost copies: keep one at once */
};

/* How the run began: from which state. */
struct mics_run_start {
    uint64_t step, samples;  /* done before this run */
    bool from_memory;        /* it continued from the memory of nodes */
    uint64_t received_bytes; /* of that, over the network, by all ranks */
    char note[512];          /* for the user, about the files of --init; or empty */
};

/* Bytes that all ranks send in second hops in a step, by its turn, and those of exact ones in each
 * step; all 0 if second hops are these. Turns of steps without a meeting are one. */
enum { MICS_RUN_SYNC_WARMUP = MICS_INTERVAL_MAX, MICS_RUN_SYNC_TURNS };
struct mics_run_sync {
    uint64_t bytes[MICS_RUN_SYNC_TURNS], exact_bytes;
};

/* What the steps of this run took and gave. */
struct mics_run_totals {
    struct mics_step_record sum;               /* times */
    uint64_t steps;                            /* in `sum` */
    double slowest_s;                          /* step */
    double recent_loss[MICS_RUN_RECENT_STEPS]; /* ring buffer */
    uint64_t nonfinite, nonfinite_row;         /* steps that were skipped; in a row */
    uint64_t net_bytes; /* sent between nodes by all ranks; set once all steps are done */
    /* Bytes that all ranks have sent in second hops that are in blocks or not in every step, and
     * the bytes that exact ones in every step would have taken; set with it. */
    uint64_t sync_bytes, exact_sync_bytes;
    double step_s;            /* the last step, or as predicted */
    double pause_s;           /* spent on validation and checkpoints since the last step */
    struct mics_comm_cpu cpu; /* when the last step was collected, or training went on */
};

/* What the main thread of a rank does. */
enum mics_run_activity {
    MICS_RUN_TRAINING, /* it enqueues steps, or waits for one */
    MICS_RUN_READING,  /* samples that are not read yet */
    MICS_RUN_AGREEING, /* with all other ranks, on what follows a step */
    MICS_RUN_VALIDATING,
    MICS_RUN_SAVING,
    MICS_RUN_KEEPING,   /* a state in memory */
    MICS_RUN_MEASURING, /* links between nodes */
};
const char *mics_run_activity_name(unsigned what); /* "reading" */

struct mics_run_doing {
    atomic_uint what;              /* enum mics_run_activity */
    atomic_uint_fast64_t since_ns; /* by mics_now_s() */
};

/* To find ranks and links that are slow. */
struct mics_run_slow {
    struct mics_slow_ranks *ranks;    /* on rank 0; NULL elsewhere */
    struct mics_slow_window *windows; /* [world_size] receives those of all ranks; NULL: one rank */
    struct mics_slow_window own;
    uint32_t skipped, steps; /* at the beginning of the run; in `own` */
    /* When the main thread began to wait for the samples of a step, and ended; by parity. */
    struct {
        double begin_s, end_s;
    } read[2];
    double step_end_s; /* of the step that was collected last */

    struct mics_slow_links *links; /* on rank 0, with two nodes or more; else NULL */
    struct mics_slow_waits waits;  /* of the window before */
    bool measure_links;            /* before the next step, as rank 0 asks for */
    double measure_after_s;        /* not earlier */
    double unsure_times;           /* the pause after a measurement that was not sure, in its
                                    * durations; 0: it was */
    bool unsure_is_said;
    /* This rank's, when training went on after the steps were last drained. */
    uint64_t sent_bytes, steps_done;
    atomic_uint transfers; /* while links are measured; read by the watchdog */
};

struct mics_run {
    struct mics_run_options options;
    struct mics_ckpt_layout form;
    struct mics_lr lr;
    uint64_t step, samples; /* done, since the beginning of training */
    uint64_t global_batch;  /* sequences of a step */
    struct mics_reader reader;
    struct mics_read_sums read; /* of all ranks, up to the last checkpoint */
    struct mics_run_start start;
    struct mics_run_totals totals;
    struct mics_run_sync sync;
    struct mics_run_disk disk;
    struct mics_run_memory_ckpt memory;
    struct mics_run_slow slow;
    atomic_uint_fast64_t submitted_step; /* read by the watchdog, as the next */
    struct mics_run_doing doing;
    uint32_t *rank_flags;   /* [world_size] receives the flags of all ranks */
    atomic_bool generating; /* the engine is idle while rank 0 generates; read by the watchdog */
    bool local_failure;     /* the other ranks may not know of it: the job must be aborted */
};

/* Access to this rank's state. */
struct mics_ckpt_source mics_run_source(const struct mics_run *run);

/* Collective. */
enum mics_status mics_run_init(struct mics_run *run, const struct mics_run_options *options,
                               struct mics_err *err);
void mics_run_fini(struct mics_run *run); /* all zeros is fine */

/* Initialise the parameters from the seed, or from options->init. Collective. */
enum mics_status mics_run_begin(struct mics_run *run, struct mics_err *err);

/* What to load a run's state from instead of a checkpoint. */
struct mics_run_memory {
    const struct mics_memory_node *node;
    struct mics_memory_state *state;
};

/* Load state, step and samples of the checkpoint `folder`, whose manifest is `doc`; with `memory`
 * they are loaded from there, and `folder` is the newest checkpoint, or empty.
 * MICS_ERR_FORMAT: it was trained on other data (by fingerprint, split, sequence length, packing,
 * order, or by what was read) and `other_data` is false. Collective. */
enum mics_status mics_run_resume(struct mics_run *run, const char *folder, json_t *doc,
                                 const struct mics_run_memory *memory, bool other_data,
                                 struct mics_err *err);
/* Read the settings in a manifest. */
enum mics_status mics_run_read_settings(const json_t *doc, struct mics_train_settings *settings,
                                        struct mics_err *err);

/* Train to the last step, or until all ranks agree to stop, and write the last checkpoint.
 * Collective. */
enum mics_status mics_run_steps(struct mics_run *run, enum mics_run_end *end, struct mics_err *err);

struct mics_eval {
    double loss; /* mean over all targets, natural logarithm */
    double
        accuracy; /* share of masked tokens that are the likeliest; NAN unless tokens are masked */
    double targets; /* counted, all ranks */
    double seconds;
};

/* Evaluate all of the data that is for validation. MICS_ERR_DEVICE: the loss is not finite.
 * Collective. */
enum mics_status mics_run_eval(struct mics_run *run, struct mics_eval *out, struct mics_err *err);

/* Unless `status` is MICS_OK, record a failure that the other ranks may not know of. Returns
 * `status`. */
enum mics_status mics_run_mark_local(struct mics_run *run, enum mics_status status);

/* Mean loss of the last MICS_RUN_RECENT_STEPS steps of this run. NaN if there was no step. */
double mics_run_recent_loss(const struct mics_run *run);

#endif
