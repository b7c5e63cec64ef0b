/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/manifest.h"

#include "ckpt/manifest_form.h"
#include "doc/cursor.h"
#include "doc/doc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_DIGITS 16

void mics_ckpt_file_name(uint32_t index, char *buf, size_t size)
{
    snprintf(buf, size, "shard-%05u.safetensors", index);
}

void mics_manifest_free(struct mics_manifest *manifest)
{
    json_decref(manifest->plan);
    json_decref(manifest->training);
    json_decref(manifest->history);
    free(manifest->files);
    *manifest = (struct mics_manifest){0};
}

static json_t *describe_file(uint32_t index, const struct mics_file_sum *sum)
{
    char name[64], hash[HASH_DIGITS + 1];

    mics_ckpt_file_name(index, name, sizeof name);
    snprintf(hash, sizeof hash, "%016" PRIx64, sum->xxh64);
    return json_pack("{s:s,s:I,s:s}", "name", name, "bytes", (json_int_t)sum->bytes, "xxh64", hash);
}

static json_t *describe_files(const struct mics_manifest *manifest)
{
    json_t *files = json_array();

    for (uint32_t i = 0; files && i < manifest->file_count; i++) {
        if (json_array_append_new(files, describe_file(i, &manifest->files[i])) != 0) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

enum mics_status mics_manifest_to_doc(const struct mics_manifest *manifest,
                                      const struct mics_ckpt_form *form, json_t **out,
                                      struct mics_err *err)
{
    json_t *doc = mics_doc_new(MICS_CHECKPOINT_KIND, MICS_CHECKPOINT_VERSION);
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"step", json_integer((json_int_t)manifest->step)},
        {"samples", json_integer((json_int_t)manifest->samples)},
        {"shape", mics_form_shape(&form->choice->shape)},
        {"model", mics_model_to_json(form->model)},
        {"states", mics_form_states(form->states)},
        {"parts", json_integer(form->parts)},
        {"files", describe_files(manifest)},
        {"training", json_incref(manifest->training)},
        {"units", mics_form_units(form)},
        {"plan", json_incref(manifest->plan)},
        {"history", manifest->history ? json_incref(manifest->history) : json_array()},
    };
    int failed = doc == NULL;

    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        failed |= json_object_set_new(doc, members[i].key, members[i].value) != 0;
    if (failed) {
        json_decref(doc);
        return mics_err_nomem(err);
    }
    *out = doc;
    return MICS_OK;
}

static enum mics_status read_file(const struct mics_cursor *at, uint32_t index,
                                  struct mics_file_sum *sum, struct mics_err *err)
{
    const char *name = NULL, *hash = NULL;
    char expected[64];
    enum mics_status status = mics_cursor_string(at, "name", &name, err);

    if (status == MICS_OK)
        status = mics_cursor_u64(at, "bytes", 0, INT64_MAX, &sum->bytes, err);
    if (status == MICS_OK)
        status = mics_cursor_string(at, "xxh64", &hash, err);
    if (status != MICS_OK)
        return status;
    mics_ckpt_file_name(index, expected, sizeof expected);
    if (strcmp(name, expected) != 0)
        return mics_cursor_fail(at, "name", err, "expected \"%s\"", expected);
    if (strspn(hash, "0123456789abcdef") != HASH_DIGITS || hash[HASH_DIGITS])
        return mics_cursor_fail(at, "xxh64", err, "expected 16 hexadecimal digits");
    sum->xxh64 = strtoull(hash, NULL, 16);
    return MICS_OK;
}

static enum mics_status read_files(const struct mics_cursor *root, struct mics_manifest *manifest,
                                   struct mics_err *err)
{
    struct mics_cursor files, file;
    enum mics_status status = mics_cursor_array(root, "files", 1, MICS_CKPT_MAX_FILES, &files, err);

    if (status != MICS_OK)
        return status;
    manifest->file_count = (uint32_t)mics_cursor_count(&files);
    manifest->files = calloc(manifest->file_count, sizeof *manifest->files);
    if (!manifest->files)
        return mics_err_nomem(err);
    for (uint32_t i = 0; status == MICS_OK && i < manifest->file_count; i++) {
        status = mics_cursor_item(&files, i, &file, err);
        if (status == MICS_OK)
            status = read_file(&file, i, &manifest->files[i], err);
    }
    return status;
}

static enum mics_status read_all(const struct mics_cursor *root, struct mics_manifest *manifest,
                                 struct mics_err *err)
{
    struct mics_cursor part;
    enum mics_status status = mics_cursor_u64(root, "step", 0, INT64_MAX, &manifest->step, err);

    if (status == MICS_OK)
        status = mics_cursor_u64(root, "samples", 0, INT64_MAX, &manifest->samples, err);
    if (status == MICS_OK)
        status = mics_cursor_object(root, "plan", &part, err);
    if (status == MICS_OK)
        manifest->plan = json_incref((json_t *)part.value);
    if (status == MICS_OK)
        status = mics_cursor_object(root, "training", &part, err);
    if (status == MICS_OK)
        manifest->training = json_incref((json_t *)part.value);
    if (status == MICS_OK && mics_cursor_has(root, "history")) {
        status = mics_cursor_array(root, "history", 0, SIZE_MAX, &part, err);
        if (status == MICS_OK)
            manifest->history = json_incref((json_t *)part.value);
    }
    return status == MICS_OK ? read_files(root, manifest, err) : status;
}

enum mics_status mics_manifest_from_doc(json_t *doc, struct mics_manifest *out,
                                        struct mics_err *err)
{
    struct mics_cursor root = mics_cursor_root(doc);
    enum mics_status status =
        mics_doc_expect(doc, MICS_CHECKPOINT_KIND, MICS_CHECKPOINT_VERSION, err);

    *out = (struct mics_manifest){0};
    if (status == MICS_OK)
        status = read_all(&root, out, err);
    if (status != MICS_OK)
        mics_manifest_free(out);
    return status;
}
