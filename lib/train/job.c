/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - opens the parts of a job in order, with all ranks agreeing on the status after each
 * part. */
#include "train/job.h"

#include "base/limits.h"
#include "comm/agree.h"
#include "comm/staged.h"
#include "doc/doc.h"
#include "model/family.h"
#include "plan/memory.h"
#include "plan/schedule/timeline.h"
#include "train/job_memory.h"
#include "train/job_tokenizer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum mics_status mics_job_join(struct mics_job *job, const struct mics_job_options *options,
                               struct mics_err *err)
{
    enum mics_status status;
    struct mics_comm *world;

    *job = (struct mics_job){.options = options, .lock = MICS_LOCK_NONE, .memory.lock = -1};
    status = mics_world_open_unchecked(&job->world, err);
    if (status != MICS_OK)
        return status;
    world = job->world->comm;
    return mics_comm_split(world, 0, world->rank, world->rank, &job->control, err);
}

/* Find the checkpoint to resume from, if any, on rank 0, and read its manifest on all ranks. */
static enum mics_status find_checkpoint(struct mics_job *job, struct mics_err *err)
{
    const char *resume = job->options->resume;
    const bool automatic = resume && strcmp(resume, "auto") == 0;
    enum mics_status status = MICS_OK;
    bool found = false;

    if (!resume)
        return MICS_OK;
    if (automatic)
        status = mics_job_find_memory(job, err);
    if (status != MICS_OK || job->checkpoint_doc)
        return status;
    if (job->world->rank == 0)
        status = mics_checkpoint_find(automatic ? job->out : resume, automatic, job->checkpoint,
                                      &found, err);
    status = mics_agree(job->control, status, err);
    if (!found)
        job->checkpoint[0] = '\0';
    if (status == MICS_OK)
        status =
            mics_comm_broadcast_now(job->control, job->checkpoint, sizeof job->checkpoint, 0, err);
    if (status != MICS_OK || !job->checkpoint[0])
        return status;
    status =
        mics_checkpoint_read_manifest(job->control, job->checkpoint, &job->checkpoint_doc, err);
    if (status == MICS_OK && json_array_size(json_object_get(job->checkpoint_doc, "states")) == 1)
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "%s: has parameters only and cannot be resumed: --init=%s begins a "
                              "new training with them",
                              job->checkpoint, job->checkpoint);
    return status;
}

static const char *plan_name(const struct mics_job *job)
{
    const char *path = job->options->plan;

    if (!path && job->checkpoint_doc)
        return job->checkpoint;
    return path && strcmp(path, "-") != 0 ? path : "standard input";
}

/* Is there nothing on standard input? Waits for the first byte. */
static bool is_input_empty(void)
{
    const int c = getc(stdin);

    return c == EOF || ungetc(c, stdin) == EOF;
}

static enum mics_status read_plan_doc(const struct mics_job *job, json_t **doc,
                                      struct mics_err *err)
{
    const char *path = job->options->plan;
    enum mics_status status;

