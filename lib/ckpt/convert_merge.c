/* SPDX-License-Identifier: Apache-2.0 */
/* convert_merge.c - into files for Hugging Face: from shards, or from other such files. */
#include "ckpt/convert_ops.h"

#include "base/file.h"
#include "ckpt/convert_shards.h"
#include "ckpt/hf.h"

#include <stdlib.h>
#include <unistd.h>

#define SMALL_FILES_ROOM ((uint64_t)16 << 20) /* index, configuration, tokenizer */
#define MAX_CONFIG_BYTES ((size_t)4 << 20)

static enum mics_status fill_folder(const struct mics_convert_request *request,
                                    const struct mics_store *store, struct mics_hf_target *made,
                                    const json_t *config, struct mics_convert_report *report,
                                    struct mics_err *err)
{
    struct mics_new_folder folder = {.made = false};
    enum mics_status status = mics_new_folder_begin(
        &folder, request->out, report->bytes + SMALL_FILES_ROOM, request->dry, err);

    if (status == MICS_OK && !request->dry) {
        status = mics_convert(store, &made->target, folder.temporary, request->progress,
                              request->progress_context, err);
        if (status == MICS_OK)
            status = mics_hf_target_finish(made, config, request->number, &folder, err);
        if (status == MICS_OK && request->base)
            status = mics_hf_copy_tokenizer(request->base, &folder, &report->tokenizer_files, err);
        if (status == MICS_OK)
            status = mics_new_folder_commit(&folder, err);
    }
    mics_new_folder_discard(&folder);
    return status;
}

static enum mics_status write_files(const struct mics_convert_request *request,
                                    const struct mics_store *store, struct mics_hf_target *made,
                                    const json_t *config, struct mics_convert_report *report,
                                    struct mics_err *err)
{
    enum mics_status status = mics_free_space(request->out, &report->free_bytes, err);

    report->files = made->target.file_count;
    report->bytes = mics_target_bytes(&made->target);
    if (status == MICS_OK && request->base && access(request->base, R_OK | X_OK) != 0)
        status = mics_err_set_errno(err, "%s", request->base);
    return status == MICS_OK ? fill_folder(request, store, made, config, report, err) : status;
}

enum mics_status mics_convert_merge(const struct mics_convert_request *request, const char *path,
                                    struct mics_convert_report *report, struct mics_err *err)
{
    struct mics_shard_source source = {.doc = NULL};
    struct mics_hf_target made = {.count = 0};
    json_t *config = NULL;
    enum mics_status status = mics_shard_source_open(path, &source, err);

    if (status == MICS_OK)
        status = mics_shard_source_sums(&source, 0, 1, request->problems, err);
    if (status == MICS_OK)
        status = mics_hf_target_of_model(source.plan.plan->model, request->number,
                                         request->file_bytes, &made, err);
    if (status == MICS_OK) {
        config = mics_hf_config_of_model(source.plan.plan->model);
        if (!config)
            status = mics_err_nomem(err);
    }
    if (status == MICS_OK)
        status = write_files(request, &source.store, &made, config, report, err);
    json_decref(config);
    mics_hf_target_free(&made);
    mics_shard_source_close(&source);
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

enum mics_status mics_convert_cast(const struct mics_convert_request *request,
                                   const char *const *paths, size_t count,
                                   struct mics_convert_report *report, struct mics_err *err)
{
    struct mics_hf hf = {.file_count = 0};
    struct mics_hf_target made = {.count = 0};
    json_t *config = NULL;
    enum mics_status status = mics_hf_open(paths, count, request->problems, &hf, err);

    if (status == MICS_OK)
        status = read_config(&hf, &config, err);
    if (status == MICS_OK)
        status = mics_hf_spread(&hf, err);
    if (status == MICS_OK)
        status = mics_hf_target_of_hf(&hf, request->number, request->file_bytes, &made, err);
    if (status == MICS_OK)
        status = write_files(request, &hf.store, &made, config, report, err);
    json_decref(config);
    mics_hf_target_free(&made);
    mics_hf_close(&hf);
    return status;
}
