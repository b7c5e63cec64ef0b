/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source.h"

#include "base/num.h"
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SCAN_IDS (64 * 1024)

static const char *const pack_names[] = {"concat", "document"};

const char *mics_pack_name(enum mics_pack pack)
{
    return pack_names[pack];
}

enum mics_status mics_pack_parse(const char *name, enum mics_pack *out, struct mics_err *err)
{
    for (int i = 0; i < (int)(sizeof pack_names / sizeof *pack_names); i++)
        if (strcmp(name, pack_names[i]) == 0) {
            *out = (enum mics_pack)i;
            return MICS_OK;
        }
    return mics_err_set(err, MICS_ERR_ARG, "'%s' is not one of concat, document", name);
}

static bool ends_with(const char *path, const char *suffix)
{
    const size_t length = strlen(path), least = strlen(suffix);

    return length > least && strcmp(path + length - least, suffix) == 0;
}

static enum mics_status find_content(struct mics_source *source, bool binary, struct mics_err *err)
{
    const struct mics_corpus *corpus = &source->corpus;
    enum mics_status status = mics_corpus_recognize(&source->corpus, binary, err);

    if (status != MICS_OK)
        return status;
    source->content = corpus->documents[0].format.content;
    for (size_t i = 1; i < corpus->count; i++) {
        const enum mics_content other = corpus->documents[i].format.content;

        if (other != source->content)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "'%s' is %s and '%s' is %s: give weights to mix them, as in "
                                "'0.5:a 0.5:b'",
                                corpus->documents[0].path, mics_content_name(source->content),
                                corpus->documents[i].path, mics_content_name(other));
    }
    for (size_t i = 0; i < corpus->count; i++)
        if (source->content != MICS_CONTENT_TOKENS && corpus->documents[i].id_bytes)
            return mics_err_set(err, MICS_ERR_FORMAT, "'%s' is %s: it has no type of ids",
                                corpus->documents[i].path, mics_content_name(source->content));
    return MICS_OK;
}

/* Text whose tokens are its bytes stays where it is mapped. */
static enum mics_status open_bytes(struct mics_source *source, double val_fraction,
                                   struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; status == MICS_OK && i < source->corpus.count; i++) {
        const struct mics_document *document = &source->corpus.documents[i];
        const uint64_t val = (uint64_t)((double)document->size * val_fraction);
        const uint64_t train = document->size - val;
        const struct mics_token_span first = {.bytes = document->bytes, .count = train + 1};
        const struct mics_token_span second = {.bytes = document->bytes + train, .count = val + 1};

        if (train > 0)
            status = mics_tokens_append(&source->train.tokens, &first, err);
        if (status == MICS_OK && val > 0)
            status = mics_tokens_append(&source->val.tokens, &second, err);
    }
    source->document_count = source->corpus.count;
    return status;
}

static enum mics_status use_encoded(struct mics_source *source, struct mics_err *err)
{
    const struct mics_encoded *encoded = &source->encoded;
    enum mics_status status = MICS_OK;

    for (uint64_t i = 0; status == MICS_OK && i < encoded->part_count; i++) {
        const struct mics_encoded_part *part = &encoded->parts[i];
        const struct mics_token_span span = {.ids = encoded->ids + part->first,
                                             .count = part->count};

        status =
            mics_tokens_append(part->val ? &source->val.tokens : &source->train.tokens, &span, err);
    }
    return status;
}

static enum mics_status check_tokenizer(const struct mics_source_options *options,
                                        struct mics_err *err)
{
    const bool bytes = !options->tokenizer || mics_tokenizer_is_bytes(options->tokenizer);
    const uint32_t size =
        bytes ? MICS_TOKEN_VOCAB_SIZE : mics_tokenizer_text_size(options->tokenizer);

    if (size <= options->vocab_size)
        return bytes ? MICS_OK : mics_tokenizer_need_end(options->tokenizer, err);
    if (bytes)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "token %d (end of document) is outside the model's vocabulary of %u",
                            MICS_TOKEN_END, options->vocab_size);
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "the tokenizer has %u tokens, more than the model's vocabulary of %u", size,
                        options->vocab_size);
}