    if (!path && job->checkpoint_doc) {
        *doc = json_incref(json_object_get(job->checkpoint_doc, "plan"));
        return *doc ? MICS_OK
                    : mics_err_set(err, MICS_ERR_FORMAT, "%s: no plan in it", job->checkpoint);
    }
    if (!path && is_input_empty())
        return mics_err_set(err, MICS_ERR_FORMAT, "no plan on standard input; use -p FILE");
    status = mics_doc_read_file(path ? path : "-", doc, err);
    if (status == MICS_OK) {
        status = mics_doc_expect(*doc, MICS_PLAN_KIND, MICS_PLAN_VERSION, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", plan_name(job));
    }
    return status;
}

static enum mics_status read_plan(struct mics_job *job, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (job->world->rank == 0)
        status = read_plan_doc(job, &job->plan_doc, err);
    status = mics_agree(job->control, status, err);
    if (status == MICS_OK)
        status = mics_broadcast_doc(job->control, &job->plan_doc, err);
    if (status != MICS_OK)
        return status;
    status = mics_plan_own_from_doc(job->plan_doc, &job->plan, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", plan_name(job));
    return mics_agree(job->control, status, err);
}

/* Data for validation of its own leave all of the other data to a new run, unless it is said
 * otherwise. A resumed one keeps its training data. */
static void default_val_fraction(struct mics_job *job)
{
    const struct mics_job_options *options = job->options;

    if (options->val_pattern_count == 0 || job->checkpoint_doc)
        return;
    for (size_t i = 0; i < options->override_count; i++)
        if (strcmp(options->overrides[i].name, "val-fraction") == 0)
            return;
    job->settings.val_fraction = 0;
}

static bool predicts_masked(const struct mics_job *job)
{
    const struct mics_family *family = job->plan->model->family;

    return family && family->bidirectional;
}

static enum mics_status resolve_mask_rate(struct mics_job *job, struct mics_err *err)
{
    struct mics_train_settings *settings = &job->settings;

    const char *const option = settings->mask_rate > 0          ? "rate"
                               : job->options->mask_token       ? "token"
                               : job->options->mask_whole_words ? "whole-words"
                                                                : NULL;

    if (!predicts_masked(job))
        return option ? mics_err_set(err, MICS_ERR_ARG,
                                     "--mask-%s: the model '%s' predicts the next token, not "
                                     "masked ones",
                                     option, job->plan->model->config.name)
                      : MICS_OK;
    const double planned = job->plan->model->config.mask_rate;
    if (settings->mask_rate < 0)
        settings->mask_rate = planned > 0 ? planned : MICS_MASK_RATE;
    if (planned == 0 || settings->mask_rate <= fmax(planned, MICS_MASK_RATE))
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG,
                        "--mask-rate: %g is more than the plan computes, %g: make the plan with "
                        "mics-plan --mask-rate=%g",
                        settings->mask_rate, fmax(planned, MICS_MASK_RATE), settings->mask_rate);
}

/* Released mixtures of experts were trained without drops; with them they are other models. */
static enum mics_status check_capacity(const struct mics_job *job, struct mics_err *err)
{
    const double capacity = job->plan->model->config.expert_capacity;

    if (capacity == 0 || !job->options->init)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG,
                        "--init=%s: experts of the plan drop rows (--capacity=%g), which is for "
                        "training from the first step on",
                        job->options->init, capacity);
}

/* A static loss scale has no use for the options of the dynamic one. */
static enum mics_status check_static_scale(const struct mics_job *job, struct mics_err *err)
{
    static const char *const names[] = {"initial-loss-scale", "min-loss-scale", "loss-scale-factor",
                                        "loss-scale-window", "hysteresis"};
    const struct mics_job_options *options = job->options;

    for (size_t i = 0; i < options->override_count && job->settings.loss_scale > 0; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (strcmp(options->overrides[i].name, names[k]) == 0)
                return mics_err_set(err, MICS_ERR_ARG,
                                    "--%s goes with a dynamic loss scale, and this one is static: "
                                    "--loss-scale=0 makes it dynamic",
                                    names[k]);
    return MICS_OK;
}

/* The defaults, overridden by the checkpoint's settings, overridden by the command line's. */
static enum mics_status merge_settings(struct mics_job *job, struct mics_err *err)
{
    const struct mics_job_options *options = job->options;
    enum mics_status status = MICS_OK;

    job->settings = mics_train_settings_default();
    if (job->checkpoint_doc) {
        status = mics_run_read_settings(job->checkpoint_doc, &job->settings, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", job->checkpoint);
    }
    if (job->plan->choice.dtype != MICS_F16)
        mics_train_settings_drop_loss_scale(&job->settings);
    if (status == MICS_OK)
        status =
            mics_train_settings_override(&job->settings, options->overrides,
                                         options->override_count, job->plan->choice.optimizer, err);
    if (status == MICS_OK)
        status = mics_train_settings_resolve(&job->settings, &job->plan->choice,
                                             job->plan->model->param_count, err);
    default_val_fraction(job);
    if (status == MICS_OK)
        status = resolve_mask_rate(job, err);
    if (status == MICS_OK && options->max_nonfinite > 0 && !(job->settings.clip > 0))
        status = mics_err_set(err, MICS_ERR_ARG,
                              "--on-nonfinite=skip needs clipping, which decides before the update "
                              "whether a step is finite: make the plan without --no-clip");
    if (status == MICS_OK && options->max_nonfinite > 0 && job->plan->choice.dtype == MICS_F16)
        status = mics_err_set(err, MICS_ERR_ARG,
                              "--on-nonfinite=skip: in fp16 every step that overflows is skipped, "
                              "until the loss scale is --min-loss-scale");
    if (status == MICS_OK)
        status = check_capacity(job, err);
    return status == MICS_OK ? check_static_scale(job, err) : status;
}

static enum mics_status name_folder(struct mics_job *job, struct mics_err *err)
{
    enum mics_status status = mics_path_format(job->out, err, "%s", job->options->out);
    size_t length = strlen(job->out);

