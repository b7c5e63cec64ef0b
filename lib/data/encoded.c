/* SPDX-License-Identifier: Apache-2.0 */
#include "data/encoded.h"

#include "base/num.h"
#include "data/tokens.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A text being encoded. */
struct work {
    const struct mics_encoded_options *options;
    struct mics_encoder *encoder; /* NULL: bytes */
    uint32_t begin, end;          /* around a document; MICS_NO_TOKEN: nothing */
    struct mics_encoded *out;
};

static enum mics_status check_size(const struct mics_corpus *corpus, struct mics_err *err)
{
    if (corpus->bytes <= MICS_ENCODED_MAX)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s'%s: %llu MiB of text are more than the %llu MiB that are encoded when "
                        "a job starts: encode them once, with mics-data encode",
                        corpus->documents[0].path, corpus->count > 1 ? " and others" : "",
                        (unsigned long long)(corpus->bytes >> 20),
                        (unsigned long long)(MICS_ENCODED_MAX >> 20));
}

static enum mics_status begin_work(const struct mics_corpus *corpus,
                                   const struct mics_encoded_options *options,
                                   struct mics_encoded *out, struct work *work,
                                   struct mics_err *err)
{
    const struct mics_tokenizer *tokenizer = options->tokenizer;

    *out = (struct mics_encoded){.bad_lines.allowed = options->bad_lines};
    *work = (struct work){
        .options = options, .begin = MICS_NO_TOKEN, .end = MICS_TOKEN_END, .out = out};
    enum mics_status status = check_size(corpus, err);

    if (status != MICS_OK || !tokenizer || mics_tokenizer_is_bytes(tokenizer))
        return status;
    work->begin = mics_tokenizer_begin(tokenizer);
    work->end = mics_tokenizer_end(tokenizer);
    return mics_encoder_new(tokenizer, &work->encoder, err);
}

static enum mics_status reserve(struct mics_encoded *out, uint64_t count, struct mics_err *err)
{
    if (out->capacity - out->count >= count)
        return MICS_OK;
    const uint64_t capacity = mics_max_u64(2 * out->capacity, out->count + count + 1024);
    uint32_t *ids = realloc(out->ids, capacity * sizeof *ids);

    if (!ids)
        return mics_err_nomem(err);
    out->ids = ids;
    out->capacity = capacity;
    return MICS_OK;
}

/* Append a token, unless it is MICS_NO_TOKEN. */
static enum mics_status add_token(struct work *work, uint32_t id, uint32_t flag,
                                  struct mics_err *err)
{
    enum mics_status status = reserve(work->out, 1, err);

    if (status != MICS_OK)
        return status;
    if (id != MICS_NO_TOKEN)
        work->out->ids[work->out->count++] = id | flag;
    return status;
}

static enum mics_status add_text(struct work *work, const char *text, size_t size, uint32_t flag,
                                 struct mics_err *err)
{
    const uint32_t *ids = NULL;
    size_t count = size;
    uint64_t special = 0;
    enum mics_status status = MICS_OK;

    if (work->encoder)
        status = mics_encode(work->encoder, text, size, 0, &ids, &count, &special, err);
    if (status == MICS_OK)
        status = reserve(work->out, count, err);
    for (size_t i = 0; status == MICS_OK && i < count; i++)
        work->out->ids[work->out->count++] = (ids ? ids[i] : (unsigned char)text[i]) | flag;
    work->out->special += special;
    return status;
}

/* The tokens from `first` on are a part. */
static enum mics_status add_part(struct mics_encoded *out, uint64_t first, bool val,
                                 struct mics_err *err)
{
    if (out->part_count == out->part_capacity) {
        const uint64_t capacity = mics_max_u64(2 * out->part_capacity, 64);
        struct mics_encoded_part *parts = realloc(out->parts, capacity * sizeof *parts);

        if (!parts)
            return mics_err_nomem(err);
        out->parts = parts;
        out->part_capacity = capacity;
    }
    out->parts[out->part_count++] =
        (struct mics_encoded_part){.first = first, .count = out->count - first, .val = val};
    return MICS_OK;
}

static enum mics_status add_document(struct work *work, const char *text, size_t size, bool val,
                                     struct mics_err *err)
{
    const uint64_t first = work->out->count;
    enum mics_status status = MICS_OK;

    if (size == 0)
        return MICS_OK;
    status = add_token(work, work->begin, 0, err);
    if (status != MICS_OK)
        return status;
    status = add_text(work, text, size, 0, err);
    if (status != MICS_OK)
        return status;
    status = add_token(work, work->end, 0, err);
    if (status != MICS_OK)
        return status;
    return add_part(work->out, first, val, err);
}

/* One file: its last bytes are for validation; no character is cut. */
static enum mics_status add_file(struct work *work, const struct mics_document *document,
                                 struct mics_err *err)
{
    const char *text = (const char *)document->bytes;
    size_t train = document->size - (size_t)((double)document->size * work->options->val_fraction);

