/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_values.c - what is in a pickle that was read, by node, and as JSON. */
#include "doc/pickle_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint32_t mics_pickle_root(const struct mics_pickle *pickle)
{
    return pickle->root;
}

enum mics_pickle_kind mics_pickle_kind(const struct mics_pickle *pickle, uint32_t node)
{
    return (enum mics_pickle_kind)pickle->nodes.list[node].kind;
}

bool mics_pickle_integer(const struct mics_pickle *pickle, uint32_t node, int64_t *out)
{
    *out = pickle->nodes.list[node].is.integer;
    return mics_pickle_kind(pickle, node) == MICS_PICKLE_INTEGER;
}

bool mics_pickle_real(const struct mics_pickle *pickle, uint32_t node, double *out)
{
    *out = pickle->nodes.list[node].is.real;
    return mics_pickle_kind(pickle, node) == MICS_PICKLE_REAL;
}

const char *mics_pickle_text(const struct mics_pickle *pickle, uint32_t node)
{
    const struct node *is = &pickle->nodes.list[node];

    if (is->kind != MICS_PICKLE_TEXT && is->kind != MICS_PICKLE_CLASS)
        return NULL;
    const char *text = pickle->pool.list + is->is.text;
    return strlen(text) == is->count ? text : NULL;
}

static const struct object *object_of(const struct mics_pickle *pickle, uint32_t node)
{
    return mics_pickle_kind(pickle, node) == MICS_PICKLE_OBJECT
               ? &pickle->objects.list[pickle->nodes.list[node].is.object.object]
               : NULL;
}

const char *mics_pickle_class(const struct mics_pickle *pickle, uint32_t node)
{
    const struct object *object = object_of(pickle, node);

    return object ? mics_pickle_text(pickle, object->class) : NULL;
}

uint32_t mics_pickle_args(const struct mics_pickle *pickle, uint32_t node)
{
    const struct object *object = object_of(pickle, node);

    return object ? object->args : 0;
}

uint32_t mics_pickle_state(const struct mics_pickle *pickle, uint32_t node)
{
    const struct object *object = object_of(pickle, node);

    return object ? object->state : 0;
}

static bool has_cells(const struct mics_pickle *pickle, uint32_t node)
{
    switch (mics_pickle_kind(pickle, node)) {
    case MICS_PICKLE_LIST:
    case MICS_PICKLE_TUPLE:
    case MICS_PICKLE_SET:
    case MICS_PICKLE_DICT:
    case MICS_PICKLE_PERSISTENT:
        return true;
    default:
        return false;
    }
}

size_t mics_pickle_count(const struct mics_pickle *pickle, uint32_t node)
{
    const struct object *object = object_of(pickle, node);

    if (object)
        node = object->items;
    const size_t count = has_cells(pickle, node) ? pickle->nodes.list[node].count : 0;
    return mics_pickle_kind(pickle, node) == MICS_PICKLE_DICT ? count / 2 : count;
}

struct mics_pickle_iterator mics_pickle_begin(const struct mics_pickle *pickle, uint32_t node)
{
    const struct object *object = object_of(pickle, node);

    if (object)
        node = object->items;
    return (struct mics_pickle_iterator){
        .pickle = pickle,
        .cell = has_cells(pickle, node) ? pickle->nodes.list[node].is.cells.first : 0,
        .pairs = mics_pickle_kind(pickle, node) == MICS_PICKLE_DICT};
}

bool mics_pickle_next(struct mics_pickle_iterator *iterator, uint32_t *key, uint32_t *value)
{
    const struct cell *cells = iterator->pickle->cells.list;

    *key = *value = 0;
    if (!iterator->cell)
        return false;
    if (iterator->pairs) {
        *key = cells[iterator->cell].node;
        iterator->cell = cells[iterator->cell].next;
    }
    *value = cells[iterator->cell].node;
    iterator->cell = cells[iterator->cell].next;
    return true;
}

uint32_t mics_pickle_item(const struct mics_pickle *pickle, uint32_t node, size_t index)
{
    struct mics_pickle_iterator items = mics_pickle_begin(pickle, node);
    uint32_t key, value;

    for (size_t i = 0; mics_pickle_next(&items, &key, &value); i++)
        if (i == index)
            return value;
    return 0;
}

uint32_t mics_pickle_get(const struct mics_pickle *pickle, uint32_t node, const char *key)
{
    const struct object *object = object_of(pickle, node);
    struct mics_pickle_iterator pairs = mics_pickle_begin(pickle, node);
    uint32_t name, value, found = 0;

    while (pairs.pairs && mics_pickle_next(&pairs, &name, &value)) {
        const char *text = mics_pickle_text(pickle, name);

        if (text && strcmp(text, key) == 0)
            found = value; /* the last counts */
    }
    if (!found && object && mics_pickle_kind(pickle, object->state) == MICS_PICKLE_DICT)
        return mics_pickle_get(pickle, object->state, key);
    return found;
}

static bool set_member(json_t *object, const struct mics_pickle *pickle, uint32_t key,
                       json_t *value)
{
    const struct node *is = &pickle->nodes.list[key];
    char number[24];

    if (is->kind == MICS_PICKLE_TEXT)
        return json_object_setn_new(object, pickle->pool.list + is->is.text, is->count, value) == 0;
    snprintf(number, sizeof number, "%" PRId64, is->is.integer);
    return json_object_set_new(object, number, value) == 0;
}

static json_t *container_to_json(const struct mics_pickle *pickle, uint32_t node,
                                 struct mics_err *err)
{
    struct mics_pickle_iterator items = mics_pickle_begin(pickle, node);
    json_t *out = items.pairs ? json_object() : json_array();
    uint32_t key, value;

    while (out && mics_pickle_next(&items, &key, &value)) {
        json_t *item = mics_pickle_to_json(pickle, value, err);

        if (item && (items.pairs ? set_member(out, pickle, key, item)
                                 : json_array_append_new(out, item) == 0))
            continue;
        if (item)
            mics_err_set(err, MICS_ERR_FORMAT, "a string is not UTF-8");
        json_decref(out);
        return NULL;
    }
    if (!out)
        mics_err_nomem(err);
    return out;
}

json_t *mics_pickle_to_json(const struct mics_pickle *pickle, uint32_t node, struct mics_err *err)
{
    const struct node *is = &pickle->nodes.list[node];
    json_t *out = NULL;

    switch (is->kind) {
    case MICS_PICKLE_NONE:
        out = json_null();
        break;
    case MICS_PICKLE_BOOL:
        out = json_boolean(is->is_true);
        break;
    case MICS_PICKLE_INTEGER:
        out = json_integer((json_int_t)is->is.integer);
        break;
    case MICS_PICKLE_REAL:
        out = json_real(is->is.real);
        break;
    case MICS_PICKLE_TEXT:
        out = json_stringn(pickle->pool.list + is->is.text, is->count);
        break;
    default:
        return container_to_json(pickle, node, err);
    }
    if (!out)
        mics_err_set(err, MICS_ERR_FORMAT,
                     is->kind == MICS_PICKLE_REAL ? "a float is not finite"
                                                  : "a string is not UTF-8");
    return out;
}
