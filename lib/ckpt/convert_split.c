/* SPDX-License-Identifier: Apache-2.0 */
/* convert_split.c - into shards: from Hugging Face's files, or from other shards. */
#include "ckpt/convert_ops.h"

#include "ckpt/convert_shards.h"
#include "ckpt/hf.h"
#include "doc/doc.h"
#include "plan/memory.h"

#include <string.h>
#include <unistd.h>

#define MANIFEST_ROOM ((uint64_t)1 << 20)

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

/* Make the folder, its files and its manifest. */
static enum mics_status fill_folder(const struct mics_convert_request *request,
                                    const struct mics_store *store, struct mics_shard_target *made,
                                    const struct mics_ckpt_form *form,
                                    struct mics_manifest *manifest, struct mics_err *err)
{
    struct mics_new_folder folder = {.made = false};
    enum mics_status status = mics_new_folder_begin(
        &folder, request->out, mics_target_bytes(&made->target) + MANIFEST_ROOM, request->dry, err);

    if (status == MICS_OK && !request->dry) {
        status = mics_convert(store, &made->target, folder.temporary, request->progress,
                              request->progress_context, err);
        if (status == MICS_OK)
            status = mics_shard_target_finish(made, form, manifest, &folder, err);
        if (status == MICS_OK)
            status = mics_new_folder_commit(&folder, err);
    }
    mics_new_folder_discard(&folder);
    return status;
}

static enum mics_status write_shards(const struct mics_convert_request *request,
                                     const struct mics_store *store,
                                     const struct mics_shard_plan *plan,
                                     struct mics_manifest *manifest,
                                     struct mics_convert_report *report, struct mics_err *err)
{
    struct mics_shard_target made = {.header = NULL};
    enum mics_status status = mics_shard_target_new(&plan->form, &made, err);

    if (status != MICS_OK)
        return status;
    report->files = made.target.file_count;
    report->bytes = mics_target_bytes(&made.target);
    status = mics_free_space(request->out, &report->free_bytes, err);
    if (status == MICS_OK)
        status = fill_folder(request, store, &made, &plan->form, manifest, err);
    mics_shard_target_free(&made);
    return status;
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

static enum mics_status split(const struct mics_convert_request *request, struct mics_hf *hf,
                              const struct mics_shard_plan *plan, struct mics_manifest *manifest,
                              struct mics_convert_report *report, struct mics_err *err)
{
    enum mics_status status = match_config(hf, plan->plan->model, err);

    if (status == MICS_OK)
        status = mics_hf_match(hf, plan->plan->model, request->problems, err);
    if (status == MICS_OK)
        status = extend_history(request, plan->doc, &manifest->history, err);
    if (status == MICS_OK)
        status = write_shards(request, &hf->store, plan, manifest, report, err);
    return status;
}

enum mics_status mics_convert_split(const struct mics_convert_request *request,
                                    const char *const *paths, size_t count, json_t *plan_doc,
                                    struct mics_convert_report *report, struct mics_err *err)
{
    struct mics_shard_plan plan = {.doc = NULL};
    struct mics_hf hf = {.file_count = 0};
    struct mics_manifest manifest = {.plan = json_incref(plan_doc), .training = json_object()};
    enum mics_status status =
        manifest.training ? mics_shard_plan_open(plan_doc, 1, &plan, err) : mics_err_nomem(err);

    if (status != MICS_OK)
        mics_err_prefix(err, "plan");
    else
        status = mics_hf_open(paths, count, request->problems, &hf, err);
    if (status == MICS_OK)
        status = split(request, &hf, &plan, &manifest, report, err);
    mics_hf_close(&hf);
    mics_manifest_free(&manifest);
    mics_shard_plan_close(&plan);
    return status;
}

/* States that the new plan's optimizer has no use for, or would miss, are no state of its run. */
static enum mics_status check_reshard(const struct mics_shard_source *source,
                                      const struct mics_shard_plan *plan, struct mics_err *err)
{
    const uint32_t states = source->plan.form.states;
    const uint32_t wanted = 1 + mics_optimizer_states(plan->plan->choice.optimizer);

    if (states != 1 && states != wanted)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%s: has %u states of each parameter, the plan's optimizer %u",
                            source->folder, states, wanted);
    return mics_models_match(source->plan.plan->model, source->folder, plan->plan->model,
                             "the plan", err);
}

/* All that the old manifest says of training holds. */
static enum mics_status reshard(const struct mics_convert_request *request,
                                struct mics_shard_source *source, struct mics_shard_plan *plan,
                                struct mics_convert_report *report, struct mics_err *err)
{
    struct mics_manifest manifest = {.step = source->manifest.step,
                                     .samples = source->manifest.samples,
                                     .plan = json_incref(plan->doc),
                                     .training = json_incref(source->manifest.training)};
    enum mics_status status = check_reshard(source, plan, err);

    if (status == MICS_OK)
        status = mics_shard_source_sums(source, 0, 1, request->problems, err);
    if (status == MICS_OK)
        status = extend_history(request, source->doc, &manifest.history, err);
    if (status == MICS_OK)
        status = write_shards(request, &source->store, plan, &manifest, report, err);
    mics_manifest_free(&manifest);
    return status;
}

enum mics_status mics_convert_reshard(const struct mics_convert_request *request, const char *path,
                                      json_t *plan_doc, struct mics_convert_report *report,
                                      struct mics_err *err)
{
    struct mics_shard_plan plan = {.doc = NULL};
    struct mics_shard_source source = {.doc = NULL};
    enum mics_status status = mics_shard_source_open(path, &source, err);

    if (status == MICS_OK) {
        status = mics_shard_plan_open(plan_doc, source.plan.form.states, &plan, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "plan");
    }
    if (status == MICS_OK)
        status = reshard(request, &source, &plan, report, err);
    mics_shard_plan_close(&plan);
    mics_shard_source_close(&source);
    return status;
}