    while (length > 1 && job->out[length - 1] == '/')
        job->out[--length] = '\0';
    return status;
}

static enum mics_status check_shape(struct mics_job *job, struct mics_err *err)
{
    const struct mics_plan_choice *choice = &job->plan->choice;
    const struct mics_world *world = job->world;
    const uint32_t ranks = mics_choice_world_size(choice);
    char nodes[64];

    if (mics_world_is_even(world) && world->node_count == mics_choice_nodes(choice) &&
        world->local_size == mics_choice_per_node(choice))
        return MICS_OK;
    if (mics_world_check(world, NULL) != MICS_OK && world->size == ranks)
        return MICS_OK; /* nodes are not as declared, which check_world() tells after all else */
    if (mics_world_is_even(world))
        snprintf(nodes, sizeof nodes, "%u of %u", world->node_count, world->local_size);
    else
        snprintf(nodes, sizeof nodes, "%u of unequal sizes", world->node_count);
    return mics_err_set(
        err, MICS_ERR_FORMAT,
        "the plan is for %u rank%s (nodes: %u of %u), this job has %u (nodes: %s)%s", ranks,
        ranks == 1 ? "" : "s", mics_choice_nodes(choice), mics_choice_per_node(choice), world->size,
        nodes,
        job->options->plan || !job->checkpoint_doc
            ? ""
            : ": give a plan for them with -p to continue from this checkpoint");
}

static enum mics_status check_world(struct mics_job *job, struct mics_err *err)
{
    return mics_world_check(job->world, err);
}

/* On rank 0: create and lock the folder, refuse one that has checkpoints for a new run, and create
 * the empty file `probe` in it. */
static enum mics_status open_folder(struct mics_job *job, const char *probe, struct mics_err *err)
{
    const bool fresh = !job->checkpoint_doc && !job->options->overwrite;
    enum mics_status status = mics_run_folder_open(job->out, &job->lock, err);
    bool has = false;
    int fd;

    if (status == MICS_OK && job->options->trace)
        status = mics_file_check_output(job->options->trace, err);
    if (status != MICS_OK)
        return status;
    mics_checkpoint_locate(job->checkpoint);
    if (fresh)
        status = mics_run_folder_has_checkpoints(job->out, &has, err);
    if (status != MICS_OK)
        return status;
    if (has)
        return mics_err_set(err, MICS_ERR_IO,
                            "%s: has checkpoints already: continue with --resume, choose another "
                            "--out, or --overwrite them",
                            job->out);
    fd = open(probe, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return mics_err_set_errno(err, "%s", probe);
    close(fd);
    return MICS_OK;
}

/* Open the output folder on rank 0, and check that every rank sees it. */
static enum mics_status open_shared_folder(struct mics_job *job, struct mics_err *err)
{
    const bool lead = job->world->rank == 0;
    char probe[MICS_PATH_MAX];

    if (job->options->eval)
        return MICS_OK;
    enum mics_status status =
        mics_path_format(probe, err, "%s/shared.tmp.%ld", job->out, (long)getpid());

    if (lead && status == MICS_OK)
        status = open_folder(job, probe, err);
    status = mics_agree(job->control, status, err);
    if (status == MICS_OK)
        status = mics_comm_broadcast_now(job->control, probe, sizeof probe, 0, err);
    if (status == MICS_OK && access(probe, F_OK) != 0)
        status = mics_err_set(err, MICS_ERR_IO, "%s: not a folder that all nodes share", job->out);
    status = mics_agree(job->control, status, err);
    if (lead)
        unlink(probe);
    if (status == MICS_OK)
        status =
            mics_comm_broadcast_now(job->control, job->checkpoint, sizeof job->checkpoint, 0, err);
    return status;
}

/* Read the plan options->pace on rank 0, for all ranks. */
static enum mics_status read_pace_plan(struct mics_job *job, struct mics_plan **out,
                                       struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = MICS_OK;

    if (job->world->rank == 0)
        status = mics_doc_read_file(job->options->pace, &doc, err);
    status = mics_agree(job->control, status, err);
    if (status == MICS_OK)
        status = mics_broadcast_doc(job->control, &doc, err);
    if (status == MICS_OK)
        status = mics_plan_own_from_doc(doc, out, err);
    if (status != MICS_OK && job->world->rank == 0 && doc)
        mics_err_prefix(err, "%s", job->options->pace);
    json_decref(doc);
    return status;
}

static enum mics_status open_pace(struct mics_job *job, struct mics_err *err)
{
    struct mics_plan *other = NULL;
    enum mics_status status = MICS_OK;

