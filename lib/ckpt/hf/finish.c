/* SPDX-License-Identifier: Apache-2.0 */
/* hf_finish.c - what stands beside the tensors: index, configuration, tokenizer. */
#include "ckpt/hf/hf.h"

#include "base/file.h"
#include "ckpt/hf/index.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TOKENIZER_BYTES ((size_t)256 << 20)

/* JSON as people read it, with a newline at the end. */
static enum mics_status write_json(const json_t *doc, const char *name,
                                   struct mics_output_folder *folder, struct mics_err *err)
{
    char *text = doc ? json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    enum mics_status status = text ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK) {
        const size_t length = strlen(text);

        text[length] = '\n'; /* in place of the end: the size is given */
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

enum mics_status mics_hf_target_finish(const struct mics_hf_target *target, const json_t *config,
                                       enum mics_storage_dtype dtype,
                                       struct mics_output_folder *folder, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (target->target.file_count > 1)
        status = write_index(target, folder, err);
    if (status == MICS_OK && config)
        status = write_config(config, dtype, folder, err);
    return status;
}

static enum mics_status copy_file(const char *base, const char *name,
                                  struct mics_output_folder *folder, unsigned *count,
                                  struct mics_err *err)
{
    char path[MICS_PATH_MAX], *data = NULL;
    size_t size = 0;
    enum mics_status status = mics_path_format(path, err, "%s/%s", base, name);

    if (status != MICS_OK || access(path, F_OK) != 0)
        return status;
    status = mics_file_read(path, MAX_TOKENIZER_BYTES, &data, &size, err);
    if (status == MICS_OK)
        status = mics_output_folder_write(folder, name, data, size, err);
    free(data);
    ++*count;
    return status;
}

enum mics_status mics_hf_copy_tokenizer(const char *base, struct mics_output_folder *folder,
                                        unsigned *count, struct mics_err *err)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "generation_config.json",
                                        "chat_template.jinja"};
    enum mics_status status = MICS_OK;

    *count = 0;
    for (size_t i = 0; status == MICS_OK && i < sizeof names / sizeof *names; i++)
        status = copy_file(base, names[i], folder, count, err);
    return status;
}
