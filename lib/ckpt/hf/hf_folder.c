/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf_folder.c - the files of a model and their headers.
 *
 * Which files are read is what transformers reads: model.safetensors if it is there, else all files
 * that the index names, in the order of their names. In which of these a tensor is does not matter;
 * names in the index without a tensor are those of buffers, or the model misses a tensor. Links are
 * followed wherever they lead, as the Hub's cache consists of links; the names in an index may not
 * lead out of the folder.
 */
#include "ckpt/hf/hf.h"

#include "base/dir.h"
#include "base/file.h"
#include "doc/doc.h"
#include "doc/foreign.h"
#include "model/family.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* GGUF files are written, never read. */
#define GGUF_ADVICE "a GGUF file, which is not read here: take the model's safetensors files"

void mics_hf_close(struct mics_hf *hf)
{
    for (uint32_t i = 0; i < hf->file_count; i++)
        mics_safetensors_free(&hf->files[i].header);
    for (size_t i = 0; i < hf->tensor_count; i++)
        free(hf->tensors[i].pieces);
    free(hf->files);
    free(hf->tensors);
    json_decref(hf->weight_map);
    mics_store_close(&hf->store);
    *hf = (struct mics_hf){0};
}

static bool is_file(const char *folder, const char *name)
{
    char path[MICS_PATH_MAX];
    struct stat info;

    return mics_path_format(path, NULL, "%s/%s", folder, name) == MICS_OK &&
           stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool mics_hf_is_folder(const char *path)
{
    return is_file(path, MICS_HF_INDEX_NAME) || is_file(path, MICS_HF_FILE_NAME);
}

bool mics_hf_name_is_safe(const char *name)
{
    const char *part = name;

    if (*name == '/' || *name == '\0')
        return false;
    for (const char *at = name; *at; at++)
        if (iscntrl((unsigned char)*at) || *at == '\\')
            return false;
    for (;;) {
        const size_t length = strcspn(part, "/");

        if (length == 2 && strncmp(part, "..", 2) == 0)
            return false;
        if (part[length] == '\0')
            return true;
        part += length + 1;
    }
}

static enum mics_status check_map(const json_t *map, struct mics_err *err)
{
    const char *tensor;
    size_t length;
    json_t *file;

    json_object_keylen_foreach((json_t *)map, tensor, length, file)
    {
        const char *name = json_string_value(file);

        if (strlen(tensor) != length)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "weight_map: '%.128s': a tensor's name with a NUL", tensor);
        if (!name || strlen(name) != json_string_length(file))
            return mics_err_set(err, MICS_ERR_FORMAT, "weight_map: '%.128s' has no file", tensor);
        if (!mics_hf_name_is_safe(name))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "weight_map: '%.128s' is said to be in '%.128s', which is not "
                                "inside the folder",
                                tensor, name);
    }
    return MICS_OK;
}

enum mics_status mics_hf_index_parse(const char *data, size_t size, json_t **map,
                                     struct mics_err *err)
{
    json_t *doc = NULL, *found;
    enum mics_status status = mics_foreign_read(data, size, MICS_DOC_MAX_VALUES, &doc, err);

    if (status != MICS_OK)
        return status;
    found = json_object_get(doc, "weight_map");
    if (!json_is_object(found) || json_object_size(found) == 0)
        status =
            mics_err_set(err, MICS_ERR_FORMAT, "weight_map: expected a map of tensors to files");
    else
        status = check_map(found, err);
    if (status == MICS_OK)
        *map = json_incref(found);
    json_decref(doc);
    return status;
}

/* What else is given for safetensors files, by its first bytes. PyTorch writes a pickle in a ZIP
 * archive, or formerly a pickle. */
static const struct {
    const char *begin, *what;
} other_files[] = {
    {"PK\3\4", MICS_HF_PICKLE_ADVICE},
    {"\x80\2", MICS_HF_PICKLE_ADVICE},
    {"GGUF", GGUF_ADVICE},
    {MICS_LFS_POINTER, "a pointer of Git LFS: " MICS_LFS_ADVICE},
};

