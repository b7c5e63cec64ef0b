/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.c - tokenizer.json of Hugging Face's library tokenizers, version 1.0, with a model
 * of kind BPE. */
#include "data/tokenizer/tokenizer_json.h"

#include "base/utf8.h"
#include "doc/doc.h"

#include <stdlib.h>
#include <string.h>

/* A pair of merges weighs 10, so there may be 1.6 million. */
#define MAX_VALUES (16u << 20)
#define MAX_MERGES (4u << 20)
#define MAX_ADDED  (1u << 20)

struct reader {
    struct mics_tokenizer *tokenizer;
    struct mics_cursor root, model;
    const json_t *vocab; /* token to id, as in the file */
    bool byte_level;
    bool byte_tokens; /* the decoder makes bytes of <0xNN> */
    struct mics_err *err;
};

static enum mics_status nomem(const struct reader *reader)
{
    return mics_err_nomem(reader->err);
}

/* The id of a token of the model by its text in the file; MICS_NO_TOKEN: none. */
static uint32_t find_id(const struct reader *reader, const char *text)
{
    const json_t *id = json_object_get(reader->vocab, text);

    return id ? (uint32_t)json_integer_value(id) : MICS_NO_TOKEN;
}

/* Every member that is not null must be known. */
static enum mics_status check_members(const struct mics_cursor *cursor, const char *const *known,
                                      struct mics_err *err)
{
    json_t *object = (json_t *)cursor->value; /* jansson iterates without const */
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        size_t i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i] && !json_is_null(value))
            return mics_cursor_fail(cursor, key, err, "not supported");
    }
    return MICS_OK;
}

/* ---- the model ---- */

/* Is it <0xNN>? *byte is NN. */
static bool is_byte_token(const char *text, size_t length, bool upper_only, unsigned *byte)
{
    const char *digits = upper_only ? "0123456789ABCDEF" : "0123456789ABCDEFabcdef";
    char number[3];

    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' ||
        strspn(text + 3, digits) != 2)
        return false;
    memcpy(number, text + 3, 2);
    number[2] = '\0';
    *byte = (unsigned)strtoul(number, NULL, 16);
    return true;
}

static enum mics_status add_token(const struct reader *reader, const char *text, size_t length,
                                  uint32_t id)
{
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    uint32_t flags = MICS_TOKEN_MODEL;
    unsigned char *bytes = NULL;
    enum mics_status status;
    size_t size = 0;
    unsigned byte;

    if (reader->byte_level) {
        bytes = malloc(length + 1);
        if (!bytes)
            return nomem(reader);
        /* Text is bytes when it comes to the model, so others are never found. */
        if (!mics_byte_level_decode(text, length, bytes, &size))
            flags = 0;
    } else if (reader->byte_tokens && is_byte_token(text, length, false, &byte)) {
        flags |= MICS_TOKEN_BYTE;
    }
    status = bytes && flags != 0
                 ? mics_vocab_add(&tokenizer->vocab, id, bytes, size, flags, reader->err)
                 : mics_vocab_add(&tokenizer->vocab, id, text, length, flags, reader->err);
    if (bytes && flags != 0 && size == 1)
        tokenizer->bpe.byte_ids[bytes[0]] = id;
    if (!reader->byte_level && tokenizer->bpe.byte_fallback &&
        is_byte_token(text, length, true, &byte))
        tokenizer->bpe.byte_ids[byte] = id;
    free(bytes);
    return status;
}

static enum mics_status read_vocab(struct reader *reader)
{
    struct mics_cursor vocab;
    enum mics_status status = mics_cursor_object(&reader->model, "vocab", &vocab, reader->err);
    const char *text;
    json_t *value;

    if (status != MICS_OK)
        return status;
    reader->vocab = vocab.value;
    if (json_object_size(vocab.value) == 0)
        return mics_cursor_fail(&vocab, NULL, reader->err, "no tokens");
    json_object_foreach((json_t *)vocab.value, text, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= MICS_TOKENIZER_MAX_IDS)
            return mics_cursor_fail(&vocab, text, reader->err, "expected an id below %u",
                                    MICS_TOKENIZER_MAX_IDS);
        if (text[0] == '\0') /* can be neither made nor decoded */
            continue;
        status = add_token(reader, text, strlen(text), (uint32_t)json_integer_value(value));
        if (status != MICS_OK) {
            mics_err_prefix(reader->err, "model.vocab");
            return status;
        }
    }
    return MICS_OK;
}

