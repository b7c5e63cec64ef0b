/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab_merges.c - GPT-2's files: vocab.json, tokens and their ids, and merges.txt, a pair a line.
 *
 * Which regular expression cuts the text is not in them: it is GPT-2's, and refused if
 * tokenizer_config.json names another class of tokenizers.
 */
#include "data/tokenizer/internal.h"
#include "doc/cursor.h"
#include "doc/foreign.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES (16u << 20)

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
    return mics_bpe_add_merge(&tokenizer->bpe, left, right, rank, id, err);
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

/* Only GPT-2's class, and those derived from it, cut text as GPT-2 does. */
static enum mics_status check_class(const struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    static const char *const known[] = {"GPT2Tokenizer", "GPT2TokenizerFast", "RobertaTokenizer",
                                        "RobertaTokenizerFast"};
    const struct mics_tokenizer_file *file =
        mics_tokenizer_file(tokenizer, "tokenizer_config.json");
    const char *class = NULL;
    json_t *doc = NULL;

    if (file == NULL)
        return MICS_OK;
    enum mics_status status =
        mics_foreign_read((const char *)file->bytes, file->size, MAX_VALUES, &doc, err);
    const struct mics_cursor root = mics_cursor_root(doc);

    if (status == MICS_OK && mics_cursor_has(&root, "tokenizer_class"))
        status = mics_cursor_string(&root, "tokenizer_class", &class, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", file->name);
        json_decref(doc);
        return status;
    }
    bool found = class == NULL;

    for (size_t i = 0; i < sizeof known / sizeof known[0] && !found; i++)
        found = strcmp(class, known[i]) == 0;
    if (!found)
        status = mics_err_set(err, MICS_ERR_UNSUPPORTED,
                              "tokenizer_config.json: a tokenizer of class \"%s\" is supported by "
                              "its tokenizer.json only",
                              class);
    json_decref(doc);
    return status;
}

/* <|endoftext|>, if the vocabulary has it, is a special token. */
static enum mics_status add_end(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    static char text[] = "<|endoftext|>";
    struct mics_added_token token = {.text = text, .length = sizeof text - 1, .special = true};
    enum mics_status status;

    token.id = mics_vocab_find(&tokenizer->vocab, text, sizeof text - 1);
    if (token.id == MICS_NO_TOKEN)
        return MICS_OK;
    status = mics_vocab_add(&tokenizer->vocab, token.id, text, sizeof text - 1,
                            MICS_TOKEN_ADDED | MICS_TOKEN_SPECIAL, err);
    return status == MICS_OK ? mics_added_add(&tokenizer->added, &token, err) : status;
}

enum mics_status mics_tokenizer_read_vocab_merges(struct mics_tokenizer *tokenizer,
                                                  const struct mics_tokenizer_file *file,
                                                  struct mics_err *err)
{
    const struct mics_tokenizer_file *merges = mics_tokenizer_file(tokenizer, "merges.txt");
    enum mics_status status;

    if (merges == NULL)
        merges = mics_tokenizer_file(tokenizer, "vocab.bpe");
    if (merges == NULL)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: there is no merges.txt beside it",
                            file->name);
    status = check_class(tokenizer, err);
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
    mics_bpe_find_bytes(&tokenizer->bpe, &tokenizer->vocab);
    status = mics_splitter_init(&tokenizer->splitter, MICS_GPT2_PATTERN,
                                sizeof MICS_GPT2_PATTERN - 1, err);
    tokenizer->cut.classes = tokenizer->splitter.classes;
    return status;
}
