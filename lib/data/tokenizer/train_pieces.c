/* SPDX-License-Identifier: Apache-2.0 */
#include "base/num.h"
#include "base/threads.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/train_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Bytes of text that a thread takes at a time, and at most, where there is no place to cut. */
#define CHUNK_BYTES     ((uint64_t)1 << 20)
#define MAX_CHUNK_BYTES ((uint64_t)1 << 30)

/* Open addressing; an empty slot has size 0. */
struct piece_table {
    struct mics_piece_count *slots;
    size_t count, capacity; /* capacity is a power of two */
};

/* What the threads share: the next bytes to be counted, and the sum of their tables. */
struct piece_counter {
    const struct mics_corpus *corpus;
    const struct mics_splitter *splitter;
    struct mics_progress progress;
    pthread_mutex_t lock; /* of what follows */
    size_t document;
    uint64_t offset; /* in the document */
    struct piece_table total;
    enum mics_status status;
};

static struct mics_piece_count *find_slot(struct mics_piece_count *slots, size_t capacity,
                                          const unsigned char *bytes, uint64_t size)
{
    size_t at = XXH64(bytes, size, 0) & (capacity - 1);

    while (slots[at].size > 0 &&
           (slots[at].size != size || memcmp(slots[at].bytes, bytes, size) != 0))
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

static bool grow(struct piece_table *table)
{
    const size_t capacity = table->capacity ? 2 * table->capacity : 4096;
    struct mics_piece_count *slots = calloc(capacity, sizeof *slots);

    if (!slots)
        return false;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].size > 0)
            *find_slot(slots, capacity, table->slots[i].bytes, table->slots[i].size) =
                table->slots[i];
    free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    return true;
}

/* false: out of memory. */
static bool add_piece(struct piece_table *table, const unsigned char *bytes, uint64_t size,
                      uint64_t count)
{
    struct mics_piece_count *slot;

    if (table->count >= table->capacity / 2 && !grow(table))
        return false;
    slot = find_slot(table->slots, table->capacity, bytes, size);
    if (slot->size == 0) {
        *slot = (struct mics_piece_count){bytes, size, 0};
        table->count++;
    }
    slot->count += count;
    return true;
}

static bool is_blank(unsigned char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* The end of a chunk that begins at `first`. No alternative of the expression matches across a
 * character of ASCII that is no blank and a blank after it, so cutting there changes no piece. */
static uint64_t chunk_end(const struct mics_document *document, uint64_t first)
{
    const uint64_t last = mics_min_u64(first + MAX_CHUNK_BYTES, document->size);
    uint64_t end = first + CHUNK_BYTES;

    while (end < last && !(is_blank(document->bytes[end]) && !is_blank(document->bytes[end - 1]) &&
                           document->bytes[end - 1] < 0x80))
        end++;
    return mics_min_u64(end, last);
}

/* Take the next chunk; false: there is none. */
static bool take_chunk(struct piece_counter *counter, const unsigned char **bytes, uint32_t *size)
{
    const struct mics_corpus *corpus = counter->corpus;
    bool found = false;

    pthread_mutex_lock(&counter->lock);
    while (counter->document < corpus->count &&
           counter->offset == corpus->documents[counter->document].size) {
        counter->document++;
        counter->offset = 0;
    }
    if (counter->status == MICS_OK && counter->document < corpus->count) {
        const struct mics_document *document = &corpus->documents[counter->document];
        const uint64_t end = chunk_end(document, counter->offset);

        *bytes = document->bytes + counter->offset;
        *size = (uint32_t)(end - counter->offset);
        counter->offset = end;
        found = true;
    }
    pthread_mutex_unlock(&counter->lock);
    return found;
}

static bool count_chunk(const struct mics_splitter *splitter, struct piece_table *table,
                        const unsigned char *bytes, uint32_t size)
{
    uint32_t lengths[64];

    while (size > 0) {
        const uint32_t count = mics_split_next(splitter, bytes, size, lengths, 64);

        for (uint32_t i = 0; i < count; i++) {
            if (!add_piece(table, bytes, lengths[i], 1))
                return false;
            bytes += lengths[i];
            size -= lengths[i];
        }
    }
    return true;
}

/* What a thread does: count chunks, then add its table to the total. */
static void *count_chunks(void *context)
{
    struct piece_counter *counter = context;
    struct piece_table table = {.count = 0};
    const unsigned char *bytes;
    uint32_t size;
    bool fits = true;

    while (fits && take_chunk(counter, &bytes, &size)) {
        fits = count_chunk(counter->splitter, &table, bytes, size);
        mics_progress_add(&counter->progress, size);
    }
    pthread_mutex_lock(&counter->lock);
    for (size_t i = 0; fits && i < table.capacity; i++)
        if (table.slots[i].size > 0)
            fits = add_piece(&counter->total, table.slots[i].bytes, table.slots[i].size,
                             table.slots[i].count);
    if (!fits)
        counter->status = MICS_ERR_NOMEM;
    pthread_mutex_unlock(&counter->lock);
    free(table.slots);
    return NULL;
}

static int compare_pieces(const void *left, const void *right)
{
    const struct mics_piece_count *a = left, *b = right;
    const int order = memcmp(a->bytes, b->bytes, mics_min_u64(a->size, b->size));

    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

/* The slots that are in use, sorted. Takes them from the table. */
static void list_pieces(struct piece_table *table, struct mics_piece_counts *out)
{
    out->list = table->slots;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].size > 0)
            out->list[out->count++] = table->slots[i];
    qsort(out->list, out->count, sizeof *out->list, compare_pieces);
}

enum mics_status mics_piece_counts_new(const struct mics_corpus *corpus,
                                       const struct mics_tokenizer_train_options *options,
                                       struct mics_piece_counts *out, struct mics_err *err)
{
    struct piece_counter counter = {.corpus = corpus, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct mics_splitter splitter = {.regex = NULL};
    enum mics_status status =
        mics_splitter_init(&splitter, MICS_GPT2_PATTERN, sizeof MICS_GPT2_PATTERN - 1, err);

    if (status != MICS_OK)
        return status;
    counter.splitter = &splitter;
    mics_progress_init(&counter.progress, options->progress, options->progress_context,
                       corpus->bytes);
    mics_workers_run(count_chunks, &counter, 1);
    pthread_mutex_destroy(&counter.lock);
    mics_splitter_fini(&splitter);
    if (counter.status != MICS_OK) {
        free(counter.total.slots);
        return mics_err_nomem(err);
    }
    list_pieces(&counter.total, out);
    return MICS_OK;
}

void mics_piece_counts_fini(struct mics_piece_counts *pieces)
{
    free(pieces->list);
    *pieces = (struct mics_piece_counts){.count = 0};
}
