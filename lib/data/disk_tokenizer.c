/* SPDX-License-Identifier: Apache-2.0 */
#include "data/disk_tokenizer.h"

#include "base/file_set.h"
#include "ckpt/folder.h"
#include "ckpt/hf/hf.h"
#include "ckpt/manifest.h"
#include "data/token_file.h"
#include "data/tokenizer/train.h"
#include "doc/doc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MODEL_CONFIG "config.json"

static bool is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

void mics_disk_tokenizer_close(struct mics_disk_tokenizer *tokenizer)
{
    mics_tokenizer_free(tokenizer->tokenizer);
    mics_tokenizer_files_free(&tokenizer->files);
    *tokenizer = (struct mics_disk_tokenizer){0};
}

/* The files that it was read from, and what is beside them in `folder`, unless NULL. */
static enum mics_status collect_files(struct mics_disk_tokenizer *out, const char *folder,
                                      struct mics_err *err)
{
    size_t count = 0;
    const struct mics_tokenizer_file *files = mics_tokenizer_files(out->tokenizer, &count);
    enum mics_status status = MICS_OK;

    /* The configuration is the model's: its end is listed beside the files. */
    for (size_t i = 0; status == MICS_OK && i < count; i++)
        if (strcmp(files[i].name, MODEL_CONFIG) != 0)
            status = mics_tokenizer_files_add(&out->files, files[i].name, files[i].bytes,
                                              files[i].size, err);
    return status == MICS_OK && folder ? mics_tokenizer_files_find(&out->files, folder, err)
                                       : status;
}

/* *doc = the manifest of the checkpoint at `path`, or NULL: it is not one. */
static enum mics_status read_manifest(const char *path, char folder[MICS_PATH_MAX], json_t **doc,
                                      struct mics_err *err)
{
    char name[MICS_PATH_MAX];
    bool found = false;
    enum mics_status status = mics_checkpoint_find(path, true, folder, &found, err);

    *doc = NULL;
    if (status != MICS_OK || !found)
        return status;
    status = mics_path_format(name, err, "%s/" MICS_MANIFEST_NAME, folder);
    if (status != MICS_OK)
        return status;
    status = mics_doc_read_regular(name, doc, err);
    if (status != MICS_OK)
        return status;
    status = mics_doc_expect(*doc, MICS_CHECKPOINT_KIND, MICS_CHECKPOINT_VERSION, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", name);
    return status;
}

/* Open the tokenizer of files that are listed without saying what it was: the end is looked for in
 * them, and in the configuration of the model. */
static enum mics_status open_unsaid(const struct mics_tokenizer_files *files, const json_t *config,
                                    struct mics_tokenizer **out, struct mics_err *err)
{
    struct mics_tokenizer_files all = {0};
    char *text = config ? json_dumps(config, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    enum mics_status status = config && !text ? mics_err_nomem(err) : MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < files->count; i++)
        status = mics_tokenizer_files_add(&all, files->items[i].name, files->items[i].bytes,
                                          files->items[i].size, err);
    if (status == MICS_OK && text)
        status = mics_tokenizer_files_add(&all, MODEL_CONFIG, text, strlen(text), err);
    if (status == MICS_OK)
        status = mics_tokenizer_open_files(all.items, all.count, out, err);
    mics_tokenizer_files_free(&all);
    free(text);
    return status;
}

/* Open the tokenizer of files that are listed with its fingerprint and its end. */
static enum mics_status open_said(const struct mics_tokenizer_files *files, const json_t *listed,
                                  struct mics_tokenizer **out, struct mics_err *err)
{
    const char *fingerprint = json_string_value(json_object_get(listed, "fingerprint"));
    const json_t *end = json_object_get(listed, "end");
    enum mics_status status = mics_tokenizer_open_files(files->items, files->count, out, err);

    if (status != MICS_OK)
        return status;
    mics_tokenizer_restore(*out,
                           json_is_integer(end) ? (uint32_t)json_integer_value(end) : MICS_NO_TOKEN,
                           fingerprint);
    return status;
}

enum mics_status mics_disk_tokenizer_open_listed(const json_t *listed, const char *folder,
                                                 const json_t *config,
                                                 struct mics_disk_tokenizer *out,
                                                 struct mics_err *err)
{
    enum mics_status status;

