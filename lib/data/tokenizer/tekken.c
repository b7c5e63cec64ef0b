/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tekken.c - tekken.json of Mistral's models (Nemo and later), as mistral-common reads it.
 *
 * Tokens are bytes with ranks, as tiktoken's, and ids are ranks behind those of the special tokens:
 *
 *     {"config": {"pattern": "...", "default_vocab_size": 131072,
 *                 "default_num_special_tokens": 1000, "version": "v3"},
 *      "vocab": [{"rank": 0, "token_bytes": "AA==", "token_str": "\u0000"}, ...],
 *      "special_tokens": [{"rank": 0, "token_str": "<unk>", "is_control": true}, ...]}
 *
 * Of `vocab` only what default_vocab_size leaves is used. Special tokens that have no name are
 * <SPECIAL_20>; files up to version 7 need not name any.
 */
#include "data/tokenizer/tokenizer_internal.h"
#include "doc/cursor.h"
#include "doc/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES  (16u << 20)
#define MAX_SPECIAL (1u << 16)

/* Version 3 and all others so far: o200k_base's without contractions, and single digits. */
#define TEKKEN_PATTERN                                                                             \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"   \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"   \
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Special tokens of files that name none. */
static const char *const default_special[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};

struct reader {
    struct mics_tokenizer *tokenizer;
    struct mics_cursor root, config;
    const char *pattern;
    bool old; /* its special tokens need not be named */
    uint32_t special_count;
    const char **special; /* [special_count] NULL: no name */
    uint32_t vocab_size;  /* tokens that are used, without special ones */
    struct mics_err *err;
};

static enum mics_status read_version(struct reader *reader)
{
    const char *text = NULL;
    const enum mics_status status =
        mics_cursor_string(&reader->config, "version", &text, reader->err);
    char *end = NULL;

    if (status != MICS_OK)
        return status;
    if (text[0] != 'v' || text[1] < '1' || text[1] > '9')
        return mics_cursor_fail(&reader->config, "version", reader->err,
                                "version '%s' is not supported", text);
    reader->old = strtoul(text + 1, &end, 10) <= 7;
    if (*end != '\0')
        return mics_cursor_fail(&reader->config, "version", reader->err,
                                "version '%s' is not supported", text);
    return MICS_OK;
}

static enum mics_status read_special(const struct reader *reader, const struct mics_cursor *list)
{
    for (size_t i = 0; i < mics_cursor_count(list); i++) {
        struct mics_cursor item;
        const char *text = NULL;
        uint32_t rank = 0;
        enum mics_status status = mics_cursor_item(list, i, &item, reader->err);

        if (status == MICS_OK)
            status = mics_cursor_u32(&item, "rank", 0, (uint32_t)mics_cursor_count(list) - 1, &rank,
                                     reader->err);
        if (status == MICS_OK)
            status = mics_cursor_string(&item, "token_str", &text, reader->err);
        if (status != MICS_OK)
            return status;
        if (text[0] == '\0')
            return mics_cursor_fail(&item, "token_str", reader->err, "must not be empty");
        if (reader->special[rank])
            return mics_cursor_fail(&item, "rank", reader->err, "%lu is there twice",
                                    (unsigned long)rank);
        reader->special[rank] = text;
    }
    return MICS_OK;
}

/* The special tokens that have names, and how many there are. */
static enum mics_status find_special(struct reader *reader)
{
    const bool named = mics_cursor_has(&reader->root, "special_tokens");
    struct mics_cursor list;
    enum mics_status status = MICS_OK;
    size_t count = sizeof default_special / sizeof default_special[0];

    if (!named && !reader->old)
        return mics_cursor_fail(&reader->root, "special_tokens", reader->err,
                                "missing; files later than version 7 have them");
    if (named) {
        status =
            mics_cursor_array(&reader->root, "special_tokens", 0, MAX_SPECIAL, &list, reader->err);
        count = status == MICS_OK ? mics_cursor_count(&list) : 0;
    }
    reader->special_count = (uint32_t)count;
    if (status == MICS_OK && mics_cursor_has(&reader->config, "default_num_special_tokens"))
        status = mics_cursor_u32(&reader->config, "default_num_special_tokens", (uint32_t)count,
                                 MAX_SPECIAL, &reader->special_count, reader->err);
    if (status != MICS_OK)
        return status;
    reader->special = calloc(reader->special_count + 1, sizeof *reader->special);
    if (!reader->special)
        return mics_err_nomem(reader->err);
    if (named)
        return read_special(reader, &list);
    memcpy(reader->special, default_special, sizeof default_special);
    return MICS_OK;
}

static enum mics_status add_special(const struct reader *reader)
{
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    char text[32];

