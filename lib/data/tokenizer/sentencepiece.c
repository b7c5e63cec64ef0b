/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sentencepiece.c - tokenizer.model of SentencePiece, of kind BPE or Unigram.
 *
 * The file is a protocol buffer (sentencepiece_model.proto). SentencePiece merges the adjacent pair
 * whose concatenation is the piece with the highest score; here these pairs become merges with the
 * score's rank. Pieces of kind Unigram keep their scores; the normalizer that comes with them is
 * applied as the tokenizers library does.
 */
#include "base/utf8.h"
#include "data/tokenizer/companions.h"
#include "data/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PIECE_BYTES 1024

/* ---- protocol buffers ---- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct message {
    const unsigned char *bytes;
    size_t size, offset;
};

struct field {
    uint64_t number, value; /* value: of WIRE_VARINT, WIRE_32, WIRE_64 */
    enum wire wire;
    struct message bytes; /* of WIRE_BYTES */
};

static bool read_varint(struct message *message, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && message->offset < message->size; shift += 7) {
        const unsigned char byte = message->bytes[message->offset++];

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool read_fixed(struct message *message, size_t size, uint64_t *out)
{
    if (size > message->size - message->offset)
        return false;
    *out = 0;
    for (size_t i = 0; i < size; i++)
        *out |= (uint64_t)message->bytes[message->offset++] << (8 * i);
    return true;
}

/* *end: there was none. false: the message is damaged. */
static bool read_field(struct message *message, struct field *out, bool *end)
{
    uint64_t key = 0, size = 0;

    *end = message->offset == message->size;
    *out = (struct field){.number = 0};
    if (*end)
        return true;
    if (!read_varint(message, &key) || key >> 3 == 0)
        return false;
    out->number = key >> 3;
    out->wire = (enum wire)(key & 7);
    switch (out->wire) {
    case WIRE_VARINT:
        return read_varint(message, &out->value);
    case WIRE_64:
        return read_fixed(message, 8, &out->value);
    case WIRE_32:
        return read_fixed(message, 4, &out->value);
    case WIRE_BYTES:
        if (!read_varint(message, &size) || size > message->size - message->offset)
            return false;
        out->bytes =
            (struct message){.bytes = message->bytes + message->offset, .size = (size_t)size};
        message->offset += (size_t)size;
        return true;
    }
    return false;
}

/* ---- what is in the model ---- */

enum piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER_DEFINED,
    PIECE_UNUSED,
    PIECE_BYTE
};

struct piece {
    const unsigned char *text; /* in the file */
    size_t length;
    float score;
    uint64_t type;
    uint32_t id, rank;
};

struct model {
    struct piece *pieces;
    size_t count, capacity;
    uint64_t kind; /* of enum kind */
    uint64_t beginning, ending;
    bool byte_fallback, space_as_suffix;
    bool decoding_charsmap; /* of the denormalizer */
    bool dummy_prefix, remove_extra_spaces, escape_spaces;
    struct message charsmap; /* size 0: none */
    bool inner_space;        /* a piece has U+2581 that is not its first character */
};

enum kind { KIND_UNIGRAM = 1, KIND_BPE };

static enum mics_status damaged(const struct message *message, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "not a model of SentencePiece, or damaged, at byte %zu", message->offset);
}

static bool read_piece(struct message message, struct piece *out)
{
    struct field field;
    bool end;

    *out = (struct piece){.type = PIECE_NORMAL};
    for (;;) {
        if (!read_field(&message, &field, &end))
            return false;
        if (end)
            return true;
        if (field.number == 1 && field.wire == WIRE_BYTES) {
            out->text = field.bytes.bytes;
            out->length = field.bytes.size;
        } else if (field.number == 2 && field.wire == WIRE_32) {
            const uint32_t bits = (uint32_t)field.value;

            memcpy(&out->score, &bits, sizeof bits);
        } else if (field.number == 3 && field.wire == WIRE_VARINT) {
            out->type = field.value;
        }
    }
}

