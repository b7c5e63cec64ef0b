/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c - split, merge, reshard, cast: from a source on disk to a new folder.
 *
 * split and cast read Hugging Face files, reshard and merge read a checkpoint; split and reshard
 * write a checkpoint, merge and cast write Hugging Face files. A checkpoint is read twice: once for
 * its numbers and once, at the same time, from end to end for its sums. Most of the second pass
 * overlaps with waiting for the disk. The new folder gets its name only if all sums are right.
 */
#include "ckpt/convert/convert.h"

#include "base/file.h"
#include "base/threads.h"
#include "ckpt/convert/dcp_target.h"
#include "ckpt/convert/disk_model.h"
#include "ckpt/convert/shards.h"
#include "ckpt/foreign/foreign.h"
#include "ckpt/hf/hf.h"
#include "ckpt/tokenizer_files.h"
#include "comm/agree.h"
#include "doc/doc.h"
#include "doc/foreign.h"
#include "plan/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARDS_RESERVE   ((uint64_t)1 << 20)  /* bytes for the manifest */
#define HF_RESERVE       ((uint64_t)16 << 20) /* bytes for index and configuration */
#define MAX_CONFIG_BYTES ((size_t)4 << 20)

/* One conversion. Must not be moved: its parts point to each other. */
struct job {
    const struct mics_convert_request *request;
    struct mics_convert_report *report;
    struct mics_hf hf;               /* source of split and cast */
    struct mics_shard_source source; /* of reshard and merge */

    struct mics_shard_plan plan; /* of split and reshard */
    struct mics_manifest manifest;
    struct mics_shard_target shards;

    json_t *config; /* of merge and cast; NULL: write no config.json */
    struct mics_hf_target hf_files;
    struct mics_gguf_target gguf; /* of merge */
    struct mics_dcp_target dcp;   /* of merge */

    struct mics_tokenizer_files tokenizer; /* rank 0 */
};

static void close_job(struct job *job)
{
    mics_shard_target_free(&job->shards);
    mics_hf_target_free(&job->hf_files);
    mics_gguf_target_free(&job->gguf);
    mics_dcp_target_free(&job->dcp);
    mics_manifest_free(&job->manifest);
    mics_tokenizer_files_free(&job->tokenizer);
    json_decref(job->config);
    mics_hf_close(&job->hf);
    mics_shard_source_close(&job->source);
    mics_shard_plan_close(&job->plan);
}

/* What to write. */
struct output {
    struct mics_target *target;
    uint64_t reserve; /* bytes of the files that `finish` writes */
    /* Rank 0 only: write the other files and commit the folder. */
    enum mics_status (*finish)(struct job *job, struct mics_output_folder *folder,
                               struct mics_err *err);
};

/* The comparison of sums in the background. Each side can stop the other. */
struct background_verification {
    struct mics_ckpt_verification verification;
    atomic_bool stop_verification, stop_writing;
};

/* A damaged file is no error here, but what would be made of it is useless: stop writing. */
static enum mics_status verify_in_background(void *context, struct mics_err *err)
{
    struct background_verification *background = context;
    const enum mics_status status = mics_ckpt_verify_files(&background->verification, err);

    if (status != MICS_OK ||
        mics_ckpt_verify_status(&background->verification, NULL, NULL) != MICS_OK)
        atomic_store(&background->stop_writing, true);
    return status;
}

/* A damaged source explains a number that is not finite, so its error comes first. It does not
 * explain a full disk. */
static enum mics_status write_and_verify(const struct mics_convert_request *request,
                                         const struct mics_store *store, struct mics_target *target,
                                         const char *folder, const struct mics_target_options *base,
                                         const struct mics_ckpt_reader *source,
                                         struct mics_err *err)
{
    struct background_verification background = {
        .verification = {.reader = source,
                         .first = (uint32_t)request->comm->rank,
                         .stride = (uint32_t)request->comm->size,
                         .host_ranks = request->host_ranks,
                         .cancel = &background.stop_verification}};
    struct mics_target_options options = *base;
    struct mics_background_task task = {.started = false};
    struct mics_err verify_err = {""}, write_err = {""};
    enum mics_status written, verified;

