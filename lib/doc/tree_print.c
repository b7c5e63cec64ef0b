/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_print.c - a walk over a value that writes one row of two cells for each member.
 *
 * The walk keeps its way in a list on the stack, as at.h does; its depth is that of the value, which
 * the readers limit.
 */
#include "doc/tree_print.h"

#include <stdbool.h>
#include <stddef.h>

/* A name or, where that is NULL, a place in an array; below `parent`. */
struct way {
    const struct way *parent;
    const char *key;
    size_t index;
    unsigned depth;
};

enum { PATH_BYTES = 512 };

/* Returns the length; a path that does not fit is cut. */
static size_t format_path(const struct way *way, char *buf, size_t size)
{
    const size_t used = way->parent ? format_path(way->parent, buf, size) : 0;
    const int wrote = way->key
                          ? snprintf(buf + used, size - used, "%s%s", used ? "." : "", way->key)
                          : snprintf(buf + used, size - used, "[%zu]", way->index);

    return wrote < 0 || (size_t)wrote >= size - used ? size - 1 : used + (size_t)wrote;
}

static void put_name(struct mics_table *table, const struct way *way, int tsv)
{
    char path[PATH_BYTES];

    if (tsv) {
        format_path(way, path, sizeof path);
        mics_table_cell(table, "%s", path);
    } else if (way->key) {
        mics_table_cell(table, "%*s%s", 2 * (int)way->depth, "", way->key);
    } else {
        mics_table_cell(table, "%*s[%zu]", 2 * (int)way->depth, "", way->index);
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

static void walk(struct mics_table *table, const struct way *way, const json_t *value, int tsv);

static void walk_items(struct mics_table *table, const struct way *way, const json_t *value,
                       int tsv)
{
    struct way below = {.parent = way, .depth = way ? way->depth + 1 : 0};
    json_t *item;
    size_t i;

    json_array_foreach(value, i, item)
    {
        below.index = i;
        walk(table, &below, item, tsv);
    }
    json_object_foreach((json_t *)(uintptr_t)value, below.key, item) walk(table, &below, item, tsv);
}

static void walk(struct mics_table *table, const struct way *way, const json_t *value, int tsv)
{
    const bool container = json_is_object(value) || json_is_array(value);
    const bool empty = json_object_size(value) + json_array_size(value) == 0;

    if (!container || empty || !tsv) {
        put_name(table, way, tsv);
        if (container && !empty)
            mics_table_cell(table, "%s", "");
        else
            mics_tree_print_cell(table, value);
    }
    walk_items(table, way, value, tsv);
}

void mics_tree_print_rows(struct mics_table *table, const char *name, const json_t *value, int tsv)
{
    walk(table, &(const struct way){.key = name}, value, tsv);
}

enum mics_status mics_tree_print(FILE *out, const json_t *value, int tsv, struct mics_err *err)
{
    struct mics_table *table = mics_table_new("<|<");

    walk_items(table, NULL, value, tsv);
    return mics_table_finish(table, out, tsv, err);
}
