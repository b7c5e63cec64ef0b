/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source is read twice, once for its numbers and once from end to end for its sums. As the numbers wait for the disk, most
 * of the second reading costs no time; what was made of a damaged source is never given its name.
 */
#include "ckpt/convert/convert.h"
#include "base/background_task.h"
#include "base/file.h"
#include "ckpt/convert/convert.h"
#include "ckpt/convert/sums.h"
#include "ckpt/hf/hf.h"
#include "comm/agree.h"
#include "doc/doc.h"
#include "plan/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is to be made, and how the first rank ends it when all files are whole: `finish` writes what else belongs
 * into the folder and commits it. `room`: bytes of that, beyond the target's. */
struct mics_convert_output {
    struct mics_target *target;
    uint64_t room;
    enum mics_status (*finish)(void *context, struct mics_new_folder *folder, struct mics_err *err);
    void *context;
};

/* Make the folder request->out whole, or not at all. `prepared` is how far this rank is; `source` is where the store's
 * numbers are from, if they have sums, else NULL. With request->dry the sums are compared and nothing is made.
 * Collective: the same result on all ranks. */
enum mics_status mics_convert_make(const struct mics_convert_request *request,
                                   enum mics_status prepared, const struct mics_store *store,
                                   const struct mics_shard_source *source,
                                   const struct mics_convert_output *output, struct mics_err *err);

struct watch {
    struct mics_sums sums;
    atomic_bool stop_sums, stop_making;
};

static enum mics_status check(void *context, struct mics_err *err)
{
    struct watch *watch = context;
    enum mics_status status = mics_sums_check(&watch->sums, err);

    for (uint32_t i = 0; status == MICS_OK && i < watch->sums.source->store.file_count; i++)
        if (watch->sums.damaged[i])
            atomic_store(&watch->stop_making, true);
    if (status != MICS_OK)
        atomic_store(&watch->stop_making, true);
    return status;
}

/* What is wrong with the source explains what is wrong with its numbers; it does not explain a full disk. */
static enum mics_status make_watched(const struct mics_convert_request *request,
                                     const struct mics_store *store, struct mics_target *target,
                                     const char *folder, struct watch *watch, struct mics_err *err)
{
    const struct mics_convert_how how = {.comm = request->comm,
                                         .host_ranks = request->host_ranks,
                                         .progress = request->progress,
                                         .progress_context = request->progress_context,
                                         .cancel = &watch->stop_making};
    struct mics_err sums_err = {""}, made_err = {""};
    struct mics_background_task sums_task = {.started = false};
    enum mics_status made, sums;

    mics_background_task_start(&sums_task, check, watch);
    made = mics_convert(store, target, folder, &how, &made_err);
    if (made != MICS_OK && made != MICS_ERR_FORMAT)
        atomic_store(&watch->stop_sums, true);
    sums = mics_background_task_wait(&sums_task, &sums_err);
    if (made == MICS_OK || made == MICS_ERR_FORMAT) {
        sums = mics_sums_share(&watch->sums, request->comm, sums, request->diagnostics, &sums_err);
        if (sums != MICS_OK)
            made_err = sums_err;
        made = sums != MICS_OK ? sums : made;
    }
    if (made != MICS_OK && err)
        *err = made_err;
    return made;
}

enum mics_status mics_convert_check_sums(const struct mics_convert_request *request,
                                         const struct mics_shard_source *source,
                                         struct mics_err *err)
{
    struct mics_progress progress;
    struct mics_sums sums = {.source = source,
                             .first = (uint32_t)request->comm->rank,
                             .stride = (uint32_t)request->comm->size,
                             .host_ranks = request->host_ranks,
                             .progress = &progress};
    enum mics_status status;

    mics_progress_init(&progress, request->progress, request->progress_context,
                       mics_sums_bytes(&sums));
    status = mics_sums_check(&sums, err);
    status = mics_sums_share(&sums, request->comm, status, request->diagnostics, err);
    mics_sums_free(&sums);
    return status;
}

/* None is made before every rank knows them all. */
static enum mics_status remember_files(const struct mics_convert_request *request,
                                       const struct mics_target *target,
                                       struct mics_new_folder *folder, struct mics_err *err)
{
    enum mics_status status = mics_new_folder_remember(folder, MICS_HALT_NAME, err);

    for (uint32_t i = 0; status == MICS_OK && i < target->file_count; i++)
        status = mics_new_folder_remember(folder, target->files[i].name, err);
    return mics_agree(request->comm, status, err);
}

