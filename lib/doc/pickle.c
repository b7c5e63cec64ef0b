/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.c - the opcodes that Python's pickle writes for values, on a stack of nodes.
 *
 * An opcode makes one node at most, and one cell for each value that leaves the stack, so memory is
 * proportional to the pickle. A pickle of plain values (without `allowed`) has no classes, objects,
 * tuples and sets, and gives no container a second place, so that it is a tree.
 */
#include "doc/pickle_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 2048, MAX_NODES = 8 << 20, MAX_CELLS = 8 << 20 };

/* Names as in pickletools. */
enum {
    MARK = '(',
    STOP = '.',
    GLOBAL = 'c',
    REDUCE = 'R',
    BUILD = 'b',
    NEWOBJ = 0x81,
    STACK_GLOBAL = 0x93,
    BINPERSID = 'Q',
    EMPTY_TUPLE = ')',
    TUPLE = 't',
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    EMPTY_SET = 0x8f,
    ADDITEMS = 0x90,
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    BINGET = 'h',
    LONG_BINGET = 'j',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    MEMOIZE = 0x94,
    PROTO = 0x80,
    FRAME = 0x95,
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    SETITEM = 's',
    SETITEMS = 'u',
    APPEND = 'a',
    APPENDS = 'e',
    NONE = 'N',
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    LONG1 = 0x8a,
    BINFLOAT = 'G',
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE = 'X',
    BINUNICODE8 = 0x8d,
};

