/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - the tensors of a model on disk, as a document. */
#include "ckpt/convert/convert.h"

#include "ckpt/convert/disk_model.h"
#include "ckpt/manifest.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"

#include <inttypes.h>
#include <string.h>

#define MAX_TENSORS ((size_t)1 << 20)

static json_t *tensor_to_json(const char *name, const char *dtype, const uint64_t *shape,
                              uint32_t rank, uint64_t bytes, const char *file)
{
    json_t *sizes = json_array();

    for (uint32_t i = 0; sizes && i < rank; i++)
        if (json_array_append_new(sizes, json_integer((json_int_t)shape[i])) != 0) {
            json_decref(sizes);
            return NULL;
        }
    return sizes ? json_pack("{s:s,s:s,s:o,s:I,s:s}", "name", name, "dtype", dtype, "shape", sizes,
                             "bytes", (json_int_t)bytes, "in", file)
                 : NULL;
}

static int list_model(const struct mics_model *model, json_t *tensors)
{
    for (uint32_t i = 0; i < model->unit_count; i++) {
        for (uint32_t j = 0; j < model->units[i].tensor_count; j++) {
            const struct mics_tensor *tensor = &model->units[i].tensors[j];
            json_t *entry = tensor_to_json(tensor->name, "F32", tensor->shape, tensor->rank,
                                           tensor->count * sizeof(float), model->units[i].name);

            if (json_array_append_new(tensors, entry) != 0)
                return -1;
        }
    }
    return 0;
}

static int list_hf(const struct mics_hf *hf, json_t *tensors)
{
    for (size_t i = 0; i < hf->tensor_count; i++) {
        const struct mics_safetensor *header = hf->tensors[i].header;
        json_t *entry =
            tensor_to_json(header->name, header->dtype, header->shape, header->rank,
                           header->end - header->begin, hf->files[hf->tensors[i].file].name);

        if (json_array_append_new(tensors, entry) != 0)
            return -1;
    }
    return 0;
}

enum mics_status mics_convert_list(const char *path, struct mics_diagnostics *diagnostics,
                                   json_t **out, struct mics_err *err)
{
    struct mics_disk_model disk;
    json_t *doc = mics_doc_new(MICS_TENSORS_KIND, 1), *tensors = json_array(), *states = NULL;
    enum mics_status status = mics_disk_model_open(path, diagnostics, &disk, err);
    int failed = !doc || !tensors;

    if (status == MICS_OK && !failed) {
        states = mics_ckpt_states_to_json(mics_disk_model_states(&disk));
        failed = disk.is_hf ? list_hf(&disk.hf, tensors) : list_model(disk.shards.model, tensors);
        failed = failed || json_object_set_new(doc, "path", json_string(path)) != 0 ||
                 json_object_set(doc, "states", states) != 0 ||
                 json_object_set(doc, "tensors", tensors) != 0;
    }
    mics_disk_model_close(&disk);
    json_decref(tensors);
    json_decref(states);
    if (status == MICS_OK && failed)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        *out = doc;
    else
        json_decref(doc);
    return status;
}

static void add_row(struct mics_table *table, const struct mics_cursor *tensor, int tsv)
{
    char text[160] = "";
    const char *name = mics_cursor_get_string(tensor, "name");
    const char *dtype = mics_cursor_get_string(tensor, "dtype");
    const char *file = mics_cursor_get_string(tensor, "in");
    const uint64_t bytes = mics_cursor_get_u64(tensor, "bytes", 0, INT64_MAX);
    const struct mics_cursor shape =
        mics_cursor_get_array(tensor, "shape", 0, MICS_SAFETENSORS_MAX_RANK);

    for (size_t i = 0; i < mics_cursor_count(&shape); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%" JSON_INTEGER_FORMAT,
                 i ? "x" : "", json_integer_value(json_array_get(shape.value, i)));
    mics_table_cell(table, "%s", name);
    mics_table_cell(table, "%s", dtype);
    mics_table_cell(table, "%s", text);
    mics_table_bytes(table, tsv, bytes);
    mics_table_cell(table, "%s", file);
}

enum mics_status mics_tensors_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const struct mics_cursor tensors = mics_cursor_get_array(&root, "tensors", 0, MAX_TENSORS);
    struct mics_table *table =
        mics_table_new(tsv ? "tensor|dtype|shape|bytes|in" : "<tensor|<dtype|>shape|>bytes|<in");

    for (size_t i = 0; i < mics_cursor_count(&tensors) && mics_cursor_ok(&root); i++) {
        const struct mics_cursor tensor = mics_cursor_get_item(&tensors, i);

        add_row(table, &tensor, tsv);
    }
    if (reading.status == MICS_OK)
        return mics_table_finish(table, out, tsv, err);
    mics_table_free(table);
    return reading.status;
}