/* A merge is ["a", "b"], or "a b" with exactly one space. *left is what malloc() gave and holds
 * both texts; *right points into it. */
static enum mics_status merge_texts(const struct reader *reader, const struct mics_cursor *merge,
                                    char **left, const char **right)
{
    const json_t *value = merge->value;
    const char *a = json_string_value(value), *b = NULL;
    size_t length = a ? strcspn(a, " ") : 0;

    if (json_is_array(value) && json_array_size(value) == 2) {
        a = json_string_value(json_array_get(value, 0));
        b = json_string_value(json_array_get(value, 1));
        length = a ? strlen(a) : 0;
    } else if (a && a[length] == ' ' && !strchr(a + length + 1, ' ')) {
        b = a + length + 1;
    }
    if (!a || !b || length == 0 || b[0] == '\0')
        return mics_cursor_fail(merge, NULL, reader->err, "expected two tokens");

    char *texts = malloc(length + strlen(b) + 2);

    if (!texts)
        return nomem(reader);
    memcpy(texts, a, length);
    texts[length] = '\0';
    strcpy(texts + length + 1, b);
    *left = texts;
    *right = texts + length + 1;
    return MICS_OK;
}

static enum mics_status read_merge(const struct reader *reader, const struct mics_cursor *merge)
{
    const char *right = NULL, *missing = NULL;
    char *left = NULL;
    enum mics_status status = merge_texts(reader, merge, &left, &right);

    if (status != MICS_OK)
        return status;

    const uint32_t left_id = find_id(reader, left), right_id = find_id(reader, right);

    if (left_id == MICS_NO_TOKEN || right_id == MICS_NO_TOKEN)
        missing = left_id == MICS_NO_TOKEN ? left : right;
    if (missing) {
        status = mics_cursor_fail(merge, NULL, reader->err, "token '%s' is not in the vocabulary",
                                  missing);
        free(left);
        return status;
    }
    memmove(left + strlen(left), right, strlen(right) + 1); /* both as one text */

    const uint32_t id = find_id(reader, left);

    if (id == MICS_NO_TOKEN)
        status =
            mics_cursor_fail(merge, NULL, reader->err, "token '%s' is not in the vocabulary", left);
    else
        status = mics_bpe_add_merge(&reader->tokenizer->bpe, left_id, right_id,
                                    (uint32_t)merge->index, id, reader->err);
    free(left);
    return status;
}

static enum mics_status read_merges(const struct reader *reader)
{
    struct mics_cursor merges;
    enum mics_status status =
        mics_cursor_array(&reader->model, "merges", 0, MAX_MERGES, &merges, reader->err);

    if (status == MICS_OK)
        status = mics_bpe_reserve(&reader->tokenizer->bpe, mics_cursor_count(&merges), reader->err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&merges); i++) {
        const struct mics_cursor merge = mics_cursor_item_any(&merges, i);
        const char *text = json_string_value(merge.value);

        if (!text || strncmp(text, "#version", 8) != 0)
            status = read_merge(reader, &merge);
    }
    return status;
}

static enum mics_status read_flag(const struct mics_cursor *cursor, const char *key, bool *out,
                                  struct mics_err *err)
{
    return mics_cursor_has(cursor, key) ? mics_cursor_bool(cursor, key, out, err) : MICS_OK;
}

/* A member that changes ids unless it is null, "" or 0. */
static enum mics_status refuse_member(const struct mics_cursor *cursor, const char *key,
                                      struct mics_err *err)
{
    const json_t *value = json_object_get(cursor->value, key);
    const char *text = json_string_value(value);

    if (!value || json_is_null(value) || (text && text[0] == '\0') ||
        (json_is_number(value) && json_number_value(value) == 0))
        return MICS_OK;
    return mics_cursor_fail(cursor, key, err, "not supported");
}