static bool read_trainer(struct message message, struct model *model)
{
    struct field field;
    bool end;

    for (;;) {
        if (!read_field(&message, &field, &end))
            return false;
        if (end)
            return true;
        if (field.wire != WIRE_VARINT)
            continue;
        if (field.number == 3)
            model->kind = field.value;
        else if (field.number == 24)
            model->space_as_suffix = field.value != 0;
        else if (field.number == 35)
            model->byte_fallback = field.value != 0;
        else if (field.number == 41)
            model->beginning = field.value;
        else if (field.number == 42)
            model->ending = field.value;
    }
}

static bool read_normalizer(struct message message, struct model *model)
{
    struct field field;
    bool end;

    for (;;) {
        if (!read_field(&message, &field, &end))
            return false;
        if (end)
            return true;
        if (field.number == 2 && field.wire == WIRE_BYTES)
            model->charsmap = field.bytes;
        if (field.wire != WIRE_VARINT)
            continue;
        if (field.number == 3)
            model->dummy_prefix = field.value != 0;
        else if (field.number == 4)
            model->remove_extra_spaces = field.value != 0;
        else if (field.number == 5)
            model->escape_spaces = field.value != 0;
    }
}

static enum mics_status add_piece(struct model *model, const struct piece *piece,
                                  struct mics_err *err)
{
    if (model->count == MICS_TOKENIZER_MAX_IDS)
        return mics_err_set(err, MICS_ERR_FORMAT, "more than %u pieces", MICS_TOKENIZER_MAX_IDS);
    if (model->count == model->capacity) {
        const size_t capacity = model->capacity ? 2 * model->capacity : 4096;
        struct piece *grown = realloc(model->pieces, capacity * sizeof *grown);

        if (!grown)
            return mics_err_nomem(err);
        model->pieces = grown;
        model->capacity = capacity;
    }
    model->pieces[model->count] = *piece;
    model->pieces[model->count].id = (uint32_t)model->count;
    model->count++;
    return MICS_OK;
}

static enum mics_status read_model(struct message message, struct model *model,
                                   struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    struct field field;
    struct piece piece;
    bool end = false;

    for (;;) {
        bool valid = read_field(&message, &field, &end);

        if (valid && end)
            return MICS_OK;
        if (valid && field.wire == WIRE_BYTES && field.number == 1) {
            valid = read_piece(field.bytes, &piece);
            if (valid)
                status = add_piece(model, &piece, err);
        } else if (valid && field.wire == WIRE_BYTES && field.number == 2) {
            valid = read_trainer(field.bytes, model);
        } else if (valid && field.wire == WIRE_BYTES && field.number == 3) {
            valid = read_normalizer(field.bytes, model);
        } else if (valid && field.wire == WIRE_BYTES && field.number == 5) {
            struct model decoding = {.count = 0};

            valid = read_normalizer(field.bytes, &decoding);
            model->decoding_charsmap = decoding.charsmap.size > 0;
        }
        if (!valid)
            return damaged(&message, err);
        if (status != MICS_OK)
            return status;
    }
}

static enum mics_status check_model(const struct model *model, struct mics_err *err)
{
    static const char *const kinds[] = {"", "unigram", "BPE", "word", "character"};

    if (model->kind != KIND_BPE && model->kind != KIND_UNIGRAM)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "model of kind '%s' is not supported, only BPE and unigram",
                            model->kind < 5 ? kinds[model->kind] : "unknown");
    if (model->kind == KIND_BPE && model->charsmap.size > 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "normalizer_spec.precompiled_charsmap: not supported");
    if (model->decoding_charsmap)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "denormalizer_spec.precompiled_charsmap: not supported");
    if (model->remove_extra_spaces && (model->kind == KIND_BPE || !model->dummy_prefix))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "normalizer_spec.remove_extra_whitespaces: not supported%s",
                            model->kind == KIND_BPE ? "" : " without add_dummy_prefix");
    if (!model->escape_spaces)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "normalizer_spec.escape_whitespaces: false is not supported");
    if (model->space_as_suffix)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "trainer_spec.treat_whitespace_as_suffix: not supported");
    if (model->count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "no pieces");
    return MICS_OK;
}

/* ---- tokens ---- */

/* The byte of a piece <0xNN>; -1: it is none. */
static int byte_of(const struct piece *piece)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high, *low;

    if (piece->length != 6 || memcmp(piece->text, "<0x", 3) != 0 || piece->text[5] != '>')
        return -1;
    high = memchr(digits, piece->text[3], 16);
    low = memchr(digits, piece->text[4], 16);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