    *out = (struct mics_disk_tokenizer){0};
    if (!listed)
        return MICS_OK;
    status = mics_tokenizer_files_load(&out->files, listed, folder, err);
    if (status != MICS_OK)
        return status;
    if (out->files.count == 0)
        return mics_tokenizer_open_bytes(&out->tokenizer, err);
    status = json_object_get(listed, "fingerprint")
                 ? open_said(&out->files, listed, &out->tokenizer, err)
                 : open_unsaid(&out->files, config, &out->tokenizer, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", folder);
    return status;
}

enum mics_status mics_disk_tokenizer_open_checkpoint(const json_t *doc, const char *folder,
                                                     struct mics_disk_tokenizer *out,
                                                     struct mics_err *err)
{
    return mics_disk_tokenizer_open_listed(json_object_get(doc, "tokenizer"), folder,
                                           json_object_get(json_object_get(doc, "model"), "source"),
                                           out, err);
}

/* *found: `path` is a checkpoint, whose tokenizer is open if it has one. */
static enum mics_status open_checkpoint(const char *path, struct mics_disk_tokenizer *out,
                                        bool *found, struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    json_t *doc = NULL;
    enum mics_status status = read_manifest(path, folder, &doc, err);

    *found = doc != NULL;
    if (status == MICS_OK)
        status = mics_disk_tokenizer_open_checkpoint(doc, folder, out, err);
    json_decref(doc);
    return status;
}

/* Complete what was being replaced: the folder PREFIX.tokenizer of a data set, or the files that
 * `mics-data train` makes. */
static enum mics_status recover(const char *path, struct mics_err *err)
{
    static const char suffix[] = ".tokenizer";
    char name[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(name, err, "%s", path);
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    if (status == MICS_OK && length >= sizeof suffix &&
        strncmp(path + length - sizeof suffix + 1, suffix, sizeof suffix - 1) == 0) {
        name[length - sizeof suffix + 1] = '\0';
        status = mics_file_set_recover(name, err);
    }
    if (status == MICS_OK)
        status = mics_path_format(name, err, "%s/" MICS_TRAINED_SET, path);
    return status == MICS_OK ? mics_file_set_recover(name, err) : status;
}

enum mics_status mics_disk_tokenizer_open(const char *path, struct mics_disk_tokenizer *out,
                                          struct mics_err *err)
{
    enum mics_status status;
    bool found = false, folder;

    *out = (struct mics_disk_tokenizer){0};
    if (strcmp(path, "bytes") == 0)
        return mics_tokenizer_open_bytes(&out->tokenizer, err);
    status = recover(path, err);
    if (status != MICS_OK)
        return status;
    folder = is_folder(path);
    if (folder && !mics_hf_is_folder(path))
        status = open_checkpoint(path, out, &found, err);
    if (status == MICS_OK && found && !out->tokenizer)
        status = mics_err_set(err, MICS_ERR_FORMAT, "%s: the checkpoint has no tokenizer", path);
    if (status != MICS_OK || found)
        return status;
    status = mics_tokenizer_open(path, &out->tokenizer, err);
    return status == MICS_OK ? collect_files(out, folder ? path : NULL, err) : status;
}

enum mics_status mics_disk_tokenizer_open_model(const char *path, struct mics_disk_tokenizer *out,
                                                struct mics_err *err)
{
    enum mics_status status;
    bool found;

    *out = (struct mics_disk_tokenizer){0};
    if (!is_folder(path))
        return MICS_OK;
    if (!mics_hf_is_folder(path))
        return open_checkpoint(path, out, &found, err);
    status = mics_tokenizer_files_find(&out->files, path, err);
    if (status != MICS_OK)
        return status;
    if (mics_tokenizer_files_make_ids(&out->files))
        return mics_tokenizer_open(path, &out->tokenizer, err);
    return MICS_OK;
}

/* Add a token's id, unless there is none. */
static int add_id(json_t *map, const char *key, uint32_t id)
{
    return id == MICS_NO_TOKEN ? 0 : json_object_set_new(map, key, json_integer(id));
}

enum mics_status mics_disk_tokenizer_to_json(const struct mics_disk_tokenizer *tokenizer,
                                             json_t **out, struct mics_err *err)
{
    const struct mics_tokenizer *open = tokenizer->tokenizer;
    char fingerprint[17];

    *out = NULL;
    if (!open)
        return MICS_OK;
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, mics_tokenizer_fingerprint(open));
    *out = json_pack("{s:s,s:I}", "fingerprint", fingerprint, "size",
                     (json_int_t)mics_tokenizer_size(open));
    if (*out &&
        (add_id(*out, "begin", mics_tokenizer_begin(open)) |
         add_id(*out, "end", mics_tokenizer_end(open)) |
         json_object_set_new(*out, "files", mics_tokenizer_files_to_json(&tokenizer->files))) == 0)
        return MICS_OK;
    json_decref(*out);
    *out = NULL;
    return mics_err_nomem(err);
}

enum mics_status mics_dataset_write_tokenizer(const struct mics_disk_tokenizer *tokenizer,
                                              const char *prefix, json_t **listed,
                                              struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(folder, err, "%s.tokenizer", prefix);

    if (status == MICS_OK)
        status = mics_file_remove_tree(folder, err);
    if (status == MICS_OK && tokenizer->files.count) {
        status = mics_file_make_folders(folder, err);
        if (status == MICS_OK)
            status = mics_tokenizer_files_write(&tokenizer->files, folder, err);
    }
    return status == MICS_OK ? mics_disk_tokenizer_to_json(tokenizer, listed, err) : status;
}

enum mics_status mics_dataset_read(const char *path, char folder[MICS_PATH_MAX], json_t **doc,
                                   struct mics_err *err)
{
    char prefix[MICS_PATH_MAX], name[MICS_PATH_MAX];
    bool exists = false;
    enum mics_status status = mics_token_prefix(path, prefix, err);