static enum mics_status read_model_flags(struct reader *reader)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix"};
    static const char *const known[] = {"type",
                                        "dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "vocab",
                                        "merges",
                                        NULL};
    struct mics_bpe *bpe = &reader->tokenizer->bpe;
    enum mics_status status =
        mics_cursor_object(&reader->root, "model", &reader->model, reader->err);
    const char *type = "BPE";

    if (status == MICS_OK && mics_cursor_has(&reader->model, "type"))
        status = mics_cursor_string(&reader->model, "type", &type, reader->err);
    if (status == MICS_OK && strcmp(type, "BPE") != 0)
        return mics_cursor_fail(&reader->model, "type", reader->err,
                                "model '%s' is not supported, only BPE", type);
    if (status == MICS_OK)
        status = check_members(&reader->model, known, reader->err);
    for (size_t i = 0; status == MICS_OK && i < sizeof refused / sizeof refused[0]; i++)
        status = refuse_member(&reader->model, refused[i], reader->err);
    if (status == MICS_OK)
        status = read_flag(&reader->model, "fuse_unk", &bpe->fuse_unknown, reader->err);
    if (status == MICS_OK)
        status = read_flag(&reader->model, "byte_fallback", &bpe->byte_fallback, reader->err);
    if (status == MICS_OK)
        status = read_flag(&reader->model, "ignore_merges", &bpe->whole_first, reader->err);
    bpe->characters = !reader->byte_level;
    return status;
}

static enum mics_status read_unknown(const struct reader *reader)
{
    const char *text = "";
    enum mics_status status = MICS_OK;

    if (mics_cursor_has(&reader->model, "unk_token"))
        status = mics_cursor_string(&reader->model, "unk_token", &text, reader->err);
    if (status != MICS_OK || text[0] == '\0')
        return status;
    reader->tokenizer->bpe.unknown = find_id(reader, text);
    if (reader->tokenizer->bpe.unknown == MICS_NO_TOKEN)
        return mics_cursor_fail(&reader->model, "unk_token", reader->err,
                                "token '%s' is not in the vocabulary", text);
    return MICS_OK;
}

/* ---- added tokens ---- */

/* The text that is looked for: of `normalized` tokens what the normalizer makes of it. */
static enum mics_status add_pattern(const struct reader *reader, struct mics_added_token *added)
{
    const struct mics_normalizer *normalizer = &reader->tokenizer->normalizer;
    struct mics_text text = {.size = 0};
    enum mics_status status = MICS_OK;

    if (added->normalized && normalizer->apply) {
        status = normalizer->apply(normalizer->state, (const unsigned char *)added->text,
                                   added->length, &text, reader->err);
        added->text = (char *)text.bytes;
        added->length = (uint32_t)text.size;
    }
    if (status == MICS_OK)
        status = mics_added_add(&reader->tokenizer->added, added, reader->err);
    free(text.bytes);
    return status;
}

static enum mics_status read_added_token(const struct reader *reader,
                                         const struct mics_cursor *cursor)
{
    struct mics_added_token added = {.normalized = true};
    const char *text = NULL;
    struct mics_err *err = reader->err;
    enum mics_status status = mics_cursor_string(cursor, "content", &text, err);

    if (status == MICS_OK)
        status = mics_cursor_u32(cursor, "id", 0, MICS_TOKENIZER_MAX_IDS - 1, &added.id, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "special", &added.special, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "normalized", &added.normalized, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "single_word", &added.single_word, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "lstrip", &added.strip_left, err);
    if (status == MICS_OK)
        status = read_flag(cursor, "rstrip", &added.strip_right, err);
    if (status != MICS_OK || text[0] == '\0')
        return status;
    if (added.single_word)
        return mics_cursor_fail(cursor, "single_word", err, "not supported");

    const uint32_t known = find_id(reader, text);

    if (known != MICS_NO_TOKEN && known != added.id)
        return mics_cursor_fail(cursor, "id", err, "is %lu, but the vocabulary has %lu",
                                (unsigned long)added.id, (unsigned long)known);

    /* The vocabulary keeps the bytes that a token stands for. */
    const uint32_t flags = MICS_TOKEN_ADDED | (added.special ? MICS_TOKEN_SPECIAL : 0);
    unsigned char *bytes = malloc(strlen(text));
    size_t size = 0;

    if (!bytes)
        return nomem(reader);
    if (reader->byte_level && mics_byte_level_decode(text, strlen(text), bytes, &size))
        status = mics_vocab_add(&reader->tokenizer->vocab, added.id, bytes, size, flags, err);
    else
        status =
            mics_vocab_add(&reader->tokenizer->vocab, added.id, text, strlen(text), flags, err);
    free(bytes);
    if (status != MICS_OK)
        return status;
    added.text = (char *)text; /* which is copied */
    added.length = (uint32_t)strlen(text);
    return add_pattern(reader, &added);
}

