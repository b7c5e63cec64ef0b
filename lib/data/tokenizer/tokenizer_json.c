/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.c - tokenizer.json of Hugging Face's library tokenizers, version 1.0, with a model
 * of kind BPE, WordPiece or Unigram. */
#include "data/tokenizer/tokenizer_json.h"

#include "base/utf8.h"
#include "data/tokenizer/companions.h"
#include "doc/foreign.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A pair of merges weighs 10, so there may be 1.6 million. */
#define MAX_VALUES (16u << 20)
#define MAX_MERGES (4u << 20)
#define MAX_ADDED  (1u << 20)

struct reader {
    struct mics_tokenizer *tokenizer;
    struct mics_cursor root, model;
    const json_t *vocab; /* token to id, as in the file, or `pieces` */
    json_t *pieces;      /* the same of Unigram, whose file has a list; the reader's */
    size_t vocab_size;   /* tokens in the file */
    bool byte_level;
    uint32_t highest; /* id of an added token; MICS_NO_TOKEN: none yet */
    struct mics_reading *reading;
};

/* The id of a token of the model by its text in the file; MICS_NO_TOKEN: none. */
static uint32_t find_id(const struct reader *reader, const char *text, size_t length)
{
    const json_t *id = json_object_getn(reader->vocab, text, length);

    return id ? (uint32_t)json_integer_value(id) : MICS_NO_TOKEN;
}

const char *const mics_byte_level_members[] = {"type", "add_prefix_space", "trim_offsets",
                                               "use_regex", NULL};

void mics_json_check_members(const struct mics_cursor *cursor, const char *const *known)
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
            mics_cursor_reject(cursor, key, "not supported");
    }
}

/* ---- the model ---- */

/* Is it <0xNN>, which stands for an unknown character's byte? *byte is NN. */
static bool is_byte_token(const char *text, size_t length, unsigned *byte)
{
    char number[3];

    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' ||
        strspn(text + 3, "0123456789ABCDEF") != 2)
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
    struct mics_err *err = reader->reading->err;
    uint32_t flags = MICS_TOKEN_MODEL;
    unsigned char *bytes = NULL;
    enum mics_status status;
    size_t size = 0;
    unsigned byte;

    if (reader->byte_level) {
        bytes = malloc(length + 1);
        if (!bytes)
            return mics_err_nomem(err);
        /* Text is bytes when it comes to the model, so others are never found. */
        if (!mics_byte_level_decode(text, length, bytes, &size))
            flags = 0;
    }
    status = bytes && flags != 0 ? mics_vocab_add(&tokenizer->vocab, id, bytes, size, flags, err)
                                 : mics_vocab_add(&tokenizer->vocab, id, text, length, flags, err);
    if (bytes && flags != 0 && size == 1)
        tokenizer->model.byte_ids[bytes[0]] = id;
    if (!reader->byte_level && tokenizer->model.byte_fallback && is_byte_token(text, length, &byte))
        tokenizer->model.byte_ids[byte] = id;
    free(bytes);
    return status;
}

static void read_vocab(struct reader *reader)
{
    const struct mics_cursor vocab = mics_cursor_get_object(&reader->model, "vocab");
    const char *text;
    size_t length;
    json_t *value;

    reader->vocab = vocab.value;
    reader->vocab_size = json_object_size(vocab.value);
    if (reader->vocab_size == 0)
        mics_cursor_reject(&vocab, NULL, "no tokens");
    json_object_keylen_foreach((json_t *)vocab.value, text, length, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= MICS_TOKENIZER_MAX_IDS) {
            mics_cursor_reject(&vocab, text, "expected an id below %u", MICS_TOKENIZER_MAX_IDS);
            return;
        }
        if (length == 0) /* can be neither made nor decoded */
            continue;
        reader->reading->status =
            add_token(reader, text, length, (uint32_t)json_integer_value(value));
        if (reader->reading->status != MICS_OK) {
            mics_err_prefix(reader->reading->err, "model.vocab");
            return;
        }
    }
}

