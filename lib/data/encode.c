/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode.c - threads take pieces of the text in turn, encode them, and append them in order.
 *
 * Pieces wait in a ring of slots. A thread that has encoded its piece appends all pieces that are
 * next, unless another thread is doing so; a thread that finds no free slot waits.
 */
#include "data/encode.h"

#include "base/threads.h"
#include "doc/foreign.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES ((uint64_t)512 << 10)
#define SLOTS       64

/* A piece of a file, and its tokens. */
struct slot {
    const struct mics_document *document;
    uint64_t offset, size; /* bytes of the file */
    bool lines;            /* whole JSON lines; else a part of one document: */
    bool begins, ends;
    bool ready;
    uint32_t *ids;
    size_t count, capacity;
    size_t *document_ends; /* positions in ids */
    size_t end_count, end_capacity;
};

struct work {
    const struct mics_corpus *corpus;
    const struct mics_encode_options *options;
    struct mics_token_writer *writer;
    struct mics_encode_report *report;
    struct mics_progress progress;
    uint32_t begin, end; /* around a document; MICS_NO_TOKEN: nothing */
    size_t slots;        /* in use, at most SLOTS */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Below: with the mutex. */
    size_t file; /* the next piece is of this one */
    uint64_t offset;
    uint64_t taken, appended; /* pieces */
    bool appending;
    uint64_t failed; /* piece that failed; the first one counts, whatever thread is the fastest */
    enum mics_status status;
    struct mics_err err;
    struct slot ring[SLOTS];
};

static bool has_lines(const char *path)
{
    const size_t length = strlen(path);

    return length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
}

static enum mics_status refuse_piece(const struct slot *slot, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "%s from byte %" PRIu64 " on that is longer than %" PRIu64 " MiB",
                        slot->lines ? "a line" : "text without a place to cut it", slot->offset,
                        MICS_ENCODE_MAX_PIECE >> 20);
}

/* Bytes of whole lines. */
static enum mics_status measure_lines(struct slot *slot, uint64_t left, struct mics_err *err)
{
    const char *text = (const char *)slot->document->bytes + slot->offset, *stop;

    slot->size = left;
    if (left <= PIECE_BYTES)
        return MICS_OK;
    stop = memchr(text + PIECE_BYTES, '\n', left - PIECE_BYTES);
    if (stop)
        slot->size = (uint64_t)(stop - text) + 1;
    return slot->size > MICS_ENCODE_MAX_PIECE ? refuse_piece(slot, err) : MICS_OK;
}

static enum mics_status measure_text(struct slot *slot, const struct mics_tokenizer *tokenizer,
                                     uint64_t left, struct mics_err *err)
{
    const char *text = (const char *)slot->document->bytes + slot->offset;

    slot->size = 0;
    for (uint64_t size = PIECE_BYTES; size < left && slot->size == 0; size *= 2) {
        if (size > MICS_ENCODE_MAX_PIECE)
            return refuse_piece(slot, err);
        slot->size = mics_tokenizer_cut(tokenizer, text, size);
    }
    if (slot->size > 0)
        return MICS_OK;
    slot->size = left;
    return left > MICS_ENCODE_MAX_PIECE ? refuse_piece(slot, err) : MICS_OK;
}

/* Make `slot` the next piece. *found false: there is none. With the mutex. */
static enum mics_status take(struct work *work, struct slot *slot, bool *found,
                             struct mics_err *err)
{
    enum mics_status status;

    while (work->file < work->corpus->count &&
           work->offset == work->corpus->documents[work->file].size) {
        work->file++;
        work->offset = 0;
    }
    *found = work->file < work->corpus->count;
    if (!*found)
        return MICS_OK;
    slot->document = &work->corpus->documents[work->file];
    slot->lines = has_lines(slot->document->path);
    slot->offset = work->offset;
    slot->count = slot->end_count = 0;
    slot->ready = false;
    const uint64_t left = slot->document->size - work->offset;

    status = slot->lines ? measure_lines(slot, left, err)
                         : measure_text(slot, work->options->tokenizer, left, err);
    slot->begins = slot->offset == 0;
    slot->ends = slot->size == left;
    work->offset += slot->size;
    if (status != MICS_OK)
        mics_err_prefix(err, "'%s'", slot->document->path);
    return status;
}

static enum mics_status grow(void **items, size_t *capacity, size_t needed, size_t item_bytes,
                             struct mics_err *err)
{
    if (needed <= *capacity)
        return MICS_OK;
    const size_t more = needed + needed / 4 + 1024;
    void *grown = realloc(*items, more * item_bytes);

    if (!grown)
        return mics_err_nomem(err);
    *items = grown;
    *capacity = more;
    return MICS_OK;
}

