/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/convert/disk_model.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

enum mics_status mics_disk_model_config(struct mics_disk_model *out, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/config.json", out->hf.folder);

    if (status != MICS_OK || !out->is_hf || !out->hf.folder[0] || access(path, F_OK) != 0)
        return status;
    return mics_model_open(path, &out->own, err);
}

enum mics_status mics_disk_model_open(const char *path, struct mics_diagnostics *diagnostics,
                                      struct mics_disk_model *out, struct mics_err *err)
{
    struct stat info;

    *out = (struct mics_disk_model){.is_hf = false};
    if (stat(path, &info) != 0)
        return mics_err_set_errno(err, "%s", path);
    out->is_hf = !S_ISDIR(info.st_mode) || mics_hf_is_folder(path);
    if (!out->is_hf)
        return mics_shard_source_open(path, &out->shards, err);
    return mics_hf_open(&path, 1, diagnostics, &out->hf, err);
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
    return model->is_hf ? 1 : model->shards.table.states;
}

enum mics_status mics_disk_model_match(struct mics_disk_model *disk, const struct mics_model *model,
                                       const char *model_name, struct mics_diagnostics *diagnostics,
                                       const struct mics_store **store, struct mics_err *err)
{
    const struct mics_model *own = mics_disk_model_of(disk);
    const char *name = disk->is_hf ? disk->hf.folder : disk->shards.folder;
    enum mics_status status = MICS_OK;

    if (own && own != model)
        status = mics_models_match(own, name, model, model_name, err);
    if (status == MICS_OK && disk->is_hf)
        status = mics_hf_match(&disk->hf, model, diagnostics, err);
    *store = disk->is_hf ? &disk->hf.store : &disk->shards.store;
    return status;
}