    while (train > 0 && train < document->size && (text[train] & 0xc0) == 0x80)
        train--;
    enum mics_status status = add_document(work, text, train, false, err);

    return status == MICS_OK ? add_document(work, text + train, document->size - train, true, err)
                             : status;
}

enum mics_status mics_encoded_texts(const struct mics_corpus *corpus,
                                    const struct mics_encoded_options *options,
                                    struct mics_encoded *out, struct mics_err *err)
{
    struct work work;
    enum mics_status status = begin_work(corpus, options, out, &work, err);

    for (size_t i = 0; status == MICS_OK && i < corpus->count; i++) {
        status = add_file(&work, &corpus->documents[i], err);
        if (status != MICS_OK)
            mics_err_prefix(err, "'%s'", corpus->documents[i].path);
    }
    mics_encoder_free(work.encoder);
    return status;
}

/* The string `name` of an object, or NULL. */
static const json_t *string_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_string(value) ? value : NULL;
}

static enum mics_status add_string(struct work *work, const json_t *string, uint32_t flag,
                                   struct mics_err *err)
{
    return add_text(work, json_string_value(string), json_string_length(string), flag, err);
}

/* *bad: it has not the strings of a document, and *err says which. */
static enum mics_status add_object(struct work *work, const json_t *object, bool *bad,
                                   struct mics_err *err)
{
    const json_t *text = string_of(object, "text"), *prompt = string_of(object, "prompt");
    const json_t *answer = string_of(object, "answer");
    const uint32_t flag = prompt && work->options->mask_prompt ? MICS_TOKEN_PROMPT : 0;
    const uint64_t first = work->out->count;
    enum mics_status status;

    if (!answer)
        answer = string_of(object, "completion");
    *bad = prompt ? !answer : !text;
    if (*bad)
        return mics_err_set(err, MICS_ERR_FORMAT, "no string \"%s\"",
                            !prompt ? "text\", nor \"prompt" : "answer\", nor \"completion");
    status = add_token(work, work->begin, flag, err);
    if (status != MICS_OK)
        return status;
    if (prompt)
        status = add_string(work, prompt, flag, err);
    if (status != MICS_OK)
        return status;
    status = add_string(work, prompt ? answer : text, 0, err);
    if (status != MICS_OK)
        return status;
    status = add_token(work, work->end, 0, err);
    if (status != MICS_OK)
        return status;
    return add_part(work->out, first, false, err);
}

/* *bad: the line is damaged, and *err says how. */
static enum mics_status add_line(struct work *work, const char *line, size_t length, bool *bad,
                                 struct mics_err *err)
{
    json_t *object = NULL;
    enum mics_status status = mics_json_line_parse(line, length, &object, err);

    *bad = status == MICS_ERR_FORMAT;
    if (status == MICS_OK && object)
        status = add_object(work, object, bad, err);
    json_decref(object);
    return status;
}

/* One file: its last lines are for validation. */
static enum mics_status add_lines(struct work *work, const struct mics_document *document,
                                  struct mics_err *err)
{
    const char *line = (const char *)document->bytes, *end = line + document->size;
    const uint64_t first_part = work->out->part_count;
    uint64_t number = 0;

    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        bool bad = false;

        stop = stop ? stop : end;
        number++;
        enum mics_status status = add_line(work, line, (size_t)(stop - line), &bad, err);

        if (bad) {
            const struct mics_err why = *err;

            status =
                mics_bad_lines_add(&work->out->bad_lines, document->path, number, why.text, err);
        } else if (status != MICS_OK) {
            mics_err_prefix(err, "'%s': line %llu", document->path, (unsigned long long)number);
        }
        if (status != MICS_OK)
            return status;
        line = stop + 1;
    }
    const uint64_t parts = work->out->part_count - first_part;
    const uint64_t val = (uint64_t)((double)parts * work->options->val_fraction);

    for (uint64_t i = parts - val; i < parts; i++)
        work->out->parts[first_part + i].val = true;
    return MICS_OK;
}

enum mics_status mics_encoded_lines(const struct mics_corpus *corpus,
                                    const struct mics_encoded_options *options,
                                    struct mics_encoded *out, struct mics_err *err)
{
    struct work work;
    enum mics_status status = begin_work(corpus, options, out, &work, err);

    for (size_t i = 0; status == MICS_OK && i < corpus->count; i++)
        if (corpus->documents[i].size > 0)
            status = add_lines(&work, &corpus->documents[i], err);
    mics_encoder_free(work.encoder);
    return status;
}

void mics_encoded_free(struct mics_encoded *encoded)
{
    free(encoded->ids);
    free(encoded->parts);
    *encoded = (struct mics_encoded){0};
}