static enum mics_status make(const struct mics_convert_request *request,
                             const struct mics_store *store, struct mics_target *target,
                             const char *folder, struct mics_err *err)
{
    const struct mics_convert_how how = {.comm = request->comm,
                                         .host_ranks = request->host_ranks,
                                         .progress = request->progress,
                                         .progress_context = request->progress_context};

    return mics_convert(store, target, folder, &how, err);
}

static enum mics_status write_files(const struct mics_convert_request *request,
                                    const struct mics_store *store, struct mics_target *target,
                                    const struct mics_shard_source *source,
                                    struct mics_new_folder *folder, struct mics_err *err)
{
    struct watch watch = {.sums = {.source = source,
                                   .first = (uint32_t)request->comm->rank,
                                   .stride = (uint32_t)request->comm->size,
                                   .host_ranks = request->host_ranks,
                                   .cancel = &watch.stop_sums}};
    enum mics_status status = MICS_OK;

    if (!request->dry)
        status = remember_files(request, target, folder, err);
    if (status != MICS_OK || (!source && request->dry))
        return status;
    if (!source)
        return make(request, store, target, folder->temporary, err);
    if (request->dry)
        status = mics_convert_check_sums(request, source, err);
    else
        status = make_watched(request, store, target, folder->temporary, &watch, err);
    mics_sums_free(&watch.sums);
    return status;
}

enum mics_status mics_convert_make(const struct mics_convert_request *request,
                                   enum mics_status prepared, const struct mics_store *store,
                                   const struct mics_shard_source *source,
                                   const struct mics_convert_output *output, struct mics_err *err)
{
    struct mics_new_folder folder = {.lock = -1};
    enum mics_status status = mics_agree(request->comm, prepared, err);

    if (status == MICS_OK)
        status = mics_new_folder_begin(&folder, request->comm, request->out,
                                       mics_target_bytes(output->target) + output->room,
                                       request->dry, err);
    if (status == MICS_OK)
        status = write_files(request, store, output->target, source, &folder, err);
    if (status == MICS_OK && !request->dry) {
        if (request->comm->rank == 0)
            status = output->finish(output->context, &folder, err);
        status = mics_agree(request->comm, status, err);
    }
    mics_new_folder_discard(&folder);
    return status;
}

/* convert_split.c - into shards: from Hugging Face's files, or from other shards. */
#define MANIFEST_ROOM ((uint64_t)1 << 20)

/* All that one conversion holds. Not to be moved. */
struct job {
    const struct mics_convert_request *request;
    struct mics_convert_report *report;
    struct mics_shard_plan plan;
    struct mics_hf hf;               /* split: the source */
    struct mics_shard_source source; /* reshard */
    struct mics_manifest manifest;   /* of what is made */
    struct mics_shard_target made;
};

/* The history of `doc` (or none) with this command after it: a new array. */
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

static void close_job(struct job *job)
{
    mics_shard_target_free(&job->made);
    mics_manifest_free(&job->manifest);
    mics_hf_close(&job->hf);
    mics_shard_source_close(&job->source);
    mics_shard_plan_close(&job->plan);
}

static enum mics_status prepare_target(struct job *job, const json_t *history, struct mics_err *err)
{
    enum mics_status status = extend_history(job->request, history, &job->manifest.history, err);

    if (status == MICS_OK)
        status = mics_shard_target_new(&job->plan.form, &job->made, err);
    if (status != MICS_OK)
        return status;
    job->report->files = job->made.target.file_count;
    job->report->bytes = mics_target_bytes(&job->made.target);
    return mics_free_space(job->request->out, &job->report->free_bytes, err);
}

/* The first rank's part, when all files are whole. */
static enum mics_status finish(void *context, struct mics_new_folder *folder, struct mics_err *err)
{
    struct job *job = context;
    enum mics_status status =
        mics_shard_target_finish(&job->made, &job->plan.form, &job->manifest, folder, err);

    return status == MICS_OK ? mics_new_folder_commit(folder, err) : status;
}

static enum mics_status fill_folder(struct job *job, enum mics_status prepared,
                                    const struct mics_store *store,
                                    const struct mics_shard_source *source, struct mics_err *err)
{
    const struct mics_convert_output output = {
        .target = &job->made.target, .room = MANIFEST_ROOM, .finish = finish, .context = job};

    return mics_convert_make(job->request, prepared, store, source, &output, err);
}