static enum mics_status read_added(const struct reader *reader)
{
    struct mics_cursor tokens, token;
    enum mics_status status = MICS_OK;

    if (!mics_cursor_has(&reader->root, "added_tokens"))
        return MICS_OK;
    status = mics_cursor_array(&reader->root, "added_tokens", 0, MAX_ADDED, &tokens, reader->err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&tokens); i++) {
        status = mics_cursor_item(&tokens, i, &token, reader->err);
        if (status == MICS_OK)
            status = read_added_token(reader, &token);
    }
    return status;
}

/* ---- post-processor ---- */

static enum mics_status add_to_template(const struct reader *reader,
                                        const struct mics_cursor *cursor, uint64_t id, bool after)
{
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    uint32_t *count = after ? &tokenizer->after_count : &tokenizer->before_count;

    if (id >= tokenizer->vocab.size || !(tokenizer->vocab.tokens[id].flags & MICS_TOKEN_PRESENT))
        return mics_cursor_fail(cursor, NULL, reader->err, "id %llu is not in the vocabulary",
                                (unsigned long long)id);
    if (*count == MICS_TEMPLATE_MAX)
        return mics_cursor_fail(cursor, NULL, reader->err, "more than %d tokens",
                                MICS_TEMPLATE_MAX);
    (after ? tokenizer->after : tokenizer->before)[(*count)++] = (uint32_t)id;
    return MICS_OK;
}

/* The ids of a special token of the template. */
static enum mics_status read_template_token(const struct reader *reader,
                                            const struct mics_cursor *processor,
                                            const struct mics_cursor *piece, bool after)
{
    struct mics_cursor special, tokens, token, ids;
    const char *name = NULL;
    enum mics_status status = mics_cursor_object(piece, "SpecialToken", &special, reader->err);

    if (status == MICS_OK)
        status = mics_cursor_string(&special, "id", &name, reader->err);
    if (status == MICS_OK)
        status = mics_cursor_object(processor, "special_tokens", &tokens, reader->err);
    if (status == MICS_OK)
        status = mics_cursor_object(&tokens, name, &token, reader->err);
    if (status == MICS_OK)
        status = mics_cursor_array(&token, "ids", 0, MICS_TEMPLATE_MAX, &ids, reader->err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&ids); i++) {
        const struct mics_cursor id = mics_cursor_item_any(&ids, i);

        if (!json_is_integer(id.value) || json_integer_value(id.value) < 0)
            return mics_cursor_fail(&id, NULL, reader->err, "expected an id");
        status = add_to_template(reader, &id, (uint64_t)json_integer_value(id.value), after);
    }
    return status;
}

/* What is put around a single text, "A", which must be in it once. */
static enum mics_status read_template(const struct reader *reader,
                                      const struct mics_cursor *processor)
{
    struct mics_cursor pieces, piece, sequence;
    bool after = false;
    enum mics_status status =
        mics_cursor_array(processor, "single", 1, 2 * MICS_TEMPLATE_MAX + 1, &pieces, reader->err);

    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&pieces); i++) {
        const char *name = NULL;

        status = mics_cursor_item(&pieces, i, &piece, reader->err);
        if (status == MICS_OK && mics_cursor_has(&piece, "SpecialToken")) {
            status = read_template_token(reader, processor, &piece, after);
            continue;
        }
        if (status == MICS_OK)
            status = mics_cursor_object(&piece, "Sequence", &sequence, reader->err);
        if (status == MICS_OK)
            status = mics_cursor_string(&sequence, "id", &name, reader->err);
        if (status == MICS_OK && (after || strcmp(name, "A") != 0))
            return mics_cursor_fail(&sequence, "id", reader->err, "expected one text, \"A\"");
        after = true;
    }
    if (status == MICS_OK && !after)
        return mics_cursor_fail(&pieces, NULL, reader->err, "the text, \"A\", is missing");
    return status;
}

