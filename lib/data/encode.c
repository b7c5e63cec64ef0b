/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode.c - threads take pieces of the text in turn, encode them, and append them in order.
 *
 * Pieces wait in a ring of slots. A thread that has encoded its piece appends all pieces that are
 * next, unless another thread is doing so; a thread that finds no free slot waits.
 *
 * One more thread opens the files in order, ahead of the others, and so decompresses the next file
 * while this one is encoded. A file is closed when its last piece has been appended; at most
 * MAX_DECOMPRESSED files are held decompressed at once.
 */
#include "data/encode.h"

#include "base/num.h"
#include "base/threads.h"
#include "data/json_line.h"
#include "data/tokens.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES ((uint64_t)512 << 10)
#define SLOTS       64

#define MAX_DECOMPRESSED 2

/* A damaged line, counted from the first of its piece. */
struct bad_line {
    uint64_t line;
    char why[160];
};

/* A piece of a file, and its tokens. */
struct slot {
    struct mics_document *document;
    uint64_t offset, size; /* bytes of the text */
    bool lines;            /* whole JSON lines; else a part of one document: */
    bool begins, ends;
    bool ready;
    uint32_t *ids; /* with MICS_TOKEN_PROMPT (tokens.h) where prompts are masked */
    size_t count, capacity;
    uint64_t prompts;      /* how many of them have that */
    size_t *document_ends; /* positions in ids */
    size_t end_count, end_capacity;
    uint64_t line_count;
    struct bad_line *bad;
    size_t bad_count, bad_capacity;
};

/* What a thread reuses. */
struct thread {
    struct mics_encoder *encoder;
    struct mics_chat_text text;  /* the present conversation, */
    struct mics_chat_buffer ids; /* and its ids */
};

struct work {
    struct mics_corpus *corpus;
    const struct mics_encode_options *options;
    struct mics_token_writer *writer;
    struct mics_encode_report *report;
    struct mics_progress progress;
    uint32_t begin, end; /* around a document; MICS_NO_TOKEN: nothing */
    size_t slots;        /* in use, at most SLOTS */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct mics_background_task opener;
    /* Below: with the mutex. */
    size_t opened;                /* files, in order */
    size_t decompressed;          /* of the open ones */
    enum mics_status open_status; /* of file `opened`, which could not be opened */
    struct mics_err open_err;
    size_t file; /* the next piece is of this one */
    uint64_t offset;
    uint64_t taken, appended; /* pieces */
    bool appending;
    uint64_t lines_before; /* the next piece to append, in its file; of the appending thread */
    uint64_t failed; /* piece that failed; the first one counts, whatever thread is the fastest */
    enum mics_status status;
    struct mics_err err;
    struct slot ring[SLOTS];
};

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

static bool is_compressed(const struct mics_document *document)
{
    return document->format.compression != MICS_COMPRESSION_NONE;
}

/* Open all files, in order. */
static enum mics_status open_all(void *context, struct mics_err *err)
{
    struct work *work = context;
    struct mics_corpus *corpus = work->corpus;
    enum mics_status status = MICS_OK;

    pthread_mutex_lock(&work->mutex);
    while (status == MICS_OK && work->status == MICS_OK && work->opened < corpus->count) {
        const size_t index = work->opened;

        if (is_compressed(&corpus->documents[index]) && work->decompressed >= MAX_DECOMPRESSED) {
            pthread_cond_wait(&work->changed, &work->mutex);
            continue;
        }
        pthread_mutex_unlock(&work->mutex);
        status = mics_corpus_open_next(corpus, index, err);
        pthread_mutex_lock(&work->mutex);
        if (status == MICS_OK) {
            work->opened++;
            work->decompressed += is_compressed(&corpus->documents[index]);
        }
        pthread_cond_broadcast(&work->changed);
    }
    work->open_status = status;
    if (status != MICS_OK)
        work->open_err = *err;
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->mutex);
    return MICS_OK;
}