/* Opcodes that are refused, those that make objects only in plain pickles. */
static const struct {
    unsigned char code;
    const char *name;
} refused[] = {
    {GLOBAL, "GLOBAL"},
    {STACK_GLOBAL, "STACK_GLOBAL"},
    {REDUCE, "REDUCE"},
    {BUILD, "BUILD"},
    {'i', "INST"},
    {'o', "OBJ"},
    {NEWOBJ, "NEWOBJ"},
    {0x92, "NEWOBJ_EX"},
    {'P', "PERSID"},
    {BINPERSID, "BINPERSID"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {EMPTY_TUPLE, "EMPTY_TUPLE"},
    {TUPLE, "TUPLE"},
    {TUPLE1, "TUPLE1"},
    {TUPLE2, "TUPLE2"},
    {TUPLE3, "TUPLE3"},
    {EMPTY_SET, "EMPTY_SET"},
    {ADDITEMS, "ADDITEMS"},
    {0x91, "FROZENSET"},
    {BINBYTES, "BINBYTES"},
    {SHORT_BINBYTES, "SHORT_BINBYTES"},
    {0x8e, "BINBYTES8"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x8b, "LONG4"},
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
};

struct reader {
    struct mics_pickle *pickle;
    const char *const *allowed; /* NULL: plain values */
    const unsigned char *begin, *at, *end;
    ARRAY(uint32_t) stack;
    ARRAY(uint32_t) memo;
    ARRAY(size_t) marks; /* depths of the stack */
    struct mics_err *err;
};

/* A longer list for `more` items; the same one, with *room as it was, if there is no memory. */
static void *enlarge(void *list, size_t count, size_t *room, size_t more, size_t width)
{
    size_t wanted = *room ? *room : 64;

    while (wanted - count < more)
        wanted *= 2;
    void *longer = realloc(list, wanted * width);
    if (!longer)
        return list;
    *room = wanted;
    return longer;
}

/* Is there, or can there be made, room for `more` items of an array? */
#define MAKE_ROOM(array, more)                                                                     \
    ((array).room - (array).count >= (more) ||                                                     \
     ((array).list =                                                                               \
          enlarge((array).list, (array).count, &(array).room, more, sizeof *(array).list),         \
      (array).room - (array).count >= (more)))

static enum mics_status refuse(const struct reader *reader, const char *what)
{
    return mics_err_set(reader->err, MICS_ERR_FORMAT, "byte %zu: %s",
                        (size_t)(reader->at - reader->begin), what);
}

/* An unsigned little-endian number of `width` bytes. */
static enum mics_status take_number(struct reader *reader, size_t width, uint64_t *out)
{
    *out = 0;
    if ((size_t)(reader->end - reader->at) < width)
        return refuse(reader, "the pickle is truncated");
    for (size_t i = 0; i < width; i++)
        *out |= (uint64_t)reader->at[i] << (8 * i);
    reader->at += width;
    return MICS_OK;
}

static enum mics_status push_node(struct reader *reader, uint32_t node)
{
    if (!MAKE_ROOM(reader->stack, 1))
        return mics_err_nomem(reader->err);
    reader->stack.list[reader->stack.count++] = node;
    return MICS_OK;
}

static enum mics_status push(struct reader *reader, struct node node)
{
    struct mics_pickle *pickle = reader->pickle;

    if (pickle->nodes.count == MAX_NODES)
        return refuse(reader, "more than 8 million values");
    if (!MAKE_ROOM(pickle->nodes, 1))
        return mics_err_nomem(reader->err);
    pickle->nodes.list[pickle->nodes.count++] = node;
    return push_node(reader, (uint32_t)(pickle->nodes.count - 1));
}

static struct node *node_at(const struct reader *reader, uint32_t node)
{
    return &reader->pickle->nodes.list[node];
}

/* Take the top of the stack; 0: a mark or the bottom is there. */
static uint32_t pop(struct reader *reader)
{
    const size_t least = reader->marks.count ? reader->marks.list[reader->marks.count - 1] : 0;

    return reader->stack.count > least ? reader->stack.list[--reader->stack.count] : 0;
}

static enum mics_status push_kind(struct reader *reader, enum mics_pickle_kind kind)
{
    return push(reader, (struct node){.kind = (uint8_t)kind, .depth = 1});
}

/* A number of `width` bytes in two's complement, unless `is_unsigned`. */
static enum mics_status push_integer(struct reader *reader, size_t width, bool is_unsigned)
{
    uint64_t value;

    if (width > 8)
        return refuse(reader, "a number has more than 64 bits");
    const enum mics_status status = take_number(reader, width, &value);

    if (status != MICS_OK)
        return status;
    if (!is_unsigned && width > 0 && width < 8 && value >> (8 * width - 1))
        value |= UINT64_MAX << (8 * width);
    return push(reader, (struct node){.kind = MICS_PICKLE_INTEGER, .is.integer = (int64_t)value});
}

static enum mics_status push_long(struct reader *reader)
{
    uint64_t width;
    const enum mics_status status = take_number(reader, 1, &width);

    return status == MICS_OK ? push_integer(reader, width, false) : status;
}

static enum mics_status push_float(struct reader *reader)
{
    uint64_t bits = 0;
    double value;

    if (reader->end - reader->at < 8)
        return refuse(reader, "the pickle is truncated");
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | *reader->at++;
    memcpy(&value, &bits, sizeof value);
    return push(reader, (struct node){.kind = MICS_PICKLE_REAL, .is.real = value});
}

/* Add a text to the pool; its node has the kind TEXT or CLASS. */
static enum mics_status push_bytes(struct reader *reader, enum mics_pickle_kind kind,
                                   const char *text, size_t length)
{
    struct mics_pickle *pickle = reader->pickle;
    const uint64_t at = pickle->pool.count;

    /* Texts are in the pickle; only names of classes can be put together many times. */
    if (at + length + 1 > 2 * (uint64_t)MICS_PICKLE_MAX_BYTES)
        return refuse(reader, "its texts are too long");
    if (!MAKE_ROOM(pickle->pool, length + 1))
        return mics_err_nomem(reader->err);
    memcpy(pickle->pool.list + at, text, length);
    pickle->pool.list[at + length] = '\0';
    pickle->pool.count += length + 1;
    return push(reader,
                (struct node){.kind = (uint8_t)kind, .count = (uint32_t)length, .is.text = at});
}

static enum mics_status push_string(struct reader *reader, size_t width)
{
    uint64_t length;
    enum mics_status status = take_number(reader, width, &length);

    if (status != MICS_OK)
        return status;
    if (length > (uint64_t)(reader->end - reader->at))
        return refuse(reader, "the pickle is truncated");
    status = push_bytes(reader, MICS_PICKLE_TEXT, (const char *)reader->at, length);
    reader->at += length;
    return status;
}

/* The container that items go into: an object has one. */
static enum mics_status container_of(struct reader *reader, uint32_t target, bool pairs,
                                     uint32_t *out)
{
    const enum mics_pickle_kind kind = pairs ? MICS_PICKLE_DICT : MICS_PICKLE_LIST;
    const struct node *node = node_at(reader, target);
    enum mics_status status;

    *out = target;
    if (node->kind == (uint8_t)kind)
        return MICS_OK;
    if (node->kind != MICS_PICKLE_OBJECT)
        return refuse(reader, "items without a container");
    struct object *object = &reader->pickle->objects.list[node->is.object.object];
    if (!object->items) {
        status = push_kind(reader, kind);
        if (status != MICS_OK)
            return status;
        object->items = reader->stack.list[--reader->stack.count];
    }
    *out = object->items;
    return node_at(reader, *out)->kind == (uint8_t)kind
               ? MICS_OK
               : refuse(reader, "items without a container");
}

static enum mics_status append(struct reader *reader, uint32_t container, uint32_t item)
{
    struct mics_pickle *pickle = reader->pickle;
    struct node *node = node_at(reader, container);
    const struct node *value = node_at(reader, item);

    if (pickle->cells.count == MAX_CELLS)
        return refuse(reader, "more than 8 million items");
    if (!MAKE_ROOM(pickle->cells, 1))
        return mics_err_nomem(reader->err);
    const bool nests = value->kind == MICS_PICKLE_DICT || value->kind == MICS_PICKLE_LIST;
    if (!reader->allowed && nests && value->depth >= node->depth) {
        if (value->depth == MAX_DEPTH)
            return refuse(reader, "too deeply nested");
        node->depth = value->depth + 1;
    }
    const uint32_t cell = (uint32_t)pickle->cells.count++;

    pickle->cells.list[cell] = (struct cell){.node = item};
    if (node->is.cells.last)
        pickle->cells.list[node->is.cells.last].next = cell;
    else
        node->is.cells.first = cell;
    node->is.cells.last = cell;
    node->count++;
    return MICS_OK;
}

static bool is_key(const struct reader *reader, uint32_t key)
{
    const enum mics_pickle_kind kind = (enum mics_pickle_kind)node_at(reader, key)->kind;

    return kind == MICS_PICKLE_TEXT || kind == MICS_PICKLE_INTEGER || reader->allowed;
}

/* Put the values of the stack from `first` on into the container below them. */
static enum mics_status fill(struct reader *reader, size_t first, bool pairs, bool is_set)
{
    const size_t least = reader->marks.count ? reader->marks.list[reader->marks.count - 1] : 0;
    const size_t count = first <= reader->stack.count ? reader->stack.count - first : 0;
    uint32_t container = 0;
    enum mics_status status;

    if (first > reader->stack.count || first <= least || (pairs && count % 2 != 0))
        return refuse(reader, "items without a container");
    container = reader->stack.list[first - 1];
    if (is_set)
        status = node_at(reader, container)->kind == MICS_PICKLE_SET
                     ? MICS_OK
                     : refuse(reader, "items without a container");
    else
        status = container_of(reader, container, pairs, &container);
    for (size_t i = first; status == MICS_OK && i < first + count; i++) {
        if (pairs && (i - first) % 2 == 0 && !is_key(reader, reader->stack.list[i]))
            return refuse(reader, "a key is neither a string nor a number");
        status = append(reader, container, reader->stack.list[i]);
    }
    reader->stack.count = first;
    return status;
}

/* The depth of the last mark, which is removed. */
static bool take_mark(struct reader *reader, size_t *first)
{
    if (reader->marks.count == 0)
        return false;
    *first = reader->marks.list[--reader->marks.count];
    return true;
}

static enum mics_status fill_from_mark(struct reader *reader, bool pairs, bool is_set)
{
    size_t first;

    if (!take_mark(reader, &first))
        return refuse(reader, "items without a mark");
    return fill(reader, first, pairs, is_set);
}

static enum mics_status fill_last(struct reader *reader, size_t count)
{
    if (reader->stack.count < count)
        return refuse(reader, "items without a container");
    return fill(reader, reader->stack.count - count, count == 2, false);
}

static enum mics_status mark(struct reader *reader)
{
    if (reader->marks.count == MAX_DEPTH)
        return refuse(reader, "too deeply nested");
    if (!MAKE_ROOM(reader->marks, 1))
        return mics_err_nomem(reader->err);
    reader->marks.list[reader->marks.count++] = reader->stack.count;
    return MICS_OK;
}

/* A tuple of the values from `first` on. */
static enum mics_status push_tuple(struct reader *reader, size_t first)
{
    const size_t count = reader->stack.count - first;
    enum mics_status status = push_kind(reader, MICS_PICKLE_TUPLE);

    if (status != MICS_OK)
        return status;
    const uint32_t tuple = reader->stack.list[first + count];
    for (size_t i = 0; i < count && status == MICS_OK; i++)
        status = append(reader, tuple, reader->stack.list[first + i]);
    reader->stack.count = first;
    return status == MICS_OK ? push_node(reader, tuple) : status;
}

static enum mics_status tuple_of_last(struct reader *reader, size_t count)
{
    const size_t least = reader->marks.count ? reader->marks.list[reader->marks.count - 1] : 0;

    if (reader->stack.count - least < count)
        return refuse(reader, "a tuple without its items");
    return push_tuple(reader, reader->stack.count - count);
}

static enum mics_status tuple_from_mark(struct reader *reader)
{
    size_t first;

    if (!take_mark(reader, &first))
        return refuse(reader, "items without a mark");
    return push_tuple(reader, first);
}

/* Python numbers the values that it keeps from 0 on, in order, in all protocols. */
static enum mics_status keep(struct reader *reader, uint64_t number)
{
    const uint32_t top = reader->stack.count > 0 ? reader->stack.list[reader->stack.count - 1] : 0;

    if (!top || number != reader->memo.count)
        return refuse(reader, "the memo is out of order");
    if (!MAKE_ROOM(reader->memo, 1))
        return mics_err_nomem(reader->err);
    reader->memo.list[reader->memo.count++] = top;
    return MICS_OK;
}

static enum mics_status push_kept(struct reader *reader, uint64_t number)
{
    const uint32_t kept = number < reader->memo.count ? reader->memo.list[number] : 0;

    if (!reader->allowed && (!kept || node_at(reader, kept)->kind != MICS_PICKLE_TEXT))
        return refuse(reader, "a value other than a string occurs twice");
    return kept ? push_node(reader, kept) : refuse(reader, "the memo has no such value");
}

static enum mics_status use_memo(struct reader *reader, unsigned char code)
{
    const bool wide = code == LONG_BINGET || code == LONG_BINPUT;
    uint64_t number = reader->memo.count;
    enum mics_status status = MICS_OK;

    if (code != MEMOIZE)
        status = take_number(reader, wide ? 4 : 1, &number);
    if (status != MICS_OK)
        return status;
    return code == BINGET || code == LONG_BINGET ? push_kept(reader, number) : keep(reader, number);
}

/* "module.name" as a class, if it is allowed. */
static enum mics_status push_class(struct reader *reader, const char *module, size_t module_length,
                                   const char *name, size_t name_length)
{
    char full[256];
    const int length = snprintf(full, sizeof full, "%.*s.%.*s", (int)module_length, module,
                                (int)name_length, name);

    for (const char *const *at = reader->allowed; *at && (size_t)length < sizeof full; at++) {
        const size_t prefix = strlen(*at) - 1;

        if ((*at)[prefix] == '*' ? strncmp(full, *at, prefix) == 0 : strcmp(full, *at) == 0)
            return push_bytes(reader, MICS_PICKLE_CLASS, full, (size_t)length);
    }
    return mics_err_set(reader->err, MICS_ERR_FORMAT,
                        "byte %zu: '%.128s' is not a class that is read (nothing was executed)",
                        (size_t)(reader->at - reader->begin), full);
}

/* GLOBAL: two lines. */
static enum mics_status push_global(struct reader *reader)
{
    const char *const module = (const char *)reader->at;
    const size_t left = (size_t)(reader->end - reader->at);
    const char *const first = memchr(module, '\n', left);
    const char *const second =
        first ? memchr(first + 1, '\n', left - (size_t)(first + 1 - module)) : NULL;

    if (!second || second - module > 200)
        return refuse(reader, "a class without a name");
    reader->at = (const unsigned char *)second + 1;
    return push_class(reader, module, (size_t)(first - module), first + 1,
                      (size_t)(second - first - 1));
}

static enum mics_status push_stack_global(struct reader *reader)
{
    const uint32_t name = pop(reader), module = pop(reader);
    const char *const texts[] = {mics_pickle_text(reader->pickle, module),
                                 mics_pickle_text(reader->pickle, name)};

    if (!texts[0] || !texts[1] || strlen(texts[0]) > 100 || strlen(texts[1]) > 100)
        return refuse(reader, "a class without a name");
    return push_class(reader, texts[0], strlen(texts[0]), texts[1], strlen(texts[1]));
}

/* REDUCE, NEWOBJ: a class and its arguments become an object; nothing is called. */
static enum mics_status push_object(struct reader *reader)
{
    struct mics_pickle *pickle = reader->pickle;
    const uint32_t args = pop(reader), class = pop(reader);

    if (!args || !class || node_at(reader, args)->kind != MICS_PICKLE_TUPLE ||
        node_at(reader, class)->kind != MICS_PICKLE_CLASS)
        return refuse(reader, "an object that is not made of a class and a tuple");
    if (!MAKE_ROOM(pickle->objects, 1))
        return mics_err_nomem(reader->err);
    pickle->objects.list[pickle->objects.count++] = (struct object){.class = class, .args = args};
    return push(reader, (struct node){.kind = MICS_PICKLE_OBJECT,
                                      .is.object.object = (uint32_t)pickle->objects.count - 1});
}

/* BUILD: the state of an object; of slots it is the pair (None, state). */
static enum mics_status set_state(struct reader *reader)
{
    uint32_t state = pop(reader);
    const uint32_t target = pop(reader);

    if (!state || !target || node_at(reader, target)->kind != MICS_PICKLE_OBJECT)
        return refuse(reader, "a state without its object");
    if (node_at(reader, state)->kind == MICS_PICKLE_TUPLE && node_at(reader, state)->count == 2) {
        const uint32_t items[] = {mics_pickle_item(reader->pickle, state, 0),
                                  mics_pickle_item(reader->pickle, state, 1)};

        state = node_at(reader, items[0])->kind == MICS_PICKLE_NONE ? items[1] : items[0];
    }
    reader->pickle->objects.list[node_at(reader, target)->is.object.object].state = state;
    return push_node(reader, target);
}

static enum mics_status push_persistent(struct reader *reader)
{
    const uint32_t id = pop(reader);
    enum mics_status status;

    if (!id)
        return refuse(reader, "a persistent id without a value");
    status = push_kind(reader, MICS_PICKLE_PERSISTENT);
    if (status != MICS_OK)
        return status;
    return append(reader, reader->stack.list[reader->stack.count - 1], id);
}

static enum mics_status refuse_opcode(const struct reader *reader, unsigned char code)
{
    char number[8];
    const char *name = number;

    snprintf(number, sizeof number, "0x%02x", code);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].code == code)
            name = refused[i].name;
    return mics_err_set(reader->err, MICS_ERR_FORMAT, "byte %zu: opcode %s: %s",
                        (size_t)(reader->at - reader->begin) - 1, name,
                        reader->allowed ? "is not read (nothing was executed)"
                                        : "only dicts, lists, strings and numbers are read");
}