/* ["<s>", 0] of the processors that BERT and RoBERTa have. */
static enum mics_status read_around(const struct reader *reader,
                                    const struct mics_cursor *processor, const char *key,
                                    bool after)
{
    struct mics_cursor pair;
    const enum mics_status status = mics_cursor_array(processor, key, 2, 2, &pair, reader->err);

    if (status != MICS_OK)
        return status;

    const struct mics_cursor id = mics_cursor_item_any(&pair, 1);

    if (!json_is_integer(id.value) || json_integer_value(id.value) < 0)
        return mics_cursor_fail(&id, NULL, reader->err, "expected an id");
    return add_to_template(reader, &id, (uint64_t)json_integer_value(id.value), after);
}

static enum mics_status read_processor(const struct reader *reader,
                                       const struct mics_cursor *processor)
{
    const char *type = NULL;
    enum mics_status status = mics_cursor_string(processor, "type", &type, reader->err);

    if (status != MICS_OK || strcmp(type, "ByteLevel") == 0) /* which changes offsets only */
        return status;
    if (reader->tokenizer->before_count + reader->tokenizer->after_count > 0)
        return mics_cursor_fail(processor, "type", reader->err,
                                "'%s' after a processor that adds tokens is not supported", type);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(reader, processor);
    if (strcmp(type, "RobertaProcessing") != 0 && strcmp(type, "BertProcessing") != 0)
        return mics_cursor_fail(processor, "type", reader->err,
                                "post-processor '%s' is not supported", type);
    status = read_around(reader, processor, "cls", false);
    return status == MICS_OK ? read_around(reader, processor, "sep", true) : status;
}

static enum mics_status read_processors(const struct reader *reader)
{
    struct mics_cursor processor, processors, item;
    const char *type = NULL;
    enum mics_status status = MICS_OK;

    if (!mics_cursor_has(&reader->root, "post_processor"))
        return MICS_OK;
    status = mics_cursor_object(&reader->root, "post_processor", &processor, reader->err);
    if (status == MICS_OK)
        status = mics_cursor_string(&processor, "type", &type, reader->err);
    if (status != MICS_OK)
        return status;
    if (strcmp(type, "Sequence") != 0)
        return read_processor(reader, &processor);
    status = mics_cursor_array(&processor, "processors", 0, 16, &processors, reader->err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&processors); i++) {
        status = mics_cursor_item(&processors, i, &item, reader->err);
        if (status == MICS_OK)
            status = read_processor(reader, &item);
    }
    return status;
}

/* ---- decoder ---- */

/* Replace of U+2581 by a space. */
static bool replaces_metaspace(const struct mics_cursor *decoder)
{
    const json_t *pattern = json_object_get(decoder->value, "pattern");
    const char *text = json_string_value(json_object_get(pattern, "String"));
    const char *content = json_string_value(json_object_get(decoder->value, "content"));

    return text && content && strcmp(text, MICS_METASPACE) == 0 && strcmp(content, " ") == 0;
}

/* Strip of one space at the beginning. */
static bool strips_one_space(const struct mics_cursor *decoder)
{
    const char *content = json_string_value(json_object_get(decoder->value, "content"));
    const json_t *start = json_object_get(decoder->value, "start");
    const json_t *stop = json_object_get(decoder->value, "stop");

    return content && strcmp(content, " ") == 0 && json_integer_value(start) == 1 &&
           json_is_integer(stop) && json_integer_value(stop) == 0;
}

/* The decoders of SentencePiece-style models: Replace, ByteFallback, Fuse, Strip, in this order,
 * each at most once. *next is how far the order has come. */