static enum mics_status add_added(struct mics_tokenizer *tokenizer, const struct piece *piece,
                                  struct mics_err *err)
{
    const bool unigram = tokenizer->model.kind == MICS_MODEL_UNIGRAM;
    const struct mics_added_token added = {
        .text = (char *)piece->text, /* which is copied */
        .length = (uint32_t)piece->length,
        .id = piece->id,
        .special = piece->type != PIECE_USER_DEFINED,
        .normalized = piece->type == PIECE_USER_DEFINED && !unigram,
    };

    return mics_added_add(&tokenizer->added, &added, err);
}

static enum mics_status add_token(struct mics_tokenizer *tokenizer, const struct piece *piece,
                                  struct mics_err *err)
{
    const bool control = piece->type == PIECE_CONTROL || piece->type == PIECE_UNKNOWN;
    const int byte = piece->type == PIECE_BYTE ? byte_of(piece) : 0;
    const unsigned long id = piece->id;
    uint32_t flags = MICS_TOKEN_MODEL;
    enum mics_status status;

    if (piece->length > MAX_PIECE_BYTES)
        return mics_err_set(err, MICS_ERR_FORMAT, "piece %lu has %zu bytes, more than %d", id,
                            piece->length, MAX_PIECE_BYTES);
    if (!mics_utf8_check((const char *)piece->text, piece->length, NULL))
        return mics_err_set(err, MICS_ERR_FORMAT, "piece %lu is not UTF-8", id);
    if (byte < 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "piece %lu is a byte, but not <0xNN>", id);
    if (piece->type < PIECE_NORMAL || piece->type > PIECE_BYTE || piece->type == PIECE_UNUSED)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "piece %lu is of type %llu, which is not supported", id,
                            (unsigned long long)piece->type);
    if (control)
        flags = MICS_TOKEN_ADDED | MICS_TOKEN_SPECIAL;
    if (piece->type == PIECE_BYTE) {
        flags = MICS_TOKEN_BYTE;
        tokenizer->model.byte_ids[byte] = piece->id;
    }
    if (piece->type == PIECE_UNKNOWN)
        tokenizer->model.unknown = piece->id;
    status = mics_vocab_add(&tokenizer->vocab, piece->id, piece->text, piece->length, flags, err);
    if (status != MICS_OK)
        return status;
    if (control || piece->type == PIECE_USER_DEFINED)
        return add_added(tokenizer, piece, err);
    return MICS_OK;
}

/* ---- merges ---- */

static int compare_scores(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Every pair of pieces whose concatenation is this one. */
static enum mics_status add_merges(struct mics_tokenizer *tokenizer, const struct piece *piece,
                                   struct mics_err *err)
{
    const struct mics_vocab *vocab = &tokenizer->vocab;
    enum mics_status status = MICS_OK;

    for (size_t at = 0, length; status == MICS_OK && at < piece->length; at += length) {
        length = mics_utf8_length((const char *)piece->text + at, piece->length - at);
        if (mics_vocab_find(vocab, piece->text + at, length) == MICS_NO_TOKEN)
            return mics_err_set(err, MICS_ERR_FORMAT, "piece %lu has a character that is no piece",
                                (unsigned long)piece->id);
        if (at == 0)
            continue;

        const uint32_t left = mics_vocab_find(vocab, piece->text, at);
        const uint32_t right = mics_vocab_find(vocab, piece->text + at, piece->length - at);

        if (left != MICS_NO_TOKEN && right != MICS_NO_TOKEN)
            status =
                mics_bpe_add_merge(&tokenizer->model.bpe, left, right, piece->rank, piece->id, err);
    }
    return status;
}

static enum mics_status read_merges(struct mics_tokenizer *tokenizer, struct model *model,
                                    struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < model->count; i++)
        if (model->pieces[i].score != model->pieces[i].score)
            return mics_err_set(err, MICS_ERR_FORMAT, "piece %zu: the score is not a number", i);
    qsort(model->pieces, model->count, sizeof *model->pieces, compare_scores);
    for (size_t i = 1; i < model->count; i++)
        model->pieces[i].rank =
            model->pieces[i - 1].rank + (model->pieces[i].score != model->pieces[i - 1].score);
    for (size_t i = 0; status == MICS_OK && i < model->count; i++)
        if (model->pieces[i].type == PIECE_NORMAL)
            status = add_merges(tokenizer, &model->pieces[i], err);
    return status;
}

