/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/saver.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "base/threads.h"
#include "comm/agree.h"
#include "doc/doc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Upper bound of a manifest, bytes. */
#define MANIFEST_RESERVE ((uint64_t)1 << 20)

enum stage { IDLE, WRITING, PUBLISHING };

/* A file that a rank writes: a part of its shard of the units that use the groups of one kind. */
struct own_file {
    int64_t file; /* its number; -1: none */
    uint64_t count;
    float *snapshot; /* [count] */
    struct mics_file_sum sum;
};

struct mics_saver {
    struct mics_checkpoint checkpoint;
    const char *out;
    struct mics_keep keep;
    const struct mics_tokenizer_files *tokenizer; /* or NULL */
    struct own_file files[MICS_UNIT_KIND_COUNT];  /* that this rank writes, by kind of unit */
    enum stage stage;
    struct mics_background_task task;
    double begin_s;
    /* The save under way. */
    struct mics_saved saved;
    char temporary[MICS_PATH_MAX];
    struct mics_manifest manifest;
    struct mics_progress progress;
    uint64_t published; /* step of the checkpoint before; 0: none yet */
    char *encoded;      /* the manifest, on rank 0 */
    size_t encoded_bytes;
};

/* The file of a kind that a rank writes, or -1: the parts of a shard are written by the first ranks
 * that hold it. */
static int64_t file_of(const struct mics_ckpt_layout *form, int kind, uint32_t rank)
{
    const uint32_t shards = mics_ckpt_kind_shards(form, kind);

    if (shards == 0 || rank / shards >= form->parts)
        return -1;
    return (int64_t)mics_ckpt_shard_of(form, kind, rank) * form->parts + rank / shards;
}

static enum mics_status init_file(struct own_file *own, const struct mics_ckpt_layout *form,
                                  struct mics_err *err)
{
    if (own->file < 0)
        return MICS_OK;
    own->count = mics_shard_part_count(form, (uint32_t)own->file);
    own->snapshot = malloc(own->count * sizeof *own->snapshot);
    if (!own->snapshot)
        return mics_err_nomem(err);
    /* Touch the pages now, not while training waits for the first snapshot. */
    memset(own->snapshot, 0, own->count * sizeof *own->snapshot);
    return MICS_OK;
}

enum mics_status mics_saver_new(const struct mics_checkpoint *checkpoint, const char *out,
                                const struct mics_keep *keep, struct mics_saver **out_saver,
                                struct mics_err *err)
{
    struct mics_saver *saver = calloc(1, sizeof *saver);

    if (!saver)
        return mics_err_nomem(err);
    saver->checkpoint = *checkpoint;
    saver->out = out;
    saver->keep = *keep;
    mics_progress_init(&saver->progress, NULL, NULL, 0);
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        struct own_file *own = &saver->files[kind];

        own->file = file_of(checkpoint->form, kind, (uint32_t)checkpoint->comm->rank);
        if (init_file(own, checkpoint->form, err) != MICS_OK) {
            mics_saver_free(saver);
            return MICS_ERR_NOMEM;
        }
    }
    *out_saver = saver;
    return MICS_OK;
}

void mics_saver_add_tokenizer(struct mics_saver *saver, const struct mics_tokenizer_files *files)
{
    saver->tokenizer = files;
}

void mics_saver_free(struct mics_saver *saver)
{
    if (!saver)
        return;
    mics_background_task_wait(&saver->task, NULL);
    mics_manifest_free(&saver->manifest);
    free(saver->encoded);
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        free(saver->files[kind].snapshot);
    free(saver);
}

uint64_t mics_saver_bytes(const struct mics_saver *saver)
{
    uint64_t bytes = 0;

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++)
        bytes += saver->files[kind].count * sizeof(float);
    return bytes;
}

bool mics_saver_active(const struct mics_saver *saver)
{
    return saver->stage != IDLE;
}

bool mics_saver_busy(const struct mics_saver *saver)
{
    return mics_background_task_busy(&saver->task);
}

uint64_t mics_saver_written(const struct mics_saver *saver)
{
    return atomic_load(&saver->progress.done);
}

static uint64_t tokenizer_bytes(const struct mics_saver *saver)
{
    return saver->tokenizer ? mics_tokenizer_files_bytes(saver->tokenizer) : 0;
}