static enum mics_status open_text(struct mics_source *source,
                                  const struct mics_source_options *options, struct mics_err *err)
{
    const struct mics_encoded_options encoding = {.tokenizer = options->tokenizer,
                                                  .val_fraction = options->val_fraction,
                                                  .mask_prompt = options->mask_prompt,
                                                  .bad_lines = options->bad_lines};
    const bool bytes = !options->tokenizer || mics_tokenizer_is_bytes(options->tokenizer);
    enum mics_status status = check_tokenizer(options, err);

    if (status != MICS_OK)
        return status;
    status = mics_corpus_map(&source->corpus, err);
    if (status != MICS_OK)
        return status;
    source->fingerprint = source->corpus.fingerprint;
    if (!bytes)
        source->fingerprint ^= mics_tokenizer_fingerprint(options->tokenizer);
    if (source->content == MICS_CONTENT_TEXT && bytes)
        return open_bytes(source, options->val_fraction, err);
    status = source->content == MICS_CONTENT_LINES
                 ? mics_encoded_lines(&source->corpus, &encoding, &source->encoded, err)
                 : mics_encoded_texts(&source->corpus, &encoding, &source->encoded, err);
    source->document_count =
        source->content == MICS_CONTENT_LINES ? source->encoded.part_count : source->corpus.count;
    return status == MICS_OK ? use_encoded(source, err) : status;
}

/* Where documents begin in a file that does not say: after each token `end`, or, where the file
 * begins with it, at each. *out is [*count + 1], with the file's count at the end. */
static enum mics_status find_documents(const struct mics_token_file *file, uint32_t end,
                                       uint64_t **out, uint64_t *count, struct mics_err *err)
{
    int32_t *ids = malloc(SCAN_IDS * sizeof *ids);
    uint64_t *documents = malloc(2 * sizeof *documents), capacity = 2, found = 0;
    enum mics_status status = ids && documents ? MICS_OK : mics_err_nomem(err);
    bool before = false;

    for (uint64_t first = 0; status == MICS_OK && first < file->count; first += SCAN_IDS) {
        const uint32_t some = (uint32_t)mics_min_u64(SCAN_IDS, file->count - first);

        status = mics_token_file_read(file, first, some, INT32_MAX, ids, err);
        if (first == 0 && status == MICS_OK) {
            before = (uint32_t)ids[0] == end;
            documents[found++] = 0;
        }
        for (uint32_t i = 0; status == MICS_OK && i < some; i++) {
            const uint64_t at = first + i + !before;

            if ((uint32_t)ids[i] != end || at == 0 || at == file->count)
                continue;
            if (found + 1 == capacity) {
                uint64_t *more = realloc(documents, 2 * capacity * sizeof *more);

                if (!more) {
                    status = mics_err_nomem(err);
                    break;
                }
                documents = more;
                capacity *= 2;
            }
            documents[found++] = at;
        }
    }
    free(ids);
    if (status != MICS_OK) {
        free(documents);
        return status;
    }
    documents[found] = file->count;
    *out = documents;
    *count = found;
    return MICS_OK;
}

/* The last tokens of a file are for validation, from the beginning of a document on. */
static uint64_t train_tokens(const struct mics_token_span *span, double val_fraction)
{
    const uint64_t wanted = span->count - (uint64_t)((double)span->count * val_fraction);

    if (!span->documents || wanted == span->count)
        return wanted;
    for (uint64_t i = 1; i < span->document_count; i++)
        if (span->documents[i] >= wanted)
            return span->documents[i];
    return wanted; /* inside of the last document */
}

/* The token that ends documents, by the data set that a file belongs to, by the tokenizer that is
 * named, or an id that is. */
static enum mics_status find_end(const struct mics_token_file *file,
                                 const struct mics_source_options *options, uint32_t *end,
                                 struct mics_err *err)
{
    const struct mics_tokenizer *tokenizer = options->tokenizer;
    char folder[MICS_PATH_MAX];
    json_t *listed = NULL;
    enum mics_status status = mics_dataset_read_tokenizer(file->path, folder, &listed, err);
    const json_t *value = json_object_get(listed, "end");

    *end = MICS_NO_TOKEN;
    if (json_is_integer(value))
        *end = (uint32_t)json_integer_value(value);
    else if (tokenizer)
        *end = mics_tokenizer_end(tokenizer);
    json_decref(listed);
    if (status != MICS_OK || *end != MICS_NO_TOKEN)
        return status;
    if (tokenizer)
        return mics_tokenizer_need_end(tokenizer, err);
    if (options->end_token)
        return mics_parse_token_id(options->end_token, end, err);
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s' does not say where documents end, and there is no tokenizer that "
                        "tells: --pack=document needs --tokenizer, or --end-token=ID",
                        file->path);
}