/* The score of each piece, which SentencePiece keeps as single precision. */
static enum mics_status read_scores(struct mics_tokenizer *tokenizer, struct model *model,
                                    struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < model->count && status == MICS_OK; i++) {
        const struct piece *piece = &model->pieces[i];

        status = mics_unigram_set_score(&tokenizer->model.unigram, piece->id, piece->score, err);
        model->inner_space =
            model->inner_space || (piece->length > 1 && memmem(piece->text + 1, piece->length - 1,
                                                               MICS_METASPACE, 3) != NULL);
    }
    if (status == MICS_OK && tokenizer->model.unknown == MICS_NO_TOKEN)
        return mics_err_set(err, MICS_ERR_FORMAT, "there is no piece for unknown characters");
    return status;
}

/* ---- the file ---- */

/* What SentencePiece does with a text before Unigram, by parts of tokenizer.json: its trie, no
 * spaces at the end nor more than one between words, and U+2581 for spaces. */
static enum mics_status set_unigram_parts(struct mics_tokenizer *tokenizer,
                                          const struct model *model, const char *scheme,
                                          struct mics_err *err)
{
    static const char removed[][2][8] = {{" +\\z", ""}, {" {2,}", " "}};
    char *charsmap = NULL;
    json_t *root, *steps = json_array();
    struct mics_reading reading = {.err = err};
    bool byte_level = false, made = steps != NULL;

    if (made && model->charsmap.size > 0) {
        charsmap = mics_base64_encode(model->charsmap.bytes, model->charsmap.size);
        made = charsmap &&
               json_array_append_new(steps, json_pack("{ss ss}", "type", "Precompiled",
                                                      "precompiled_charsmap", charsmap)) == 0;
        free(charsmap);
    }
    for (size_t i = 0; made && model->remove_extra_spaces && i < 2; i++)
        made = json_array_append_new(steps, json_pack("{ss s{ss} ss}", "type", "Replace", "pattern",
                                                      "Regex", removed[i][0], "content",
                                                      removed[i][1])) == 0;
    root = json_pack("{s{ss so?} s{ss ss ss sb}}", "normalizer", "type", "Sequence", "normalizers",
                     steps, "pre_tokenizer", "type", "Metaspace", "replacement", MICS_METASPACE,
                     "prepend_scheme", scheme, "split", !model->inner_space);
    if (!made || !root) {
        json_decref(root);
        return mics_err_nomem(err);
    }

    const struct mics_cursor cursor = mics_cursor_begin(root, &reading);

    mics_normalizer_read(&cursor, &tokenizer->normalizer);
    mics_pretokenizer_read(&cursor, tokenizer, &byte_level);
    mics_tokenizer_check_cut(tokenizer);
    json_decref(root);
    return reading.status;
}

/* Spaces become U+2581, one more of which begins a text. */
static enum mics_status set_normalizer(struct mics_tokenizer *tokenizer, bool dummy_prefix,
                                       struct mics_err *err)
{
    json_t *root = json_pack(
        "{s{ss s[o*{ss s{ss} ss}]}}", "normalizer", "type", "Sequence", "normalizers",
        dummy_prefix ? json_pack("{ss ss}", "type", "Prepend", "prepend", MICS_METASPACE) : NULL,
        "type", "Replace", "pattern", "String", " ", "content", MICS_METASPACE);
    struct mics_reading reading = {.err = err};
    const struct mics_cursor cursor = mics_cursor_begin(root, &reading);

    if (!root)
        return mics_err_nomem(err);
    mics_normalizer_read(&cursor, &tokenizer->normalizer);
    json_decref(root);
    return reading.status;
}

/* tokenizer_config.json: is U+2581 put before a text, and also behind special tokens in it? */
static enum mics_status read_prefix(struct mics_tokenizer *tokenizer, bool *prefix, bool *legacy,
                                    struct mics_err *err)
{
    const bool was = *prefix;
    char class[64];
    enum mics_status status =
        mics_companions_class(tokenizer->companions, class, sizeof class, err);