/* The two tokens of a merge, which is ["a", "b"], or "a b" with exactly one space. */
struct merge {
    const char *left, *right;
    size_t left_length, right_length;
};

/* Lengths are 0 after an error. */
static struct merge merge_texts(const struct mics_cursor *merge)
{
    const json_t *value = merge->value;
    struct merge out = {.left = NULL};

    if (json_is_array(value) && json_array_size(value) == 2) {
        const json_t *left = json_array_get(value, 0), *right = json_array_get(value, 1);

        out.left = json_string_value(left);
        out.left_length = json_string_length(left);
        out.right = json_string_value(right);
        out.right_length = json_string_length(right);
    } else if (json_is_string(value)) {
        const char *text = json_string_value(value), *end = text + json_string_length(value);
        const char *space = memchr(text, ' ', (size_t)(end - text));

        out.left = text;
        out.left_length = space ? (size_t)(space - text) : 0;
        out.right = space ? space + 1 : end;
        out.right_length = (size_t)(end - out.right);
        if (memchr(out.right, ' ', out.right_length))
            out.right_length = 0;
    }
    if (!out.left || !out.right || out.left_length == 0 || out.right_length == 0)
        mics_cursor_reject(merge, NULL, "expected two tokens");
    return out;
}

/* The id of a token of a merge. */
static uint32_t read_merged(const struct reader *reader, const struct mics_cursor *merge,
                            const char *token, size_t length)
{
    const uint32_t id = find_id(reader, token, length);

    if (id == MICS_NO_TOKEN)
        mics_cursor_reject(merge, NULL, "token '%.*s' is not in the vocabulary", (int)length,
                           token);
    return id;
}

static void read_merge(const struct reader *reader, const struct mics_cursor *merge)
{
    const struct merge texts = merge_texts(merge);

    if (!mics_cursor_ok(merge))
        return;
    const uint32_t left = read_merged(reader, merge, texts.left, texts.left_length);
    const uint32_t right = read_merged(reader, merge, texts.right, texts.right_length);
    const size_t length = texts.left_length + texts.right_length;
    char *both = malloc(length);

    if (!both) {
        mics_cursor_nomem(merge);
        return;
    }
    memcpy(both, texts.left, texts.left_length);
    memcpy(both + texts.left_length, texts.right, texts.right_length);
    const uint32_t id = read_merged(reader, merge, both, length);
    if (mics_cursor_ok(merge))
        reader->reading->status =
            mics_bpe_add_merge(&reader->tokenizer->model.bpe, left, right, (uint32_t)merge->index,
                               id, reader->reading->err);
    free(both);
}

static void read_merges(const struct reader *reader)
{
    const struct mics_cursor merges =
        mics_cursor_get_array(&reader->model, "merges", 0, MAX_MERGES);

    if (!mics_cursor_ok(&merges))
        return;
    reader->reading->status = mics_bpe_reserve(&reader->tokenizer->model.bpe,
                                               mics_cursor_count(&merges), reader->reading->err);
    for (size_t i = 0; i < mics_cursor_count(&merges) && mics_cursor_ok(&merges); i++) {
        const struct mics_cursor merge = mics_cursor_item_any(&merges, i);
        const char *text = json_string_value(merge.value);

        if (!text || strncmp(text, "#version", 8) != 0)
            read_merge(reader, &merge);
    }
}

/* A member that changes ids unless it is null, "" or 0. */
static void refuse_member(const struct mics_cursor *cursor, const char *key)
{
    const json_t *value = json_object_get(cursor->value, key);
    const char *text = json_string_value(value);

    if (value && !json_is_null(value) && !(text && text[0] == '\0') &&
        !(json_is_number(value) && json_number_value(value) == 0))
        mics_cursor_reject(cursor, key, "not supported");
}

