/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/checkpoint.h"

#include "ckpt/ckpt_reader.h"
#include "comm/agree.h"
#include "doc/doc.h"

#include <stdlib.h>

#define CHUNK ((uint64_t)1 << 20) /* elements of one read of a whole file */

/* What loading needs on one rank. */
struct load {
    const struct mics_checkpoint *checkpoint;
    struct mics_ckpt_reader reader;
    /* [unit_count]: index of each of the model's units in the checkpoint's table */
    uint32_t *units;
};

static enum mics_status broadcast_bytes(struct mics_comm *comm, char **data, uint64_t *size,
                                        struct mics_err *err)
{
    enum mics_status status = mics_comm_broadcast_now(comm, size, sizeof *size, 0, err);

    if (status != MICS_OK)
        return status;
    if (comm->rank != 0)
        *data = malloc(*size);
    status = mics_agree(comm, *data ? MICS_OK : mics_err_nomem(err), err);
    return status == MICS_OK ? mics_comm_broadcast_now(comm, *data, *size, 0, err) : status;
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
    if (status != MICS_OK)
        goto out;
    status = broadcast_bytes(comm, &data, &size, err);
    if (status != MICS_OK)
        goto out;
    if (comm->rank != 0)
        status = mics_doc_decode(data, size, doc, err);
out:
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
        status = mics_doc_read_regular(path, doc, err);
    if (status == MICS_OK && comm->rank == 0) {
        status = mics_manifest_check(*doc, err);
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

/* By the model's number of a unit, which may have another one in the checkpoint. */
static enum mics_status read_range(void *context, uint32_t unit, uint32_t state, uint64_t first,
                                   uint64_t count, float *dst, struct mics_err *err)
{
    struct load *load = context;

    return mics_ckpt_reader_read(&load->reader, load->units[unit], state, first, count, dst, err);
}

/* This rank's shards are shards of the checkpoint: their files are read once. Together the ranks
 * read all. */
static enum mics_status load_files(struct load *load, struct mics_err *err)
{
    const struct mics_checkpoint *checkpoint = load->checkpoint;
    const struct mics_ckpt_source *source = &checkpoint->source;
    const uint32_t parts = load->reader.table.parts;
    float *buffer = malloc(CHUNK * sizeof *buffer);
    enum mics_status status = buffer ? MICS_OK : mics_err_nomem(err);

    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        if (mics_ckpt_kind_shards(checkpoint->form, kind) == 0)
            continue;
        const uint32_t shard =
            mics_ckpt_shard_of(checkpoint->form, kind, (uint32_t)checkpoint->comm->rank);

        for (uint32_t i = 0; status == MICS_OK && i < parts; i++)
            status = mics_ckpt_reader_read_file(&load->reader, shard * parts + i, buffer, CHUNK,
                                                source->put, source->context, err);
    }
    free(buffer);
    return status;
}

/* Is the checkpoint cut as this run is? The same on all ranks. */
static bool is_cut_alike(const struct load *load)
{
    const struct mics_ckpt_layout *form = load->checkpoint->form;
    const struct mics_ckpt_table *table = &load->reader.table;

    if (table->shard_count != mics_ckpt_first_shard(form, MICS_UNIT_KIND_COUNT) ||
        table->unit_count != form->model->unit_count || table->states != form->states)
        return false;
    for (uint32_t i = 0; i < table->unit_count; i++) {
        const struct mics_layout *then = &table->units[i].layout, *now = &form->layouts[i];

        const enum mics_unit_kind kind =
            mics_choice_groups(form->choice, form->model->units[i].kind);

        if (load->units[i] != i || then->segments != now->segments || then->padded != now->padded ||
            then->optim_piece != now->optim_piece ||
            table->units[i].first_shard != mics_ckpt_first_shard(form, kind))
            return false;
    }
    return true;
}

static enum mics_status load_verified(struct load *load, struct mics_err *err)
{
    const struct mics_checkpoint *checkpoint = load->checkpoint;
    const struct mics_ckpt_layout *form = checkpoint->form;
    struct mics_comm *comm = checkpoint->comm;
    enum mics_status status;

    if (is_cut_alike(load))
        return mics_agree(comm, load_files(load, err), err);
    status = mics_ckpt_verify_own(&load->reader, (uint32_t)comm->rank, (uint32_t)comm->size,
                                  checkpoint->host_ranks, NULL, err);
    status = mics_agree(comm, status, err);
    if (status != MICS_OK)
        return status;
    status = mics_shard_read(form, (uint32_t)comm->rank,
                             mics_ckpt_common_states(load->reader.table.states, form->states),
                             read_range, load, &checkpoint->source, err);
    return mics_agree(comm, status, err);
}

enum mics_status mics_checkpoint_load(const struct mics_checkpoint *checkpoint, const char *folder,
                                      json_t *doc, struct mics_err *err)
{
    struct mics_comm *comm = checkpoint->comm;
    struct load load = {.checkpoint = checkpoint};
    enum mics_status status = mics_ckpt_reader_open(folder, doc, &load.reader, err);

    if (status == MICS_OK) {
        status = mics_manifest_match(doc, &load.reader.table, checkpoint->form, err);
        if (status == MICS_OK)
            status =
                mics_ckpt_map_units(&load.reader.table, checkpoint->form->model, &load.units, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", folder);
    }
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = load_verified(&load, err);
    mics_ckpt_reader_close(&load.reader);
    free(load.units);
    return status;
}