static enum mics_status make_temporary(const struct mics_saver *saver, struct mics_err *err)
{
    const uint64_t bytes = mics_shard_files_bytes(saver->checkpoint.form) + tokenizer_bytes(saver);
    enum mics_status status =
        mics_check_space(saver->out, bytes + MANIFEST_RESERVE, "the checkpoint", err);

    if (status != MICS_OK)
        return status;
    status = mics_file_remove_tree(saver->temporary, err);
    if (status != MICS_OK)
        return status;
    if (mkdir(saver->temporary, 0777) != 0)
        return mics_err_set_errno(err, "%s", saver->temporary);
    return status;
}

/* Rank 0 chooses the names, because the temporary one contains its process id. */
static enum mics_status open_folder(struct mics_saver *saver, struct mics_err *err)
{
    struct mics_comm *comm = saver->checkpoint.comm;
    enum mics_status status = mics_checkpoint_paths(saver->out, saver->manifest.step,
                                                    saver->saved.path, saver->temporary, err);

    if (status == MICS_OK && comm->rank == 0)
        status = make_temporary(saver, err);
    status = mics_agree(comm, status, err);
    if (status != MICS_OK)
        return status;
    return mics_comm_broadcast_now(comm, saver->temporary, sizeof saver->temporary, 0, err);
}

static enum mics_status write_files(void *context, struct mics_err *err)
{
    struct mics_saver *saver = context;
    char name[64], path[MICS_PATH_MAX];

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        struct own_file *own = &saver->files[kind];

        if (own->file < 0)
            continue;
        mics_ckpt_file_name((uint32_t)own->file, name, sizeof name);
        enum mics_status status = mics_path_format(path, err, "%s/%s", saver->temporary, name);
        if (status == MICS_OK)
            status = mics_shard_part_write(path, saver->checkpoint.form, (uint32_t)own->file,
                                           own->snapshot, &own->sum, &saver->progress, err);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

static enum mics_status take_files(struct mics_saver *saver, struct mics_err *err)
{
    const struct mics_checkpoint *checkpoint = &saver->checkpoint;

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        const struct own_file *own = &saver->files[kind];

        if (own->file < 0)
            continue;
        const enum mics_status status = mics_shard_part_take(
            checkpoint->form, (uint32_t)own->file, &checkpoint->source, own->snapshot, err);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

/* Clean up after a save. Returns `status`. */
static enum mics_status end_save(struct mics_saver *saver, enum mics_status status)
{
    if (status != MICS_OK && saver->checkpoint.comm->rank == 0)
        mics_file_remove_tree(saver->temporary, NULL);
    mics_manifest_free(&saver->manifest);
    free(saver->encoded);
    saver->encoded = NULL;
    saver->stage = IDLE;
    return status;
}

enum mics_status mics_saver_begin(struct mics_saver *saver, struct mics_manifest *manifest,
                                  struct mics_err *err)
{
    const struct mics_checkpoint *checkpoint = &saver->checkpoint;
    enum mics_status status;

    saver->begin_s = mics_now_s();
    saver->manifest = *manifest;
    *manifest = (struct mics_manifest){0};
    saver->saved = (struct mics_saved){.step = saver->manifest.step};
    saver->temporary[0] = '\0';
    status = open_folder(saver, err);
    if (status != MICS_OK) {
        mics_manifest_free(&saver->manifest);
        return status;
    }
    const double copy_begin_s = mics_now_s();
    status = take_files(saver, err);
    saver->saved.copy_s = mics_now_s() - copy_begin_s;
    status = mics_agree(checkpoint->comm, status, err);
    if (status != MICS_OK)
        return end_save(saver, status);
    saver->stage = WRITING;
    if (mics_saver_bytes(saver) > 0)
        mics_background_task_start(&saver->task, write_files, saver);
    saver->saved.pause_s = mics_now_s() - saver->begin_s;
    return MICS_OK;
}

/* Every rank gets the sums of all files. */
static enum mics_status gather_sums(struct mics_saver *saver, struct mics_err *err)
{
    const struct mics_ckpt_layout *form = saver->checkpoint.form;
    struct mics_manifest *manifest = &saver->manifest;
    struct mics_comm *comm = saver->checkpoint.comm;
    struct mics_file_sum *all = malloc((size_t)comm->size * sizeof *all);
    enum mics_status status;

