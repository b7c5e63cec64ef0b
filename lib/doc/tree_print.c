/* SPDX-License-Identifier: Apache-2.0 */
/* tree_print.c - a recursive walk that writes one row of two cells for each member. */
#include "doc/tree_print.h"

#include "doc/cursor.h"

enum { PATH_BYTES = 512 };

static void put_name(struct mics_table *table, const struct mics_cursor *member, unsigned depth,
                     int tsv)
{
    char path[PATH_BYTES];

    if (tsv) {
        mics_cursor_path(member, path, sizeof path);
        mics_table_cell(table, "%s", path);
    } else if (member->key) {
        mics_table_cell(table, "%*s%s", 2 * (int)depth, "", member->key);
    } else {
        mics_table_cell(table, "%*s[%zu]", 2 * (int)depth, "", member->index);
    }
}

void mics_tree_print_cell(struct mics_table *table, const json_t *value)
{
    if (!value) {
        mics_table_cell(table, "-");
        return;
    }
    switch (json_typeof(value)) {
    case JSON_STRING:
        mics_table_cell(table, "%s", json_string_value(value));
        break;
    case JSON_INTEGER:
        mics_table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        mics_table_cell(table, "%.12g", json_real_value(value));
        break;
    case JSON_OBJECT:
        mics_table_cell(table, "%zu items", json_object_size(value));
        break;
    case JSON_ARRAY:
        mics_table_cell(table, "%zu items", json_array_size(value));
        break;
    default:
        mics_table_cell(table, "%s",
                        json_is_null(value)   ? "null"
                        : json_is_true(value) ? "true"
                                              : "false");
    }
}

static void put_member(struct mics_table *table, const struct mics_cursor *member, unsigned depth,
                       int tsv);

static void put_members(struct mics_table *table, const struct mics_cursor *parent, unsigned depth,
                        int tsv)
{
    json_t *value;
    const char *key;
    size_t i;

    json_array_foreach(parent->value, i, value)
    {
        const struct mics_cursor item = {.value = value, .parent = parent, .index = i};

        put_member(table, &item, depth, tsv);
    }
    json_object_foreach((json_t *)(uintptr_t)parent->value, key, value)
    {
        const struct mics_cursor member = {.value = value, .parent = parent, .key = key};

        put_member(table, &member, depth, tsv);
    }
}

/* The recursion is limited by the depth of documents. */
static void put_member(struct mics_table *table, const struct mics_cursor *member, unsigned depth,
                       int tsv)
{
    const json_t *value = member->value;
    const bool container = json_is_object(value) || json_is_array(value);
    const bool empty = json_object_size(value) + json_array_size(value) == 0;

    if (!container || empty || !tsv) {
        put_name(table, member, depth, tsv);
        if (container && !empty)
            mics_table_cell(table, "%s", "");
        else
            mics_tree_print_cell(table, value);
    }
    put_members(table, member, depth + 1, tsv);
}

void mics_tree_print_rows(struct mics_table *table, const char *name, const json_t *value, int tsv)
{
    const struct mics_cursor root = {0};
    const struct mics_cursor member = {.value = value, .parent = &root, .key = name};

    put_member(table, &member, 0, tsv);
}

enum mics_status mics_tree_print(FILE *out, const json_t *value, int tsv, struct mics_err *err)
{
    const struct mics_cursor root = {.value = value};
    struct mics_table *table = mics_table_new("<|<");

    put_members(table, &root, 0, tsv);
    return mics_table_finish(table, out, tsv, err);
}