/* NULL: it is none of these. */
static const char *what_else(int fd)
{
    char begin[sizeof MICS_LFS_POINTER] = "";

    if (pread(fd, begin, sizeof begin - 1, 0) < 0)
        return NULL;
    for (size_t i = 0; i < sizeof other_files / sizeof *other_files; i++)
        if (strncmp(begin, other_files[i].begin, strlen(other_files[i].begin)) == 0)
            return other_files[i].what;
    return NULL;
}

/* A file that cannot be opened, or is malformed, is reported as one problem; the other files are
 * still checked. */
static enum mics_status add_file(struct mics_hf *hf, const char *path, const char *name,
                                 struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    struct mics_hf_file *files = realloc(hf->files, ((size_t)hf->file_count + 1) * sizeof *files);
    struct mics_err why = {""};
    enum mics_status status;

    if (!files)
        return mics_err_nomem(err);
    hf->files = files;
    files[hf->file_count] = (struct mics_hf_file){0};
    snprintf(files[hf->file_count].name, sizeof files->name, "%s", name);
    status = mics_store_add_file(&hf->store, path, &why);
    if (status == MICS_ERR_NOMEM || status == MICS_ERR_IO) {
        if (err)
            *err = why;
        return status;
    }
    if (status == MICS_OK) {
        const struct mics_store_file *opened = &hf->store.files[hf->store.file_count - 1];

        status =
            mics_safetensors_load(opened->fd, opened->bytes, &files[hf->file_count].header, &why);
        const char *what = status == MICS_OK ? NULL : what_else(opened->fd);

        if (what)
            mics_err_set(&why, status, "not a safetensors file, but %s", what);
        if (status != MICS_OK)
            mics_err_prefix(&why, "%s", path);
    }
    hf->file_count++;
    if (status != MICS_OK)
        mics_diagnostics_add(diagnostics, "%s", why.text);
    return MICS_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum mics_status add_indexed(struct mics_hf *hf, const char *name,
                                    struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status;

    if (strlen(name) >= sizeof hf->files->name)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: weight_map: '%.60s...' is too long",
                            hf->folder, name);
    status = mics_path_format(path, err, "%s/%s", hf->folder, name);
    return status == MICS_OK ? add_file(hf, path, name, diagnostics, err) : status;
}

/* Add the files that the index names, each once. */
static enum mics_status add_all_indexed(struct mics_hf *hf, struct mics_diagnostics *diagnostics,
                                        struct mics_err *err)
{
    const char **names = malloc(json_object_size(hf->weight_map) * sizeof *names), *tensor;
    enum mics_status status = MICS_OK;
    size_t count = 0;
    json_t *value;

    if (!names)
        return mics_err_nomem(err);
    json_object_foreach(hf->weight_map, tensor, value)
    {
        names[count++] = json_string_value(value);
    }
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; status == MICS_OK && i < count; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            status = add_indexed(hf, names[i], diagnostics, err);
    free(names);
    return status;
}

static enum mics_status open_index(struct mics_hf *hf, struct mics_diagnostics *diagnostics,
                                   struct mics_err *err)
{
    char path[MICS_PATH_MAX], *data = NULL;
    size_t size = 0;
    enum mics_status status = mics_path_format(path, err, "%s/" MICS_HF_INDEX_NAME, hf->folder);

    if (status != MICS_OK)
        return status;
    status = mics_file_read_regular(path, MICS_HF_INDEX_MAX_BYTES, &data, &size, err);
    if (status != MICS_OK)
        return status;
    status = mics_hf_index_parse(data, size, &hf->weight_map, err);
    free(data);
    if (status == MICS_OK)
        return add_all_indexed(hf, diagnostics, err);
    mics_err_prefix(err, "%s", path);
    return status;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);

    return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* Files in which others keep models, by what their names begin and end with; what the first is
 * that is found, in the order of this table, is said. */
static const struct {
    const char *begin, *end, *what;
} foreign_files[] = {
    {"adapter_model", ".safetensors",
     "an adapter (LoRA) without its model: merge the two with peft's merge_and_unload()"},
    {"", ".safetensors",
     "which only an index, or the name " MICS_HF_FILE_NAME ", makes a model: "
     "give the file itself, or rename it"},
    {"adapter_model", ".bin", "an adapter in a pickle, without its model"},
    {"", ".bin", MICS_HF_PICKLE_ADVICE},
    {"", ".pth", MICS_HF_PICKLE_ADVICE},
    {"", ".pt", MICS_HF_PICKLE_ADVICE},
    {"", ".ckpt", MICS_HF_PICKLE_ADVICE},
    {"", ".gguf", GGUF_ADVICE},
    {"", ".h5", "a file of TensorFlow: take the model's safetensors files"},
    {"", ".msgpack", "a file of Flax: take the model's safetensors files"},
};

