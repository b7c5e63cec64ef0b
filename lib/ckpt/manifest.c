/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/manifest.h"

#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"
#include "doc/tree_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static json_t *sizes_to_json(const struct mics_shape *shape)
{
    return json_pack("{s:I,s:I,s:I}", "p_param", (json_int_t)shape->p_param, "p_grad",
                     (json_int_t)shape->p_grad, "p_optim", (json_int_t)shape->p_optim);
}

static json_t *shape_to_json(const struct mics_shape *shape)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I}", "nodes", (json_int_t)shape->nodes, "per_node",
                     (json_int_t)shape->per_node, "p_param", (json_int_t)shape->p_param, "p_grad",
                     (json_int_t)shape->p_grad, "p_optim", (json_int_t)shape->p_optim);
}

json_t *mics_ckpt_states_to_json(uint32_t states)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < states; i++) {
        if (json_array_append_new(list, json_string(mics_ckpt_state_name(states, i))) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *tensor_to_json(const struct mics_tensor *tensor)
{
    json_t *shape = tensor->rank == 1 ? json_pack("[I]", (json_int_t)tensor->shape[0])
                                      : json_pack("[I,I]", (json_int_t)tensor->shape[0],
                                                  (json_int_t)tensor->shape[1]);

    return shape ? json_pack("{s:s,s:o,s:I}", "name", tensor->name, "shape", shape, "offset",
                             (json_int_t)tensor->offset)
                 : NULL;
}

/* `kind` is NULL where all units are cut by one shape. */
static json_t *unit_to_json(const struct mics_unit *unit, const char *kind,
                            const struct mics_layout *layout)
{
    json_t *tensors = json_array();

    for (uint32_t i = 0; tensors && i < unit->tensor_count; i++) {
        if (json_array_append_new(tensors, tensor_to_json(&unit->tensors[i])) != 0) {
            json_decref(tensors);
            return NULL;
        }
    }
    return tensors
               ? json_pack("{s:s,s:s*,s:I,s:I,s:I,s:o}", "name", unit->name, "kind", kind, "count",
                           (json_int_t)layout->count, "padded", (json_int_t)layout->padded,
                           "segments", (json_int_t)layout->segments, "tensors", tensors)
               : NULL;
}

static json_t *units_to_json(const struct mics_ckpt_layout *form)
{
    json_t *units = json_array();

    for (uint32_t i = 0; units && i < form->model->unit_count; i++) {
        const struct mics_unit *unit = &form->model->units[i];
        const bool expert = mics_choice_groups(form->choice, unit->kind) == MICS_UNIT_EXPERT;

        if (json_array_append_new(
                units, unit_to_json(unit, expert ? "expert" : NULL, &form->layouts[i])) != 0) {
            json_decref(units);
            return NULL;
        }
    }
    return units;
}

#define HASH_DIGITS 16

void mics_ckpt_file_name(uint32_t index, char *buf, size_t size)
{
    snprintf(buf, size, "shard-%05u.safetensors", index);
}

void mics_manifest_free(struct mics_manifest *manifest)
{
    json_decref(manifest->plan);
    json_decref(manifest->training);
    json_decref(manifest->tokenizer);
    json_decref(manifest->history);
    free(manifest->files);
    *manifest = (struct mics_manifest){0};
}

static json_t *file_to_json(uint32_t index, const struct mics_file_sum *sum)
{
    char name[64], hash[HASH_DIGITS + 1];

    mics_ckpt_file_name(index, name, sizeof name);
    snprintf(hash, sizeof hash, "%016" PRIx64, sum->xxh64);
    return json_pack("{s:s,s:I,s:s}", "name", name, "bytes", (json_int_t)sum->bytes, "xxh64", hash);
}

static json_t *files_to_json(const struct mics_manifest *manifest)
{
    json_t *files = json_array();

    for (uint32_t i = 0; files && i < manifest->file_count; i++) {
        if (json_array_append_new(files, file_to_json(i, &manifest->files[i])) != 0) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

/* hash[HASH_DIGITS + 1] = the checksum of a document, without the member that has it. */
static enum mics_status hash_doc(const json_t *doc, char *hash, struct mics_err *err)
{
    json_t *others = json_copy((json_t *)(uintptr_t)doc);
    char *data = NULL;
    size_t size = 0;

    if (!others)
        return mics_err_nomem(err);
    json_object_del(others, "xxh64");
    const enum mics_status status = mics_doc_encode(others, MICS_DOC_MSGPACK, &data, &size, err);
    if (status == MICS_OK)
        snprintf(hash, HASH_DIGITS + 1, "%016" PRIx64, (uint64_t)XXH64(data, size, 0));
    free(data);
    json_decref(others);
    return status;
}

enum mics_status mics_manifest_seal(json_t *doc, struct mics_err *err)
{
    char hash[HASH_DIGITS + 1];
    const enum mics_status status = hash_doc(doc, hash, err);

    if (status == MICS_OK && json_object_set_new(doc, "xxh64", json_string(hash)) != 0)
        return mics_err_nomem(err);
    return status;
}

enum mics_status mics_manifest_to_doc(const struct mics_manifest *manifest,
                                      const struct mics_ckpt_layout *form, json_t **out,
                                      struct mics_err *err)
{
    json_t *doc = mics_doc_new(MICS_CHECKPOINT_KIND, MICS_CHECKPOINT_VERSION);
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"step", json_integer((json_int_t)manifest->step)},
        {"samples", json_integer((json_int_t)manifest->samples)},
        {"since", json_pack("{s:I,s:I}", "step", (json_int_t)manifest->base_step, "samples",
                            (json_int_t)manifest->base_samples)},
        {"shape", shape_to_json(&form->choice->shapes[MICS_UNIT_DENSE])},
        {"model", mics_model_to_json(form->model)},
        {"states", mics_ckpt_states_to_json(form->states)},
        {"parts", json_integer(form->parts)},
        {"files", files_to_json(manifest)},
        {"training", json_incref(manifest->training)},
        {"units", units_to_json(form)},
        {"plan", json_incref(manifest->plan)},
        {"history", manifest->history ? json_incref(manifest->history) : json_array()},
    };
    int failed = doc == NULL;

    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        failed |= json_object_set_new(doc, members[i].key, members[i].value) != 0;
    if (mics_choice_groups(form->choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT)
        failed |= json_object_set_new(doc, "experts",
                                      sizes_to_json(&form->choice->shapes[MICS_UNIT_EXPERT])) != 0;
    if (mics_choice_align(form->choice) != MICS_TENSOR_ALIGN)
        failed |=
            json_object_set_new(doc, "align", json_integer(mics_choice_align(form->choice))) != 0;
    if (manifest->tokenizer)
        failed |= json_object_set(doc, "tokenizer", manifest->tokenizer) != 0;
    const enum mics_status status = failed ? mics_err_nomem(err) : mics_manifest_seal(doc, err);
    if (status == MICS_OK)
        *out = doc;
    else
        json_decref(doc);
    return status;
}

enum mics_status mics_manifest_check(const json_t *doc, struct mics_err *err)
{
    const json_t *then = json_object_get(doc, "xxh64");
    char now[HASH_DIGITS + 1];
    enum mics_status status =
        mics_doc_expect(doc, MICS_CHECKPOINT_KIND, MICS_CHECKPOINT_VERSION, err);

    if (status != MICS_OK)
        return status;
    if (!json_is_string(then))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "xxh64: expected a string: the manifest is "
                            "damaged");
    status = hash_doc(doc, now, err);
    if (status != MICS_OK)
        return status;
    if (strcmp(json_string_value(then), now) != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "is damaged: its checksum is %.32s, but its contents have %s",
                            json_string_value(then), now);
    return status;
}

static void read_file(const struct mics_cursor *at, uint32_t index, struct mics_file_sum *sum)
{
    const char *name = mics_cursor_get_string(at, "name");
    char expected[64];

    sum->bytes = mics_cursor_get_u64(at, "bytes", 0, INT64_MAX);
    const char *hash = mics_cursor_get_string(at, "xxh64");
    mics_ckpt_file_name(index, expected, sizeof expected);
    if (strcmp(name, expected) != 0)
        mics_cursor_reject(at, "name", "expected \"%s\"", expected);
    if (strspn(hash, "0123456789abcdef") != HASH_DIGITS || hash[HASH_DIGITS])
        mics_cursor_reject(at, "xxh64", "expected 16 hexadecimal digits");
    sum->xxh64 = strtoull(hash, NULL, 16);
}

static void read_files(const struct mics_cursor *root, struct mics_manifest *manifest)
{
    const struct mics_cursor files = mics_cursor_get_array(root, "files", 1, MICS_CKPT_MAX_FILES);

    manifest->files = mics_cursor_calloc(&files, sizeof *manifest->files);
    manifest->file_count = manifest->files ? (uint32_t)mics_cursor_count(&files) : 0;
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        const struct mics_cursor file = mics_cursor_get_item(&files, i);

        read_file(&file, i, &manifest->files[i]);
    }
}

/* Steps and samples of a training, which the plan's batch connects. */
static void read_counts(const struct mics_cursor *root, struct mics_manifest *manifest)
{
    const json_int_t batch =
        json_integer_value(json_object_get(json_object_get(root->value, "plan"), "global_batch"));

    manifest->step = mics_cursor_get_u64(root, "step", 0, INT64_MAX);
    manifest->samples = mics_cursor_get_u64(root, "samples", 0, INT64_MAX);
    const struct mics_cursor since = mics_cursor_get_object(root, "since");
    manifest->base_step = mics_cursor_get_u64(&since, "step", 0, manifest->step);
    manifest->base_samples = mics_cursor_get_u64(&since, "samples", 0, manifest->samples);
    const uint64_t steps = manifest->step - manifest->base_step;
    const uint64_t samples = manifest->samples - manifest->base_samples;
    if (batch > 0 && (samples / (uint64_t)batch != steps || samples % (uint64_t)batch != 0))
        mics_cursor_reject(root, "samples",
                           "%" PRIu64 " steps of %" JSON_INTEGER_FORMAT
                           " sequences do not make %" PRIu64,
                           steps, batch, samples);
}

/* A reference of its own to the value of the cursor. */
static json_t *own(struct mics_cursor at)
{
    return json_incref((json_t *)(uintptr_t)at.value);
}

enum mics_status mics_manifest_from_doc(json_t *doc, struct mics_manifest *out,
                                        struct mics_err *err)
{
    struct mics_reading reading = {.err = err, .status = mics_manifest_check(doc, err)};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);

    *out = (struct mics_manifest){0};
    read_counts(&root, out);
    out->plan = own(mics_cursor_get_object(&root, "plan"));
    out->training = own(mics_cursor_get_object(&root, "training"));
    if (mics_cursor_has(&root, "tokenizer"))
        out->tokenizer = own(mics_cursor_get_object(&root, "tokenizer"));
    if (mics_cursor_has(&root, "history"))
        out->history = own(mics_cursor_get_array(&root, "history", 0, SIZE_MAX));
    read_files(&root, out);
    if (reading.status != MICS_OK)
        mics_manifest_free(out);
    return reading.status;
}