/* Opcodes of what plain pickles do not have. */
static enum mics_status run_object_opcode(struct reader *reader, unsigned char code)
{
    if (!reader->allowed)
        return refuse_opcode(reader, code);
    switch (code) {
    case GLOBAL:
        return push_global(reader);
    case STACK_GLOBAL:
        return push_stack_global(reader);
    case REDUCE:
    case NEWOBJ:
        return push_object(reader);
    case BUILD:
        return set_state(reader);
    case BINPERSID:
        return push_persistent(reader);
    case EMPTY_TUPLE:
        return push_kind(reader, MICS_PICKLE_TUPLE);
    case TUPLE:
        return tuple_from_mark(reader);
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
        return tuple_of_last(reader, (size_t)code - TUPLE1 + 1);
    case EMPTY_SET:
        return push_kind(reader, MICS_PICKLE_SET);
    case ADDITEMS:
        return fill_from_mark(reader, false, true);
    case BINBYTES:
        return push_string(reader, 4);
    case SHORT_BINBYTES:
        return push_string(reader, 1);
    default:
        return refuse_opcode(reader, code);
    }
}

static enum mics_status run_opcode(struct reader *reader, unsigned char code)
{
    uint64_t ignored;

    switch (code) {
    case FRAME:
        return take_number(reader, 8, &ignored);
    case MARK:
        return mark(reader);
    case BINGET:
    case LONG_BINGET:
    case BINPUT:
    case LONG_BINPUT:
    case MEMOIZE:
        return use_memo(reader, code);
    case EMPTY_DICT:
        return push_kind(reader, MICS_PICKLE_DICT);
    case EMPTY_LIST:
        return push_kind(reader, MICS_PICKLE_LIST);
    case SETITEM:
        return fill_last(reader, 2);
    case SETITEMS:
        return fill_from_mark(reader, true, false);
    case APPEND:
        return fill_last(reader, 1);
    case APPENDS:
        return fill_from_mark(reader, false, false);
    case NONE:
        return push_kind(reader, MICS_PICKLE_NONE);
    case NEWTRUE:
    case NEWFALSE:
        return push(reader, (struct node){.kind = MICS_PICKLE_BOOL, .is_true = code == NEWTRUE});
    case BININT:
        return push_integer(reader, 4, false);
    case BININT1:
        return push_integer(reader, 1, true);
    case BININT2:
        return push_integer(reader, 2, true);
    case LONG1:
        return push_long(reader);
    case BINFLOAT:
        return push_float(reader);
    case SHORT_BINUNICODE:
        return push_string(reader, 1);
    case BINUNICODE:
        return push_string(reader, 4);
    case BINUNICODE8:
        return push_string(reader, 8);
    default:
        return run_object_opcode(reader, code);
    }
}