    if (!job->options->paced)
        return MICS_OK;
    if (job->options->pace)
        status = read_pace_plan(job, &other, err);
    if (status == MICS_OK) {
        status =
            mics_op_durations_new(job->plan, other ? other : job->plan, &job->op_durations, err);
        if (status != MICS_OK && other)
            mics_err_prefix(err, "%s", job->options->pace);
    }
    mics_plan_free(other);
    return mics_agree(job->control, status, err);
}

/* How sequences are made: as the command line says, else as in the checkpoint. */
static enum mics_status choose_packing(const struct mics_job *job,
                                       struct mics_data_options *options, struct mics_err *err)
{
    const json_t *training = json_object_get(job->checkpoint_doc, "training");
    const json_t *then = json_object_get(training, "data");
    const char *pack = job->options->pack;

    options->mask_prompt =
        job->options->mask_prompt || json_is_true(json_object_get(then, "mask_prompt"));
    if (!pack)
        pack = json_string_value(json_object_get(then, "pack"));
    return pack ? mics_pack_parse(pack, &options->pack, err) : MICS_OK;
}

/* Map the data and compare its fingerprint with that of rank 0: all ranks must have the same
 * text. */
static enum mics_status open_data(struct mics_job *job, struct mics_err *err)
{
    struct mics_data_options options = {.patterns = job->options->patterns,
                                        .pattern_count = job->options->pattern_count,
                                        .val_patterns = job->options->val_patterns,
                                        .val_pattern_count = job->options->val_pattern_count,
                                        .tokenizer = job->tokenizer.tokenizer,
                                        .end_token = job->options->end_token,
                                        .val_fraction = job->settings.val_fraction,
                                        .val_only = job->options->eval,
                                        .seq = job->plan->choice.seq,
                                        .vocab_size = job->plan->model->config.vocab_size,
                                        .seed = job->settings.seed,
                                        .bad_lines = job->options->bad_lines,
                                        .binary = job->options->binary};
    enum mics_status status = choose_packing(job, &options, err);
    uint64_t fingerprint, here;

    if (job->options->eval && options.val_pattern_count > 0) { /* nothing else is read */
        options.patterns = options.val_patterns;
        options.pattern_count = options.val_pattern_count;
        options.val_pattern_count = 0;
    }
    if (status == MICS_OK)
        status = mics_data_open(&options, &job->data, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "data");
    status = mics_agree(job->control, status, err);
    if (status != MICS_OK)
        return status;
    here = job->data.fingerprint + (job->data.val ? 3 * job->data.val->fingerprint : 0);
    fingerprint = here;
    status = mics_comm_broadcast_now(job->control, &fingerprint, sizeof fingerprint, 0, err);
    if (status == MICS_OK && fingerprint != here)
        status = mics_err_set(err, MICS_ERR_FORMAT, "data: the files differ from those on rank 0");
    return mics_agree(job->control, status, err);
}

/* As the command line says, else as in the checkpoint. */
static bool masks_whole_words(const struct mics_job *job)
{
    const json_t *training = json_object_get(job->checkpoint_doc, "training");
    const json_t *then = json_object_get(training, "data");

    return job->options->mask_whole_words ||
           json_is_true(json_object_get(then, "mask_whole_words"));
}

/* Open the masking of a model that predicts masked tokens, once its tokenizer is known. */
static enum mics_status open_masking(struct mics_job *job, struct mics_err *err)
{
    const struct mics_masking_options options = {.tokenizer = job->tokenizer.tokenizer,
                                                 .mask_token = job->options->mask_token,
                                                 .vocab_size = job->plan->model->config.vocab_size,
                                                 .seq = job->plan->choice.seq,
                                                 .rate = job->settings.mask_rate,
                                                 .seed = job->settings.seed,
                                                 .whole_words = masks_whole_words(job)};
    enum mics_status status = MICS_OK;

    if (!predicts_masked(job))
        return MICS_OK;
    status = mics_masking_open(&options, &job->masking, err);
    if (status == MICS_OK)
        status = mics_data_set_masking(&job->data, &job->masking, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "data");
    return mics_agree(job->control, status, err);
}

static enum mics_status open_engine(struct mics_job *job, struct mics_err *err)
{
    struct mics_engine_options options = {
        .model = job->plan->model,
        .choice = &job->plan->choice,
        .world = job->world,
        .optimizer = mics_train_settings_optimizer(&job->settings),
        .loss_scale = mics_train_settings_loss_scale(&job->settings),
        .seed = job->settings.seed,
        .documents = job->data.pack == MICS_PACK_DOCUMENT};
    enum mics_status status;