static enum mics_status put_ids(struct slot *slot, const uint32_t *ids, size_t count,
                                struct mics_err *err)
{
    enum mics_status status =
        grow((void **)&slot->ids, &slot->capacity, slot->count + count, sizeof *slot->ids, err);

    if (status == MICS_OK && count > 0)
        memcpy(slot->ids + slot->count, ids, count * sizeof *ids);
    if (status == MICS_OK)
        slot->count += count;
    return status;
}

/* The token at an end of a document, unless MICS_NO_TOKEN. */
static enum mics_status put_token(struct slot *slot, uint32_t id, struct mics_err *err)
{
    return id == MICS_NO_TOKEN ? MICS_OK : put_ids(slot, &id, 1, err);
}

static enum mics_status put_text(const struct work *work, struct mics_encoder *encoder,
                                 struct slot *slot, const char *text, size_t size, bool begins,
                                 bool ends, uint64_t *special, struct mics_err *err)
{
    const int flags = (work->options->special ? MICS_TOKENIZER_SPECIAL : 0) |
                      (begins ? 0 : MICS_TOKENIZER_CONTINUES);
    const uint32_t *ids = NULL;
    uint64_t found = 0;
    size_t count = 0;
    enum mics_status status = begins ? put_token(slot, work->begin, err) : MICS_OK;

    if (status == MICS_OK)
        status = mics_encode(encoder, text, size, flags, &ids, &count, &found, err);
    if (status == MICS_OK)
        status = put_ids(slot, ids, count, err);
    *special += found;
    if (status == MICS_OK && ends)
        status = put_token(slot, work->end, err);
    if (status != MICS_OK || !ends)
        return status;
    status = grow((void **)&slot->document_ends, &slot->end_capacity, slot->end_count + 1,
                  sizeof *slot->document_ends, err);
    if (status == MICS_OK)
        slot->document_ends[slot->end_count++] = slot->count;
    return status;
}

static bool is_blank(const char *line, size_t length)
{
    while (length > 0 && strchr(" \t\r", line[length - 1]))
        length--;
    return length == 0;
}

static enum mics_status put_line(const struct work *work, struct mics_encoder *encoder,
                                 struct slot *slot, const char *line, size_t length,
                                 uint64_t *special, struct mics_err *err)
{
    json_t *object = NULL;

    if (is_blank(line, length))
        return MICS_OK;
    enum mics_status status = mics_foreign_read_line(line, length, &object, err);

    if (status != MICS_OK)
        return status;
    const json_t *text = json_object_get(object, work->options->field);

    if (!json_is_string(text))
        status = mics_err_set(err, MICS_ERR_FORMAT, "no object with a string \"%s\"",
                              work->options->field);
    else if (json_string_length(text) > 0)
        status = put_text(work, encoder, slot, json_string_value(text), json_string_length(text),
                          true, true, special, err);
    json_decref(object);
    return status;
}

/* The number, from 1, of the line that begins at byte `offset`. */
static uint64_t line_number(const struct mics_document *document, uint64_t offset)
{
    uint64_t number = 1;

    for (uint64_t i = 0; i < offset; i++)
        number += document->bytes[i] == '\n';
    return number;
}

static enum mics_status put_lines(const struct work *work, struct mics_encoder *encoder,
                                  struct slot *slot, uint64_t *special, struct mics_err *err)
{
    const char *text = (const char *)slot->document->bytes;
    uint64_t at = slot->offset;
    const uint64_t end = slot->offset + slot->size;

    while (at < end) {
        const char *stop = memchr(text + at, '\n', end - at);
        const uint64_t length = stop ? (uint64_t)(stop - text) - at : end - at;
        enum mics_status status = put_line(work, encoder, slot, text + at, length, special, err);

        if (status != MICS_OK) {
            mics_err_prefix(err, "line %" PRIu64, line_number(slot->document, at));
            return status;
        }
        at += length + 1;
    }
    return MICS_OK;
}

static enum mics_status encode_slot(const struct work *work, struct mics_encoder *encoder,
                                    struct slot *slot, uint64_t *special, struct mics_err *err)
{
    const char *text = (const char *)slot->document->bytes + slot->offset;
    enum mics_status status = slot->lines ? put_lines(work, encoder, slot, special, err)
                                          : put_text(work, encoder, slot, text, slot->size,
                                                     slot->begins, slot->ends, special, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "'%s'", slot->document->path);
    return status;
}

/* Pages of a mapping count as memory of this process while they are mapped: unmap those of text
 * that was encoded. They stay in the page cache. */