static enum mics_status run(struct reader *reader)
{
    enum mics_status status = MICS_OK;

    if (reader->end - reader->at < 2 || reader->at[0] != PROTO)
        return mics_err_set(reader->err, MICS_ERR_FORMAT, "not a pickle of protocol 2 to 5");
    if (reader->at[1] < 2 || reader->at[1] > 5)
        return mics_err_set(reader->err, MICS_ERR_FORMAT, "protocol %u: expected 2 to 5",
                            reader->at[1]);
    reader->at += 2;
    while (status == MICS_OK) {
        if (reader->at == reader->end)
            return refuse(reader, "the pickle is truncated");
        const unsigned char code = *reader->at++;

        if (code == STOP)
            break;
        status = run_opcode(reader, code);
    }
    if (status == MICS_OK && (reader->stack.count != 1 || reader->marks.count != 0))
        status = refuse(reader, "not one value");
    return status;
}

/* `allowed` NULL: plain values. */
static enum mics_status open_pickle(const unsigned char *bytes, size_t size,
                                    const char *const *allowed, struct mics_pickle **out,
                                    struct mics_err *err)
{
    struct mics_pickle *pickle = calloc(1, sizeof *pickle);
    struct reader reader = {.pickle = pickle, .allowed = allowed, .err = err};
    enum mics_status status = pickle ? MICS_OK : mics_err_nomem(err);