static void read_unknown(const struct reader *reader)
{
    const char *text = mics_cursor_opt_string(&reader->model, "unk_token", "");

    if (text[0] == '\0')
        return;
    reader->tokenizer->model.unknown = find_id(reader, text, strlen(text));
    if (reader->tokenizer->model.unknown == MICS_NO_TOKEN)
        mics_cursor_reject(&reader->model, "unk_token", "token '%s' is not in the vocabulary",
                           text);
}

static void read_bpe(struct reader *reader)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix"};
    struct mics_model *out = &reader->tokenizer->model;
    const struct mics_cursor *model = &reader->model;

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        refuse_member(model, refused[i]);
    out->fuse_unknown = mics_cursor_opt_bool(model, "fuse_unk", out->fuse_unknown);
    out->byte_fallback = mics_cursor_opt_bool(model, "byte_fallback", out->byte_fallback);
    out->bpe.whole_first = mics_cursor_opt_bool(model, "ignore_merges", out->bpe.whole_first);
    out->characters = !reader->byte_level;
    read_vocab(reader);
    read_merges(reader);
    read_unknown(reader);
}

static void read_wordpiece(struct reader *reader)
{
    struct mics_model *out = &reader->tokenizer->model;
    const struct mics_cursor *model = &reader->model;
    const char *prefix = mics_cursor_get_string(model, "continuing_subword_prefix");
    const char *unknown = mics_cursor_get_string(model, "unk_token");

    out->characters = true;
    out->wordpiece.max_characters =
        mics_cursor_get_u32(model, "max_input_chars_per_word", 0, UINT32_MAX);
    if (!mics_cursor_ok(model))
        return;
    if (unknown[0] == '\0')
        mics_cursor_reject(model, "unk_token", "must not be empty");
    out->wordpiece.prefix = strdup(prefix);
    if (!out->wordpiece.prefix) {
        mics_cursor_nomem(model);
        return;
    }
    read_vocab(reader);
    read_unknown(reader);
}

/* The number that serde_json makes of the shortest text for `score`: it divides the digits by a
 * power of ten, which is not always the nearest number to the text. Differences in the last place
 * decide between equally good ways to cut a piece. */
static double as_serde_reads(double score)
{
    uint64_t digits = 0;
    char text[40], *at;
    double power = 1;
    int exponent;

    for (int places = 14; places <= 16; places++) {
        snprintf(text, sizeof text, "%.*e", places, fabs(score));
        if (strtod(text, NULL) == fabs(score))
            break;
    }
    exponent = atoi(strchr(text, 'e') + 1);
    for (at = text; *at != 'e'; at++)
        if (*at != '.') {
            digits = digits * 10 + (uint64_t)(*at - '0');
            exponent -= at > text;
        }
    while (digits > 0 && digits % 10 == 0) {
        digits /= 10;
        exponent++;
    }
    if (digits == 0 || exponent >= 0 || exponent < -300)
        return score;
    snprintf(text, sizeof text, "1e%d", -exponent);
    power = strtod(text, NULL);
    return score < 0 ? -((double)digits / power) : (double)digits / power;
}

/* ["text", score] */
static void read_piece(struct reader *reader, const struct mics_cursor *piece)
{
    const json_t *text = json_array_get(piece->value, 0), *score = json_array_get(piece->value, 1);

    if (!json_is_array(piece->value) || json_array_size(piece->value) != 2 ||
        !json_is_string(text) || !json_is_number(score)) {
        mics_cursor_reject(piece, NULL, "expected a token and its score, a number");
        return;
    }
    if (json_object_setn_new_nocheck(reader->pieces, json_string_value(text),
                                     json_string_length(text),
                                     json_integer((json_int_t)piece->index)) != 0) {
        mics_cursor_nomem(piece);
        return;
    }
    reader->reading->status = mics_unigram_set_score(
        &reader->tokenizer->model.unigram, (uint32_t)piece->index,
        json_is_real(score) ? as_serde_reads(json_real_value(score)) : json_number_value(score),
        reader->reading->err);
}