static void forget_pages(const struct slot *slot)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = (uintptr_t)slot->document->bytes + slot->offset;
    const uintptr_t begin = from & ~(page - 1), end = (from + slot->size) & ~(page - 1);

    if (end > begin)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static enum mics_status append_slot(struct work *work, const struct slot *slot,
                                    struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    size_t from = 0;

    for (size_t i = 0; status == MICS_OK && i < slot->end_count; i++) {
        status = mics_token_writer_append(work->writer, slot->ids + from,
                                          slot->document_ends[i] - from, true, err);
        from = slot->document_ends[i];
    }
    if (status == MICS_OK)
        status = mics_token_writer_append(work->writer, slot->ids + from, slot->count - from, false,
                                          err);
    if (status != MICS_OK)
        mics_err_prefix(err, "'%s'", slot->document->path);
    forget_pages(slot);
    return status;
}

/* With the mutex. */
static void fail(struct work *work, uint64_t piece, enum mics_status status,
                 const struct mics_err *err)
{
    if (work->status != MICS_OK && work->failed <= piece)
        return;
    work->status = status;
    work->failed = piece;
    work->err = *err;
}

/* Append the pieces that are next. With the mutex, which it gives back meanwhile. */
static void append_ready(struct work *work)
{
    struct mics_err err;

    while (!work->appending && work->status == MICS_OK && work->appended < work->taken &&
           work->ring[work->appended % work->slots].ready) {
        const struct slot *slot = &work->ring[work->appended % work->slots];

        work->appending = true;
        pthread_mutex_unlock(&work->mutex);
        const enum mics_status status = append_slot(work, slot, &err);

        pthread_mutex_lock(&work->mutex);
        work->appending = false;
        work->report->documents += slot->end_count;
        work->report->tokens += slot->count;
        work->report->bytes += slot->size;
        if (status != MICS_OK)
            fail(work, work->appended, status, &err);
        work->appended++;
        pthread_cond_broadcast(&work->changed);
    }
}

/* Take, encode and append one piece. False: there are no more. With the mutex. */
static bool do_piece(struct work *work, struct mics_encoder *encoder)
{
    struct mics_err err;
    uint64_t special = 0;
    bool found = false;

    while (work->status == MICS_OK && work->taken - work->appended >= work->slots)
        pthread_cond_wait(&work->changed, &work->mutex);
    if (work->status != MICS_OK)
        return false;
    const uint64_t piece = work->taken;
    struct slot *slot = &work->ring[piece % work->slots];
    enum mics_status status = take(work, slot, &found, &err);

    if (status == MICS_OK && !found)
        return false;
    if (status == MICS_OK) {
        work->taken++;
        pthread_mutex_unlock(&work->mutex);
        status = encode_slot(work, encoder, slot, &special, &err);
        mics_progress_add(&work->progress, slot->size);
        pthread_mutex_lock(&work->mutex);
    }
    work->report->special += special;
    if (status != MICS_OK)
        fail(work, piece, status, &err);
    slot->ready = status == MICS_OK;
    append_ready(work);
    pthread_cond_broadcast(&work->changed);
    return true;
}

static void *run(void *context)
{
    struct work *work = context;
    struct mics_encoder *encoder = NULL;
    struct mics_err err;
    const enum mics_status status = mics_encoder_new(work->options->tokenizer, &encoder, &err);

    pthread_mutex_lock(&work->mutex);
    if (status != MICS_OK)
        fail(work, work->taken, status, &err);
    while (encoder && do_piece(work, encoder))
        ;
    pthread_mutex_unlock(&work->mutex);
    mics_encoder_free(encoder);
    return NULL;
}

enum mics_status mics_encode_corpus(const struct mics_corpus *corpus,
                                    const struct mics_encode_options *options,
                                    struct mics_token_writer *writer,
                                    struct mics_encode_report *report, struct mics_err *err)
{
    struct work *work = calloc(1, sizeof *work);
    const size_t wanted = 3 * (size_t)mics_workers_max(0);

    *report = (struct mics_encode_report){0};
    if (!work)
        return mics_err_nomem(err);
    work->corpus = corpus;
    work->options = options;
    work->writer = writer;
    work->report = report;
    work->begin = mics_tokenizer_begin(options->tokenizer);
    work->end = mics_tokenizer_end(options->tokenizer);
    work->slots = wanted < SLOTS ? wanted : SLOTS;
    pthread_mutex_init(&work->mutex, NULL);
    pthread_cond_init(&work->changed, NULL);
    mics_progress_init(&work->progress, options->progress, options->progress_context,
                       corpus->bytes);
    mics_workers_run(run, work, 0);
    const enum mics_status status = work->status;

    if (status != MICS_OK && err)
        *err = work->err;
    for (size_t i = 0; i < SLOTS; i++) {
        free(work->ring[i].ids);
        free(work->ring[i].document_ends);
    }
    pthread_cond_destroy(&work->changed);
    pthread_mutex_destroy(&work->mutex);
    free(work);
    return status;
}
