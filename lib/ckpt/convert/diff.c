/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - compares the numbers of two models on disk, whatever their forms. */
#include "ckpt/convert/convert.h"

#include "base/num.h"
#include "ckpt/convert/disk_model.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS ((size_t)1 << 20)

struct difference {
    uint64_t elements, differ;
    double largest; /* absolute */
};

static void compare(const float *a, const float *b, size_t count, struct difference *out)
{
    if (memcmp(a, b, count * sizeof *a) == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) == 0)
            continue;
        out->differ++;
        out->largest = fmax(out->largest, fabs((double)a[i] - (double)b[i]));
    }
}

static enum mics_status compare_tensor(const struct mics_store *const stores[2], uint32_t vector,
                                       const struct mics_tensor *tensor, float *buffer,
                                       struct difference *out, struct mics_err *err)
{
    float *scratch = buffer + 2 * MICS_STORE_CHUNK;
    enum mics_status status = MICS_OK;

    *out = (struct difference){.elements = tensor->count};
    for (uint64_t at = 0; status == MICS_OK && at < tensor->count;) {
        const size_t count = (size_t)mics_min_u64(tensor->count - at, MICS_STORE_CHUNK);

        for (int i = 0; status == MICS_OK && i < 2; i++)
            status =
                mics_store_read(stores[i], vector, tensor->offset + at, count, MICS_STORAGE_F32,
                                buffer + (size_t)i * MICS_STORE_CHUNK, scratch, err);
        if (status == MICS_OK)
            compare(buffer, buffer + MICS_STORE_CHUNK, count, out);
        at += count;
    }
    return status;
}

static enum mics_status add_row(json_t *rows, const char *tensor, const char *state,
                                const struct difference *found, struct mics_err *err)
{
    json_t *row = json_pack("{s:s,s:s,s:I,s:I,s:f}", "tensor", tensor, "state", state, "elements",
                            (json_int_t)found->elements, "differ", (json_int_t)found->differ,
                            "largest", found->largest);

    return json_array_append_new(rows, row) == 0 ? MICS_OK : mics_err_nomem(err);
}

/* Adds a row for each tensor and state that differs. */
static enum mics_status compare_all(const struct mics_model *model,
                                    const struct mics_store *const stores[2], uint32_t states,
                                    json_t *rows, struct mics_err *err)
{
    float *buffer = malloc(4 * MICS_STORE_CHUNK * sizeof *buffer);
    enum mics_status status = buffer ? MICS_OK : mics_err_nomem(err);
    struct difference found;

    for (uint32_t i = 0; status == MICS_OK && i < model->unit_count * states; i++) {
        const struct mics_unit *unit = &model->units[i / states];
        const uint32_t vector = mics_vector_of(i / states, i % states);

        for (uint32_t j = 0; status == MICS_OK && j < unit->tensor_count; j++) {
            status = compare_tensor(stores, vector, &unit->tensors[j], buffer, &found, err);
            if (status == MICS_OK && found.differ)
                status = add_row(rows, unit->tensors[j].name,
                                 mics_ckpt_state_name(states, i % states), &found, err);
        }
    }
    free(buffer);
    return status;
}

static enum mics_status compare_models(struct mics_disk_model disks[2], const char *const paths[2],
                                       struct mics_diagnostics *diagnostics, json_t *doc,
                                       bool *same, struct mics_err *err)
{
    const struct mics_model *model = mics_disk_model_of(&disks[0]);
    const struct mics_store *stores[2];
    const uint32_t states[2] = {mics_disk_model_states(&disks[0]),
                                mics_disk_model_states(&disks[1])};
    json_t *rows = json_array();
    enum mics_status status = MICS_OK;

    if (json_object_set_new(doc, "tensors", rows) != 0)
        return mics_err_nomem(err);
    if (!model)
        model = mics_disk_model_of(&disks[1]);
    if (!model)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the model is not known: neither is a checkpoint or has a config.json");
    for (int i = 0; status == MICS_OK && i < 2; i++)
        status = mics_disk_model_match(&disks[i], model,
                                       paths[model == mics_disk_model_of(&disks[0]) ? 0 : 1],
                                       diagnostics, &stores[i], err);
    for (int i = 0; status == MICS_OK && i < 2; i++)
        if (!disks[i].is_hf)
            status = mics_ckpt_verify_own(&disks[i].shards.reader, 0, 1, 1, diagnostics, err);
    if (status == MICS_OK)
        status =
            compare_all(model, stores, mics_ckpt_common_states(states[0], states[1]), rows, err);
    if (status == MICS_OK &&
        json_object_set_new(doc, "states", json_pack("[i,i]", (int)states[0], (int)states[1])) != 0)
        status = mics_err_nomem(err);
    *same = status == MICS_OK && json_array_size(rows) == 0;
    return status;
}

enum mics_status mics_convert_diff(const char *a, const char *b,
                                   struct mics_diagnostics *diagnostics, json_t **out, bool *same,
                                   struct mics_err *err)
{
    struct mics_disk_model disks[2] = {{.is_hf = false}, {.is_hf = false}};
    const char *const paths[2] = {a, b};
    json_t *doc = mics_doc_new(MICS_DIFF_KIND, 1);
    enum mics_status status = doc ? MICS_OK : mics_err_nomem(err);

    for (int i = 0; status == MICS_OK && i < 2; i++) {
        status = mics_disk_model_open(paths[i], diagnostics, &disks[i], err);
        if (status == MICS_OK)
            status = mics_disk_model_config(&disks[i], err);
    }
    if (status == MICS_OK && json_object_set_new(doc, "paths", json_pack("[s,s]", a, b)) != 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = compare_models(disks, paths, diagnostics, doc, same, err);
    mics_disk_model_close(&disks[0]);
    mics_disk_model_close(&disks[1]);
    if (status == MICS_OK)
        *out = doc;
    else
        json_decref(doc);
    return status;
}

static void add_table_row(struct mics_table *table, const struct mics_cursor *row)
{
    mics_table_cell(table, "%s", mics_cursor_get_string(row, "tensor"));
    mics_table_cell(table, "%s", mics_cursor_get_string(row, "state"));
    mics_table_cell(table, "%" PRIu64, mics_cursor_get_u64(row, "elements", 0, INT64_MAX));
    mics_table_cell(table, "%" PRIu64, mics_cursor_get_u64(row, "differ", 0, INT64_MAX));
    mics_table_cell(table, "%.3g", mics_cursor_get_double(row, "largest", 0, 1e300));
}

enum mics_status mics_diff_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const struct mics_cursor rows = mics_cursor_get_array(&root, "tensors", 0, MAX_ROWS);
    struct mics_table *table;

    if (mics_cursor_count(&rows) == 0 && !tsv)
        return reading.status;
    table = mics_table_new(tsv ? "tensor|state|elements|differ|largest"
                               : "<tensor|<state|>elements|>differ|>largest difference");
    for (size_t i = 0; i < mics_cursor_count(&rows) && mics_cursor_ok(&root); i++) {
        const struct mics_cursor row = mics_cursor_get_item(&rows, i);

        add_table_row(table, &row);
    }
    if (reading.status == MICS_OK)
        return mics_table_finish(table, out, tsv, err);
    mics_table_free(table);
    return reading.status;
}
