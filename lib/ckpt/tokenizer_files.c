/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/tokenizer_files.h"

#include "base/dir.h"
#include "base/file.h"
#include "doc/cursor.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_FILE_BYTES ((size_t)256 << 20)
#define MAX_FILES      64
#define TIKTOKEN       ".tiktoken"

/* As models have them; the first ID_NAMES make ids. */
static const char *const known_names[] = {
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "encoder.json",
    "vocab.bpe",
    "vocab.txt",
    "tekken.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
};

enum { ID_NAMES = 8 };

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t length = strlen(name), end = strlen(suffix);

    return length >= end && strcmp(name + length - end, suffix) == 0;
}

void mics_tokenizer_files_free(struct mics_tokenizer_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->items[i].bytes);
    free(files->items);
    *files = (struct mics_tokenizer_files){0};
}

static bool contains(const struct mics_tokenizer_files *files, const char *name)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->items[i].name, name) == 0)
            return true;
    return false;
}

/* Append a file, whose bytes are taken over, also after an error. */
static enum mics_status append(struct mics_tokenizer_files *files, const char *name, void *bytes,
                               size_t size, struct mics_err *err)
{
    struct mics_tokenizer_file *items = realloc(files->items, (files->count + 1) * sizeof *items);
    enum mics_status status = items ? MICS_OK : mics_err_nomem(err);

    if (items)
        files->items = items;
    if (status == MICS_OK && strlen(name) >= sizeof items->name)
        status = mics_err_set(err, MICS_ERR_FORMAT, "'%.80s': the name is too long", name);
    if (status != MICS_OK) {
        free(bytes);
        return status;
    }
    struct mics_tokenizer_file *item = &items[files->count++];

    *item = (struct mics_tokenizer_file){.bytes = bytes, .size = size};
    snprintf(item->name, sizeof item->name, "%s", name);
    return MICS_OK;
}

enum mics_status mics_tokenizer_files_add(struct mics_tokenizer_files *files, const char *name,
                                          const void *bytes, size_t size, struct mics_err *err)
{
    if (contains(files, name))
        return MICS_OK;
    unsigned char *copy = malloc(size + 1);

    if (!copy)
        return mics_err_nomem(err);
    memcpy(copy, bytes, size);
    return append(files, name, copy, size, err);
}

static enum mics_status read_file(struct mics_tokenizer_files *files, const char *folder,
                                  const char *name, struct mics_err *err)
{
    char path[MICS_PATH_MAX], *bytes = NULL;
    size_t size = 0;
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder, name);

    if (status != MICS_OK)
        return status;
    status = mics_file_read_regular(path, MAX_FILE_BYTES, &bytes, &size, err);
    if (status != MICS_OK)
        return status;
    return append(files, name, bytes, size, err);
}

/* Read a file unless there is none; one that is there and cannot be read is an error. */
static enum mics_status find_file(struct mics_tokenizer_files *files, const char *folder,
                                  const char *name, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    bool exists = false;
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder, name);

    if (status == MICS_OK)
        status = mics_file_exists(path, &exists, err);
    return status == MICS_OK && exists ? read_file(files, folder, name, err) : status;
}

/* Names that files have only in part in common: x.tiktoken, tekken_240911.json. */
static bool makes_ids(const char *name)
{
    return has_suffix(name, TIKTOKEN) ||
           (strncmp(name, "tekken", 6) == 0 && has_suffix(name, ".json"));
}

static enum mics_status find_others(struct mics_tokenizer_files *files, const char *folder,
                                    struct mics_err *err)
{
    struct mics_dir dir;
    enum mics_status status = mics_dir_open(folder, &dir, err);
    const char *name;

    while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL)
        if (makes_ids(name) && !contains(files, name))
            status = read_file(files, folder, name, err);
    return mics_dir_close(&dir, status, err);
}

bool mics_tokenizer_files_make_ids(const struct mics_tokenizer_files *files)
{
    for (size_t i = 0; i < ID_NAMES; i++)
        if (contains(files, known_names[i]))
            return true;
    for (size_t i = 0; i < files->count; i++)
        if (makes_ids(files->items[i].name))
            return true;
    return false;
}