static void add_number_row(struct mics_table *table, const char *name, uint64_t value)
{
    mics_table_cell(table, "%s", name);
    mics_table_cell(table, "%" PRIu64, value);
}

static void add_model_row(struct mics_table *table, const struct mics_cursor *root)
{
    const struct mics_cursor model = mics_cursor_get_object(root, "model");

    mics_table_cell(table, "model");
    mics_table_cell(table, "%s", mics_cursor_get_string(&model, "name"));
}

/* A row for each size, and for those of expert units where they are cut differently. */
static void add_shape_rows(struct mics_table *table, const struct mics_cursor *root)
{
    static const char *const keys[] = {"nodes", "per_node", "p_param", "p_grad", "p_optim"};
    const struct mics_cursor shape = mics_cursor_get_object(root, "shape");
    char name[32];

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        add_number_row(table, keys[i], mics_cursor_get_u32(&shape, keys[i], 1, UINT32_MAX));
    if (!mics_cursor_has(root, "experts"))
        return;
    const struct mics_cursor experts = mics_cursor_get_object(root, "experts");
    for (size_t i = 2; i < sizeof keys / sizeof *keys; i++) {
        snprintf(name, sizeof name, "experts.%s", keys[i]);
        add_number_row(table, name, mics_cursor_get_u32(&experts, keys[i], 1, UINT32_MAX));
    }
}

