/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.c - the files of a model for Hugging Face: as few as the size of one allows, filled in
 * order, and what stands beside them: index and configuration.
 */
#include "ckpt/hf/hf.h"

#include "doc/cursor.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mics_hf_target_free(struct mics_hf_target *target)
{
    for (uint32_t i = 0; target->headers && i < target->target.file_count; i++)
        free(target->headers[i]);
    free(target->headers);
    free(target->target.files);
    free(target->sections);
    free(target->specs);
    free(target->names);
    *target = (struct mics_hf_target){0};
}

static uint64_t section_bytes(const struct mics_section *section)
{
    return section->count * mics_storage_dtype_bytes(section->dtype);
}

/* The end of the file that begins with section `first`: at least one section. */
static size_t end_of_file(const struct mics_hf_target *out, size_t first, uint64_t max_bytes)
{
    uint64_t bytes = section_bytes(&out->sections[first]);
    size_t end = first + 1;

    while (end < out->count && bytes + section_bytes(&out->sections[end]) <= max_bytes)
        bytes += section_bytes(&out->sections[end++]);
    return end;
}

static enum mics_status add_file(struct mics_hf_target *out, size_t first, size_t end,
                                 uint32_t file_count, struct mics_err *err)
{
    const uint32_t index = out->target.file_count;
    struct mics_target_file *file = &out->target.files[index];
    enum mics_status status = mics_safetensors_header(
        &out->specs[first], end - first, &out->headers[index], &file->header_bytes, err);

    if (status != MICS_OK)
        return status;
    if (file_count == 1)
        snprintf(file->name, sizeof file->name, MICS_HF_FILE_NAME);
    else
        snprintf(file->name, sizeof file->name, "model-%05u-of-%05u.safetensors", index + 1,
                 file_count);
    file->header = out->headers[index];
    file->sections = &out->sections[first];
    file->section_count = end - first;
    const uint64_t data_bytes = mics_sections_place(&out->sections[first], end - first);

    out->data_bytes += data_bytes;
    file->bytes = file->header_bytes + data_bytes;
    out->target.file_count++;
    return MICS_OK;
}

/* Cut the sections and specs into files. */
static enum mics_status make_files(struct mics_hf_target *out, uint64_t max_bytes,
                                   struct mics_err *err)
{
    uint32_t file_count = 0;
    enum mics_status status = MICS_OK;

    if (out->count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "there is no tensor");
    for (size_t first = 0; first < out->count; first = end_of_file(out, first, max_bytes))
        file_count++;
    out->target.files = calloc(file_count, sizeof *out->target.files);
    out->headers = calloc(file_count, sizeof *out->headers);
    if (!out->target.files || !out->headers)
        return mics_err_nomem(err);
    for (size_t first = 0; status == MICS_OK && first < out->count;) {
        const size_t end = end_of_file(out, first, max_bytes);

        status = add_file(out, first, end, file_count, err);
        first = end;
    }
    return status;
}

static enum mics_status allocate(struct mics_hf_target *out, size_t count, struct mics_err *err)
{
    *out = (struct mics_hf_target){0};
    out->sections = calloc(count + 1, sizeof *out->sections);
    out->specs = calloc(count + 1, sizeof *out->specs);
    out->names = calloc(count + 1, sizeof *out->names);
    return out->sections && out->specs && out->names ? MICS_OK : mics_err_nomem(err);
}

static void add_tensor(struct mics_hf_target *out, const struct mics_family *family, uint32_t unit,
                       const struct mics_tensor *tensor, enum mics_storage_dtype dtype)
{
    char *name = out->names[out->count];

    mics_family_file_name(family, tensor->name, name, sizeof *out->names);
    out->specs[out->count] =
        (struct mics_safetensor_spec){.name = name,
                                      .dtype = mics_storage_dtype_name(dtype),
                                      .rank = tensor->rank,
                                      .shape = {tensor->shape[0], tensor->shape[1]}};
    out->sections[out->count++] = (struct mics_section){.vector = mics_vector_of(unit, 0),
                                                        .dtype = dtype,
                                                        .start = tensor->offset,
                                                        .count = tensor->count};
}

enum mics_status mics_hf_target_of_model(const struct mics_model *model,
                                         enum mics_storage_dtype dtype, uint64_t max_file_bytes,
                                         struct mics_hf_target *out, struct mics_err *err)
{
    size_t tensors = 0;
    enum mics_status status;

    for (uint32_t i = 0; i < model->unit_count; i++)
        tensors += model->units[i].tensor_count;
    status = allocate(out, tensors, err);
    for (uint32_t i = 0; status == MICS_OK && i < model->unit_count; i++)
        for (uint32_t j = 0; j < model->units[i].tensor_count; j++)
            add_tensor(out, model->family, i, &model->units[i].tensors[j], dtype);
    return status == MICS_OK ? make_files(out, max_file_bytes, err) : status;
}