/* Nothing of the text is needed any more. With the mutex. */
static void close_document(struct work *work, struct mics_document *document)
{
    mics_document_close(document);
    work->decompressed -= is_compressed(document);
    pthread_cond_broadcast(&work->changed);
}

/* Go to the file that has the next piece, and wait until it is open. *found false: there is none.
 * With the mutex. */
static enum mics_status find_file(struct work *work, bool *found, struct mics_err *err)
{
    struct mics_corpus *corpus = work->corpus;

    *found = false;
    while (work->status == MICS_OK && work->file < corpus->count) {
        struct mics_document *document = &corpus->documents[work->file];

        if (work->opened <= work->file && work->open_status != MICS_OK) {
            *err = work->open_err;
            return work->open_status;
        }
        if (work->opened <= work->file) { /* after which all may be different */
            pthread_cond_wait(&work->changed, &work->mutex);
            continue;
        }
        *found = work->offset < document->size;
        if (*found)
            return MICS_OK;
        if (document->size == 0)
            close_document(work, document);
        work->file++;
        work->offset = 0;
    }
    return MICS_OK;
}

/* Wait until there is a piece of an open file, and a free slot. *found false: there is no piece.
 * With the mutex. */
static enum mics_status wait_for_piece(struct work *work, bool *found, struct mics_err *err)
{
    for (;;) {
        const enum mics_status status = find_file(work, found, err);

        if (status != MICS_OK || !*found || work->taken - work->appended < work->slots)
            return status;
        pthread_cond_wait(&work->changed, &work->mutex);
    }
}

/* Make `slot` the next piece, which wait_for_piece() found. With the mutex. */
static enum mics_status take(struct work *work, struct slot *slot, struct mics_err *err)
{
    enum mics_status status;

    slot->document = &work->corpus->documents[work->file];
    slot->lines = slot->document->format.content == MICS_CONTENT_LINES;
    slot->offset = work->offset;
    slot->count = slot->end_count = slot->bad_count = 0;
    slot->prompts = 0;
    slot->line_count = 0;
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

    if (status != MICS_OK)
        return status;
    if (count > 0)
        memcpy(slot->ids + slot->count, ids, count * sizeof *ids);
    slot->count += count;
    return status;
}

/* The token at an end of a document, unless MICS_NO_TOKEN. */
static enum mics_status put_token(struct slot *slot, uint32_t id, struct mics_err *err)
{
    return id == MICS_NO_TOKEN ? MICS_OK : put_ids(slot, &id, 1, err);
}

/* The tokens so far end with those of a document. */
static enum mics_status end_document(struct slot *slot, struct mics_err *err)
{
    const enum mics_status status = grow((void **)&slot->document_ends, &slot->end_capacity,
                                         slot->end_count + 1, sizeof *slot->document_ends, err);

    if (status == MICS_OK)
        slot->document_ends[slot->end_count++] = slot->count;
    return status;
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
    return status == MICS_OK && ends ? end_document(slot, err) : status;
}

/* A conversation. *bad: it is none that the template takes, and *err says why. */
static enum mics_status put_chat(const struct work *work, struct thread *thread, struct slot *slot,
                                 const json_t *object, bool *bad, struct mics_err *err)
{
    const struct mics_encode_options *options = work->options;
    enum mics_status status = mics_chat_render(options->chat, object, &thread->text, err);

    *bad = status == MICS_ERR_FORMAT;
    if (status != MICS_OK)
        return status;
    thread->ids.size = 0;
    status =
        mics_chat_encode(thread->encoder, options->tokenizer, &thread->text, &thread->ids, err);
    uint32_t *ids = (uint32_t *)(void *)thread->ids.bytes;
    const size_t count = thread->ids.size / sizeof *ids;

    for (size_t i = 0; status == MICS_OK && i < count; i++) {
        slot->prompts += options->mask_prompt && (ids[i] & MICS_TOKEN_PROMPT);
        ids[i] &= options->mask_prompt ? UINT32_MAX : ~MICS_TOKEN_PROMPT;
    }
    if (status == MICS_OK)
        status = put_ids(slot, ids, count, err);
    return status == MICS_OK && count > 0 ? end_document(slot, err) : status;
}