    options.cancel = &background.stop_writing;
    mics_background_task_start(&task, verify_in_background, &background);
    written = mics_target_write(store, target, folder, &options, &write_err);
    if (written != MICS_OK && written != MICS_ERR_FORMAT)
        atomic_store(&background.stop_verification, true);
    verified = mics_background_task_wait(&task, &verify_err);
    if (written == MICS_OK || written == MICS_ERR_FORMAT) {
        verified = mics_ckpt_verify_share(&background.verification, request->comm, verified,
                                          request->diagnostics, &verify_err);
        if (verified != MICS_OK) {
            write_err = verify_err;
            written = verified;
        }
    }
    mics_ckpt_verify_free(&background.verification);
    if (written != MICS_OK && err)
        *err = write_err;
    return written;
}

enum mics_status mics_convert_verify_sums(const struct mics_convert_request *request,
                                          const struct mics_ckpt_reader *source,
                                          struct mics_err *err)
{
    struct mics_progress progress;
    struct mics_ckpt_verification verification = {.reader = source,
                                                  .first = (uint32_t)request->comm->rank,
                                                  .stride = (uint32_t)request->comm->size,
                                                  .host_ranks = request->host_ranks,
                                                  .progress = &progress};
    enum mics_status status;

    mics_progress_init(&progress, request->progress, request->progress_context,
                       mics_ckpt_verify_bytes(&verification));
    status = mics_ckpt_verify_files(&verification, err);
    status =
        mics_ckpt_verify_share(&verification, request->comm, status, request->diagnostics, err);
    mics_ckpt_verify_free(&verification);
    return status;
}

static enum mics_status write_files(const struct mics_convert_request *request,
                                    const struct mics_store *store, struct mics_target *target,
                                    const struct mics_ckpt_reader *source,
                                    struct mics_output_folder *folder, struct mics_err *err)
{
    const struct mics_target_options options = {.comm = request->comm,
                                                .host_ranks = request->host_ranks,
                                                .progress = request->progress,
                                                .progress_context = request->progress_context};
    enum mics_status status;

    if (request->dry_run)
        return source ? mics_convert_verify_sums(request, source, err) : MICS_OK;
    /* Every rank registers all files, also those that it does not write, before any is created. */
    status = mics_output_folder_register(folder, MICS_ABORT_MARKER, err);
    for (uint32_t i = 0; status == MICS_OK && i < target->file_count; i++)
        status = mics_output_folder_register(folder, target->files[i].name, err);
    status = mics_agree(request->comm, status, err);
    if (status != MICS_OK)
        return status;
    return source
               ? write_and_verify(request, store, target, folder->temporary, &options, source, err)
               : mics_target_write(store, target, folder->temporary, &options, err);
}

/* Make the folder request->out completely, or not at all. `prepared` is the status of this rank's
 * preparation. `source` is the checkpoint that the store reads; NULL: the source has no sums. With
 * request->dry_run the sums are compared and nothing is written. Collective: the same result on all
 * ranks. */
static enum mics_status run_job(struct job *job, enum mics_status prepared,
                                const struct mics_store *store,
                                const struct mics_ckpt_reader *source, const struct output *output,
                                struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    struct mics_output_folder folder = {.lock = -1, .single = request->format == MICS_MERGE_GGUF};
    enum mics_status status = mics_agree(request->comm, prepared, err);

    if (status == MICS_OK)
        status = mics_output_folder_create(&folder, request->comm, request->out,
                                           mics_target_bytes(output->target) + output->reserve +
                                               mics_tokenizer_files_bytes(&job->tokenizer),
                                           request->dry_run, err);
    if (status == MICS_OK)
        status = write_files(request, store, output->target, source, &folder, err);
    if (status == MICS_OK && !request->dry_run) {
        if (request->comm->rank == 0)
            status = output->finish(job, &folder, err);
        status = mics_agree(request->comm, status, err);
    }
    mics_output_folder_discard(&folder);
    close_job(job);
    return status;
}

static enum mics_status report_target(struct job *job, const struct mics_target *target,
                                      struct mics_err *err)
{
    job->report->files = target->file_count;
    job->report->bytes = mics_target_bytes(target);
    return mics_free_space(job->request->out, &job->report->free_bytes, err);
}

