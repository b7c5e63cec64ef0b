/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_print.c - the document mics.metrics as tables. */
#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"
#include "doc/tree_print.h"
#include "train/report/metrics_read.h"

#include <string.h>

/* A number in six digits for people, or "-" for null. */
static void put_value(struct mics_table *table, const json_t *value, int tsv)
{
    if (json_is_real(value) && !tsv)
        mics_table_cell(table, "%.6g", json_real_value(value));
    else
        mics_tree_print_cell(table, json_is_null(value) ? NULL : value);
}

/* A row for each item of the array `key`, with a cell for each of the `count` members. */
static enum mics_status print_items(FILE *out, const struct mics_cursor *root, const char *key,
                                    struct mics_table *table, const char *const *members,
                                    size_t count, int tsv, struct mics_err *err)
{
    struct mics_cursor items, item;
    enum mics_status status = mics_cursor_array(root, key, 0, 1000, &items, err);

    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&items); i++) {
        status = mics_cursor_item(&items, i, &item, err);
        for (size_t k = 0; status == MICS_OK && k < count; k++)
            put_value(table, json_object_get(item.value, members[k]), tsv);
    }
    if (status != MICS_OK) {
        mics_table_free(table);
        return status;
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

static enum mics_status print_fields(FILE *out, const struct mics_cursor *root, int tsv,
                                     struct mics_err *err)
{
    static const char *const members[] = {"name",   "first", "last",   "min",
                                          "median", "max",   "last_50"};
    struct mics_table *table = mics_table_new(
        tsv ? "field|first|last|min|median|max|last_50"
            : "<of all steps|>first|>last|>least|>middle|>greatest|>mean of last 50");

    return print_items(out, root, "fields", table, members, sizeof members / sizeof *members, tsv,
                       err);
}

static enum mics_status print_curve(FILE *out, const struct mics_cursor *root, int tsv,
                                    struct mics_err *err)
{
    static const char *const members[] = {"first", "last",      "loss",    "val_loss",
                                          "lr",    "grad_norm", "step_ms", "tokens_per_s"};
    struct mics_table *table = mics_table_new(
        tsv ? "first|last|loss|val_loss|lr|grad_norm|step_ms|tokens_per_s"
            : ">from step|>to step|>loss|>validation|>lr|>gradient norm|>ms a step|>tokens/s");

    return print_items(out, root, "curve", table, members, sizeof members / sizeof *members, tsv,
                       err);
}

/* What the rest of the document says, each member by its own name. */
static enum mics_status print_rest(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    static const char *const shown[] = {"steps",       "runs",       "last_line_cut", "validation",
                                        "checkpoints", "checkpoint", "run",           "end"};
    struct mics_table *table = mics_table_new("<|<");

    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const json_t *value = json_object_get(doc, shown[i]);

        if (value && !json_is_null(value))
            mics_tree_print_rows(table, shown[i], value, tsv);
    }
    return mics_table_finish(table, out, tsv, err);
}

enum mics_status mics_metrics_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    enum mics_status status = mics_doc_expect(doc, MICS_METRICS_KIND, MICS_METRICS_VERSION, err);

    if (status == MICS_OK)
        status = print_rest(out, doc, tsv, err);
    if (status == MICS_OK)
        status = print_fields(out, &root, tsv, err);
    if (status == MICS_OK)
        status = print_curve(out, &root, tsv, err);
    return status;
}