/* The last of equal texts is found; the others can only be decoded. */
static void add_pieces(struct reader *reader, const struct mics_cursor *vocab)
{
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    unsigned byte;

    for (size_t i = 0; i < mics_cursor_count(vocab) && mics_cursor_ok(vocab); i++) {
        const json_t *item = json_array_get(json_array_get(vocab->value, i), 0);
        const char *text = json_string_value(item);
        const size_t length = json_string_length(item);
        const uint32_t id = (uint32_t)i;
        const bool found = find_id(reader, text, length) == id;

        if (length == 0)
            continue;
        if (found && tokenizer->model.byte_fallback && is_byte_token(text, length, &byte))
            tokenizer->model.byte_ids[byte] = id;
        reader->reading->status =
            mics_vocab_add(&tokenizer->vocab, id, text, length, found ? MICS_TOKEN_MODEL : 0,
                           reader->reading->err);
    }
}

static void read_unigram(struct reader *reader)
{
    struct mics_model *out = &reader->tokenizer->model;
    const struct mics_cursor *model = &reader->model;
    const struct mics_cursor vocab =
        mics_cursor_get_array(model, "vocab", 1, MICS_TOKENIZER_MAX_IDS);

    out->characters = true;
    out->fuse_unknown = true;
    out->byte_fallback = mics_cursor_opt_bool(model, "byte_fallback", false);
    reader->vocab = reader->pieces = json_object();
    reader->vocab_size = mics_cursor_count(&vocab);
    if (!reader->pieces)
        mics_cursor_nomem(model);
    if (!mics_cursor_has(model, "unk_id"))
        mics_cursor_reject(model, "unk_id", "without it a character that is no token has no id");
    if (mics_cursor_ok(model))
        out->unknown = mics_cursor_get_u32(model, "unk_id", 0, (uint32_t)reader->vocab_size - 1);
    for (size_t i = 0; i < reader->vocab_size && mics_cursor_ok(model); i++) {
        const struct mics_cursor piece = mics_cursor_item_any(&vocab, i);

        read_piece(reader, &piece);
    }
    add_pieces(reader, &vocab);
}