    if (status == MICS_OK && *prefix)
        status = mics_companions_flag(tokenizer->companions, "add_prefix_space", prefix, err);
    *legacy = strcmp(class, "LlamaTokenizer") != 0; /* its default */
    if (status == MICS_OK)
        status = mics_companions_flag(tokenizer->companions, "legacy", legacy, err);
    if (*prefix != was)
        mics_tokenizer_note(tokenizer, "add_prefix_space", 16);
    if (!*legacy)
        mics_tokenizer_note(tokenizer, "legacy", 6);
    return status;
}

/* U+2581 comes before the beginning of the input only. */
static enum mics_status set_first_prefix(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    json_t *root = json_pack("{s:{s:s,s:s,s:s,s:b}}", "pre_tokenizer", "type", "Metaspace",
                             "replacement", MICS_METASPACE, "prepend_scheme", "first", "split", 0);
    struct mics_reading reading = {.err = err};
    const struct mics_cursor cursor = mics_cursor_begin(root, &reading);
    bool byte_level = false;

    if (!root)
        return mics_err_nomem(err);
    mics_pretokenizer_read(&cursor, tokenizer, &byte_level);
    json_decref(root);
    return reading.status;
}

/* The control token of an id; MICS_NO_TOKEN: none. Models say -1 for one that they do not have. */
static uint32_t control_id(const struct model *model, uint64_t id)
{
    return id < model->count && model->pieces[id].type == PIECE_CONTROL ? (uint32_t)id
                                                                        : MICS_NO_TOKEN;
}

static enum mics_status fill(struct mics_tokenizer *tokenizer, struct model *model,
                             struct mics_err *err)
{
    enum mics_status status = check_model(model, err);
    bool prefix = model->dummy_prefix, legacy = true;

    tokenizer->model.kind = model->kind == KIND_UNIGRAM ? MICS_MODEL_UNIGRAM : MICS_MODEL_BPE;
    tokenizer->model.characters = true;
    tokenizer->model.fuse_unknown = true;
    tokenizer->model.byte_fallback = model->byte_fallback;
    tokenizer->metaspace = true;
    if (status == MICS_OK)
        status = read_prefix(tokenizer, &prefix, &legacy, err);
    tokenizer->strip_first_space = prefix;
    if (status == MICS_OK && model->kind == KIND_BPE)
        status = set_normalizer(tokenizer, prefix && legacy, err);
    if (status == MICS_OK && model->kind == KIND_BPE && prefix && !legacy)
        status = set_first_prefix(tokenizer, err);
    for (size_t i = 0; status == MICS_OK && i < model->count; i++)
        status = add_token(tokenizer, &model->pieces[i], err);
    if (status != MICS_OK)
        return status;
    tokenizer->end = control_id(model, model->ending);
    tokenizer->around = (struct mics_around){
        .is_set = true,
        .keys = {"bos_token", "eos_token"},
        .ids = {control_id(model, model->beginning), tokenizer->end},
        .wanted = {true, false},
    };
    if (model->kind == KIND_UNIGRAM) {
        status = read_scores(tokenizer, model, err);
        return status == MICS_OK ? set_unigram_parts(tokenizer, model,
                                                     !prefix  ? "never"
                                                     : legacy ? "always"
                                                              : "first",
                                                     err)
                                 : status;
    }
    status = read_merges(tokenizer, model, err); /* sorts the pieces */
    return status == MICS_OK ? mics_pretokenizer_cut_words(tokenizer, err) : status;
}

enum mics_status mics_tokenizer_read_sentencepiece(struct mics_tokenizer *tokenizer,
                                                   const struct mics_tokenizer_file *file,
                                                   struct mics_err *err)
{
    struct model model = {.kind = 1, /* defaults of the format */
                          .beginning = 1,
                          .ending = 2,
                          .dummy_prefix = true,
                          .remove_extra_spaces = true,
                          .escape_spaces = true};
    const struct message message = {.bytes = file->bytes, .size = file->size};
    enum mics_status status = read_model(message, &model, err);

    if (status == MICS_OK)
        status = fill(tokenizer, &model, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->name);
    free(model.pieces);
    return status;
}