/* *out = the history of `doc` (NULL: none) followed by this command: a new array. */
static enum mics_status extend_history(const struct mics_convert_request *request,
                                       const json_t *doc, json_t **out, struct mics_err *err)
{
    json_t *carrier = json_object(), *old = json_object_get(doc, "history");
    enum mics_status status = MICS_OK;

    if (!carrier || (old && json_object_set_new(carrier, "history", json_deep_copy(old)) != 0))
        status = mics_err_nomem(err);
    else if (!request->no_history)
        status = mics_doc_add_history(carrier, "mics-shard", request->argc, request->argv, err);
    if (status == MICS_OK)
        *out = json_incref(json_object_get(carrier, "history"));
    json_decref(carrier);
    return status;
}

/* What split and reshard have in common. `history` is a document that has one. */
static enum mics_status prepare_shards(struct job *job, const json_t *history, struct mics_err *err)
{
    enum mics_status status = extend_history(job->request, history, &job->manifest.history, err);

    if (status != MICS_OK)
        return status;
    status = mics_shard_target_new(&job->plan.form, &job->shards, err);
    if (status != MICS_OK)
        return status;
    return report_target(job, &job->shards.target, err);
}

/* The tokenizer that is in the folder of Hugging Face files, or --base. */
static enum mics_status find_tokenizer(struct job *job, const char *folder, struct mics_err *err)
{
    return folder[0] && job->request->comm->rank == 0
               ? mics_tokenizer_files_find(&job->tokenizer, folder, err)
               : MICS_OK;
}

/* The tokenizer that a checkpoint lists. */
static enum mics_status load_tokenizer(struct job *job, const struct mics_ckpt_reader *reader,
                                       struct mics_err *err)
{
    return job->request->comm->rank == 0
               ? mics_tokenizer_files_load(&job->tokenizer, reader->manifest.tokenizer,
                                           reader->folder, err)
               : MICS_OK;
}

static enum mics_status write_tokenizer(const struct job *job, struct mics_output_folder *folder,
                                        struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < job->tokenizer.count; i++) {
        const struct mics_tokenizer_file *file = &job->tokenizer.items[i];

        status = mics_output_folder_write(folder, file->name, file->bytes, file->size, err);
    }
    job->report->tokenizer_files = (unsigned)job->tokenizer.count;
    return status;
}

static enum mics_status finish_shards(struct job *job, struct mics_output_folder *folder,
                                      struct mics_err *err)
{
    enum mics_status status = write_tokenizer(job, folder, err);

    if (status != MICS_OK)
        return status;
    status = mics_shard_target_write_manifest(&job->shards, &job->plan.form, &job->manifest, folder,
                                              err);
    if (status != MICS_OK)
        return status;
    return mics_output_folder_commit(folder, err);
}

/* Begin's and end's ids are not known here, where files are not interpreted. */
static enum mics_status split_tokenizer(struct job *job, struct mics_err *err)
{
    enum mics_status status = find_tokenizer(job, job->hf.folder, err);

    if (status == MICS_OK && !mics_tokenizer_files_make_ids(&job->tokenizer))
        mics_tokenizer_files_free(&job->tokenizer);
    if (status != MICS_OK || job->tokenizer.count == 0)
        return status;
    job->manifest.tokenizer =
        json_pack("{s:o}", "files", mics_tokenizer_files_to_json(&job->tokenizer));
    return job->manifest.tokenizer ? MICS_OK : mics_err_nomem(err);
}

/* The path of config.json, and whether there is one; there is none beside single files. */
static enum mics_status find_config(const struct mics_hf *hf, char path[MICS_PATH_MAX],
                                    bool *exists, struct mics_err *err)
{
    const enum mics_status status = mics_path_format(path, err, "%s/config.json", hf->folder);

    *exists = false;
    return status == MICS_OK && hf->folder[0] ? mics_file_exists(path, exists, err) : status;
}

/* config.json has what no tensor's shape shows: the number of heads, the epsilon of the norm. */
static enum mics_status match_config(const struct mics_hf *hf, const struct mics_model *model,
                                     struct mics_err *err)
{
    struct mics_model *own = NULL;
    char path[MICS_PATH_MAX];
    bool exists = false;
    enum mics_status status = find_config(hf, path, &exists, err);

    if (status != MICS_OK || !exists)
        return status;
    status = mics_model_open(path, &own, err);
    if (status == MICS_OK)
        status = mics_models_match(own, path, model, "the plan", err);
    mics_model_free(own);
    return status;
}

