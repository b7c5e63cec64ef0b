/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/checkpoint.h"

#include "ckpt/agree.h"
#include "doc/doc.h"

#include <stdlib.h>

static enum mics_status broadcast_bytes(struct mics_comm *comm, char **data, uint64_t *size,
                                        struct mics_err *err)
{
    enum mics_status status = comm->ops->broadcast_now(comm, size, sizeof *size, 0, err);

    if (status != MICS_OK)
        return status;
    if (comm->rank != 0)
        *data = malloc(*size);
    status = mics_agree(comm, *data ? MICS_OK : mics_err_nomem(err), err);
    return status == MICS_OK ? comm->ops->broadcast_now(comm, *data, *size, 0, err) : status;
}

enum mics_status mics_broadcast_doc(struct mics_comm *comm, json_t **doc, struct mics_err *err)
{
    char *data = NULL;
    size_t encoded = 0;
    uint64_t size = 0;
    enum mics_status status = MICS_OK;

    if (comm->rank == 0) {
        status = mics_doc_encode(*doc, MICS_DOC_MSGPACK, &data, &encoded, err);
        size = encoded;
    }
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = broadcast_bytes(comm, &data, &size, err);
    if (status == MICS_OK && comm->rank != 0)
        status = mics_doc_decode(data, size, doc, err);
    free(data);
    return status;
}

enum mics_status mics_checkpoint_read_manifest(struct mics_comm *comm, const char *folder,
                                               json_t **doc, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/" MICS_MANIFEST_NAME, folder);

    *doc = NULL;
    if (status == MICS_OK && comm->rank == 0)
        status = mics_doc_read_file(path, doc, err);
    if (status == MICS_OK && comm->rank == 0) {
        status = mics_doc_expect(*doc, MICS_CHECKPOINT_KIND, MICS_CHECKPOINT_VERSION, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", path);
    }
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = mics_broadcast_doc(comm, doc, err);
    if (status != MICS_OK) {
        json_decref(*doc);
        *doc = NULL;
    }
    return status;
}

static enum mics_status read_shard(const struct mics_checkpoint *checkpoint, const char *folder,
                                   const struct mics_manifest *manifest, struct mics_err *err)
{
    const struct mics_shape *shape = &checkpoint->form->choice->shape;
    uint32_t index = mics_shape_index(shape, (uint32_t)checkpoint->comm->rank).optim;
    char name[64], path[MICS_PATH_MAX];
    enum mics_status status;

    mics_ckpt_file_name(index, name, sizeof name);
    status = mics_path_format(path, err, "%s/%s", folder, name);
    return status == MICS_OK ? mics_shard_file_read(path, checkpoint->form, &manifest->files[index],
                                                    &checkpoint->source, err)
                             : status;
}

enum mics_status mics_checkpoint_load(const struct mics_checkpoint *checkpoint, const char *folder,
                                      json_t *doc, struct mics_err *err)
{
    struct mics_manifest manifest = {0};
    enum mics_status status = mics_manifest_from_doc(doc, &manifest, err);

    if (status == MICS_OK)
        status = mics_manifest_match(doc, checkpoint->form, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", folder);
    else
        status = read_shard(checkpoint, folder, &manifest, err);
    mics_manifest_free(&manifest);
    return mics_agree(checkpoint->comm, status, err);
}
