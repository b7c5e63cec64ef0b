/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.c - the opcodes that Python's pickle writes for plain values, on a stack of JSON values.
 *
 * A container is filled from the stack above it, so nesting is not deeper than the containers that
 * are on the stack at once, which are limited. The memo gives out only strings: a container in
 * several places could contain itself.
 */
#include "data/pickle.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONTAINERS 2048
#define MAX_MARKS      64

/* Names as in pickletools. */
enum {
    MARK = '(',
    STOP = '.',
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

/* What is met most among the opcodes that are refused. */
static const struct {
    unsigned char code;
    const char *name;
} refused[] = {
    {'c', "GLOBAL"},      {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},         {'b', "BUILD"},
    {'i', "INST"},        {'o', "OBJ"},           {0x81, "NEWOBJ"},        {0x92, "NEWOBJ_EX"},
    {'P', "PERSID"},      {'Q', "BINPERSID"},     {0x82, "EXT1"},          {0x83, "EXT2"},
    {0x84, "EXT4"},       {')', "EMPTY_TUPLE"},   {'t', "TUPLE"},          {0x85, "TUPLE1"},
    {0x86, "TUPLE2"},     {0x87, "TUPLE3"},       {0x8f, "EMPTY_SET"},     {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},  {'B', "BINBYTES"},      {'C', "SHORT_BINBYTES"}, {0x8e, "BINBYTES8"},
    {0x96, "BYTEARRAY8"}, {0x97, "NEXT_BUFFER"},  {0x8b, "LONG4"},         {'0', "POP"},
    {'1', "POP_MARK"},    {'2', "DUP"},
};

struct reader {
    const unsigned char *begin, *at, *end;
    json_t **stack; /* owned references; at most one for each byte of the pickle */
    size_t depth;
    size_t marks[MAX_MARKS]; /* depths */
    size_t mark_count, containers;
    json_t **memo; /* strings, owned, or NULL for other values; at most one for each byte */
    size_t memo_count;
};

static enum mics_status refuse(const struct reader *reader, const char *what, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "byte %zu: %s", (size_t)(reader->at - reader->begin),
                        what);
}

/* An unsigned little-endian number of `width` bytes. */
static enum mics_status take_number(struct reader *reader, size_t width, uint64_t *out,
                                    struct mics_err *err)
{
    *out = 0;
    if ((size_t)(reader->end - reader->at) < width)
        return refuse(reader, "the pickle is truncated", err);
    for (size_t i = 0; i < width; i++)
        *out |= (uint64_t)reader->at[i] << (8 * i);
    reader->at += width;
    return MICS_OK;
}

/* Take the reference. Every opcode pushes at most one value, so there is room. */
static enum mics_status push(struct reader *reader, json_t *value, struct mics_err *err)
{
    if (!value)
        return mics_err_nomem(err);
    reader->stack[reader->depth++] = value;
    return MICS_OK;
}

static enum mics_status push_container(struct reader *reader, json_t *value, struct mics_err *err)
{
    if (reader->containers == MAX_CONTAINERS) {
        json_decref(value);
        return refuse(reader, "too deeply nested", err);
    }
    reader->containers++;
    return push(reader, value, err);
}

/* A number of `width` bytes in two's complement, unless `is_unsigned`. */
static enum mics_status push_integer(struct reader *reader, size_t width, bool is_unsigned,
                                     struct mics_err *err)
{
    uint64_t value;

    if (width > 8)
        return refuse(reader, "a number has more than 64 bits", err);
    const enum mics_status status = take_number(reader, width, &value, err);

    if (status != MICS_OK)
        return status;
    if (!is_unsigned && width > 0 && width < 8 && value >> (8 * width - 1))
        value |= UINT64_MAX << (8 * width);
    return push(reader, json_integer((json_int_t)value), err);
}

static enum mics_status push_long(struct reader *reader, struct mics_err *err)
{
    uint64_t width;
    const enum mics_status status = take_number(reader, 1, &width, err);

    return status == MICS_OK ? push_integer(reader, width, false, err) : status;
}

static enum mics_status push_float(struct reader *reader, struct mics_err *err)
{
    uint64_t bits = 0;
    double value;

