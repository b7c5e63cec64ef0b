/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab_merges.c - GPT-2's files: vocab.json, tokens and their ids, and merges.txt, a pair a line.
 *
 * Which regular expression cuts the text is not in them: tokenizer_config.json names a class of
 * tokenizers, and without one it is GPT-2's.
 */
#include "data/tokenizer/companions.h"
#include "data/tokenizer/tokenizer_json.h"
#include "doc/cursor.h"
#include "doc/foreign.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES (16u << 20)
#define END        "<|endoftext|>"

/* Add a token by the text that a file has for it. */
static enum mics_status add_token(struct mics_tokenizer *tokenizer, const char *text, size_t length,
                                  json_int_t id, struct mics_err *err)
{
    unsigned char *bytes;
    size_t size;
    enum mics_status status;

    if (id < 0 || id >= MICS_TOKENIZER_MAX_IDS)
        return mics_err_set(err, MICS_ERR_FORMAT, "token \"%.40s\": ids must be from 0 to %u", text,
                            MICS_TOKENIZER_MAX_IDS - 1);
    bytes = malloc(length + 1);
    if (bytes == NULL)
        return mics_err_nomem(err);
    /* What is not in the alphabet is never found in a text, but can be decoded. */
    if (mics_byte_level_decode(text, length, bytes, &size))
        status =
            mics_vocab_add(&tokenizer->vocab, (uint32_t)id, bytes, size, MICS_TOKEN_MODEL, err);
    else
        status = mics_vocab_add(&tokenizer->vocab, (uint32_t)id, text, length, 0, err);
    free(bytes);
    return status;
}

static enum mics_status read_vocab(struct mics_tokenizer *tokenizer,
                                   const struct mics_tokenizer_file *file, struct mics_err *err)
{
    json_t *doc = NULL, *value;
    const char *key;
    size_t length;
    enum mics_status status =
        mics_foreign_read((const char *)file->bytes, file->size, MAX_VALUES, &doc, err);

    if (status == MICS_OK && json_object_size(doc) == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT, "expected an object of tokens and their ids");
    json_object_keylen_foreach(doc, key, length, value)
    {
        if (status == MICS_OK && !json_is_integer(value))
            status = mics_err_set(err, MICS_ERR_FORMAT, "token \"%.40s\": expected an id", key);
        if (status == MICS_OK)
            status = add_token(tokenizer, key, length, json_integer_value(value), err);
    }
    json_decref(doc);
    return status;
}

/* A word of a line of merges.txt as a token. MICS_NO_TOKEN: there is none. `bytes` has room for
 * both words; *size grows. */
static uint32_t find_word(const struct mics_tokenizer *tokenizer, const char *word, size_t length,
                          unsigned char *bytes, size_t *size)
{
    size_t own;

    if (!mics_byte_level_decode(word, length, bytes + *size, &own))
        return MICS_NO_TOKEN;
    *size += own;
    return mics_vocab_find(&tokenizer->vocab, bytes + *size - own, own);
}

static enum mics_status add_line(struct mics_tokenizer *tokenizer, const char *line, size_t length,
                                 uint32_t rank, struct mics_err *err)
{
    const char *blank = memchr(line, ' ', length);
    const size_t first = blank == NULL ? 0 : (size_t)(blank - line);
    unsigned char bytes[4096];
    uint32_t left, right, id;
    size_t size = 0;

    if (length > sizeof bytes)
        return mics_err_set(err, MICS_ERR_FORMAT, "longer than %zu bytes", sizeof bytes);
    if (first == 0 || first + 1 == length || memchr(blank + 1, ' ', length - first - 1) != NULL)
        return mics_err_set(err, MICS_ERR_FORMAT, "expected two tokens and a blank between them");
    left = find_word(tokenizer, line, first, bytes, &size);
    if (left == MICS_NO_TOKEN)
        return mics_err_set(err, MICS_ERR_FORMAT, "\"%.*s\" is not in the vocabulary",
                            (int)(first < 40 ? first : 40), line);
    right = find_word(tokenizer, blank + 1, length - first - 1, bytes, &size);
    if (right == MICS_NO_TOKEN)
        return mics_err_set(err, MICS_ERR_FORMAT, "\"%.*s\" is not in the vocabulary",
                            (int)(length - first - 1 < 40 ? length - first - 1 : 40), blank + 1);
    id = mics_vocab_find(&tokenizer->vocab, bytes, size);
    if (id == MICS_NO_TOKEN)
        return mics_err_set(err, MICS_ERR_FORMAT, "what \"%.*s\" becomes is not in the vocabulary",
                            (int)(length < 40 ? length : 40), line);
    return mics_bpe_add_merge(&tokenizer->model.bpe, left, right, rank, id, err);
}

static enum mics_status read_merges(struct mics_tokenizer *tokenizer,
                                    const struct mics_tokenizer_file *file, struct mics_err *err)
{
    const char *text = (const char *)file->bytes, *end = text + file->size;
    uint32_t rank = 0;

    for (unsigned long line = 1; text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((newline == NULL ? end : newline) - text);
        const char *next = text + length + (newline != NULL);

        if (length > 0 && text[length - 1] == '\r')
            length--;
        if (length > 0 && !(length >= 8 && memcmp(text, "#version", 8) == 0)) {
            const enum mics_status status = add_line(tokenizer, text, length, rank++, err);

            if (status != MICS_OK) {
                mics_err_prefix(err, "line %lu", line);
                return status;
            }
        }
        text = next;
    }
    return MICS_OK;
}