enum { FOREIGN_FILES = sizeof foreign_files / sizeof *foreign_files };

/* Is there a model's file that cannot be read: a link that leads nowhere, a pipe? */
static enum mics_status open_anyway(const char *folder, const char *name, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    bool exists = false;
    int fd = -1;
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder, name);

    if (status != MICS_OK)
        goto out;
    status = mics_file_exists(path, &exists, err);
    if (status != MICS_OK)
        goto out;
    if (exists)
        status = mics_file_open_regular(path, &fd, NULL, err);
out:
    if (fd >= 0)
        close(fd);
    return status;
}

/* MICS_ERR_FORMAT if the folder is that of a model in the Hub's cache, which has a folder for each
 * revision. */
static enum mics_status is_cached(const char *folder, struct mics_err *err)
{
    char path[MICS_PATH_MAX], revision[256] = "";
    struct mics_dir dir;
    const char *name;
    enum mics_status status = mics_path_format(path, err, "%s/snapshots", folder);

    if (status != MICS_OK || access(path, F_OK) != 0)
        return status;
    status = mics_dir_open(path, &dir, err);
    while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL)
        if (!revision[0] || strcmp(name, revision) < 0)
            snprintf(revision, sizeof revision, "%.255s", name);
    status = mics_dir_close(&dir, status, err);
    if (status != MICS_OK || !revision[0])
        return status;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "%s: is a model in the Hub's cache: give the folder of a revision, such as "
                        "'%s/%.128s'",
                        folder, path, revision);
}

enum mics_status mics_hf_no_model(const char *folder, struct mics_err *err)
{
    char found[256] = "";
    size_t best = FOREIGN_FILES;
    struct mics_dir dir;
    const char *name;
    enum mics_status status = open_anyway(folder, MICS_HF_FILE_NAME, err);

    if (status != MICS_OK)
        return status;
    status = open_anyway(folder, MICS_HF_INDEX_NAME, err);
    if (status != MICS_OK)
        return status;
    status = mics_dir_open(folder, &dir, err);
    while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL)
        for (size_t i = 0; i < FOREIGN_FILES && i <= best; i++) {
            if (strncmp(name, foreign_files[i].begin, strlen(foreign_files[i].begin)) != 0 ||
                !ends_with(name, foreign_files[i].end) || (i == best && strcmp(name, found) > 0))
                continue;
            best = i;
            snprintf(found, sizeof found, "%.255s", name);
            break;
        }
    status = mics_dir_close(&dir, status, err);
    if (status != MICS_OK)
        return status;
    if (best == FOREIGN_FILES)
        return is_cached(folder, err);
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "%s: has neither " MICS_HF_FILE_NAME " nor " MICS_HF_INDEX_NAME
                        ", but '%.128s', %s",
                        folder, found, foreign_files[best].what);
}

static enum mics_status open_folder(struct mics_hf *hf, const char *folder,
                                    struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(hf->folder, err, "%s", folder);
    size_t length = status == MICS_OK ? strlen(folder) : 0;

    while (length > 1 && hf->folder[length - 1] == '/')
        hf->folder[--length] = '\0';
    if (status != MICS_OK)
        return status;
    if (!is_file(hf->folder, MICS_HF_FILE_NAME) && is_file(hf->folder, MICS_HF_INDEX_NAME))
        return open_index(hf, diagnostics, err);
    if (!is_file(hf->folder, MICS_HF_FILE_NAME)) {
        status = mics_hf_no_model(hf->folder, err);
        return status != MICS_OK ? status
                                 : mics_err_set(err, MICS_ERR_FORMAT,
                                                "'%s' holds no model (neither " MICS_HF_FILE_NAME
                                                " nor " MICS_HF_INDEX_NAME ")",
                                                hf->folder);
    }
    if (is_file(hf->folder, MICS_HF_INDEX_NAME))
        snprintf(diagnostics->note, sizeof diagnostics->note,
                 "%.256s: has " MICS_HF_FILE_NAME " and " MICS_HF_INDEX_NAME
                 ": reading the former, as transformers does",
                 hf->folder);
    status = mics_path_format(path, err, "%s/" MICS_HF_FILE_NAME, hf->folder);
    return status == MICS_OK ? add_file(hf, path, MICS_HF_FILE_NAME, diagnostics, err) : status;
}

