/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_safetensors.c - distributed checkpoints in shards of safetensors, as PyTorch's
 * HuggingFaceStorageWriter writes them: each file has chunks of tensors, and in its header where
 * they begin. The shape of a tensor is the largest end of its chunks.
 */
#include "ckpt/foreign/foreign_internal.h"

#include "base/file.h"
#include "doc/foreign.h"

#include <stdlib.h>
#include <string.h>

/* One chunk. */
struct chunk {
    const char *name, *dtype; /* of `header` */
    uint32_t rank, file;
    struct foreign_box box;
    uint64_t offset; /* bytes, in the file */
};

/* The chunks of all files. */
struct shards {
    struct tensor_list *list;
    struct chunk *chunks;
    size_t count;
    struct mics_safetensors *headers; /* [file] */
};

/* DCP_SHARDING_INFO of a header, which is JSON in a string. */
static enum mics_status read_info(const struct mics_store_file *file, json_t **info,
                                  struct mics_err *err)
{
    unsigned char length[8];
    uint64_t size = 0;
    char *text = NULL;
    json_t *doc = NULL;
    enum mics_status status = mics_file_read_at(file->fd, length, sizeof length, 0, err);

    for (int i = 7; status == MICS_OK && i >= 0; i--)
        size = size << 8 | length[i];
    if (status == MICS_OK && size > MICS_SAFETENSORS_MAX_HEADER)
        status = mics_err_set(err, MICS_ERR_FORMAT, "its header is too long");
    text = status == MICS_OK ? malloc(size + 1) : NULL;
    if (status == MICS_OK && !text)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = mics_file_read_at(file->fd, text, size, sizeof length, err);
    if (status == MICS_OK)
        status = mics_foreign_read(text, size, 1u << 22, &doc, err);
    free(text);
    if (status != MICS_OK)
        return status;
    const char *found = json_string_value(
        json_object_get(json_object_get(doc, "__metadata__"), "DCP_SHARDING_INFO"));

    status = found ? mics_foreign_read(found, strlen(found), 1u << 22, info, err)
                   : mics_err_set(err, MICS_ERR_FORMAT, "has no DCP_SHARDING_INFO");
    json_decref(doc);
    return status;
}

static enum mics_status add_chunk(struct shards *shards, uint32_t file, const json_t *info,
                                  const struct mics_safetensor *tensor)
{
    const json_t *offsets = json_object_get(json_object_get(info, tensor->name), "saved_offsets");
    struct chunk *chunk = &shards->chunks[shards->count++];

    *chunk = (struct chunk){.name = tensor->name,
                            .dtype = tensor->dtype,
                            .rank = tensor->rank,
                            .file = file,
                            .offset = shards->headers[file].data_offset + tensor->begin};
    if (json_array_size(offsets) != tensor->rank)
        return mics_err_set(shards->list->err, MICS_ERR_FORMAT,
                            "tensor '%.128s' has no saved_offsets of its shape", tensor->name);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        const json_t *offset = json_array_get(offsets, i);
        const json_int_t at = json_integer_value(offset);

        if (!json_is_integer(offset) || at < 0 || at > (json_int_t)1 << 48)
            return mics_err_set(shards->list->err, MICS_ERR_FORMAT,
                                "tensor '%.128s': saved_offsets[%u] is no offset", tensor->name, i);
        chunk->box.offsets[i] = (uint64_t)at;
        chunk->box.sizes[i] = tensor->shape[i];
    }
    return MICS_OK;
}

static enum mics_status add_shard(struct shards *shards, const char *path)
{
    struct tensor_list *list = shards->list;
    json_t *info = NULL;
    uint32_t file = 0;
    enum mics_status status = foreign_add_file(list, path, path, &file);

    if (status != MICS_OK)
        return status;
    const struct mics_store_file *opened = &list->hf->store.files[file];
    struct mics_safetensors *header = &shards->headers[file];

    status = mics_safetensors_load(opened->fd, opened->bytes, header, list->err);
    if (status == MICS_OK)
        status = read_info(opened, &info, list->err);
    struct chunk *chunks =
        realloc(shards->chunks, (shards->count + header->count + 1) * sizeof *chunks);
    if (chunks)
        shards->chunks = chunks;
    else if (status == MICS_OK)
        status = mics_err_nomem(list->err);
    for (size_t i = 0; i < header->count && status == MICS_OK; i++)
        status = add_chunk(shards, file, info, &header->tensors[i]);
    json_decref(info);
    if (status != MICS_OK)
        mics_err_prefix(list->err, "%s", path);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct chunk *)a)->name, ((const struct chunk *)b)->name);
}

/* A tensor of chunks[0..count), which have its name. */
static enum mics_status add_tensor(struct shards *shards, const struct chunk *chunks, size_t count)
{
    struct tensor_list *list = shards->list;
    uint64_t shape[MICS_TORCH_MAX_RANK] = {0}, numbers;
    size_t index;
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < count; i++) {
        if (chunks[i].rank != chunks->rank || strcmp(chunks[i].dtype, chunks->dtype) != 0)
            return mics_err_set(list->err, MICS_ERR_FORMAT,
                                "%s: tensor '%.128s' has another shape or type than in %s",
                                list->hf->store.files[chunks[i].file].path, chunks->name,
                                list->hf->store.files[chunks->file].path);
        for (uint32_t k = 0; k < chunks->rank; k++)
            if (chunks[i].box.offsets[k] + chunks[i].box.sizes[k] > shape[k])
                shape[k] = chunks[i].box.offsets[k] + chunks[i].box.sizes[k];
    }
    if (!mics_torch_count(shape, chunks->rank, &numbers))
        return mics_err_set(list->err, MICS_ERR_FORMAT, "%s: tensor '%.128s' is too large",
                            list->hf->store.files[chunks->file].path, chunks->name);
    status = foreign_add_tensor(list, chunks->name, chunks->dtype, shape, chunks->rank, STATE_PARAM,
                                &index);
    for (size_t i = 0; i < count && status == MICS_OK; i++)
        status = foreign_add_box(list, index, &chunks[i].box, chunks[i].file, chunks[i].offset);
    return status;
}

enum mics_status foreign_open_dcp_safetensors(struct tensor_list *list, const char *const *paths,
                                              size_t count)
{
    struct shards shards = {.list = list, .headers = calloc(count + 1, sizeof *shards.headers)};
    enum mics_status status = shards.headers ? MICS_OK : mics_err_nomem(list->err);

    for (size_t i = 0; i < count && status == MICS_OK; i++)
        status = add_shard(&shards, paths[i]);
    if (status == MICS_OK && shards.count > 0)
        qsort(shards.chunks, shards.count, sizeof *shards.chunks, by_name);
    for (size_t i = 0, next; i < shards.count && status == MICS_OK; i = next) {
        for (next = i + 1;
             next < shards.count && strcmp(shards.chunks[next].name, shards.chunks[i].name) == 0;)
            next++;
        status = add_tensor(&shards, &shards.chunks[i], next - i);
    }
    for (size_t i = 0; shards.headers && i < count; i++)
        mics_safetensors_free(&shards.headers[i]);
    free(shards.headers);
    free(shards.chunks);
    return status;
}