static uint64_t total_bytes(const struct mics_manifest *manifest)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < manifest->file_count; i++)
        total += manifest->files[i].bytes;
    return total;
}

static enum mics_status print_summary(FILE *out, const json_t *doc,
                                      const struct mics_manifest *manifest, int tsv,
                                      struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    struct mics_table *table = mics_table_new("<|<");

    add_model_row(table, &root);
    add_number_row(table, tsv ? "step" : "steps done", manifest->step);
    add_number_row(table, tsv ? "samples" : "sequences seen", manifest->samples);
    add_shape_rows(table, &root);
    add_number_row(table, "files", manifest->file_count);
    mics_table_cell(table, "bytes");
    mics_table_bytes(table, tsv, total_bytes(manifest));
    mics_tree_print_rows(table, "training", manifest->training, tsv);
    if (manifest->tokenizer)
        mics_tree_print_rows(table, "tokenizer", manifest->tokenizer, tsv);
    if (reading.status == MICS_OK)
        return mics_table_finish(table, out, tsv, err);
    mics_table_free(table);
    return reading.status;
}

static enum mics_status print_files(FILE *out, const struct mics_manifest *manifest, int tsv,
                                    struct mics_err *err)
{
    struct mics_table *table = mics_table_new(tsv ? "file|bytes|xxh64" : "<file|>bytes|<xxh64");
    char name[64];

    for (uint32_t i = 0; i < manifest->file_count; i++) {
        mics_ckpt_file_name(i, name, sizeof name);
        mics_table_cell(table, "%s", name);
        mics_table_bytes(table, tsv, manifest->files[i].bytes);
        mics_table_cell(table, "%016" PRIx64, manifest->files[i].xxh64);
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

enum mics_status mics_manifest_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    struct mics_manifest manifest = {0};
    enum mics_status status = mics_manifest_from_doc((json_t *)(uintptr_t)doc, &manifest, err);

    if (status != MICS_OK)
        return status;
    status = print_summary(out, doc, &manifest, tsv, err);
    if (status == MICS_OK)
        status = print_files(out, &manifest, tsv, err);
    mics_manifest_free(&manifest);
    return status;
}