/* Open a file. Its document, if it has one, must be of it, and its vocabulary the model's. */
static enum mics_status open_file(const struct mics_document *document, uint32_t vocab_size,
                                  struct mics_token_file *file, struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    json_t *doc = NULL;
    enum mics_status status = mics_token_file_open(document->path, document->id_bytes, file, err);

    if (status == MICS_OK && document->id_bytes && file->format != MICS_TOKENS_RAW)
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "'%s' says itself what its ids are (%s): it takes no type",
                              document->path, mics_token_format_name(file->format));
    if (status == MICS_OK)
        status = mics_dataset_read(file->path, folder, &doc, err);
    if (status == MICS_OK && doc) {
        status = mics_dataset_match(doc, file, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "the document of '%s'", file->path);
    }
    if (status != MICS_OK) {
        json_decref(doc);
        return status;
    }
    const json_t *value = json_object_get(doc, "vocab_size");

    if (json_is_integer(value) && json_integer_value(value) > 0 &&
        json_integer_value(value) <= INT32_MAX)
        file->vocab_size = (uint32_t)json_integer_value(value);
    json_decref(doc);
    if (file->vocab_size <= vocab_size)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s' has a vocabulary of %u, more than the model's of %u", file->path,
                        file->vocab_size, vocab_size);
}

static enum mics_status add_token_file(struct mics_source *source, size_t index,
                                       const struct mics_source_options *options,
                                       struct mics_err *err)
{
    const struct mics_token_file *file = &source->files[index];
    struct mics_token_span span = {.file = file,
                                   .count = file->count,
                                   .documents = file->documents,
                                   .document_count = file->document_count};
    enum mics_status status = MICS_OK;

    if (!span.documents && options->pack == MICS_PACK_DOCUMENT) {
        uint32_t end;

        status = find_end(file, options, &end, err);
        if (status == MICS_OK)
            status =
                find_documents(file, end, &source->documents[index], &span.document_count, err);
        span.documents = source->documents[index];
    }
    if (status != MICS_OK)
        return status;
    source->document_count += span.documents ? span.document_count : 1;
    source->fingerprint = mics_corpus_fingerprint(source->fingerprint ^ file->width, file->bytes,
                                                  file->count * file->width);
    if (file->prompts.mapping)
        source->fingerprint = mics_corpus_fingerprint(source->fingerprint, file->prompts.mapping,
                                                      file->prompts.mapped_bytes);
    const uint64_t train = train_tokens(&span, options->val_fraction);

    span.count = train;
    status = mics_tokens_append(&source->train.tokens, &span, err);
    span.offset = train;
    span.count = file->count - train;
    return status == MICS_OK ? mics_tokens_append(&source->val.tokens, &span, err) : status;
}

static enum mics_status open_tokens(struct mics_source *source,
                                    const struct mics_source_options *options, struct mics_err *err)
{
    const size_t count = source->corpus.count;
    enum mics_status status = MICS_OK;

    source->files = calloc(count, sizeof *source->files);
    source->documents = calloc(count, sizeof *source->documents);
    if (!source->files || !source->documents)
        return mics_err_nomem(err);
    for (size_t i = 0; status == MICS_OK && i < count; i++) {
        const struct mics_document *document = &source->corpus.documents[i];
        bool twice = false; /* Megatron's .idx beside its .bin, which comes before it */

        for (size_t j = 0; j < i && ends_with(document->path, ".idx"); j++)
            twice = twice || (strlen(source->corpus.documents[j].path) == strlen(document->path) &&
                              strncmp(source->corpus.documents[j].path, document->path,
                                      strlen(document->path) - 3) == 0);
        if (twice)
            continue;
        status = open_file(document, options->vocab_size, &source->files[i], err);
        if (status == MICS_OK)
            status = add_token_file(source, i, options, err);
        source->corpus.bytes += source->files[i].count * source->files[i].width;
    }
    return status;
}

/* The next sequence begins at token `row`. */
static enum mics_status add_row(struct mics_part *part, uint64_t *capacity, uint64_t row,
                                struct mics_err *err)
{
    if (part->windows + 2 > *capacity) {
        uint64_t *rows = realloc(part->rows, 2 * *capacity * sizeof *rows);

        if (!rows)
            return mics_err_nomem(err);
        part->rows = rows;
        *capacity *= 2;
    }
    part->rows[++part->windows] = row;
    return MICS_OK;
}