/* Remember a damaged line for append_slot(), which knows its number. */
static enum mics_status put_bad_line(struct slot *slot, uint64_t line, const char *why,
                                     struct mics_err *err)
{
    enum mics_status status =
        grow((void **)&slot->bad, &slot->bad_capacity, slot->bad_count + 1, sizeof *slot->bad, err);

    if (status != MICS_OK)
        return status;
    struct bad_line *bad = &slot->bad[slot->bad_count++];

    *bad = (struct bad_line){.line = line};
    snprintf(bad->why, sizeof bad->why, "%.159s", why);
    return MICS_OK;
}

/* Encode a line; *bad: it is damaged, and *err says how. */
static enum mics_status put_line(const struct work *work, struct thread *thread, struct slot *slot,
                                 const char *line, size_t length, uint64_t *special, bool *bad,
                                 struct mics_err *err)
{
    json_t *object = NULL;
    enum mics_status status = mics_json_line_parse(line, length, &object, err);

    *bad = status == MICS_ERR_FORMAT;
    if (status != MICS_OK || !object)
        return status;
    if (work->options->chat) {
        status = put_chat(work, thread, slot, object, bad, err);
        json_decref(object);
        return status;
    }
    const json_t *text = json_object_get(object, work->options->field);

    *bad = !json_is_string(text);
    if (*bad)
        status = mics_err_set(err, MICS_ERR_FORMAT, "no string \"%s\"", work->options->field);
    else if (json_string_length(text) > 0)
        status = put_text(work, thread->encoder, slot, json_string_value(text),
                          json_string_length(text), true, true, special, err);
    json_decref(object);
    return status;
}

static enum mics_status put_lines(const struct work *work, struct thread *thread, struct slot *slot,
                                  uint64_t *special, struct mics_err *err)
{
    const char *text = (const char *)slot->document->bytes;
    const uint64_t end = slot->offset + slot->size;

    for (uint64_t at = slot->offset; at < end; slot->line_count++) {
        const char *stop = memchr(text + at, '\n', end - at);
        const uint64_t length = stop ? (uint64_t)(stop - text) - at : end - at;
        bool bad = false;
        enum mics_status status =
            put_line(work, thread, slot, text + at, length, special, &bad, err);

        if (bad)
            status = put_bad_line(slot, slot->line_count, err->text, err);
        if (status != MICS_OK)
            return status;
        if (slot->bad_count > work->options->bad_lines)
            return MICS_OK; /* append_slot() fails there */
        at += length + 1;
    }
    return MICS_OK;
}

static enum mics_status put_piece(const struct work *work, struct mics_encoder *encoder,
                                  struct slot *slot, uint64_t *special, struct mics_err *err)
{
    const unsigned char *text = slot->document->bytes + slot->offset;
    const unsigned char *nul = work->corpus->binary ? NULL : memchr(text, 0, slot->size);

    if (nul) {
        const struct mics_text_counts counts = {.has_nul = true,
                                                .nul_at = (uint64_t)(nul - slot->document->bytes)};

        return mics_text_judge(slot->document->path, &counts, text,
                               mics_min_u64(slot->size, MICS_FORMAT_HEAD), err);
    }
    const enum mics_status status = put_text(work, encoder, slot, (const char *)text, slot->size,
                                             slot->begins, slot->ends, special, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "'%s'", slot->document->path);
    return status;
}

