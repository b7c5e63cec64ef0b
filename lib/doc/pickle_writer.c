/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_writer.c - opcodes of protocol 2. */
#include "doc/pickle_writer.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHARED = 64 };

struct mics_pickle_writer {
    unsigned char *bytes;
    size_t size, capacity;
    struct {
        const char *name;
        uint32_t reference;
    } shared[MAX_SHARED];
    uint32_t shared_count, memo_count;
    bool failed; /* out of memory */
};

static void put(struct mics_pickle_writer *writer, const void *bytes, size_t size)
{
    if (writer->capacity - writer->size < size) {
        const size_t capacity = 2 * writer->capacity + size + 256;
        unsigned char *longer = writer->failed ? NULL : realloc(writer->bytes, capacity);

        writer->failed = !longer;
        if (writer->failed)
            return;
        writer->bytes = longer;
        writer->capacity = capacity;
    }
    if (size > 0)
        memcpy(writer->bytes + writer->size, bytes, size);
    writer->size += size;
}

static void put_op(struct mics_pickle_writer *writer, unsigned char op)
{
    put(writer, &op, 1);
}

/* The lowest `size` bytes of a number, lowest first. */
static void put_number(struct mics_pickle_writer *writer, uint64_t value, size_t size)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    put(writer, bytes, size);
}

struct mics_pickle_writer *mics_pickle_writer_new(void)
{
    struct mics_pickle_writer *writer = calloc(1, sizeof *writer);

    if (writer)
        put(writer, "\x80\x02", 2); /* PROTO */
    return writer;
}

void mics_pickle_writer_free(struct mics_pickle_writer *writer)
{
    if (writer)
        free(writer->bytes);
    free(writer);
}

enum mics_status mics_pickle_writer_finish(struct mics_pickle_writer *writer, char **bytes,
                                           size_t *size, struct mics_err *err)
{
    put_op(writer, '.'); /* STOP */
    if (writer->failed)
        return mics_err_nomem(err);
    *bytes = (char *)writer->bytes;
    *size = writer->size;
    writer->bytes = NULL;
    writer->size = writer->capacity = 0;
    return MICS_OK;
}

void mics_pickle_put_none(struct mics_pickle_writer *writer)
{
    put_op(writer, 'N'); /* NONE */
}

void mics_pickle_put_false(struct mics_pickle_writer *writer)
{
    put_op(writer, 0x89); /* NEWFALSE */
}

void mics_pickle_put_integer(struct mics_pickle_writer *writer, uint64_t value)
{
    assert(value <= INT64_MAX);
    if (value <= UINT8_MAX) {
        put_op(writer, 'K'); /* BININT1 */
        put_number(writer, value, 1);
    } else if (value <= INT32_MAX) {
        put_op(writer, 'J'); /* BININT */
        put_number(writer, value, 4);
    } else {
        put(writer, "\x8a\x08", 2); /* LONG1, of 8 bytes */
        put_number(writer, value, 8);
    }
}

void mics_pickle_put_text(struct mics_pickle_writer *writer, const char *text)
{
    put_op(writer, 'X'); /* BINUNICODE */
    put_number(writer, strlen(text), 4);
    put(writer, text, strlen(text));
}

uint32_t mics_pickle_remember(struct mics_pickle_writer *writer)
{
    const uint32_t index = writer->memo_count++;

    put_op(writer, index <= UINT8_MAX ? 'q' : 'r'); /* BINPUT, LONG_BINPUT */
    put_number(writer, index, index <= UINT8_MAX ? 1 : 4);
    return index;
}

void mics_pickle_recall(struct mics_pickle_writer *writer, uint32_t reference)
{
    put_op(writer, reference <= UINT8_MAX ? 'h' : 'j'); /* BINGET, LONG_BINGET */
    put_number(writer, reference, reference <= UINT8_MAX ? 1 : 4);
}

/* Refer to a text or class that was put before. False: it was not. */
static bool recall_shared(struct mics_pickle_writer *writer, const char *name)
{
    for (uint32_t i = 0; i < writer->shared_count; i++)
        if (strcmp(writer->shared[i].name, name) == 0) {
            mics_pickle_recall(writer, writer->shared[i].reference);
            return true;
        }
    return false;
}

static void share(struct mics_pickle_writer *writer, const char *name)
{
    assert(writer->shared_count < MAX_SHARED);
    writer->shared[writer->shared_count].name = name;
    writer->shared[writer->shared_count++].reference = mics_pickle_remember(writer);
}

void mics_pickle_put_key(struct mics_pickle_writer *writer, const char *text)
{
    assert(!strchr(text, ' ')); /* unlike the name of a class */
    if (recall_shared(writer, text))
        return;
    mics_pickle_put_text(writer, text);
    share(writer, text);
}

void mics_pickle_put_class(struct mics_pickle_writer *writer, const char *name)
{
    const char *space = strchr(name, ' ');

    assert(space);
    if (recall_shared(writer, name))
        return;
    put_op(writer, 'c'); /* GLOBAL: two lines */
    put(writer, name, (size_t)(space - name));
    put_op(writer, '\n');
    put(writer, space + 1, strlen(space + 1));
    put_op(writer, '\n');
    share(writer, name);
}

void mics_pickle_begin_tuple(struct mics_pickle_writer *writer)
{
    put_op(writer, '('); /* MARK */
}

void mics_pickle_end_tuple(struct mics_pickle_writer *writer)
{
    put_op(writer, 't'); /* TUPLE */
}

void mics_pickle_begin_list(struct mics_pickle_writer *writer)
{
    put(writer, "](", 2); /* EMPTY_LIST MARK */
}

void mics_pickle_end_list(struct mics_pickle_writer *writer)
{
    put_op(writer, 'e'); /* APPENDS */
}

void mics_pickle_begin_dict(struct mics_pickle_writer *writer)
{
    put(writer, "}(", 2); /* EMPTY_DICT MARK */
}

void mics_pickle_end_dict(struct mics_pickle_writer *writer)
{
    put_op(writer, 'u'); /* SETITEMS */
}

void mics_pickle_put_object(struct mics_pickle_writer *writer, const char *class)
{
    mics_pickle_put_class(writer, class);
    put(writer, ")\x81", 2); /* EMPTY_TUPLE NEWOBJ */
}

void mics_pickle_fill(struct mics_pickle_writer *writer)
{
    put_op(writer, 'b'); /* BUILD */
}

void mics_pickle_begin_object(struct mics_pickle_writer *writer, const char *class)
{
    mics_pickle_put_object(writer, class);
    mics_pickle_begin_dict(writer);
}

void mics_pickle_end_object(struct mics_pickle_writer *writer)
{
    mics_pickle_end_dict(writer);
    mics_pickle_fill(writer);
}

void mics_pickle_call(struct mics_pickle_writer *writer)
{
    put_op(writer, 'R'); /* REDUCE */
}

void mics_pickle_persistent(struct mics_pickle_writer *writer)
{
    put_op(writer, 'Q'); /* BINPERSID */
}