/* Open what is to be split: Hugging Face's files, or those of another trainer. */
static enum mics_status open_source(struct job *job, const char *const *paths, size_t count,
                                    struct mics_err *err)
{
    const enum mics_foreign_format format = mics_foreign_recognize(paths, count);

    if (format == MICS_FOREIGN_NONE)
        return mics_hf_open(paths, count, job->request->diagnostics, &job->hf, err);
    return mics_foreign_open(format, paths, count, &job->hf, err);
}

/* A training state must be of the plan's optimizer: AdamW. */
static enum mics_status check_states(const struct job *job, const char *path, struct mics_err *err)
{
    const struct mics_optimizer_row *row = mics_optimizer_get(job->plan.plan->choice.optimizer);

    if (job->hf.states <= 1 || strcmp(row->name, "adamw") == 0)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT, "%s: is of AdamW, the plan of %s", path, row->title);
}

static enum mics_status prepare_split(struct job *job, const char *const *paths, size_t count,
                                      json_t *plan_doc, struct mics_err *err)
{
    struct mics_diagnostics *diagnostics = job->request->diagnostics;
    enum mics_status status = open_source(job, paths, count, err);
    const uint32_t states = job->hf.states > 1 ? job->hf.states : 1;

    job->manifest.plan = json_incref(plan_doc);
    job->manifest.training = json_object();
    if (status == MICS_OK) {
        status = mics_shard_plan_open(plan_doc, states, &job->plan, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "plan");
    }
    if (status == MICS_OK && !job->manifest.training)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = check_states(job, paths[0], err);
    if (status == MICS_OK)
        status = match_config(&job->hf, job->plan.plan->model, err);
    if (status == MICS_OK)
        status = mics_hf_match(&job->hf, job->plan.plan->model, diagnostics, err);
    if (status == MICS_OK)
        status = split_tokenizer(job, err);
    if (states > 1)
        job->manifest.step = job->manifest.base_step = job->hf.step;
    return status == MICS_OK ? prepare_shards(job, job->plan.doc, err) : status;
}

enum mics_status mics_convert_split(const struct mics_convert_request *request,
                                    const char *const *paths, size_t count, json_t *plan_doc,
                                    struct mics_convert_report *report, struct mics_err *err)
{
    struct job job = {.request = request, .report = report};
    const struct output output = {&job.shards.target, SHARDS_RESERVE, finish_shards};
    const enum mics_status prepared = prepare_split(&job, paths, count, plan_doc, err);

    return run_job(&job, prepared, &job.hf.store, NULL, &output, err);
}

/* The new plan's optimizer must have exactly the states of the checkpoint, unless that has only
 * parameters. */
static enum mics_status check_reshard(const struct mics_shard_source *source,
                                      const struct mics_shard_plan *plan, struct mics_err *err)
{
    const uint32_t states = mics_ckpt_inner_states(source->reader.table.states);
    const uint32_t wanted = 1 + mics_optimizer_states(plan->plan->choice.optimizer);

    if (states != 1 && states != wanted)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%s: has %u states of each parameter, the plan's optimizer %u",
                            source->reader.folder, states, wanted);

    const struct mics_optimizer_row *was = mics_manifest_optimizer(source->reader.doc);
    const struct mics_optimizer_row *is = mics_optimizer_get(plan->plan->choice.optimizer);

    if (states != 1 && was && was != is)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: is of %s, the plan of %s",
                            source->reader.folder, was->title, is->title);
    return mics_models_match(source->model, source->reader.folder, plan->plan->model, "the plan",
                             err);
}

/* The new manifest keeps what the old one says of the training. */
static enum mics_status prepare_reshard(struct job *job, const char *path, json_t *plan_doc,
                                        struct mics_err *err)
{
    const struct mics_ckpt_reader *reader = &job->source.reader;
    enum mics_status status = mics_shard_source_open(path, &job->source, err);

    if (status != MICS_OK)
        return status;
    status = mics_shard_plan_open(plan_doc, reader->table.states, &job->plan, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "plan");
        return status;
    }
    job->manifest.step = reader->manifest.step;
    job->manifest.samples = reader->manifest.samples;
    job->manifest.base_step = reader->manifest.step; /* the new plan may have another batch */
    job->manifest.base_samples = reader->manifest.samples;
    job->manifest.plan = json_incref(plan_doc);
    job->manifest.training = json_incref(reader->manifest.training);
    job->manifest.tokenizer = json_incref(reader->manifest.tokenizer);
    status = check_reshard(&job->source, &job->plan, err);
    if (status != MICS_OK)
        return status;
    status = load_tokenizer(job, reader, err);
    if (status != MICS_OK)
        return status;
    return prepare_shards(job, reader->doc, err);
}

