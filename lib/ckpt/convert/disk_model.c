/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/convert/disk_model.h"

#include "base/file.h"

#include <string.h>
#include <sys/stat.h>

enum mics_status mics_disk_model_config(struct mics_disk_model *out, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    bool exists = false;
    enum mics_status status = mics_path_format(path, err, "%s/config.json", out->hf.folder);

    if (status == MICS_OK && out->is_hf && out->hf.folder[0])
        status = mics_file_exists(path, &exists, err);
    if (status != MICS_OK || !exists)
        return status;
    return mics_model_open(path, &out->own, err);
}

enum mics_status mics_disk_model_open(const char *path, struct mics_diagnostics *diagnostics,
                                      struct mics_disk_model *out, struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    struct stat info;
    bool found = true;
    enum mics_status status = MICS_OK;

    *out = (struct mics_disk_model){.is_hf = false};
    if (stat(path, &info) != 0)
        return mics_err_set_errno(err, "%s", path);
    out->is_hf = !S_ISDIR(info.st_mode) || mics_hf_is_folder(path);
    if (out->is_hf)
        return mics_hf_open(&path, 1, diagnostics, &out->hf, err);
    status = mics_checkpoint_find(path, true, folder, &found, err);
    if (status != MICS_OK)
        return status;
    if (!found)
        status = mics_hf_no_model(path, err);
    if (status != MICS_OK)
        return status;
    return mics_shard_source_open(path, &out->shards, err);
}

void mics_disk_model_close(struct mics_disk_model *model)
{
    mics_shard_source_close(&model->shards);
    mics_hf_close(&model->hf);
    mics_model_free(model->own);
    model->own = NULL;
}

const struct mics_model *mics_disk_model_of(const struct mics_disk_model *model)
{
    return model->is_hf ? model->own : model->shards.model;
}

uint32_t mics_disk_model_states(const struct mics_disk_model *model)
{
    return model->is_hf ? 1 : model->shards.reader.table.states;
}

enum mics_status mics_disk_model_match(struct mics_disk_model *disk, const struct mics_model *model,
                                       const char *model_name, struct mics_diagnostics *diagnostics,
                                       const struct mics_store **store, struct mics_err *err)
{
    const struct mics_model *own = mics_disk_model_of(disk);
    const char *name = disk->is_hf ? disk->hf.folder : disk->shards.reader.folder;
    enum mics_status status = MICS_OK;

    if (own && own != model)
        status = mics_models_match(own, name, model, model_name, err);
    if (status == MICS_OK && disk->is_hf)
        status = mics_hf_match(&disk->hf, model, diagnostics, err);
    *store = disk->is_hf ? &disk->hf.store : &disk->shards.reader.store;
    return status;
}

/* The first member of `left` that `right` has not, or has otherwise. */
static enum mics_status match_members(const json_t *left, const char *left_name,
                                      const json_t *right, const char *right_name,
                                      struct mics_err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)left, key, value)
    {
        json_t *other = json_object_get(right, key);

        if (strcmp(key, "name") == 0 || strcmp(key, "source") == 0 || json_equal(value, other))
            continue;
        char *x = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
        char *y = other ? json_dumps(other, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12)) : NULL;

        mics_err_set(err, MICS_ERR_FORMAT, "%s has a model with %s %s, %s one with %s", left_name,
                     key, x ? x : "?", right_name, y ? y : "none");
        free(x);
        free(y);
        return MICS_ERR_FORMAT;
    }
    return MICS_OK;
}

/* Compares the members of the models' JSON form, so that a new member is compared without a change
 * here. */
enum mics_status mics_models_match(const struct mics_model *a, const char *a_name,
                                   const struct mics_model *b, const char *b_name,
                                   struct mics_err *err)
{
    json_t *left = mics_model_to_json(a), *right = mics_model_to_json(b);
    enum mics_status status = left && right ? MICS_OK : mics_err_nomem(err);

    if (status != MICS_OK)
        goto out;
    status = match_members(left, a_name, right, b_name, err);
    if (status != MICS_OK)
        goto out;
    status = match_members(right, b_name, left, a_name, err);
out:
    json_decref(left);
    json_decref(right);
    return status;
}