/* Where sequences begin, see struct mics_part and mics_source_repack(). */
static enum mics_status pack_documents(struct mics_part *part, uint32_t seq, uint32_t begin,
                                       uint32_t end, struct mics_err *err)
{
    const uint64_t count = part->tokens.count;
    uint64_t capacity = 64, used = 0; /* of the sequence */
    enum mics_status status = MICS_OK;

    free(part->rows);
    part->windows = 0;
    part->rows = malloc(capacity * sizeof *part->rows);
    if (!part->rows)
        return mics_err_nomem(err);
    part->rows[0] = 0;
    for (uint64_t at = 0; status == MICS_OK && at < count;) {
        const uint64_t after = mics_tokens_document_end(&part->tokens, at);
        const uint64_t more = begin + (after - at);

        if (used + more <= seq) {
            used += more;
            at = after;
            if (after < count)
                continue; /* and perhaps another document */
        } else if (used == 0) {
            at += seq - begin - end; /* a piece of it */
        }                            /* else the row ends before this document */
        used = 0;
        status = add_row(part, &capacity, at, err);
    }
    return status;
}

enum mics_status mics_source_repack(struct mics_source *source, uint32_t seq, uint32_t begin,
                                    uint32_t end, struct mics_err *err)
{
    const enum mics_status status = pack_documents(&source->train, seq, begin, end, err);

    return status == MICS_OK ? pack_documents(&source->val, seq, begin, end, err) : status;
}

static enum mics_status count_windows(struct mics_source *source,
                                      const struct mics_source_options *options,
                                      struct mics_err *err)
{
    const uint64_t train = source->train.tokens.count, val = source->val.tokens.count;
    const uint64_t used = options->val_only ? val : train;
    const bool pack = options->pack == MICS_PACK_DOCUMENT;
    const uint64_t least = pack || options->val_only ? 2 : (uint64_t)options->seq + 1;

    if (used < least)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s'%s: %llu tokens%s are too few: one sequence needs %llu",
                            source->corpus.documents[0].path,
                            source->corpus.count > 1 ? " and others" : "", (unsigned long long)used,
                            options->val_only ? "" : " to train on", (unsigned long long)least);
    if (!pack) {
        source->train.windows = train / options->seq;
        source->val.windows = val ? mics_ceil_div(val - 1, options->seq) : 0;
        return MICS_OK;
    }
    return mics_source_repack(source, options->seq, 0, 0, err);
}

enum mics_status mics_source_open(struct mics_corpus *corpus,
                                  const struct mics_source_options *options,
                                  struct mics_source *out, struct mics_err *err)
{
    struct mics_source_options parts = *options;
    enum mics_status status;

    *out = (struct mics_source){.corpus = *corpus};
    *corpus = (struct mics_corpus){0};
    parts.val_fraction = options->val_only ? 0 : options->val_fraction;
    status = find_content(out, options->binary, err);
    if (status == MICS_OK)
        status = out->content == MICS_CONTENT_TOKENS ? open_tokens(out, &parts, err)
                                                     : open_text(out, &parts, err);
    if (options->val_only) {
        const struct mics_part all = out->train;

        out->train = out->val;
        out->val = all;
    }
    if (status == MICS_OK)
        status = count_windows(out, options, err);
    if (status != MICS_OK)
        mics_source_close(out);
    return status;
}

void mics_source_close(struct mics_source *source)
{
    mics_tokens_free(&source->train.tokens);
    mics_tokens_free(&source->val.tokens);
    free(source->train.rows);
    free(source->val.rows);
    mics_encoded_free(&source->encoded);
    for (size_t i = 0; i < source->corpus.count; i++) {
        if (source->files)
            mics_token_file_close(&source->files[i]);
        if (source->documents)
            free(source->documents[i]);
    }
    free(source->files);
    free(source->documents);
    mics_corpus_close(&source->corpus);
    *source = (struct mics_source){0};
}

const char *mics_source_find_path(const struct mics_source *source, const void *address)
{
    const unsigned char *byte = address;

    for (size_t i = 0; source->files && i < source->corpus.count; i++) {
        const struct mics_token_file *file = &source->files[i];

        if (file->bytes && byte >= file->bytes &&
            (uint64_t)(byte - file->bytes) < file->count * file->width)
            return file->path;
    }
    return mics_corpus_find_path(&source->corpus, address);
}