    *doc = NULL;
    if (status == MICS_OK)
        status = mics_path_format(folder, err, "%s.tokenizer", prefix);
    if (status == MICS_OK)
        status = mics_path_format(name, err, "%s.mp", prefix);
    if (status == MICS_OK)
        status = mics_file_set_recover(prefix, err);
    if (status == MICS_OK)
        status = mics_file_exists(name, &exists, err);
    if (status != MICS_OK || !exists)
        return status;
    status = mics_doc_read_regular(name, doc, err);
    if (status != MICS_OK)
        return status;
    status = mics_doc_expect(*doc, MICS_DATASET_KIND, MICS_DATASET_VERSION, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", name);
        json_decref(*doc);
        *doc = NULL;
    }
    return status;
}

enum mics_status mics_dataset_read_tokenizer(const char *path, char folder[MICS_PATH_MAX],
                                             json_t **listed, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = mics_dataset_read(path, folder, &doc, err);

    *listed = json_incref(json_object_get(doc, "tokenizer"));
    json_decref(doc);
    return status;
}

bool mics_tokenizer_is_listed(const struct mics_tokenizer *tokenizer, const json_t *listed)
{
    const char *then = json_string_value(json_object_get(listed, "fingerprint"));
    char now[17];

    snprintf(now, sizeof now, "%016" PRIx64, mics_tokenizer_fingerprint(tokenizer));
    return !then || strcmp(then, now) == 0;
}

/* Copy the text of one id: *text[capacity] grows. */
static enum mics_status copy_text(struct mics_decoder *decoder, uint32_t id, char **text,
                                  size_t *length, size_t *capacity, struct mics_err *err)
{
    const char *parts[2];
    size_t sizes[2];

    *length = 0;
    for (int i = 0; i < 2; i++) {
        enum mics_status status = i == 0 ? mics_decode(decoder, &id, 1, &parts[i], &sizes[i], err)
                                         : mics_decode_end(decoder, &parts[i], &sizes[i], err);

        if (status != MICS_OK)
            return status;
        if (*length + sizes[i] > *capacity) {
            char *grown = realloc(*text, *length + sizes[i] + 256);

            if (!grown)
                return mics_err_nomem(err);
            *text = grown;
            *capacity = *length + sizes[i] + 256;
        }
        if (sizes[i])
            memcpy(*text + *length, parts[i], sizes[i]);
        *length += sizes[i];
    }
    return MICS_OK;
}

enum mics_status mics_tokenizers_agree(const struct mics_tokenizer *a,
                                       const struct mics_tokenizer *b, bool *same,
                                       struct mics_err *err)
{
    const struct mics_tokenizer *const both[2] = {a, b};
    struct mics_decoder *decoders[2] = {NULL, NULL};
    char *texts[2] = {NULL, NULL};
    size_t lengths[2] = {0, 0}, capacities[2] = {0, 0};
    enum mics_status status = MICS_OK;

    *same = mics_tokenizer_size(a) == mics_tokenizer_size(b);
    for (int i = 0; status == MICS_OK && i < 2; i++)
        status = mics_decoder_new(both[i], false, &decoders[i], err);
    for (uint32_t id = 0; status == MICS_OK && *same && id < mics_tokenizer_size(a); id++) {
        for (int i = 0; status == MICS_OK && i < 2; i++)
            status = copy_text(decoders[i], id, &texts[i], &lengths[i], &capacities[i], err);
        *same = status == MICS_OK && lengths[0] == lengths[1] &&
                (lengths[0] == 0 || memcmp(texts[0], texts[1], lengths[0]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        mics_decoder_free(decoders[i]);
        free(texts[i]);
    }
    return status;
}

const char *mics_tokenizer_title(const struct mics_tokenizer *tokenizer, char *buf, size_t size)
{
    size_t count = 0;
    const struct mics_tokenizer_file *files = mics_tokenizer_files(tokenizer, &count);

    if (mics_tokenizer_is_bytes(tokenizer) || count == 0)
        snprintf(buf, size, "bytes");
    else
        snprintf(buf, size, "%s, %" PRIu32 " ids", files[0].name, mics_tokenizer_size(tokenizer));
    return buf;
}
