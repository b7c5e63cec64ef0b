/* SPDX-License-Identifier: Apache-2.0 */
/* convert_source.c - a checkpoint on disk, as a store. */
#include "ckpt/convert/shards.h"

#include "ckpt/format/safetensors.h"
#include "ckpt/manifest.h"
#include "doc/cursor.h"
#include "doc/doc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum mics_status read_manifest(struct mics_shard_source *source, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/" MICS_MANIFEST_NAME, source->folder);

    if (status == MICS_OK)
        status = mics_doc_read_file(path, &source->doc, err);
    if (status != MICS_OK)
        return status;
    status = mics_manifest_from_doc(source->doc, &source->manifest, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
    return status;
}

/* Spaces are numbered as the model's units are. */
static enum mics_status check_units(const struct mics_ckpt_table *table,
                                    const struct mics_model *model, struct mics_err *err)
{
    for (uint32_t i = 0; i < model->unit_count; i++)
        if (strcmp(table->units[i].name, model->units[i].name) != 0)
            return mics_err_set(err, MICS_ERR_FORMAT, "units[%u].name: expected \"%s\"", i,
                                model->units[i].name);
    return MICS_OK;
}

static enum mics_status open_model(struct mics_shard_source *source, struct mics_err *err)
{
    const struct mics_at root = mics_at_root(source->doc);
    struct mics_at at;
    enum mics_status status = mics_at_object(&root, "model", &at, err);

    if (status != MICS_OK)
        return status;
    status = mics_model_from_json(at.value, &source->model, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "model");
        return status;
    }
    status = mics_ckpt_match_tensors(&source->table, source->model, err);
    return status == MICS_OK ? check_units(&source->table, source->model, err) : status;
}

static enum mics_status open_table(struct mics_shard_source *source, struct mics_err *err)
{
    const struct mics_ckpt_table *table = &source->table;
    enum mics_status status = mics_ckpt_table_read(source->doc, &source->table, err);

    if (status == MICS_OK)
        status = open_model(source, err);
    if (status == MICS_OK &&
        source->manifest.file_count != (uint64_t)table->shape.p_optim * table->parts)
        status = mics_err_set(err, MICS_ERR_FORMAT, "files: %u, where %llu are needed",
                              source->manifest.file_count,
                              (unsigned long long)table->shape.p_optim * table->parts);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s/" MICS_MANIFEST_NAME, source->folder);
    return status;
}

/* Elements of a unit in a file. */
static uint64_t count_in(const struct mics_ckpt_table *table, uint32_t unit, uint32_t file)
{
    const uint64_t count = mics_layout_optim_shard(&table->units[unit].layout);
    const uint32_t part = file % table->parts;

    return mics_ckpt_part_begin(count, table->parts, part + 1) -
           mics_ckpt_part_begin(count, table->parts, part);
}

static enum mics_status check_tensors(const struct mics_shard_source *source, uint32_t index,
                                      const struct mics_safetensors *file, struct mics_err *err)
{
    const uint32_t states = source->table.states, count = source->table.unit_count * states;
    uint64_t *begins = &source->store.shards.begins[(size_t)index * count];

    if (file->count != count)
        return mics_err_set(err, MICS_ERR_FORMAT, "has %zu tensors, not %u", file->count, count);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = source->store.shards.names[i];
        const uint64_t elements = count_in(&source->table, i / states, index);
        const struct mics_safetensor *found = mics_safetensors_find(file, name);

        if (!found)
            return mics_err_set(err, MICS_ERR_FORMAT, "has no tensor '%s'", name);
        if (strcmp(found->dtype, "F32") != 0 || found->rank != 1 || found->shape[0] != elements)
            return mics_err_set(err, MICS_ERR_FORMAT, "tensor '%s' is not F32 of %llu elements",
                                name, (unsigned long long)elements);
        begins[i] = file->data_offset + found->begin;
    }
    return MICS_OK;
}

static enum mics_status check_file(struct mics_shard_source *source, uint32_t index,
                                   struct mics_err *err)
{
    const struct mics_store_file *file = &source->store.files[index];
    struct mics_safetensors header = {0};
    enum mics_status status;

    if (file->bytes != source->manifest.files[index].bytes)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: has %llu bytes, the manifest says %llu",
                            file->path, (unsigned long long)file->bytes,
                            (unsigned long long)source->manifest.files[index].bytes);
    status = mics_safetensors_load(file->fd, file->bytes, &header, err);
    if (status == MICS_OK)
        status = check_tensors(source, index, &header, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->path);
    mics_safetensors_free(&header);
    return status;
}

static enum mics_status open_files(struct mics_shard_source *source, struct mics_err *err)
{
    char name[64], path[MICS_PATH_MAX];
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; status == MICS_OK && i < source->manifest.file_count; i++) {
        mics_ckpt_file_name(i, name, sizeof name);
        status = mics_path_format(path, err, "%s/%s", source->folder, name);
        if (status == MICS_OK)
            status = mics_store_add_file(&source->store, path, err);
        if (status == MICS_OK)
            status = check_file(source, i, err);
    }
    return status;
}

static enum mics_status open_store(struct mics_shard_source *source, struct mics_err *err)
{
    const struct mics_ckpt_table *table = &source->table;
    const size_t count = (size_t)table->unit_count * table->states;
    struct mics_store_shards *shards = &source->store.shards;

    shards->table = table;
    shards->begins = calloc(source->manifest.file_count * count, sizeof *shards->begins);
    shards->names = calloc(count, sizeof *shards->names);
    if (!shards->begins || !shards->names)
        return mics_err_nomem(err);
    for (size_t i = 0; i < count; i++)
        snprintf(shards->names[i], sizeof *shards->names, "%s.%s",
                 table->units[i / table->states].name,
                 mics_ckpt_state_name((uint32_t)(i % table->states)));
    mics_raise_open_files();
    return open_files(source, err);
}

enum mics_status mics_shard_source_open(const char *path, struct mics_shard_source *out,
                                        struct mics_err *err)
{
    bool found;
    enum mics_status status;

    *out = (struct mics_shard_source){0};
    if (access(path, F_OK) != 0)
        return mics_err_set_errno(err, "%s", path);
    status = mics_checkpoint_find(path, false, out->folder, &found, err);
    if (status == MICS_OK)
        status = read_manifest(out, err);
    if (status == MICS_OK)
        status = open_table(out, err);
    return status == MICS_OK ? open_store(out, err) : status;
}

void mics_shard_source_close(struct mics_shard_source *source)
{
    mics_store_close(&source->store);
    mics_model_free(source->model);
    mics_ckpt_table_free(&source->table);
    mics_manifest_free(&source->manifest);
    json_decref(source->doc);
    source->model = NULL;
    source->doc = NULL;
}