    if (reader->end - reader->at < 8)
        return refuse(reader, "the pickle is truncated", err);
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | *reader->at++;
    memcpy(&value, &bits, sizeof value);
    json_t *number = json_real(value);

    return number ? push(reader, number, err) : refuse(reader, "a float is not finite", err);
}

static enum mics_status push_string(struct reader *reader, size_t width, struct mics_err *err)
{
    uint64_t length;
    const enum mics_status status = take_number(reader, width, &length, err);

    if (status != MICS_OK)
        return status;
    if (length > (uint64_t)(reader->end - reader->at))
        return refuse(reader, "the pickle is truncated", err);
    json_t *string = json_stringn((const char *)reader->at, length);

    if (!string)
        return refuse(reader, "a string is not UTF-8", err);
    reader->at += length;
    return push(reader, string, err);
}

static enum mics_status set_item(const struct reader *reader, json_t *dict, const json_t *key,
                                 json_t *value, struct mics_err *err)
{
    char number[24];
    const char *name = json_string_value(key);
    size_t length = json_string_length(key);

    if (json_is_integer(key)) {
        length =
            (size_t)snprintf(number, sizeof number, "%" PRId64, (int64_t)json_integer_value(key));
        name = number;
    }
    if (!name)
        return refuse(reader, "a key is neither a string nor a number", err);
    return json_object_setn_nocheck(dict, name, length, value) == 0 ? MICS_OK : mics_err_nomem(err);
}

/* Put the values of the stack from `first` on into the container below them. */
static enum mics_status fill(struct reader *reader, size_t first, bool pairs, struct mics_err *err)
{
    json_t *container = first > 0 ? reader->stack[first - 1] : NULL;
    const size_t count = first <= reader->depth ? reader->depth - first : 0;
    enum mics_status status = MICS_OK;

    if (first > reader->depth || !(pairs ? json_is_object(container) : json_is_array(container)) ||
        (pairs && count % 2 != 0))
        return refuse(reader, "items without a container", err);
    for (size_t i = first; status == MICS_OK && i < reader->depth; i += pairs ? 2 : 1) {
        if (pairs)
            status = set_item(reader, container, reader->stack[i], reader->stack[i + 1], err);
        else if (json_array_append(container, reader->stack[i]) != 0)
            status = mics_err_nomem(err);
    }
    while (reader->depth > first) {
        json_t *value = reader->stack[--reader->depth];

        reader->containers -= json_is_object(value) || json_is_array(value);
        json_decref(value);
    }
    return status;
}

static enum mics_status fill_from_mark(struct reader *reader, bool pairs, struct mics_err *err)
{
    if (reader->mark_count == 0)
        return refuse(reader, "items without a mark", err);
    return fill(reader, reader->marks[--reader->mark_count], pairs, err);
}

static enum mics_status fill_last(struct reader *reader, size_t count, struct mics_err *err)
{
    if (reader->depth < count)
        return refuse(reader, "items without a container", err);
    return fill(reader, reader->depth - count, count == 2, err);
}

static enum mics_status mark(struct reader *reader, struct mics_err *err)
{
    if (reader->mark_count == MAX_MARKS)
        return refuse(reader, "too deeply nested", err);
    reader->marks[reader->mark_count++] = reader->depth;
    return MICS_OK;
}

/* Python numbers the values that it keeps from 0 on, in order, in all protocols. */
static enum mics_status keep(struct reader *reader, uint64_t number, struct mics_err *err)
{
    json_t *value = reader->depth > 0 ? reader->stack[reader->depth - 1] : NULL;

    if (!value || number != reader->memo_count)
        return refuse(reader, "the memo is out of order", err);
    reader->memo[reader->memo_count++] = json_is_string(value) ? json_incref(value) : NULL;
    return MICS_OK;
}

static enum mics_status push_kept(struct reader *reader, uint64_t number, struct mics_err *err)
{
    if (number >= reader->memo_count || !reader->memo[number])
        return refuse(reader, "a value other than a string occurs twice", err);
    return push(reader, json_incref(reader->memo[number]), err);
}