    *out = NULL;
    reader.begin = reader.at = bytes;
    reader.end = bytes + size;
    if (status == MICS_OK && size > MICS_PICKLE_MAX_BYTES)
        status = mics_err_set(err, MICS_ERR_FORMAT, "a pickle of more than %zu MiB",
                              MICS_PICKLE_MAX_BYTES >> 20);
    if (status == MICS_OK && (!MAKE_ROOM(pickle->nodes, 1) || !MAKE_ROOM(pickle->cells, 1)))
        status = mics_err_nomem(err);
    if (status == MICS_OK) {
        pickle->nodes.list[pickle->nodes.count++] = (struct node){.kind = MICS_PICKLE_ABSENT};
        pickle->cells.list[pickle->cells.count++] = (struct cell){0};
        status = run(&reader);
    }
    if (status == MICS_OK)
        pickle->root = reader.stack.list[0];
    free(reader.stack.list);
    free(reader.memo.list);
    free(reader.marks.list);
    if (status == MICS_OK)
        *out = pickle;
    else
        mics_pickle_close(pickle);
    return status;
}

enum mics_status mics_pickle_open(const unsigned char *bytes, size_t size,
                                  const char *const *allowed, struct mics_pickle **out,
                                  struct mics_err *err)
{
    return open_pickle(bytes, size, allowed, out, err);
}

void mics_pickle_close(struct mics_pickle *pickle)
{
    if (!pickle)
        return;
    free(pickle->nodes.list);
    free(pickle->cells.list);
    free(pickle->objects.list);
    free(pickle->pool.list);
    free(pickle);
}

enum mics_status mics_pickle_parse(const unsigned char *bytes, size_t size, json_t **out,
                                   struct mics_err *err)
{
    struct mics_pickle *pickle = NULL;
    enum mics_status status = open_pickle(bytes, size, NULL, &pickle, err);

    *out = NULL;
    if (status != MICS_OK)
        return status;
    *out = mics_pickle_to_json(pickle, pickle->root, err);
    mics_pickle_close(pickle);
    return *out ? MICS_OK : MICS_ERR_FORMAT;
}