    free(manifest->files);
    manifest->file_count = mics_ckpt_first_shard(form, MICS_UNIT_KIND_COUNT) * form->parts;
    manifest->files = calloc(manifest->file_count, sizeof *manifest->files);
    status = mics_agree(comm, all && manifest->files ? MICS_OK : mics_err_nomem(err), err);
    for (int kind = 0; status == MICS_OK && kind < MICS_UNIT_KIND_COUNT; kind++) {
        if (mics_ckpt_kind_shards(form, kind) == 0)
            continue;
        status = mics_comm_all_gather_now(comm, &saver->files[kind].sum, all, sizeof *all, err);
        for (uint32_t rank = 0; status == MICS_OK && rank < (uint32_t)comm->size; rank++) {
            const int64_t file = file_of(form, kind, rank);

            if (file < 0)
                continue;
            manifest->files[file] = all[rank];
            saver->saved.bytes += all[rank].bytes;
        }
    }
    free(all);
    return status;
}

static enum mics_status encode(struct mics_saver *saver, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status =
        mics_manifest_to_doc(&saver->manifest, saver->checkpoint.form, &doc, err);

    if (status == MICS_OK)
        status =
            mics_doc_encode(doc, MICS_DOC_MSGPACK, &saver->encoded, &saver->encoded_bytes, err);
    json_decref(doc);
    return status;
}

static enum mics_status write_manifest(const struct mics_saver *saver, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    struct mics_hashed_file *file = NULL;
    struct mics_file_sum sum;
    enum mics_status status =
        mics_path_format(path, err, "%s/" MICS_MANIFEST_NAME, saver->temporary);

    if (status == MICS_OK)
        status = mics_hashed_file_create(path, NULL, &file, err);
    if (status == MICS_OK)
        status = mics_hashed_file_write(file, saver->encoded, saver->encoded_bytes, err);
    if (status == MICS_OK)
        status = mics_hashed_file_finish(file, &sum, err);
    else
        mics_hashed_file_drop(file);
    return status;
}

static enum mics_status publish(void *context, struct mics_err *err)
{
    struct mics_saver *saver = context;
    enum mics_status status = MICS_OK;

    if (saver->tokenizer)
        status = mics_tokenizer_files_write(saver->tokenizer, saver->temporary, err);
    if (status == MICS_OK)
        status = write_manifest(saver, err);
    if (status == MICS_OK)
        status = mics_checkpoint_publish(saver->out, saver->temporary, saver->saved.path, err);
    if (status == MICS_OK)
        status = mics_checkpoint_prune(saver->out, &saver->keep,
                                       mics_max_u64(saver->published, saver->manifest.base_step),
                                       saver->saved.step, err);
    return status;
}

/* All files are written: rank 0 writes the manifest next. Its thread gets the encoded bytes,
 * because documents are not thread-safe. */
static enum mics_status start_publishing(struct mics_saver *saver, struct mics_err *err)
{
    struct mics_comm *comm = saver->checkpoint.comm;
    enum mics_status status = gather_sums(saver, err);

    if (status == MICS_OK && comm->rank == 0)
        status = encode(saver, err);
    status = mics_agree(comm, status, err);
    if (status != MICS_OK)
        return end_save(saver, status);
    saver->stage = PUBLISHING;
    saver->saved.bytes += saver->encoded_bytes + tokenizer_bytes(saver);
    if (comm->rank == 0)
        mics_background_task_start(&saver->task, publish, saver);
    return MICS_OK;
}

enum mics_status mics_saver_advance(struct mics_saver *saver, bool *done, struct mics_saved *saved,
                                    struct mics_err *err)
{
    enum mics_status status = mics_background_task_wait(&saver->task, err);

    *done = false;
    status = mics_agree(saver->checkpoint.comm, status, err);
    if (status != MICS_OK)
        return end_save(saver, status);
    if (saver->stage == WRITING)
        return start_publishing(saver, err);
    saver->published = saver->saved.step;
    saver->saved.seconds = mics_now_s() - saver->begin_s;
    *saved = saver->saved;
    *done = true;
    return end_save(saver, MICS_OK);
}