/* A tensor that is in two files must be the same in both; the second is then left out. */
static enum mics_status drop_twin(struct mics_hf *hf, const struct mics_hf_tensor *one,
                                  const struct mics_hf_tensor *two,
                                  struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    bool same = false;
    const enum mics_status status = mics_hf_compare(hf, one, two, &same, err);

    if (status == MICS_OK && !same)
        mics_diagnostics_add(diagnostics, "%s: tensor '%.128s' is also in '%.128s', but differs",
                             hf->store.files[two->file].path, one->header->name,
                             hf->files[one->file].name);
    return status;
}

static enum mics_status collect_tensors(struct mics_hf *hf, struct mics_diagnostics *diagnostics,
                                        struct mics_err *err)
{
    json_t *places = json_object();
    size_t total = 0;
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < hf->file_count; i++)
        total += hf->files[i].header.count;
    hf->tensors = calloc(total + 1, sizeof *hf->tensors);
    if (!hf->tensors || !places)
        status = mics_err_nomem(err);
    for (uint32_t i = 0; i < hf->file_count; i++)
        for (size_t j = 0; status == MICS_OK && j < hf->files[i].header.count; j++) {
            const struct mics_hf_tensor found = {.header = &hf->files[i].header.tensors[j],
                                                 .file = i};
            const json_t *place = json_object_get(places, found.header->name);

            if (place) {
                status = drop_twin(hf, &hf->tensors[json_integer_value(place)], &found, diagnostics,
                                   err);
                continue;
            }
            if (json_object_set_new(places, found.header->name,
                                    json_integer((json_int_t)hf->tensor_count)) != 0)
                status = mics_err_nomem(err);
            hf->tensors[hf->tensor_count++] = found;
        }
    json_decref(places);
    return status;
}

void mics_hf_check_index(const struct mics_hf *hf, struct mics_diagnostics *diagnostics)
{
    json_t *found = json_object(), *file;
    const char *name;

    for (size_t i = 0; i < hf->tensor_count; i++)
        json_object_set_new(found, hf->tensors[i].header->name, json_true());
    json_object_foreach(hf->weight_map, name, file)
    {
        if (!json_object_get(found, name) && !mics_family_is_buffer(NULL, name) &&
            !ends_with(name, "lm_head.weight"))
            mics_diagnostics_add(diagnostics,
                                 "%s: no file has tensor '%.128s', which the index says is in "
                                 "'%.128s'",
                                 hf->folder, name, json_string_value(file));
    }
    json_decref(found);
}

enum mics_status mics_hf_open(const char *const *paths, size_t count,
                              struct mics_diagnostics *diagnostics, struct mics_hf *out,
                              struct mics_err *err)
{
    const uint64_t before = diagnostics->count;
    struct stat info;
    enum mics_status status = MICS_OK;

    *out = (struct mics_hf){0};
    if (stat(paths[0], &info) != 0)
        return mics_err_set_errno(err, "%s", paths[0]);
    if (S_ISDIR(info.st_mode)) {
        if (count > 1)
            return mics_err_set(err, MICS_ERR_ARG, "'%s' is a folder: give one, or files",
                                paths[0]);
        status = open_folder(out, paths[0], diagnostics, err);
    } else {
        for (size_t i = 0; status == MICS_OK && i < count; i++)
            status = add_file(out, paths[i], paths[i], diagnostics, err);
    }
    if (status == MICS_OK)
        status = mics_diagnostics_status(diagnostics, before, paths[0], err);
    if (status == MICS_OK)
        status = collect_tensors(out, diagnostics, err);
    return status == MICS_OK ? mics_diagnostics_status(diagnostics, before, paths[0], err) : status;
}