enum mics_status mics_tokenizer_files_find(struct mics_tokenizer_files *files, const char *folder,
                                           struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < sizeof known_names / sizeof *known_names; i++)
        if (!contains(files, known_names[i]))
            status = find_file(files, folder, known_names[i], err);
    return status == MICS_OK ? find_others(files, folder, err) : status;
}

/* The name comes from outside, and is one in the folder of a model or checkpoint: it may not lead
 * out of it, nor be that of another part of the model. */
static bool is_safe_name(const char *name)
{
    if (name[0] == '\0' || name[0] == '.')
        return false;
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < ' ' || *at == '/' || *at == '\\' || *at == 0x7f)
            return false;
    return strcmp(name, "config.json") != 0 && !has_suffix(name, ".safetensors") &&
           !has_suffix(name, ".index.json") && !has_suffix(name, ".mp");
}

static void format_sum(const struct mics_tokenizer_file *file, char text[17])
{
    snprintf(text, 17, "%016" PRIx64, (uint64_t)XXH64(file->bytes, file->size, 0));
}

static enum mics_status load_file(struct mics_tokenizer_files *files, const struct mics_cursor *at,
                                  const char *folder, struct mics_err *err)
{
    const char *name = mics_cursor_get_string(at, "name");
    const uint64_t bytes = mics_cursor_get_u64(at, "bytes", 0, MAX_FILE_BYTES);
    const char *sum = mics_cursor_get_string(at, "xxh64");
    const size_t before = files->count;
    char found[17];

    if (!is_safe_name(name) || contains(files, name))
        mics_cursor_reject(at, "name", "'%.80s' is not the name of a tokenizer's file", name);
    if (!mics_cursor_ok(at))
        return at->reading->status;
    const enum mics_status status = find_file(files, folder, name, err);
    if (status != MICS_OK)
        return status;
    if (files->count == before)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s/%s: No such file or directory", folder, name);
    const struct mics_tokenizer_file *file = &files->items[before];

    format_sum(file, found);
    if (file->size == bytes && strcmp(found, sum) == 0)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "%s/%s: damaged: %zu bytes with XXH64 %s, but %" PRIu64 " with %.16s were "
                        "written",
                        folder, name, file->size, found, bytes, sum);
}

enum mics_status mics_tokenizer_files_load(struct mics_tokenizer_files *files,
                                           const json_t *tokenizer, const char *folder,
                                           struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(tokenizer, &reading);

    if (!tokenizer)
        return MICS_OK;
    const struct mics_cursor list = mics_cursor_get_array(&root, "files", 0, MAX_FILES);
    for (size_t i = 0; i < mics_cursor_count(&list) && mics_cursor_ok(&root); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&list, i);

        reading.status = load_file(files, &item, folder, err);
    }
    return reading.status;
}

json_t *mics_tokenizer_files_to_json(const struct mics_tokenizer_files *files)
{
    json_t *list = json_array();
    char sum[17];

    for (size_t i = 0; list && i < files->count; i++) {
        format_sum(&files->items[i], sum);
        if (json_array_append_new(list,
                                  json_pack("{s:s,s:I,s:s}", "name", files->items[i].name, "bytes",
                                            (json_int_t)files->items[i].size, "xxh64", sum)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static enum mics_status write_file(const struct mics_tokenizer_file *file, const char *folder,
                                   struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder, file->name);

    if (status != MICS_OK)
        return status;
    status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        return status;
    if (fwrite(file->bytes, 1, file->size, mics_file_stream(writer)) != file->size) {
        status = mics_err_set_errno(err, "%s", path);
        mics_file_discard(writer);
        return status;
    }
    return mics_file_commit(writer, err);
}

enum mics_status mics_tokenizer_files_write(const struct mics_tokenizer_files *files,
                                            const char *folder, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < files->count; i++)
        status = write_file(&files->items[i], folder, err);
    return status;
}

uint64_t mics_tokenizer_files_bytes(const struct mics_tokenizer_files *files)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < files->count; i++)
        bytes += files->items[i].size;
    return bytes;
}
