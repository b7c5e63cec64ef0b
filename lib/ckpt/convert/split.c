/* SPDX-License-Identifier: Apache-2.0 */
/* convert_split.c - into shards: from Hugging Face's files, or from other shards. */
#include "ckpt/convert/ops.h"

#include "ckpt/convert/write.h"
#include "ckpt/hf/hf.h"
#include "comm/agree.h"
#include "doc/doc.h"
#include "plan/memory.h"

#include <string.h>
#include <unistd.h>

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
    struct mics_problems *problems = job->request->problems;
    enum mics_status status = mics_shard_plan_open(plan_doc, 1, &job->plan, err);

    job->manifest.plan = json_incref(plan_doc);
    job->manifest.training = json_object();
    if (status != MICS_OK)
        mics_err_prefix(err, "plan");
    else if (!job->manifest.training)
        status = mics_err_nomem(err);
    else
        status = mics_hf_open(paths, count, problems, &job->hf, err);
    if (status == MICS_OK)
        status = match_config(&job->hf, job->plan.plan->model, err);
    if (status == MICS_OK)
        status = mics_hf_match(&job->hf, job->plan.plan->model, problems, err);
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

    const struct mics_optimizer_row *was = mics_manifest_optimizer(source->doc);
    const struct mics_optimizer_row *is = mics_optimizer_get(plan->plan->choice.optimizer);

    if (states != 1 && was && was != is)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: is of %s, the plan of %s", source->folder,
                            was->title, is->title);
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