enum mics_status mics_convert_reshard(const struct mics_convert_request *request, const char *path,
                                      json_t *plan_doc, struct mics_convert_report *report,
                                      struct mics_err *err)
{
    struct job job = {.request = request, .report = report};
    const struct output output = {&job.shards.target, SHARDS_RESERVE, finish_shards};
    const enum mics_status prepared = prepare_reshard(&job, path, plan_doc, err);

    return run_job(&job, prepared, &job.source.reader.store, &job.source.reader, &output, err);
}

/* What merge and cast have in common. */
static enum mics_status prepare_hf_files(struct job *job, struct mics_err *err)
{
    const char *base = job->request->base;
    enum mics_status status = MICS_OK;

    if (base && access(base, R_OK | X_OK) != 0)
        return mics_err_set_errno(err, "%s", base);
    if (base)
        status = find_tokenizer(job, base, err);
    if (status != MICS_OK)
        return status;
    return report_target(job, &job->hf_files.target, err);
}

static enum mics_status finish_hf_files(struct job *job, struct mics_output_folder *folder,
                                        struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    enum mics_status status =
        mics_hf_target_write_metadata(&job->hf_files, job->config, request->dtype, folder, err);

    if (status != MICS_OK)
        return status;
    status = write_tokenizer(job, folder, err);
    if (status != MICS_OK)
        return status;
    return mics_output_folder_commit(folder, err);
}

static enum mics_status prepare_merge(struct job *job, const char *path, struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    enum mics_status status = mics_shard_source_open(path, &job->source, err);
    const struct mics_model *model = status == MICS_OK ? job->source.model : NULL;

    if (status != MICS_OK)
        return status;
    status =
        mics_hf_target_of_model(model, request->dtype, request->file_bytes, &job->hf_files, err);
    if (status != MICS_OK)
        return status;
    job->config = mics_model_to_hf_config(model);
    status = job->config ? mics_hf_add_special_tokens(job->config, model,
                                                      job->source.reader.manifest.tokenizer, err)
                         : mics_err_nomem(err);
    if (status != MICS_OK)
        return status;
    if (!request->base)
        status = load_tokenizer(job, &job->source.reader, err);
    if (status != MICS_OK)
        return status;
    return prepare_hf_files(job, err);
}

static enum mics_status merge_to_hf(struct job *job, const char *path, struct mics_err *err)
{
    const struct output output = {&job->hf_files.target, HF_RESERVE, finish_hf_files};
    const enum mics_status prepared = prepare_merge(job, path, err);

    return run_job(job, prepared, &job->source.reader.store, &job->source.reader, &output, err);
}

static enum mics_status finish_file(struct job *job, struct mics_output_folder *folder,
                                    struct mics_err *err)
{
    (void)job;
    return mics_output_folder_commit(folder, err);
}