/* Classes of transformers that have these files, and how they cut text. */
static const struct class
{
    const char *name;     /* without "Fast" */
    bool composes;        /* the text is normalized to NFC, and cut by `pattern` */
    const char *pattern;  /* NULL: GPT-2's */
    const char *keys[2];  /* of the tokens before and after a text */
    const char *usual[2]; /* their texts where no file names others */
    bool around;          /* they are put there by default */
} classes[] = {
    {"GPT2Tokenizer", false, NULL, {"bos_token", "eos_token"}, {END, END}, false},
    {"Qwen2Tokenizer", true, MICS_QWEN2_PATTERN, {"bos_token", "eos_token"}, {NULL, END}, false},
    {"RobertaTokenizer", false, NULL, {"cls_token", "sep_token"}, {"<s>", "</s>"}, true},
};

/* The class that tokenizer_config.json names, else GPT-2's. */
static enum mics_status find_class(const struct mics_tokenizer *tokenizer, const struct class **out,
                                   struct mics_err *err)
{
    char name[64];
    json_t *model = NULL;
    enum mics_status status = mics_companions_class(tokenizer->companions, name, sizeof name, err);

    *out = &classes[0];
    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (strcmp(name, classes[i].name) == 0) {
            *out = &classes[i];
            return MICS_OK;
        }
    if (name[0] != '\0')
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "tokenizer_config.json: a tokenizer of class \"%s\" is supported by "
                            "its tokenizer.json only",
                            name);
    status = mics_companion_read(tokenizer, "config.json", &model, err);
    if (status == MICS_OK) {
        const char *type = json_string_value(json_object_get(model, "model_type"));

        /* Here transformers takes another class; config.json does not travel with the tokenizer. */
        if (type != NULL && strncmp(type, "qwen", 4) == 0)
            status = mics_err_set(err, MICS_ERR_FORMAT,
                                  "config.json is that of a model of type \"%s\", and there is no "
                                  "tokenizer_config.json that names its tokenizer: "
                                  "{\"tokenizer_class\": \"Qwen2Tokenizer\"}",
                                  type);
    }
    json_decref(model);
    return status;
}

/* The parts of a tokenizer.json that do what the class does; NULL: out of memory. */
static json_t *make_parts(const struct class *class, bool prefix)
{
    json_t *bytes = json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", prefix,
                              "trim_offsets", 1, "use_regex", !class->composes);

    if (!class->composes)
        return json_pack("{s:o}", "pre_tokenizer", bytes);
    return json_pack("{s:{s:s},s:{s:s,s:[{s:s,s:{s:s},s:s,s:b},o]}}", "normalizer", "type", "NFC",
                     "pre_tokenizer", "type", "Sequence", "pretokenizers", "type", "Split",
                     "pattern", "Regex", class->pattern, "behavior", "Isolated", "invert", 0,
                     bytes);
}

/* Cut text as the class does, with a space before it where tokenizer_config.json says so. */
static enum mics_status set_class(struct mics_tokenizer *tokenizer, const struct class *class,
                                  struct mics_err *err)
{
    bool prefix = false, byte_level = true;
    struct mics_reading reading = {.err = err};
    enum mics_status status =
        mics_companions_flag(tokenizer->companions, "add_prefix_space", &prefix, err);
    json_t *parts;

    if (status != MICS_OK)
        return status;
    parts = make_parts(class, prefix);
    if (parts == NULL)
        return mics_err_nomem(err);
    if (class->composes)
        mics_tokenizer_note(tokenizer, class->name, strlen(class->name));
    if (prefix)
        mics_tokenizer_note(tokenizer, "add_prefix_space", 16);
    const struct mics_cursor cursor = mics_cursor_begin(parts, &reading);
    mics_normalizer_read(&cursor, &tokenizer->normalizer);
    mics_pretokenizer_read(&cursor, tokenizer, &byte_level);
    json_decref(parts);
    return reading.status;
}

/* <|endoftext|>, if the vocabulary has it, is a special token. */
static enum mics_status add_end(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    static char text[] = END;
    struct mics_added_token token = {.text = text, .length = sizeof text - 1, .special = true};

    token.id = mics_vocab_find(&tokenizer->vocab, text, sizeof text - 1);
    return token.id == MICS_NO_TOKEN ? MICS_OK : mics_tokenizer_add_token(tokenizer, &token, err);
}

static void set_around(struct mics_tokenizer *tokenizer, const struct class *class)
{
    struct mics_around *around = &tokenizer->around;

    around->is_set = true;
    around->fixed = class->around;
    for (int i = 0; i < 2; i++) {
        around->keys[i] = class->keys[i];
        around->wanted[i] = class->around;
        around->ids[i] =
            class->usual[i] ? mics_tokenizer_id(tokenizer, class->usual[i]) : MICS_NO_TOKEN;
    }
}

enum mics_status mics_tokenizer_read_vocab_merges(struct mics_tokenizer *tokenizer,
                                                  const struct mics_tokenizer_file *file,
                                                  struct mics_err *err)
{
    const struct mics_tokenizer_file *merges = mics_tokenizer_file(tokenizer, "merges.txt");
    const struct class *class;
    enum mics_status status;

    if (merges == NULL)
        merges = mics_tokenizer_file(tokenizer, "vocab.bpe");
    if (merges == NULL)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: there is no merges.txt beside it",
                            file->name);
    status = find_class(tokenizer, &class, err);
    if (status != MICS_OK)
        return status;
    status = read_vocab(tokenizer, file, err);
    if (status == MICS_OK)
        status = add_end(tokenizer, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", file->name);
        return status;
    }
    status = read_merges(tokenizer, merges, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", merges->name);
        return status;
    }
    mics_model_find_bytes(&tokenizer->model, &tokenizer->vocab);
    set_around(tokenizer, class);
    return set_class(tokenizer, class, err);
}