static enum mics_status use_memo(struct reader *reader, unsigned char code, struct mics_err *err)
{
    const bool wide = code == LONG_BINGET || code == LONG_BINPUT;
    uint64_t number = reader->memo_count;
    enum mics_status status = MICS_OK;

    if (code != MEMOIZE)
        status = take_number(reader, wide ? 4 : 1, &number, err);
    if (status != MICS_OK)
        return status;
    return code == BINGET || code == LONG_BINGET ? push_kept(reader, number, err)
                                                 : keep(reader, number, err);
}

static enum mics_status refuse_opcode(const struct reader *reader, unsigned char code,
                                      struct mics_err *err)
{
    char number[8];
    const char *name = number;

    snprintf(number, sizeof number, "0x%02x", code);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].code == code)
            name = refused[i].name;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "byte %zu: opcode %s: only dicts, lists, strings and numbers are read",
                        (size_t)(reader->at - reader->begin) - 1, name);
}

static enum mics_status run_opcode(struct reader *reader, unsigned char code, struct mics_err *err)
{
    uint64_t ignored;

    switch (code) {
    case FRAME:
        return take_number(reader, 8, &ignored, err);
    case MARK:
        return mark(reader, err);
    case BINGET:
    case LONG_BINGET:
    case BINPUT:
    case LONG_BINPUT:
    case MEMOIZE:
        return use_memo(reader, code, err);
    case EMPTY_DICT:
        return push_container(reader, json_object(), err);
    case EMPTY_LIST:
        return push_container(reader, json_array(), err);
    case SETITEM:
        return fill_last(reader, 2, err);
    case SETITEMS:
        return fill_from_mark(reader, true, err);
    case APPEND:
        return fill_last(reader, 1, err);
    case APPENDS:
        return fill_from_mark(reader, false, err);
    case NONE:
        return push(reader, json_null(), err);
    case NEWTRUE:
    case NEWFALSE:
        return push(reader, json_boolean(code == NEWTRUE), err);
    case BININT:
        return push_integer(reader, 4, false, err);
    case BININT1:
        return push_integer(reader, 1, true, err);
    case BININT2:
        return push_integer(reader, 2, true, err);
    case LONG1:
        return push_long(reader, err);
    case BINFLOAT:
        return push_float(reader, err);
    case SHORT_BINUNICODE:
        return push_string(reader, 1, err);
    case BINUNICODE:
        return push_string(reader, 4, err);
    case BINUNICODE8:
        return push_string(reader, 8, err);
    default:
        return refuse_opcode(reader, code, err);
    }
}

static enum mics_status run(struct reader *reader, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (reader->end - reader->at < 2 || reader->at[0] != PROTO)
        return mics_err_set(err, MICS_ERR_FORMAT, "not a pickle of protocol 2 to 5");
    if (reader->at[1] < 2 || reader->at[1] > 5)
        return mics_err_set(err, MICS_ERR_FORMAT, "protocol %u: expected 2 to 5", reader->at[1]);
    reader->at += 2;
    while (status == MICS_OK) {
        if (reader->at == reader->end)
            return refuse(reader, "the pickle is truncated", err);
        const unsigned char code = *reader->at++;

        if (code == STOP)
            break;
        status = run_opcode(reader, code, err);
    }
    if (status == MICS_OK && (reader->depth != 1 || reader->mark_count != 0))
        status = refuse(reader, "not one value", err);
    return status;
}

enum mics_status mics_pickle_parse(const unsigned char *bytes, size_t size, json_t **out,
                                   struct mics_err *err)
{
    struct reader reader = {.begin = bytes, .at = bytes, .end = bytes + size};
    enum mics_status status = MICS_OK;

    *out = NULL;
    reader.stack = malloc((size + 1) * sizeof(json_t *));
    reader.memo = malloc((size + 1) * sizeof(json_t *));
    status = reader.stack && reader.memo ? run(&reader, err) : mics_err_nomem(err);
    if (status == MICS_OK)
        *out = reader.stack[--reader.depth];
    while (reader.depth > 0)
        json_decref(reader.stack[--reader.depth]);
    while (reader.memo_count > 0)
        json_decref(reader.memo[--reader.memo_count]);
    free(reader.stack);
    free(reader.memo);
    return status;
}
