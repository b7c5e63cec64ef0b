/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/checkpoint.h"

#include "base/file.h"
#include "ckpt/agree.h"
#include "doc/doc.h"

#include <stdlib.h>
#include <sys/stat.h>

/* The documents in a manifest are small beside the shards, but count them. */
#define MANIFEST_ROOM ((uint64_t)1 << 20)

static enum mics_status make_temporary(const struct mics_checkpoint *checkpoint, const char *out,
                                       const char *temporary, struct mics_err *err)
{
    uint64_t bytes = mics_shard_file_bytes(checkpoint->form);
    enum mics_status status = mics_check_space(
        out,
        bytes * checkpoint->form->choice->shape.p_optim * checkpoint->form->parts + MANIFEST_ROOM,
        err);

    if (status == MICS_OK)
        status = mics_file_remove_tree(temporary, err);
    if (status == MICS_OK && mkdir(temporary, 0777) != 0)
        status = mics_err_set_errno(err, "%s", temporary);
    return status;
}

/* Rank 0 chooses the names: its process number is in one of them. */
static enum mics_status begin(const struct mics_checkpoint *checkpoint, const char *out,
                              uint64_t step, struct mics_saved *saved, char *temporary,
                              struct mics_err *err)
{
    struct mics_comm *comm = checkpoint->comm;
    enum mics_status status = mics_checkpoint_paths(out, step, saved->path, temporary, err);

    if (status == MICS_OK && comm->rank == 0)
        status = make_temporary(checkpoint, out, temporary, err);
    status = mics_agree(comm, status, err);
    if (status != MICS_OK)
        return status;
    return comm->ops->broadcast_now(comm, temporary, MICS_PATH_MAX, 0, err);
}

/* The file that this rank writes, or -1: shards in turn are written by their first replicas. */
static int64_t own_file(const struct mics_ckpt_form *form, uint32_t rank)
{
    const struct mics_shape *shape = &form->choice->shape;
    const uint32_t replica = rank / shape->p_optim;

    return replica < form->parts
               ? (int64_t)mics_shape_index(shape, rank).optim * form->parts + replica
               : -1;
}

static enum mics_status write_shard(const struct mics_checkpoint *checkpoint, const char *temporary,
                                    struct mics_file_sum *sum, struct mics_err *err)
{
    const struct mics_ckpt_form *form = checkpoint->form;
    const int64_t file = own_file(form, (uint32_t)checkpoint->comm->rank);
    char name[64], path[MICS_PATH_MAX];
    float *values;
    enum mics_status status;

    if (file < 0)
        return MICS_OK;
    mics_ckpt_file_name((uint32_t)file, name, sizeof name);
    status = mics_path_format(path, err, "%s/%s", temporary, name);
    if (status != MICS_OK)
        return status;
    const uint32_t part = (uint32_t)(file % form->parts);
    values = malloc(mics_shard_part_count(form, part) * sizeof *values);
    status = values ? mics_shard_part_take(form, part, &checkpoint->source, values, err)
                    : mics_err_nomem(err);
    if (status == MICS_OK)
        status = mics_shard_part_write(path, form, part, values, sum, err);
    free(values);
    return status;
}

/* Everybody writes; then everybody knows the sums of all files. */
static enum mics_status write_shards(const struct mics_checkpoint *checkpoint,
                                     const char *temporary, struct mics_manifest *manifest,
                                     struct mics_err *err)
{
    const struct mics_ckpt_form *form = checkpoint->form;
    struct mics_comm *comm = checkpoint->comm;
    struct mics_file_sum own = {0}, *all = malloc((size_t)comm->size * sizeof *all);
    enum mics_status status = write_shard(checkpoint, temporary, &own, err);

    free(manifest->files);
    manifest->file_count = form->choice->shape.p_optim * form->parts;
    manifest->files = calloc(manifest->file_count, sizeof *manifest->files);
    if (status == MICS_OK && (!all || !manifest->files))
        status = mics_err_nomem(err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = comm->ops->all_gather_now(comm, &own, all, sizeof own, err);
    for (uint32_t rank = 0; status == MICS_OK && rank < (uint32_t)comm->size; rank++)
        if (own_file(form, rank) >= 0)
            manifest->files[own_file(form, rank)] = all[rank];
    free(all);
    return status;
}

static enum mics_status write_encoded(const char *path, const json_t *doc, uint64_t *bytes,
                                      struct mics_err *err)
{
    struct mics_hashed_file *file = NULL;
    struct mics_file_sum sum = {0};
    char *data = NULL;
    size_t size = 0;
    enum mics_status status = mics_doc_encode(doc, MICS_DOC_MSGPACK, &data, &size, err);

    if (status == MICS_OK)
        status = mics_hashed_file_create(path, &file, err);
    if (status == MICS_OK)
        status = mics_hashed_file_write(file, data, size, err);
    if (status == MICS_OK)
        status = mics_hashed_file_finish(file, &sum, err);
    else
        mics_hashed_file_drop(file);
    *bytes = sum.bytes;
    free(data);
    return status;
}

static enum mics_status finish(const struct mics_checkpoint *checkpoint, const char *out,
                               const char *temporary, const struct mics_manifest *manifest,
                               struct mics_saved *saved, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    json_t *doc = NULL;
    enum mics_status status = mics_path_format(path, err, "%s/" MICS_MANIFEST_NAME, temporary);

    if (status == MICS_OK)
        status = mics_manifest_to_doc(manifest, checkpoint->form, &doc, err);
    if (status == MICS_OK)
        status = write_encoded(path, doc, &saved->bytes, err);
    if (status == MICS_OK)
        status = mics_checkpoint_publish(out, temporary, saved->path, err);
    json_decref(doc);
    return status;
}

enum mics_status mics_checkpoint_save(const struct mics_checkpoint *checkpoint, const char *out,
                                      struct mics_manifest *manifest, struct mics_saved *saved,
                                      struct mics_err *err)
{
    char temporary[MICS_PATH_MAX];
    enum mics_status status;

    *saved = (struct mics_saved){0};
    status = begin(checkpoint, out, manifest->step, saved, temporary, err);
    if (status != MICS_OK)
        return status;
    status = write_shards(checkpoint, temporary, manifest, err);
    if (status == MICS_OK && checkpoint->comm->rank == 0)
        status = finish(checkpoint, out, temporary, manifest, saved, err);
    status = mics_agree(checkpoint->comm, status, err);
    if (status != MICS_OK && checkpoint->comm->rank == 0)
        mics_file_remove_tree(temporary, NULL);
    for (uint32_t i = 0; status == MICS_OK && i < manifest->file_count; i++)
        saved->bytes += manifest->files[i].bytes;
    return status;
}