static enum mics_status encode_slot(const struct work *work, struct thread *thread,
                                    struct slot *slot, uint64_t *special, struct mics_err *err)
{
    if (!slot->lines && work->options->chat)
        return mics_err_set(err, MICS_ERR_FORMAT, "'%s' is text, not JSON lines of conversations",
                            slot->document->path);
    if (!slot->lines)
        return put_piece(work, thread->encoder, slot, special, err);
    const enum mics_status status = put_lines(work, thread, slot, special, err);

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

/* Skip the damaged lines of a piece, or fail. */
static enum mics_status count_bad_lines(struct work *work, const struct slot *slot,
                                        struct mics_err *err)
{
    if (slot->begins)
        work->lines_before = 0;
    for (size_t i = 0; i < slot->bad_count; i++) {
        const struct bad_line *bad = &slot->bad[i];
        const enum mics_status status =
            mics_bad_lines_add(&work->report->bad_lines, slot->document->path,
                               work->lines_before + bad->line + 1, bad->why, err);

        if (status != MICS_OK)
            return status;
    }
    work->lines_before += slot->line_count;
    return MICS_OK;
}

static enum mics_status append_slot(struct work *work, const struct slot *slot,
                                    struct mics_err *err)
{
    enum mics_status status = count_bad_lines(work, slot, err);
    size_t from = 0;

    if (status != MICS_OK)
        return status;

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
    pthread_cond_broadcast(&work->changed);
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
        work->report->prompts += slot->prompts;
        work->report->bytes += slot->size;
        if (status != MICS_OK)
            fail(work, work->appended, status, &err);
        else if (slot->ends)
            close_document(work, slot->document);
        work->appended++;
        pthread_cond_broadcast(&work->changed);
    }
}

/* Bytes of the file that a piece stands for. */
static uint64_t stored_bytes(const struct slot *slot)
{
    const struct mics_document *document = slot->document;

    return (uint64_t)((double)slot->size / (double)document->size * (double)document->stored);
}

/* Take, encode and append one piece. False: there are no more. With the mutex. */
static bool do_piece(struct work *work, struct thread *thread)
{
    struct mics_err err;
    uint64_t special = 0;
    bool found = false;

    enum mics_status status = wait_for_piece(work, &found, &err);

    if (work->status != MICS_OK || (status == MICS_OK && !found))
        return false;
    const uint64_t piece = work->taken;
    struct slot *slot = &work->ring[piece % work->slots];

    if (status == MICS_OK)
        status = take(work, slot, &err);
    if (status == MICS_OK) {
        work->taken++;
        pthread_mutex_unlock(&work->mutex);
        status = encode_slot(work, thread, slot, &special, &err);
        mics_progress_add(&work->progress, stored_bytes(slot));
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
    struct thread thread = {.encoder = NULL};
    struct mics_err err;
    const enum mics_status status =
        mics_encoder_new(work->options->tokenizer, &thread.encoder, &err);

    pthread_mutex_lock(&work->mutex);
    if (status != MICS_OK)
        fail(work, work->taken, status, &err);
    while (thread.encoder && do_piece(work, &thread))
        ;
    pthread_mutex_unlock(&work->mutex);
    mics_encoder_free(thread.encoder);
    mics_chat_text_free(&thread.text);
    free(thread.ids.bytes);
    return NULL;
}

enum mics_status mics_encode_corpus(struct mics_corpus *corpus,
                                    const struct mics_encode_options *options,
                                    struct mics_token_writer *writer,
                                    struct mics_encode_report *report, struct mics_err *err)
{
    struct work *work = calloc(1, sizeof *work);
    const size_t wanted = 3 * (size_t)mics_workers_max(0);

    *report = (struct mics_encode_report){.bad_lines.allowed = options->bad_lines};
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
                       corpus->stored);
    mics_background_task_start(&work->opener, open_all, work);
    enum mics_status status = work->opener.started ? MICS_OK : MICS_ERR_NOMEM;

    if (status == MICS_OK)
        mics_workers_run(run, work, 0);
    const enum mics_status started = mics_background_task_wait(&work->opener, err);

    status = work->status != MICS_OK ? work->status : started;
    if (work->status != MICS_OK && err)
        *err = work->err;
    if (status == MICS_OK)
        status = mics_corpus_check_text(corpus, err);
    for (size_t i = 0; i < SLOTS; i++) {
        free(work->ring[i].ids);
        free(work->ring[i].document_ends);
        free(work->ring[i].bad);
    }
    pthread_cond_destroy(&work->changed);
    pthread_mutex_destroy(&work->mutex);
    free(work);
    return status;
}