static enum mics_status read_decoder(struct reader *reader, const struct mics_cursor *decoder,
                                     size_t *next)
{
    static const char *const order[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    const char *type = NULL;
    const enum mics_status status = mics_cursor_string(decoder, "type", &type, reader->err);

    if (status != MICS_OK)
        return status;
    for (size_t i = *next; i < 4; i++) {
        if (strcmp(type, order[i]) != 0)
            continue;
        if ((i == 0 && !replaces_metaspace(decoder)) || (i == 3 && !strips_one_space(decoder)) ||
            (i == 3 && *next != 3))
            break;
        tokenizer->metaspace |= i == 0;
        reader->byte_tokens |= i == 1;
        tokenizer->strip_first_space |= i == 3;
        *next = i + 1;
        return MICS_OK;
    }
    return mics_cursor_fail(decoder, NULL, reader->err,
                            "decoder '%s' is not supported here with these settings", type);
}

static enum mics_status read_decoders(struct reader *reader)
{
    struct mics_cursor decoder, decoders, item;
    const char *type = NULL;
    size_t next = 0;
    enum mics_status status = mics_cursor_object(&reader->root, "decoder", &decoder, reader->err);

    if (status == MICS_OK)
        status = mics_cursor_string(&decoder, "type", &type, reader->err);
    if (status != MICS_OK)
        return status;
    if (reader->byte_level && strcmp(type, "ByteLevel") == 0)
        return MICS_OK;
    if (reader->byte_level || strcmp(type, "Sequence") != 0)
        return reader->byte_level ? mics_cursor_fail(&decoder, "type", reader->err,
                                                     "decoder '%s' is not supported for tokens of "
                                                     "bytes, only ByteLevel",
                                                     type)
                                  : read_decoder(reader, &decoder, &next);
    status = mics_cursor_array(&decoder, "decoders", 1, 8, &decoders, reader->err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&decoders); i++) {
        status = mics_cursor_item(&decoders, i, &item, reader->err);
        if (status == MICS_OK)
            status = read_decoder(reader, &item, &next);
    }
    return status;
}

/* ---- the file ---- */

static enum mics_status check_root(const struct reader *reader)
{
    static const char *const known[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    const char *version = NULL;
    enum mics_status status = mics_cursor_string(&reader->root, "version", &version, reader->err);

    if (status == MICS_OK && strcmp(version, "1.0") != 0)
        return mics_cursor_fail(&reader->root, "version", reader->err,
                                "'%s' is not supported, only '1.0'", version);
    if (status == MICS_OK)
        status = check_members(&reader->root, known, reader->err);
    if (status == MICS_OK)
        status = refuse_member(&reader->root, "truncation", reader->err);
    if (status == MICS_OK)
        status = refuse_member(&reader->root, "padding", reader->err);
    return status;
}

static enum mics_status read_parts(struct reader *reader)
{
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    bool forms_only = true;
    enum mics_status status = check_root(reader);

    if (status == MICS_OK)
        status =
            mics_normalizer_read(&reader->root, &tokenizer->normalizer, &forms_only, reader->err);
    if (status == MICS_OK)
        status = mics_pretokenizer_read(&reader->root, tokenizer, &reader->byte_level, reader->err);
    if (status == MICS_OK)
        status = read_decoders(reader);
    if (status == MICS_OK)
        status = read_model_flags(reader);
    if (status == MICS_OK)
        status = read_vocab(reader);
    if (status == MICS_OK)
        status = read_merges(reader);
    if (status == MICS_OK)
        status = read_unknown(reader);
    if (status == MICS_OK)
        status = read_added(reader);
    if (status == MICS_OK)
        status = read_processors(reader);
    if (status == MICS_OK && tokenizer->metaspace)
        status = mics_pretokenizer_cut_words(tokenizer, reader->err);
    tokenizer->cut_before_space = forms_only && !tokenizer->pretokenizer.apply &&
                                  tokenizer->splitter.kind != MICS_SPLIT_WHOLE &&
                                  tokenizer->splitter.kind != MICS_SPLIT_REGEX;
    return status;
}

enum mics_status mics_tokenizer_read_json(struct mics_tokenizer *tokenizer,
                                          const struct mics_tokenizer_file *file,
                                          struct mics_err *err)
{
    struct reader reader = {.tokenizer = tokenizer, .err = err};
    json_t *root = NULL;
    enum mics_status status =
        mics_json_read_object((const char *)file->bytes, file->size, MAX_VALUES, &root, err);

    if (status == MICS_OK) {
        reader.root = mics_cursor_root(root);
        status = read_parts(&reader);
    }
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->name);
    json_decref(root);
    return status;
}
