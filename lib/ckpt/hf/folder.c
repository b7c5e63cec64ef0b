/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c - the files of a model: the index, their headers, and whether they agree. */
#include "ckpt/hf/hf.h"

#include "base/file.h"
#include "doc/doc.h"
#include "doc/foreign.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void mics_hf_close(struct mics_hf *hf)
{
    for (uint32_t i = 0; i < hf->file_count; i++)
        mics_safetensors_free(&hf->files[i].header);
    free(hf->files);
    free(hf->tensors);
    mics_store_close(&hf->store);
    *hf = (struct mics_hf){0};
}

static bool is_there(const char *folder, const char *name)
{
    char path[MICS_PATH_MAX];

    return mics_path_format(path, NULL, "%s/%s", folder, name) == MICS_OK &&
           access(path, F_OK) == 0;
}

bool mics_hf_is_folder(const char *path)
{
    return is_there(path, MICS_HF_INDEX_NAME) || is_there(path, MICS_HF_FILE_NAME);
}

bool mics_hf_name_is_safe(const char *name)
{
    const char *part = name;

    for (const char *at = name; *at; at++)
        if (iscntrl((unsigned char)*at) || *at == '\\')
            return false;
    for (;;) {
        const size_t length = strcspn(part, "/");

        if (length == 0 || (length == 1 && part[0] == '.') ||
            (length == 2 && strncmp(part, "..", 2) == 0))
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
        if (status != MICS_OK)
            mics_err_prefix(&why, "%s", path);
    }
    hf->file_count++;
    if (status != MICS_OK)
        mics_diagnostics_add(diagnostics, "%s", why.text);
    return MICS_OK;
}

/* Is the file below the folder once all symbolic links are resolved? */
static bool is_inside(const char *folder, const char *path)
{
    char *real_folder = realpath(folder, NULL), *real = realpath(path, NULL);
    const size_t length = real_folder ? strlen(real_folder) : 0;
    const bool inside = !real_folder || !real || /* a missing file is reported when it is opened */
                        (strncmp(real, real_folder, length) == 0 &&
                         (real[length] == '/' || strcmp(real_folder, "/") == 0));

    free(real_folder);
    free(real);
    return inside;
}

static enum mics_status add_indexed(struct mics_hf *hf, const char *name,
                                    struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status;

    for (uint32_t i = 0; i < hf->file_count; i++)
        if (strcmp(hf->files[i].name, name) == 0)
            return MICS_OK;
    if (strlen(name) >= sizeof hf->files->name)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: weight_map: '%.60s...' is too long",
                            hf->folder, name);
    status = mics_path_format(path, err, "%s/%s", hf->folder, name);
    if (status == MICS_OK && !is_inside(hf->folder, path))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: a link that leads out of the folder", path);
    return status == MICS_OK ? add_file(hf, path, name, diagnostics, err) : status;
}

/* The index must name the tensors of the files, and the files hold those of the index. */
static void check_index(const struct mics_hf *hf, const json_t *map,
                        struct mics_diagnostics *diagnostics)
{
    const char *tensor;
    json_t *value;

    json_object_foreach((json_t *)map, tensor, value)
    {
        for (uint32_t i = 0; i < hf->file_count; i++) {
            const struct mics_hf_file *file = &hf->files[i];

            if (strcmp(file->name, json_string_value(value)) == 0 && file->header.header &&
                !json_object_get(file->header.header, tensor))
                mics_diagnostics_add(diagnostics,
                                     "%s/%s: has no tensor '%.128s', which the index says is there",
                                     hf->folder, file->name, tensor);
        }
    }
    for (uint32_t i = 0; i < hf->file_count; i++) {
        for (size_t j = 0; j < hf->files[i].header.count; j++) {
            const char *name = hf->files[i].header.tensors[j].name;

            if (!json_object_get(map, name))
                mics_diagnostics_add(diagnostics, "%s/%s: tensor '%.128s' is not in the index",
                                     hf->folder, hf->files[i].name, name);
        }
    }
}

static enum mics_status open_index(struct mics_hf *hf, struct mics_diagnostics *diagnostics,
                                   struct mics_err *err)
{
    char path[MICS_PATH_MAX], *data = NULL;
    size_t size = 0;
    json_t *map = NULL, *value;
    const char *tensor;
    enum mics_status status = mics_path_format(path, err, "%s/" MICS_HF_INDEX_NAME, hf->folder);

    if (status == MICS_OK)
        status = mics_file_read_regular(path, MICS_HF_INDEX_MAX_BYTES, &data, &size, err);
    if (status != MICS_OK)
        return status;
    status = mics_hf_index_parse(data, size, &map, err);
    free(data);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
    json_object_foreach(map, tensor, value)
    {
        if (status == MICS_OK)
            status = add_indexed(hf, json_string_value(value), diagnostics, err);
    }
    if (status == MICS_OK)
        check_index(hf, map, diagnostics);
    json_decref(map);
    return status;
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
    if (is_there(hf->folder, MICS_HF_INDEX_NAME))
        return open_index(hf, diagnostics, err);
    if (!is_there(hf->folder, MICS_HF_FILE_NAME))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s' holds no model (neither " MICS_HF_FILE_NAME
                            " nor " MICS_HF_INDEX_NAME ")",
                            hf->folder);
    status = mics_path_format(path, err, "%s/" MICS_HF_FILE_NAME, hf->folder);
    return status == MICS_OK ? add_file(hf, path, MICS_HF_FILE_NAME, diagnostics, err) : status;
}

static enum mics_status collect_tensors(struct mics_hf *hf, struct mics_err *err)
{
    size_t total = 0;

    for (uint32_t i = 0; i < hf->file_count; i++)
        total += hf->files[i].header.count;
    hf->tensors = calloc(total + 1, sizeof *hf->tensors);
    if (!hf->tensors)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < hf->file_count; i++)
        for (size_t j = 0; j < hf->files[i].header.count; j++)
            hf->tensors[hf->tensor_count++] =
                (struct mics_hf_tensor){.is = &hf->files[i].header.tensors[j], .file = i};
    return MICS_OK;
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
    return status == MICS_OK ? collect_tensors(out, err) : status;
}