    job->threads = mics_threads_per_rank(mics_world_host_ranks(job->world));
    status = mics_agree(
        job->control,
        mics_job_device_open(job->world, job->options->kind, job->threads, &job->chosen, err), err);
    if (status != MICS_OK)
        return status;
    job->device = job->chosen.device;
    status = open_pace(job, err);
    if (status != MICS_OK)
        return status;
    status =
        mics_agree(job->control,
                   mics_comm_new_for_device(job->world->comm, job->device, &job->comm, err), err);
    if (status != MICS_OK)
        return status;
    options.device = job->device;
    options.comm = job->comm;
    options.op_durations = job->op_durations;
    status = mics_fault_injection_read(&job->fault, job->world->rank, err);
    if (job->fault.at > 0 && !job->fault.reading) {
        options.before_op = mics_fault_injection_before_op;
        options.context = &job->fault;
    }
    if (status == MICS_OK)
        status =
            mics_limits_try_memory(mics_memory_host(&job->plan->memory, job->plan->topology), err);
    status = mics_agree(job->control, status, err);
    if (status == MICS_OK)
        status = mics_engine_new(&options, &job->engine, err);
    job->fault.engine = job->engine;
    return mics_agree(job->control, status, err);
}

enum mics_status mics_job_open(struct mics_job *job, struct mics_err *err)
{
    static const struct {
        const char *name;
        double limit;
        enum mics_status (*open)(struct mics_job *job, struct mics_err *err);
    } phases[] = {
        {"resolving the output folder", MICS_STARTUP_LIMIT_IO, name_folder},
        {"looking for the checkpoint", MICS_STARTUP_LIMIT_IO, find_checkpoint},
        {"waiting for the plan", MICS_STARTUP_LIMIT_NONE, read_plan},
        {"reading the settings", MICS_STARTUP_LIMIT_DEFAULT, merge_settings},
        {"comparing the plan with the ranks", MICS_STARTUP_LIMIT_DEFAULT, check_shape},
        {"reading the tokenizer", MICS_STARTUP_LIMIT_IO, mics_job_open_tokenizer},
        {"reading the data", MICS_STARTUP_LIMIT_IO, open_data},
        {"comparing tokenizers", MICS_STARTUP_LIMIT_IO, mics_job_match_tokenizer},
        {"choosing what is masked", MICS_STARTUP_LIMIT_DEFAULT, open_masking},
        {"looking at MICS_NODE_RANKS", MICS_STARTUP_LIMIT_DEFAULT, check_world},
        {"opening the output folder", MICS_STARTUP_LIMIT_IO, open_shared_folder},
        {"creating communicators and allocating memory", MICS_STARTUP_LIMIT_DEFAULT, open_engine},
    };
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < sizeof phases / sizeof *phases; i++) {
        mics_startup_watchdog_set_phase(job->options->startup, phases[i].name, phases[i].limit);
        status = phases[i].open(job, err);
    }
    return status;
}

/* The plan's history, and this command appended to it. */
static enum mics_status extend_history(struct mics_job *job, struct mics_err *err)
{
    const json_t *old = json_object_get(job->plan_doc, "history");

    job->history_doc = json_object();
    if (!job->history_doc ||
        (old && json_object_set_new(job->history_doc, "history", json_deep_copy(old)) != 0))
        return mics_err_nomem(err);
    if (job->options->no_history)
        return MICS_OK;
    return mics_doc_add_history(job->history_doc, "mics-train", job->options->argc,
                                job->options->argv, err);
}

/* The steps to record depend on the last step, which may come from the checkpoint. */
static enum mics_status open_trace(struct mics_job *job, struct mics_run *run, struct mics_err *err)
{
    const struct mics_job_options *options = job->options;
    const uint64_t end = job->settings.steps;
    const uint64_t last = options->trace_last ? options->trace_last : end;
    const uint64_t first = options->trace_first ? options->trace_first : end < 3 ? 1 : end - 2;

    if (!options->trace)
        return MICS_OK;
    enum mics_status status =
        mics_trace_open(&job->trace, job->engine, job->control, first, last, err);

