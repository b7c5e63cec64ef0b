/* SPDX-License-Identifier: Apache-2.0 */
/* convert_merge.c - into files for Hugging Face: from shards, or from other such files. */
#include "ckpt/convert/ops.h"

#include "base/file.h"
#include "comm/agree.h"
#include "ckpt/convert/write.h"
#include "ckpt/hf/hf.h"

#include <stdlib.h>
#include <unistd.h>

#define SMALL_FILES_ROOM ((uint64_t)16 << 20) /* index, configuration, tokenizer */
#define MAX_CONFIG_BYTES ((size_t)4 << 20)

/* All that one conversion holds. Not to be moved. */
struct job {
    const struct mics_convert_request *request;
    struct mics_convert_report *report;
    struct mics_shard_source source; /* merge */
    struct mics_hf hf;               /* cast */
    json_t *config;                  /* of what is made, or NULL */
    struct mics_hf_target made;
};

static void close_job(struct job *job)
{
    mics_hf_target_free(&job->made);
    json_decref(job->config);
    mics_hf_close(&job->hf);
    mics_shard_source_close(&job->source);
}

static enum mics_status report_target(struct job *job, struct mics_err *err)
{
    const char *base = job->request->base;

    job->report->files = job->made.target.file_count;
    job->report->bytes = mics_target_bytes(&job->made.target);
    if (base && access(base, R_OK | X_OK) != 0)
        return mics_err_set_errno(err, "%s", base);
    return mics_free_space(job->request->out, &job->report->free_bytes, err);
}

/* The first rank's part, when all files are whole. */
static enum mics_status finish(void *context, struct mics_new_folder *folder, struct mics_err *err)
{
    struct job *job = context;
    const struct mics_convert_request *request = job->request;
    enum mics_status status =
        mics_hf_target_write_metadata(&job->made, job->config, request->number, folder, err);

    if (status == MICS_OK && request->base)
        status = mics_hf_copy_tokenizer(request->base, folder, &job->report->tokenizer_files, err);
    return status == MICS_OK ? mics_new_folder_commit(folder, err) : status;
}

static enum mics_status fill_folder(struct job *job, enum mics_status prepared,
                                    const struct mics_store *store,
                                    const struct mics_shard_source *source, struct mics_err *err)
{
    const struct mics_convert_output output = {
        .target = &job->made.target, .room = SMALL_FILES_ROOM, .finish = finish, .context = job};

    return mics_convert_make(job->request, prepared, store, source, &output, err);
}

static enum mics_status prepare_merge(struct job *job, const char *path, struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    enum mics_status status = mics_shard_source_open(path, &job->source, err);
    const struct mics_model *model = status == MICS_OK ? job->source.model : NULL;

    if (status == MICS_OK)
        status =
            mics_hf_target_of_model(model, request->number, request->file_bytes, &job->made, err);
    if (status != MICS_OK)
        return status;
    job->config = mics_model_to_hf_config(model);
    return job->config ? report_target(job, err) : mics_err_nomem(err);
}

enum mics_status mics_convert_merge(const struct mics_convert_request *request, const char *path,
                                    struct mics_convert_report *report, struct mics_err *err)
{
    struct job job = {.request = request, .report = report};
    enum mics_status status = prepare_merge(&job, path, err);

    status = fill_folder(&job, status, &job.source.store, &job.source, err);
    close_job(&job);
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

static enum mics_status prepare_cast(struct job *job, const char *const *paths, size_t count,
                                     struct mics_err *err)
{
    const struct mics_convert_request *request = job->request;
    enum mics_status status = mics_hf_open(paths, count, request->problems, &job->hf, err);

    if (status == MICS_OK)
        status = read_config(&job->hf, &job->config, err);
    if (status == MICS_OK)
        status = mics_hf_list_tensors(&job->hf, err);
    if (status == MICS_OK)
        status =
            mics_hf_target_of_hf(&job->hf, request->number, request->file_bytes, &job->made, err);
    return status == MICS_OK ? report_target(job, err) : status;
}

enum mics_status mics_convert_cast(const struct mics_convert_request *request,
                                   const char *const *paths, size_t count,
                                   struct mics_convert_report *report, struct mics_err *err)
{
    struct job job = {.request = request, .report = report};
    enum mics_status status = prepare_cast(&job, paths, count, err);

    status = fill_folder(&job, status, &job.hf.store, NULL, err);
    close_job(&job);
    return status;
}
