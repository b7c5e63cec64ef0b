/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header is parsed as JSON, each tensor is checked by itself, and then, sorted by offset, that
 * they tile the data: first 0, each begins where the one before ends, the last ends with the file.
 */
#include "ckpt/format/safetensors.h"

#include "ckpt/format/storage_dtype.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"

static enum mics_status bad(struct mics_err *err, const char *name, const char *what)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "tensor '%.64s': %s", name, what);
}

static bool as_u64(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static enum mics_status read_shape(const json_t *value, struct mics_safetensor *tensor,
                                   struct mics_err *err)
{
    size_t rank = json_array_size(value);

    if (!json_is_array(value) || rank > MICS_SAFETENSORS_MAX_RANK)
        return bad(err, tensor->name, "shape is not a list of up to 8 sizes");
    tensor->rank = (uint32_t)rank;
    for (size_t i = 0; i < rank; i++)
        if (!as_u64(json_array_get(value, i), &tensor->shape[i]))
            return bad(err, tensor->name, "shape holds something that is not a size");
    return MICS_OK;
}

static enum mics_status read_offsets(const json_t *value, struct mics_safetensor *tensor,
                                     struct mics_err *err)
{
    if (json_array_size(value) != 2 || !as_u64(json_array_get(value, 0), &tensor->begin) ||
        !as_u64(json_array_get(value, 1), &tensor->end))
        return bad(err, tensor->name, "data_offsets is not a pair of offsets");
    if (tensor->begin > tensor->end)
        return bad(err, tensor->name, "data_offsets: the end is before the beginning");
    return MICS_OK;
}

static enum mics_status read_tensor(const char *name, const json_t *value,
                                    struct mics_safetensor *tensor, struct mics_err *err)
{
    const char *dtype_name = json_string_value(json_object_get(value, "dtype"));
    const struct mics_file_dtype *dtype = dtype_name ? mics_file_dtype_find(dtype_name) : NULL;
    enum mics_status status;
    uint64_t bytes;

    *tensor = (struct mics_safetensor){.name = name};
    if (!json_is_object(value))
        return bad(err, name, "is not an object");
    if (!dtype)
        return bad(err, name, dtype_name ? "unknown dtype" : "no dtype");
    tensor->dtype = dtype->name;
    status = read_shape(json_object_get(value, "shape"), tensor, err);
    if (status == MICS_OK)
        status = read_offsets(json_object_get(value, "data_offsets"), tensor, err);
    if (status != MICS_OK)
        return status;
    if (!mics_file_dtype_bytes(dtype, tensor->shape, tensor->rank, &bytes))
        return bad(err, name, "shape has more bytes than can be counted");
    if (bytes != tensor->end - tensor->begin)
        return bad(err, name, "shape and data_offsets disagree about its size");
    return MICS_OK;
}

static enum mics_status check_metadata(const json_t *value, struct mics_err *err)
{
    const char *key;
    json_t *item;

    if (!json_is_object(value))
        return mics_err_set(err, MICS_ERR_FORMAT, METADATA " is not an object");
    json_object_foreach((json_t *)value, key, item)
    {
        if (!json_is_string(item))
            return mics_err_set(err, MICS_ERR_FORMAT, METADATA ".%.64s is not a string", key);
    }
    return MICS_OK;
}

static enum mics_status read_tensors(struct mics_safetensors *file, struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    const char *name;
    json_t *value;

    file->tensors = calloc(json_object_size(file->header) + 1, sizeof *file->tensors);
    if (!file->tensors)
        return mics_err_nomem(err);
    json_object_foreach(file->header, name, value)
    {
        if (strcmp(name, METADATA) == 0)
            status = check_metadata(value, err);
        else
            status = read_tensor(name, value, &file->tensors[file->count++], err);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct mics_safetensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static enum mics_status check_tiling(struct mics_safetensors *file, uint64_t data_bytes,
                                     struct mics_err *err)
{
    uint64_t at = 0;

    qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
    for (size_t i = 0; i < file->count; i++) {
        const struct mics_safetensor *tensor = &file->tensors[i];

        if (tensor->begin != at)
            return bad(err, tensor->name,
                       tensor->begin < at ? "overlaps the one before it" : "a gap before it");
        at = tensor->end;
    }
    if (at != data_bytes)
        return mics_err_set(err, MICS_ERR_FORMAT, "the tensors have %llu bytes, the file %llu",
                            (unsigned long long)at, (unsigned long long)data_bytes);
    return MICS_OK;
}

static enum mics_status header_length(const unsigned char *bytes, size_t size, uint64_t file_bytes,
                                      uint64_t *length, struct mics_err *err)
{
    uint64_t value = 0;

    if (size < 8)
        return mics_err_set(err, MICS_ERR_FORMAT, "%zu bytes are too few for a safetensors file",
                            size);
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    if (value > MICS_SAFETENSORS_MAX_HEADER)
        return mics_err_set(err, MICS_ERR_FORMAT, "a header of %llu bytes: not a safetensors file",
                            (unsigned long long)value);
    if (value > size - 8 || value > file_bytes - 8)
        return mics_err_set(err, MICS_ERR_FORMAT, "the file ends inside its header of %llu bytes",
                            (unsigned long long)value);
    if (value < 2 || bytes[8] != '{')
        return mics_err_set(err, MICS_ERR_FORMAT, "the header does not begin with '{'");
    *length = value;
    return MICS_OK;
}

enum mics_status mics_safetensors_parse(const void *data, size_t size, uint64_t file_bytes,
                                        struct mics_safetensors *out, struct mics_err *err)
{
    struct mics_safetensors file = {0};
    uint64_t length = 0;
    enum mics_status status = header_length(data, size, file_bytes, &length, err);
    json_error_t json_err;

    if (status != MICS_OK)
        return status;
    file.data_offset = 8 + length;
    file.header = json_loadb((const char *)data + 8, length, JSON_REJECT_DUPLICATES, &json_err);
    if (!file.header)
        return mics_err_set(err, MICS_ERR_FORMAT, "header: %s at byte %d", json_err.text,
                            8 + json_err.position);
    status = read_tensors(&file, err);
    if (status == MICS_OK)
        status = check_tiling(&file, file_bytes - file.data_offset, err);
    if (status != MICS_OK) {
        mics_safetensors_free(&file);
        return status;
    }
    *out = file;
    return MICS_OK;
}

void mics_safetensors_free(struct mics_safetensors *file)
{
    free(file->tensors);
    json_decref(file->header);
    *file = (struct mics_safetensors){0};
}

const struct mics_safetensor *mics_safetensors_find(const struct mics_safetensors *file,
                                                    const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}