static enum mics_status prepare_gguf(struct job *job, const char *path, struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    enum mics_status status = mics_shard_source_open(path, &job->source, err);

    if (status == MICS_OK) {
        status = mics_gguf_target_of_model(job->source.model, request->dtype, request->q8_0,
                                           request->add_tokenizer, request->tokenizer_context,
                                           &job->gguf, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", path);
    }
    return status == MICS_OK ? report_target(job, &job->gguf.target, err) : status;
}

static enum mics_status merge_to_gguf(struct job *job, const char *path, struct mics_err *err)
{
    const struct output output = {&job->gguf.target, 0, finish_file};
    const enum mics_status prepared = prepare_gguf(job, path, err);

    return run_job(job, prepared, &job->source.reader.store, &job->source.reader, &output, err);
}

static enum mics_status finish_dcp(struct job *job, struct mics_output_folder *folder,
                                   struct mics_err *err)
{
    const enum mics_status status = mics_output_folder_write(
        folder, MICS_DCP_METADATA_NAME, job->dcp.metadata, job->dcp.metadata_bytes, err);

    return status == MICS_OK ? mics_output_folder_commit(folder, err) : status;
}

/* Does a checkpoint have moments of AdamW? Other states are not written: say so. Before the first
 * step there are none. */
static bool has_moments(const struct mics_ckpt_reader *reader, struct mics_diagnostics *diagnostics)
{
    const struct mics_optimizer_row *row = mics_manifest_optimizer(reader->doc);
    const uint32_t states = mics_ckpt_inner_states(reader->table.states);
    const bool moments = states == 3 && row && strcmp(row->name, "adamw") == 0;

    if (states > 1 && !moments)
        snprintf(diagnostics->note, sizeof diagnostics->note,
                 "'%.256s': the states of %s are not written: only those of AdamW", reader->folder,
                 row ? row->title : "its optimizer");
    else if (reader->table.states > states)
        snprintf(diagnostics->note, sizeof diagnostics->note,
                 "'%.256s': the states of outer steps are not written", reader->folder);
    return moments && reader->manifest.step > 0;
}

static enum mics_status prepare_dcp(struct job *job, const char *path, struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    const struct mics_ckpt_reader *reader = &job->source.reader;
    enum mics_status status = mics_shard_source_open(path, &job->source, err);

    if (status == MICS_OK)
        status = mics_dcp_target_of_model(job->source.model, request->dtype,
                                          has_moments(reader, request->diagnostics),
                                          reader->manifest.step, &job->dcp, err);
    return status == MICS_OK ? report_target(job, &job->dcp.target, err) : status;
}

static enum mics_status merge_to_dcp(struct job *job, const char *path, struct mics_err *err)
{
    const enum mics_status prepared = prepare_dcp(job, path, err);
    const struct output output = {&job->dcp.target, job->dcp.metadata_bytes, finish_dcp};

    return run_job(job, prepared, &job->source.reader.store, &job->source.reader, &output, err);
}

enum mics_status mics_convert_merge(const struct mics_convert_request *request, const char *path,
                                    struct mics_convert_report *report, struct mics_err *err)
{
    struct job job = {.request = request, .report = report};

    switch (request->format) {
    case MICS_MERGE_GGUF:
        return merge_to_gguf(&job, path, err);
    case MICS_MERGE_DCP:
        return merge_to_dcp(&job, path, err);
    case MICS_MERGE_HF:
        break;
    }
    return merge_to_hf(&job, path, err);
}

/* *config stays NULL for a folder without config.json, and for single files. */
static enum mics_status read_config(const struct mics_hf *hf, json_t **config, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    json_t *found = NULL;
    bool exists = false;
    enum mics_status status = find_config(hf, path, &exists, err);

    if (status != MICS_OK || !exists)
        return status;
    status = mics_foreign_read_file(path, MAX_CONFIG_BYTES, MICS_DOC_MAX_VALUES, &found, err);
    if (status != MICS_OK)
        return status;
    *config = mics_foreign_to_document(found);
    json_decref(found);
    return *config ? MICS_OK : mics_err_nomem(err);
}

static enum mics_status prepare_cast(struct job *job, const char *const *paths, size_t count,
                                     struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    enum mics_status status = mics_hf_open(paths, count, request->diagnostics, &job->hf, err);

    if (status == MICS_OK)
        status = read_config(&job->hf, &job->config, err);
    if (status == MICS_OK)
        status = mics_hf_list_tensors(&job->hf, err);
    if (status == MICS_OK) {
        const uint64_t before = request->diagnostics->count;

        mics_hf_check_index(&job->hf, request->diagnostics);
        status = mics_diagnostics_status(request->diagnostics, before, paths[0], err);
    }
    if (status == MICS_OK)
        status = mics_hf_target_of_hf(&job->hf, request->dtype, request->file_bytes, &job->hf_files,
                                      err);
    if (status == MICS_OK && !request->base)
        status = find_tokenizer(job, job->hf.folder, err);
    return status == MICS_OK ? prepare_hf_files(job, err) : status;
}

enum mics_status mics_convert_cast(const struct mics_convert_request *request,
                                   const char *const *paths, size_t count,
                                   struct mics_convert_report *report, struct mics_err *err)
{
    struct job job = {.request = request, .report = report};
    const struct output output = {&job.hf_files.target, HF_RESERVE, finish_hf_files};
    const enum mics_status prepared = prepare_cast(&job, paths, count, err);

    return run_job(&job, prepared, &job.hf.store, NULL, &output, err);
}