/* A folder's config.json tells what no shape does: heads, and the normalisation's epsilon. */
static enum mics_status match_config(const struct mics_hf *hf, const struct mics_model *model,
                                     struct mics_err *err)
{
    struct mics_model *own = NULL;
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/config.json", hf->folder);

    if (status != MICS_OK || !hf->folder[0] || access(path, F_OK) != 0)
        return status;
    status = mics_model_open(path, &own, err);
    if (status == MICS_OK)
        status = mics_models_match(own, path, model, "the plan", err);
    mics_model_free(own);
    return status;
}

static enum mics_status prepare_split(struct job *job, const char *const *paths, size_t count,
                                      json_t *plan_doc, struct mics_err *err)
{
    struct mics_diagnostics *diagnostics = job->request->diagnostics;
    enum mics_status status = mics_shard_plan_open(plan_doc, 1, &job->plan, err);

    job->manifest.plan = json_incref(plan_doc);
    job->manifest.training = json_object();
    if (status != MICS_OK)
        mics_err_prefix(err, "plan");
    else if (!job->manifest.training)
        status = mics_err_nomem(err);
    else
        status = mics_hf_open(paths, count, diagnostics, &job->hf, err);
    if (status == MICS_OK)
        status = match_config(&job->hf, job->plan.plan->model, err);
    if (status == MICS_OK)
        status = mics_hf_match(&job->hf, job->plan.plan->model, diagnostics, err);
    return status == MICS_OK ? prepare_target(job, job->plan.doc, err) : status;
}

enum mics_status mics_convert_split(const struct mics_convert_request *request,
                                    const char *const *paths, size_t count, json_t *plan_doc,
                                    struct mics_convert_report *report, struct mics_err *err)
{
    struct job job = {.request = request, .report = report};
    enum mics_status status = prepare_split(&job, paths, count, plan_doc, err);

    status = fill_folder(&job, status, &job.hf.store, NULL, err);
    close_job(&job);
    return status;
}

/* States that the new plan's optimizer has no use for, or would miss, are no state of its run. */
static enum mics_status check_reshard(const struct mics_shard_source *source,
                                      const struct mics_shard_plan *plan, struct mics_err *err)
{
    const uint32_t states = source->table.states;
    const uint32_t wanted = 1 + mics_optimizer_states(plan->plan->choice.optimizer);

    if (states != 1 && states != wanted)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%s: has %u states of each parameter, the plan's optimizer %u",
                            source->folder, states, wanted);
    return mics_models_match(source->model, source->folder, plan->plan->model, "the plan", err);
}

/* All that the old manifest says of training holds. */
static enum mics_status prepare_reshard(struct job *job, const char *path, json_t *plan_doc,
                                        struct mics_err *err)
{
    struct mics_shard_source *source = &job->source;
    enum mics_status status = mics_shard_source_open(path, source, err);

    if (status != MICS_OK)
        return status;
    status = mics_shard_plan_open(plan_doc, source->table.states, &job->plan, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "plan");
        return status;
    }
    job->manifest.step = source->manifest.step;
    job->manifest.samples = source->manifest.samples;
    job->manifest.plan = json_incref(plan_doc);
    job->manifest.training = json_incref(source->manifest.training);
    status = check_reshard(source, &job->plan, err);
    return status == MICS_OK ? prepare_target(job, source->doc, err) : status;
}

enum mics_status mics_convert_reshard(const struct mics_convert_request *request, const char *path,
                                      json_t *plan_doc, struct mics_convert_report *report,
                                      struct mics_err *err)
{
    struct job job = {.request = request, .report = report};
    enum mics_status status = prepare_reshard(&job, path, plan_doc, err);

    status = fill_folder(&job, status, &job.source.store, &job.source, err);
    close_job(&job);
    return status;
}

/* convert_merge.c - into files for Hugging Face: from shards, or from other such files. */
#define SMALL_FILES_ROOM ((uint64_t)16 << 20) /* index, configuration, tokenizer */
#define MAX_CONFIG_BYTES ((size_t)4 << 20)

/* All that one conversion holds. Not to be moved. */
struct hf_job {
    const struct mics_convert_request *request;
    struct mics_convert_report *report;
    struct mics_shard_source source; /* merge */
    struct mics_hf hf;               /* cast */
    json_t *config;                  /* of what is made, or NULL */
    struct mics_hf_target made;
};

