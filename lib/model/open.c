/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - a model by name, by its config.json, or by the folder that holds one. */
#include "base/file.h"
#include "doc/doc.h"
#include "doc/foreign.h"
#include "model/config.h"
#include "model/model.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_CONFIG_BYTES (4u << 20)

/* A name for the model from the path of its configuration: the folder of a config.json, else the
 * file's name without ".json". Other than printable ASCII becomes '_'. */
static void name_of_path(const char *path, char *name, size_t size)
{
    size_t length = strlen(path);
    const char *const tail = "/config.json";

    if (length > strlen(tail) && strcmp(path + length - strlen(tail), tail) == 0)
        length -= strlen(tail);
    else if (length > 5 && strcmp(path + length - 5, ".json") == 0)
        length -= 5;
    while (length > 1 && path[length - 1] == '/')
        length--;

    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(name, size, "%.*s", (int)(length - begin), path + begin);
    for (char *at = name; *at; at++)
        if (!isascii((unsigned char)*at) || !isprint((unsigned char)*at))
            *at = '_';
}

/* The file may be a pipe. */
static enum mics_status read_json(const char *path, json_t **out, struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    enum mics_status status = mics_file_read(path, MAX_CONFIG_BYTES, &data, &size, err);

    if (status != MICS_OK)
        return status;
    status = mics_foreign_read(data, size, MICS_DOC_MAX_VALUES, out, err);
    free(data);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
    return status;
}

static bool has_suffix(const char *text, const char *suffix)
{
    const size_t length = strlen(text), wanted = strlen(suffix);

    return length >= wanted && strcmp(text + length - wanted, suffix) == 0;
}

static enum mics_status open_file(const char *path, bool in_folder, struct mics_model **out,
                                  struct mics_err *err)
{
    struct mics_model_config config;
    struct mics_model *model = NULL;
    json_t *doc = NULL;
    char name[sizeof config.name];

    if (has_suffix(path, ".safetensors"))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s' has weights; give its folder or its config.json", path);
    enum mics_status status =
        in_folder ? mics_foreign_read_file(path, MAX_CONFIG_BYTES, MICS_DOC_MAX_VALUES, &doc, err)
                  : read_json(path, &doc, err);

    if (status != MICS_OK)
        return status;
    name_of_path(path, name, sizeof name);
    status = mics_config_from_hf(doc, name, &config, err);
    if (status == MICS_OK)
        status = mics_model_new(&config, &model, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", path);
        json_decref(doc);
        return status;
    }
    model->source = mics_foreign_to_document(doc);
    json_decref(doc);
    if (!model->source) {
        mics_model_free(model);
        return mics_err_nomem(err);
    }
    *out = model;
    return MICS_OK;
}

static enum mics_status open_folder(const char *path, struct mics_model **out, struct mics_err *err)
{
    char *file = NULL;

    if (asprintf(&file, "%s/config.json", path) < 0)
        return mics_err_nomem(err);
    enum mics_status status = open_file(file, true, out, err);
    free(file);
    return status;
}

bool mics_model_is_name(const char *text)
{
    return mics_preset_find(text) != NULL;
}

/* "/data/gpt2", "./gpt2", "config.json"; "gpt2" and "openai/gpt2" are names. */
static bool looks_like_path(const char *text)
{
    return strchr("/.~", text[0]) || has_suffix(text, ".json");
}

static enum mics_status fail_unknown(const char *text, struct mics_err *err)
{
    const char *slash = strrchr(text, '/');
    char names[128];
    const bool similar = *mics_preset_similar(slash ? slash + 1 : text, names, sizeof names);

    if (slash)
        return mics_err_set(err, MICS_ERR_ARG,
                            "'%s': no such file or folder; models are not downloaded%s%s", text,
                            similar ? ". By name, there is " : "", names);
    return mics_err_set(err, MICS_ERR_ARG, "unknown model '%s'; %s%s%s: mics-plan --list-models",
                        text, similar ? "did you mean " : "", names, similar ? "? All" : "all");
}

enum mics_status mics_model_open(const char *text, struct mics_model **out, struct mics_err *err)
{
    const struct mics_model_config *preset = mics_preset_find(text);
    struct stat info;

    if (preset)
        return mics_model_new(preset, out, err);
    if (stat(text, &info) == 0)
        return S_ISDIR(info.st_mode) ? open_folder(text, out, err)
                                     : open_file(text, false, out, err);
    if (errno != ENOENT || looks_like_path(text))
        return mics_err_set_errno(err, "'%s'", text);
    return fail_unknown(text, err);
}