    if (status == MICS_OK)
        run->options.trace = &job->trace;
    return mics_agree(job->control, status, err);
}

/* Is this a new run in a folder that may have checkpoints of another? */
static bool replaces_run(const struct mics_job *job)
{
    const struct mics_job_options *options = job->options;

    return options->overwrite && !job->checkpoint_doc && !options->eval && !options->paced;
}

static enum mics_status start_engine(struct mics_job *job, struct mics_run *run,
                                     struct mics_err *err)
{
    const struct mics_job_options *options = job->options;

    mics_startup_watchdog_set_phase(options->startup, "choosing algorithms for matrix products",
                                    MICS_STARTUP_LIMIT_DEFAULT);
    enum mics_status status = mics_engine_prepare(job->engine, err);

    if (status != MICS_OK)
        return status;
    mics_startup_watchdog_set_phase(options->startup, "connecting communicators",
                                    MICS_STARTUP_LIMIT_DEFAULT);
    return mics_run_mark_local(run, mics_engine_warm_up(job->engine, err));
}

enum mics_status mics_job_start(struct mics_job *job, const struct mics_run_observer *observer,
                                struct mics_run *run, struct mics_err *err)
{
    const struct mics_job_options *options = job->options;
    enum mics_status status = start_engine(job, run, err);

    if (status != MICS_OK)
        return status;
    mics_startup_watchdog_set_phase(options->startup, "initialising or loading the shards",
                                    MICS_STARTUP_LIMIT_IO);
    status = mics_agree(job->control, extend_history(job, err), err);
    if (status != MICS_OK)
        return status;
    struct mics_run_options run_options = {.settings = &job->settings,
                                           .plan = job->plan,
                                           .plan_doc = job->plan_doc,
                                           .history = json_object_get(job->history_doc, "history"),
                                           .world = job->world,
                                           .control = job->control,
                                           .engine = job->engine,
                                           .device = job->device,
                                           .data = &job->data,
                                           .tokenizer_files = &job->tokenizer.files,
                                           .tokenizer_doc = job->tokenizer_doc,
                                           .out = job->out,
                                           .init = options->init,
                                           .save_every = options->save_every,
                                           .keep = options->keep,
                                           .max_save_failures = options->max_save_failures,
                                           .max_nonfinite = options->max_nonfinite,
                                           .skip_first = options->skip_first,
                                           .skip_last = options->skip_last,
                                           .eval = options->eval,
                                           .paced = options->paced,
                                           .observer = *observer};
    if (job->fault.at > 0 && job->fault.reading) {
        run_options.before_read = mics_fault_injection_before_read;
        run_options.before_read_context = &job->fault;
    }
    run_options.keep.discard_later |= replaces_run(job) && options->keep.last > 0;
    status = mics_run_init(run, &run_options, err);
    if (status != MICS_OK)
        return status;
    if (job->memory.state.doc)
        status = mics_job_resume_memory(job, run, err);
    else if (job->checkpoint_doc)
        status = mics_run_resume(run, job->checkpoint, job->checkpoint_doc, NULL,
                                 options->other_data, err);
    else
        status = mics_agree(job->control, mics_run_begin(run, err), err);
    if (status == MICS_OK)
        status = open_trace(job, run, err);
    if (status == MICS_OK && replaces_run(job)) {
        if (job->world->rank == 0)
            status = mics_run_folder_begin(job->out, err);
        status = mics_agree(job->control, status, err);
    }
    return status == MICS_OK ? mics_job_open_memory(job, run, err) : status;
}

enum mics_status mics_job_write_trace(struct mics_job *job, uint32_t *steps, struct mics_err *err)
{
    enum mics_status status = mics_trace_write(&job->trace, job->engine, job->plan, job->world,
                                               job->control, job->options->trace, err);

    *steps = job->trace.recorded;
    return mics_agree(job->control, status, err);
}

void mics_job_close(struct mics_job *job)
{
    mics_trace_close(&job->trace);
    mics_job_close_memory(job);
    mics_engine_free(job->engine);
    free(job->op_durations);
    if (job->comm)
        mics_comm_free(job->comm);
    mics_job_device_close(&job->chosen);
    mics_data_close(&job->data);
    mics_masking_close(&job->masking);
    mics_disk_tokenizer_close(&job->tokenizer);
    json_decref(job->tokenizer_doc);
    mics_plan_free(job->plan);
    json_decref(job->plan_doc);
    json_decref(job->history_doc);
    json_decref(job->checkpoint_doc);
    mics_unlock(&job->lock);
    if (job->control)
        mics_comm_free(job->control);
    mics_world_close(job->world);
    *job = (struct mics_job){.lock = MICS_LOCK_NONE, .memory.lock = -1};
}