static void close_hf_job(struct hf_job *job)
{
    mics_hf_target_free(&job->made);
    json_decref(job->config);
    mics_hf_close(&job->hf);
    mics_shard_source_close(&job->source);
}

static enum mics_status report_target(struct hf_job *job, struct mics_err *err)
{
    const char *base = job->request->base;

    job->report->files = job->made.target.file_count;
    job->report->bytes = mics_target_bytes(&job->made.target);
    if (base && access(base, R_OK | X_OK) != 0)
        return mics_err_set_errno(err, "%s", base);
    return mics_free_space(job->request->out, &job->report->free_bytes, err);
}

/* The first rank's part, when all files are whole. */
static enum mics_status finish_hf(void *context, struct mics_new_folder *folder,
                                  struct mics_err *err)
{
    struct hf_job *job = context;
    const struct mics_convert_request *request = job->request;
    enum mics_status status =
        mics_hf_target_finish(&job->made, job->config, request->number, folder, err);

    if (status == MICS_OK && request->base)
        status = mics_hf_copy_tokenizer(request->base, folder, &job->report->tokenizer_files, err);
    return status == MICS_OK ? mics_new_folder_commit(folder, err) : status;
}

static enum mics_status fill_hf_folder(struct hf_job *job, enum mics_status prepared,
                                       const struct mics_store *store,
                                       const struct mics_shard_source *source, struct mics_err *err)
{
    const struct mics_convert_output output = {
        .target = &job->made.target, .room = SMALL_FILES_ROOM, .finish = finish_hf, .context = job};

    return mics_convert_make(job->request, prepared, store, source, &output, err);
}

static enum mics_status prepare_merge(struct hf_job *job, const char *path, struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    enum mics_status status = mics_shard_source_open(path, &job->source, err);
    const struct mics_model *model = status == MICS_OK ? job->source.model : NULL;

    if (status == MICS_OK)
        status =
            mics_hf_target_of_model(model, request->number, request->file_bytes, &job->made, err);
    if (status != MICS_OK)
        return status;
    job->config = mics_hf_config_of_model(model);
    return job->config ? report_target(job, err) : mics_err_nomem(err);
}

enum mics_status mics_convert_merge(const struct mics_convert_request *request, const char *path,
                                    struct mics_convert_report *report, struct mics_err *err)
{
    struct hf_job job = {.request = request, .report = report};
    enum mics_status status = prepare_merge(&job, path, err);

    status = fill_hf_folder(&job, status, &job.source.store, &job.source, err);
    close_hf_job(&job);
    return status;
}

/* A folder without config.json is converted without. */
static enum mics_status read_config(const struct mics_hf *hf, json_t **config, struct mics_err *err)
{
    char path[MICS_PATH_MAX], *data = NULL;
    size_t size = 0;
    json_error_t problem;
    enum mics_status status = mics_path_format(path, err, "%s/config.json", hf->folder);

    if (status != MICS_OK || !hf->folder[0] || access(path, F_OK) != 0)
        return status;
    status = mics_file_read(path, MAX_CONFIG_BYTES, &data, &size, err);
    if (status != MICS_OK)
        return status;
    *config = json_loadb(data, size, JSON_REJECT_DUPLICATES, &problem);
    free(data);
    if (!json_is_object(*config))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: line %d: %s", path, problem.line,
                            *config ? "expected an object" : problem.text);
    return MICS_OK;
}

static enum mics_status prepare_cast(struct hf_job *job, const char *const *paths, size_t count,
                                     struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    enum mics_status status = mics_hf_open(paths, count, request->diagnostics, &job->hf, err);

    if (status == MICS_OK)
        status = read_config(&job->hf, &job->config, err);
    if (status == MICS_OK)
        status = mics_hf_spread(&job->hf, err);
    if (status == MICS_OK)
        status =
            mics_hf_target_of_hf(&job->hf, request->number, request->file_bytes, &job->made, err);
    return status == MICS_OK ? report_target(job, err) : status;
}

enum mics_status mics_convert_cast(const struct mics_convert_request *request,
                                   const char *const *paths, size_t count,
                                   struct mics_convert_report *report, struct mics_err *err)
{
    struct hf_job job = {.request = request, .report = report};
    enum mics_status status = prepare_cast(&job, paths, count, err);

    status = fill_hf_folder(&job, status, &job.hf.store, NULL, err);
    close_hf_job(&job);
    return status;
}