enum mics_status mics_hf_target_of_hf(const struct mics_hf *hf, enum mics_storage_dtype dtype,
                                      uint64_t max_file_bytes, struct mics_hf_target *out,
                                      struct mics_err *err)
{
    enum mics_status status = allocate(out, hf->tensor_count, err);

    for (size_t i = 0; status == MICS_OK && i < hf->tensor_count; i++) {
        const struct mics_safetensor *header = hf->tensors[i].header;
        const bool raw = mics_storage_dtype_of_name(header->dtype) == MICS_STORAGE_RAW;
        struct mics_safetensor_spec *spec = &out->specs[i];

        *spec = (struct mics_safetensor_spec){.name = header->name,
                                              .dtype = raw ? header->dtype
                                                           : mics_storage_dtype_name(dtype),
                                              .rank = header->rank};
        memcpy(spec->shape, header->shape, sizeof spec->shape);
        out->sections[i] = (struct mics_section){.vector = (uint32_t)i,
                                                 .dtype = raw ? MICS_STORAGE_RAW : dtype,
                                                 .count = hf->store.table[i].count};
        out->count++;
    }
    return status == MICS_OK ? make_files(out, max_file_bytes, err) : status;
}

/* Indented JSON with a newline at the end. */
static enum mics_status write_json(const json_t *doc, const char *name,
                                   struct mics_output_folder *folder, struct mics_err *err)
{
    char *text = doc ? json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    enum mics_status status = text ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK) {
        const size_t length = strlen(text);

        text[length] = '\n'; /* in place of the terminator: the length is passed */
        status = mics_output_folder_write(folder, name, text, length + 1, err);
    }
    free(text);
    return status;
}

static enum mics_status write_index(const struct mics_hf_target *target,
                                    struct mics_output_folder *folder, struct mics_err *err)
{
    json_t *map = json_object(), *index;
    int failed = map == NULL;
    enum mics_status status;

    for (uint32_t i = 0; i < target->target.file_count; i++) {
        const struct mics_target_file *file = &target->target.files[i];
        const size_t first = (size_t)(file->sections - target->sections);

        for (size_t j = 0; j < file->section_count; j++)
            failed |= json_object_set_new(map, target->specs[first + j].name,
                                          json_string(file->name)) != 0;
    }
    index = failed ? NULL
                   : json_pack("{s:{s:I},s:O}", "metadata", "total_size",
                               (json_int_t)target->data_bytes, "weight_map", map);
    status = write_json(index, MICS_HF_INDEX_NAME, folder, err);
    json_decref(index);
    json_decref(map);
    return status;
}

/* Version 4 of the library reads torch_dtype, version 5 dtype. */
static enum mics_status write_config(const json_t *config, enum mics_storage_dtype dtype,
                                     struct mics_output_folder *folder, struct mics_err *err)
{
    static const char *const names[] = {"float32", "float16", "bfloat16"};
    json_t *copy = json_deep_copy(config);
    enum mics_status status;

    if (!copy || json_object_set_new(copy, "torch_dtype", json_string(names[dtype])) != 0 ||
        json_object_set_new(copy, "dtype", json_string(names[dtype])) != 0) {
        json_decref(copy);
        return mics_err_nomem(err);
    }
    status = write_json(copy, "config.json", folder, err);
    json_decref(copy);
    return status;
}

enum mics_status mics_hf_target_write_metadata(const struct mics_hf_target *target,
                                               const json_t *config, enum mics_storage_dtype dtype,
                                               struct mics_output_folder *folder,
                                               struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (target->target.file_count > 1)
        status = write_index(target, folder, err);
    if (status == MICS_OK && config)
        status = write_config(config, dtype, folder, err);
    return status;
}

/* Does `ids`, a token or a list of them, have `id`? */
static bool has_id(const json_t *ids, uint32_t id)
{
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (json_integer_value(json_array_get(ids, i)) == id)
            return true;
    return json_is_integer(ids) && json_integer_value(ids) == id;
}

enum mics_status mics_hf_add_special_tokens(json_t *config, const struct mics_model *model,
                                            const json_t *tokenizer, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor at = mics_cursor_begin(tokenizer, &reading);
    const uint32_t last = model->config.vocab_size - 1;
    int failed = 0;

    if (!tokenizer || !mics_cursor_has(&at, "end"))
        return MICS_OK;
    const uint32_t end = mics_cursor_get_u32(&at, "end", 0, last);
    const uint32_t begin = mics_cursor_opt_u32(&at, "begin", 0, last, end);
    if (reading.status != MICS_OK) {
        mics_err_prefix(err, "tokenizer");
        return reading.status;
    }
    if (!has_id(json_object_get(config, "eos_token_id"), end))
        failed |= json_object_set_new(config, "eos_token_id", json_integer(end));
    if (begin != end || !model->source || !json_object_get(config, "bos_token_id"))
        failed |= json_object_set_new(config, "bos_token_id", json_integer(begin));
    return failed ? mics_err_nomem(err) : MICS_OK;
}
