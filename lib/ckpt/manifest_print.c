/* SPDX-License-Identifier: Apache-2.0 */
/* manifest_print.c - a checkpoint for people and for scripts. */
#include "ckpt/manifest_print.h"

#include "ckpt/manifest.h"
#include "doc/cursor.h"
#include "doc/table.h"
#include "doc/tree_print.h"

#include <inttypes.h>

static void put_number(struct mics_table *table, const char *name, uint64_t value)
{
    mics_table_cell(table, "%s", name);
    mics_table_cell(table, "%" PRIu64, value);
}

static enum mics_status put_model(struct mics_table *table, const struct mics_cursor *root,
                                  struct mics_err *err)
{
    struct mics_cursor model;
    const char *name = NULL;
    enum mics_status status = mics_cursor_object(root, "model", &model, err);

    if (status == MICS_OK)
        status = mics_cursor_string(&model, "name", &name, err);
    if (status != MICS_OK)
        return status;
    mics_table_cell(table, "model");
    mics_table_cell(table, "%s", name);
    return MICS_OK;
}

/* The shape has few members, all numbers: a row for each serves people too. */
static enum mics_status put_shape(struct mics_table *table, const struct mics_cursor *root,
                                  struct mics_err *err)
{
    static const char *const keys[] = {"nodes", "per_node", "p_param", "p_grad", "p_optim"};
    struct mics_cursor shape;
    enum mics_status status = mics_cursor_object(root, "shape", &shape, err);
    uint32_t value;

    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == MICS_OK; i++) {
        status = mics_cursor_u32(&shape, keys[i], 1, UINT32_MAX, &value, err);
        if (status == MICS_OK)
            put_number(table, keys[i], value);
    }
    return status;
}

static uint64_t total_bytes(const struct mics_manifest *manifest)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < manifest->file_count; i++)
        total += manifest->files[i].bytes;
    return total;
}

static enum mics_status print_facts(FILE *out, const struct mics_cursor *root,
                                    const struct mics_manifest *manifest, int tsv,
                                    struct mics_err *err)
{
    struct mics_table *table = mics_table_new("<|<");
    enum mics_status status = put_model(table, root, err);

    put_number(table, tsv ? "step" : "steps done", manifest->step);
    put_number(table, tsv ? "samples" : "sequences seen", manifest->samples);
    if (status == MICS_OK)
        status = put_shape(table, root, err);
    put_number(table, "files", manifest->file_count);
    mics_table_cell(table, "bytes");
    mics_table_bytes(table, tsv, total_bytes(manifest));
    if (status == MICS_OK) {
        mics_tree_print_rows(table, "training", manifest->training, tsv);
        return mics_table_finish(table, out, tsv, err);
    }
    mics_table_free(table);
    return status;
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
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_manifest manifest = {0};
    enum mics_status status = mics_manifest_from_doc((json_t *)(uintptr_t)doc, &manifest, err);

    if (status == MICS_OK)
        status = print_facts(out, &root, &manifest, tsv, err);
    if (status == MICS_OK)
        status = print_files(out, &manifest, tsv, err);
    mics_manifest_free(&manifest);
    return status;
}