    for (uint32_t id = 0; id < reader->special_count; id++) {
        const char *name = reader->special[id];

        if (!name) {
            snprintf(text, sizeof text, "<SPECIAL_%lu>", (unsigned long)id);
            name = text;
        }
        if (mics_tokenizer_id(tokenizer, name) != MICS_NO_TOKEN)
            return mics_err_set(reader->err, MICS_ERR_FORMAT, "special_tokens: '%s' is there twice",
                                name);

        const enum mics_status status =
            mics_tokenizer_add_special(tokenizer, name, id, reader->err);

        if (status != MICS_OK)
            return status;
        if (strcmp(name, "</s>") == 0)
            tokenizer->end = id;
        if (strcmp(name, "<s>") == 0)
            tokenizer->before[tokenizer->before_count++] = id;
    }
    return MICS_OK;
}

/* Token `rank` of the vocabulary. */
static enum mics_status add_token(const struct reader *reader, const struct mics_cursor *item,
                                  uint32_t rank)
{
    const char *text = NULL;
    uint32_t found = 0;
    size_t size = 0;
    enum mics_status status =
        mics_cursor_u32(item, "rank", 0, MICS_TOKENIZER_MAX_IDS, &found, reader->err);

    if (status == MICS_OK && found != rank)
        return mics_cursor_fail(item, "rank", reader->err, "expected %lu, found %lu",
                                (unsigned long)rank, (unsigned long)found);
    if (status == MICS_OK)
        status = mics_cursor_string(item, "token_bytes", &text, reader->err);
    if (status != MICS_OK)
        return status;

    unsigned char *bytes = malloc(strlen(text) + 1);

    if (!bytes)
        return mics_err_nomem(reader->err);
    if (!mics_base64_decode(text, strlen(text), bytes, &size) ||
        (rank < 256 && (size != 1 || bytes[0] != rank)))
        status = mics_cursor_fail(item, "token_bytes", reader->err,
                                  rank < 256 ? "expected the byte %lu in base64"
                                             : "token %lu is not base64",
                                  (unsigned long)rank);
    else
        status = mics_vocab_add(&reader->tokenizer->vocab, reader->special_count + rank, bytes,
                                size, MICS_TOKEN_MODEL, reader->err);
    free(bytes);
    return status;
}

static enum mics_status read_vocab(struct reader *reader)
{
    struct mics_cursor vocab, item;
    uint32_t size = 0;
    enum mics_status status = mics_cursor_array(&reader->root, "vocab", 256,
                                                MICS_TOKENIZER_MAX_IDS / 2, &vocab, reader->err);

    if (status != MICS_OK)
        return status;
    size = (uint32_t)mics_cursor_count(&vocab) + reader->special_count;
    if (mics_cursor_has(&reader->config, "default_vocab_size"))
        status = mics_cursor_u32(&reader->config, "default_vocab_size", reader->special_count + 256,
                                 size, &size, reader->err);
    reader->vocab_size = size - reader->special_count;
    for (uint32_t i = 0; status == MICS_OK && i < reader->vocab_size; i++) {
        status = mics_cursor_item(&vocab, i, &item, reader->err);
        if (status == MICS_OK)
            status = add_token(reader, &item, i);
    }
    return status;
}

static enum mics_status read_file(struct reader *reader)
{
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    enum mics_status status =
        mics_cursor_object(&reader->root, "config", &reader->config, reader->err);

    if (status == MICS_OK)
        status = mics_cursor_string(&reader->config, "pattern", &reader->pattern, reader->err);
    if (status == MICS_OK)
        status = read_version(reader);
    if (status == MICS_OK)
        status = find_special(reader);
    if (status == MICS_OK)
        status = read_vocab(reader);
    if (status == MICS_OK)
        status = add_special(reader);
    if (status != MICS_OK)
        return status;
    mics_bpe_find_bytes(&tokenizer->bpe, &tokenizer->vocab);
    status = mics_tokenizer_add_rank_merges(tokenizer, reader->err);
    if (status != MICS_OK)
        return status;
    tokenizer->bpe.whole_first = true;
    status = mics_splitter_init(&tokenizer->splitter, reader->pattern, strlen(reader->pattern),
                                reader->err);
    tokenizer->cut.classes = tokenizer->splitter.classes;
    tokenizer->cut.spaces =
        tokenizer->splitter.classes || strcmp(reader->pattern, TEKKEN_PATTERN) == 0;
    if (status != MICS_OK)
        mics_err_prefix(reader->err, "config.pattern");
    return status;
}

enum mics_status mics_tokenizer_read_tekken(struct mics_tokenizer *tokenizer,
                                            const struct mics_tokenizer_file *file,
                                            struct mics_err *err)
{
    struct reader reader = {.tokenizer = tokenizer, .err = err};
    json_t *root = NULL;
    enum mics_status status =
        mics_foreign_read((const char *)file->bytes, file->size, MAX_VALUES, &root, err);

    if (status == MICS_OK) {
        reader.root = mics_cursor_root(root);
        status = read_file(&reader);
    }
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->name);
    free(reader.special);
    json_decref(root);
    return status;
}