static const struct model_reader {
    const char *type;
    enum mics_model_kind kind;
    void (*read)(struct reader *reader);
    const char *members[11];
} model_readers[] = {
    {"BPE",
     MICS_MODEL_BPE,
     read_bpe,
     {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
      "byte_fallback", "ignore_merges", "vocab", "merges"}},
    {"WordPiece",
     MICS_MODEL_WORDPIECE,
     read_wordpiece,
     {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"}},
    {"Unigram", MICS_MODEL_UNIGRAM, read_unigram, {"type", "unk_id", "byte_fallback", "vocab"}},
};

static void read_model(struct reader *reader)
{
    reader->model = mics_cursor_get_object(&reader->root, "model");
    const char *type = mics_cursor_opt_string(&reader->model, "type", "BPE");

    for (size_t i = 0; i < sizeof model_readers / sizeof model_readers[0]; i++) {
        if (!mics_cursor_ok(&reader->model) || strcmp(type, model_readers[i].type) != 0)
            continue;
        mics_json_check_members(&reader->model, model_readers[i].members);
        reader->tokenizer->model.kind = model_readers[i].kind;
        if (reader->byte_level && model_readers[i].kind != MICS_MODEL_BPE)
            mics_cursor_reject(&reader->model, "type", "'%s' behind ByteLevel is not supported",
                               type);
        if (mics_cursor_ok(&reader->model))
            model_readers[i].read(reader);
        return;
    }
    mics_cursor_reject(&reader->model, "type",
                       "model '%s' is not supported, only BPE, WordPiece and Unigram", type);
}

/* ---- added tokens ---- */

/* The tokenizers library takes the id that the vocabulary has, or counts on, whatever the file
 * says; an id that is another one would be a row that the model was not trained with. */
static void check_added_id(struct reader *reader, const struct mics_cursor *cursor,
                           const char *text, uint32_t id)
{
    const uint32_t known = find_id(reader, text, strlen(text)), size = (uint32_t)reader->vocab_size;
    const uint32_t last = reader->highest;
    const uint32_t next = last != MICS_NO_TOKEN && last >= size ? last + 1 : size;

    if (known != MICS_NO_TOKEN && known != id)
        mics_cursor_reject(cursor, "id", "is %lu, but the vocabulary has %lu", (unsigned long)id,
                           (unsigned long)known);
    if (known == MICS_NO_TOKEN && next != id)
        mics_cursor_reject(cursor, "id",
                           "is %lu, but the next that is not in the vocabulary is %lu",
                           (unsigned long)id, (unsigned long)next);
    if (last == MICS_NO_TOKEN || id > last)
        reader->highest = id;
}

static void read_added_token(struct reader *reader, const struct mics_cursor *cursor)
{
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    struct mics_added_token added = {.id = 0};

    mics_json_check_members(cursor, known);
    const char *text = mics_cursor_get_string(cursor, "content");
    added.id = mics_cursor_get_u32(cursor, "id", 0, MICS_TOKENIZER_MAX_IDS - 1);
    added.special = mics_cursor_opt_bool(cursor, "special", false);
    added.normalized = mics_cursor_opt_bool(cursor, "normalized", true);
    added.single_word = mics_cursor_opt_bool(cursor, "single_word", false);
    added.strip_left = mics_cursor_opt_bool(cursor, "lstrip", false);
    added.strip_right = mics_cursor_opt_bool(cursor, "rstrip", false);
    if (text[0] == '\0')
        return;
    check_added_id(reader, cursor, text, added.id);
    if (!mics_cursor_ok(cursor))
        return;
    added.text = (char *)text; /* which is copied */
    added.length = (uint32_t)strlen(text);
    reader->reading->status =
        mics_tokenizer_add_token(reader->tokenizer, &added, reader->reading->err);
}

static void read_added(struct reader *reader)
{
    if (!mics_cursor_has(&reader->root, "added_tokens"))
        return;
    const struct mics_cursor tokens =
        mics_cursor_get_array(&reader->root, "added_tokens", 0, MAX_ADDED);
    for (size_t i = 0; i < mics_cursor_count(&tokens) && mics_cursor_ok(&tokens); i++) {
        const struct mics_cursor token = mics_cursor_get_item(&tokens, i);

        read_added_token(reader, &token);
    }
}

/* ---- add_prefix_space of tokenizer_config.json ---- */

/* The part of a type in a member of tokenizer.json, itself or in a sequence; NULL: none. */
static json_t *find_part(json_t *part, const char *sequence, const char *type)
{
    const char *name = json_string_value(json_object_get(part, "type"));
    json_t *item;
    size_t i;

    if (name && strcmp(name, type) == 0)
        return part;
    json_array_foreach(json_object_get(part, sequence), i, item)
    {
        name = json_string_value(json_object_get(item, "type"));
        if (name && strcmp(name, type) == 0)
            return item;
    }
    return NULL;
}

/* Is U+2581 put before a text? */
static bool prepends_metaspace(const json_t *root)
{
    const json_t *part =
        find_part(json_object_get(root, "pre_tokenizer"), "pretokenizers", "Metaspace");
    const char *scheme = json_string_value(json_object_get(part, "prepend_scheme"));

    if (find_part(json_object_get(root, "normalizer"), "normalizers", "Prepend"))
        return true;
    return part && (scheme ? strcmp(scheme, "never") != 0
                           : json_is_true(json_object_get(part, "add_prefix_space")));
}

/* Let add_prefix_space of tokenizer_config.json count where the class of the tokenizer does. The
 * other classes of transformers differ in what they do with it, by version. */
static enum mics_status apply_prefix_space(struct reader *reader, json_t *root,
                                           struct mics_err *err)
{
    static const char *const byte_classes[] = {"GPT2Tokenizer",   "RobertaTokenizer",
                                               "Qwen2Tokenizer",  "GPTNeoXTokenizer",
                                               "CohereTokenizer", "CodeGenTokenizer"};
    json_t *part = find_part(json_object_get(root, "pre_tokenizer"), "pretokenizers", "ByteLevel");
    bool prefix =
        part ? json_is_true(json_object_get(part, "add_prefix_space")) : prepends_metaspace(root);
    const bool was = prefix;
    char class[64];
    enum mics_status status =
        mics_companions_class(reader->tokenizer->companions, class, sizeof class, err);

    if (status != MICS_OK)
        return status;
    status = mics_companions_flag(reader->tokenizer->companions, "add_prefix_space", &prefix, err);
    if (status != MICS_OK || prefix == was)
        return status;
    for (size_t i = 0; part && i < sizeof byte_classes / sizeof byte_classes[0]; i++)
        if (strcmp(class, byte_classes[i]) == 0) {
            mics_tokenizer_note(reader->tokenizer, "add_prefix_space", 16);
            return json_object_set_new(part, "add_prefix_space", json_boolean(prefix)) == 0
                       ? MICS_OK
                       : mics_err_nomem(err);
        }
    if (!part && strcmp(class, "LlamaTokenizer") != 0) /* no version of it reads this */
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "add_prefix_space is %s in tokenizer_config.json, but not here: which of "
                        "them counts depends on the version of transformers; let them agree",
                        prefix ? "true" : "false");
}

/* ---- the file ---- */

static void check_root(const struct mics_cursor *root)
{
    static const char *const known[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    const char *version = mics_cursor_get_string(root, "version");

    if (strcmp(version, "1.0") != 0)
        mics_cursor_reject(root, "version", "'%s' is not supported, only '1.0'", version);
    mics_json_check_members(root, known);
}

void mics_tokenizer_check_cut(struct mics_tokenizer *tokenizer)
{
    const struct mics_normalizer *normalizer = &tokenizer->normalizer;
    struct mics_cut *cut = &tokenizer->cut;

    if (!normalizer->apply || normalizer->local)
        return;
    cut->classes = NULL;
    cut->spaces =
        cut->spaces &&
        (cut->words || (normalizer->local_at_spaces && (cut->marks || !normalizer->spaces)));
}

static enum mics_status read_parts(struct mics_tokenizer *tokenizer, json_t *root,
                                   struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    struct reader reader = {.tokenizer = tokenizer,
                            .root = mics_cursor_begin(root, &reading),
                            .highest = MICS_NO_TOKEN,
                            .reading = &reading};

    check_root(&reader.root);
    if (reading.status != MICS_OK)
        return reading.status;
    reading.status = apply_prefix_space(&reader, root, err);
    mics_normalizer_read(&reader.root, &tokenizer->normalizer);
    mics_pretokenizer_read(&reader.root, tokenizer, &reader.byte_level);
    mics_decoder_read(&reader.root, reader.byte_level, tokenizer);
    read_model(&reader);
    read_added(&reader);
    mics_post_processor_read(&reader.root, tokenizer);
    json_decref(reader.pieces);
    if (reading.status == MICS_OK && !reader.byte_level)
        reading.status = mics_pretokenizer_cut_words(tokenizer, err);
    mics_tokenizer_check_cut(tokenizer);
    return reading.status;
}

enum mics_status mics_tokenizer_read_json(struct mics_tokenizer *tokenizer,
                                          const struct mics_tokenizer_file *file,
                                          struct mics_err *err)
{
    json_t *root = NULL;
    enum mics_status status =
        mics_foreign_read((const char *)file->bytes, file->size, MAX_VALUES, &root, err);

    if (status == MICS_OK)
        status = read_parts(tokenizer, root, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->name);
    json_decref(root);
    return status;
}
