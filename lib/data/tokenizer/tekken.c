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
 * Only what default_vocab_size leaves of `vocab` is used. Special tokens that have no name are
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
    struct mics_reading *reading;
};

static void read_version(struct reader *reader)
{
    const char *text = mics_cursor_get_string(&reader->config, "version");
    const bool known = text[0] == 'v' && text[1] >= '1' && text[1] <= '9';
    char *end = NULL;

    if (known)
        reader->old = strtoul(text + 1, &end, 10) <= 7;
    if (!known || *end != '\0')
        mics_cursor_reject(&reader->config, "version", "version '%s' is not supported", text);
}

static void read_special(const struct reader *reader, const struct mics_cursor *list)
{
    for (size_t i = 0; i < mics_cursor_count(list) && mics_cursor_ok(list); i++) {
        const struct mics_cursor item = mics_cursor_get_item(list, i);
        const uint32_t rank =
            mics_cursor_get_u32(&item, "rank", 0, (uint32_t)mics_cursor_count(list) - 1);
        const char *text = mics_cursor_get_string(&item, "token_str");

        if (text[0] == '\0')
            mics_cursor_reject(&item, "token_str", "must not be empty");
        if (reader->special[rank])
            mics_cursor_reject(&item, "rank", "%lu is there twice", (unsigned long)rank);
        reader->special[rank] = text;
    }
}

/* The special tokens that have names, and how many there are. */
static void find_special(struct reader *reader)
{
    const bool named = mics_cursor_has(&reader->root, "special_tokens");
    struct mics_cursor list = {0};
    uint32_t count = sizeof default_special / sizeof default_special[0];

    if (!named && !reader->old)
        mics_cursor_reject(&reader->root, "special_tokens",
                           "missing; files later than version 7 have them");
    if (named) {
        list = mics_cursor_get_array(&reader->root, "special_tokens", 0, MAX_SPECIAL);
        count = (uint32_t)mics_cursor_count(&list);
    }
    reader->special_count = mics_cursor_opt_u32(&reader->config, "default_num_special_tokens",
                                                count, MAX_SPECIAL, count);
    if (!mics_cursor_ok(&reader->root))
        return;
    reader->special = calloc(reader->special_count + 1, sizeof *reader->special);
    if (!reader->special)
        mics_cursor_nomem(&reader->root);
    else if (named)
        read_special(reader, &list);
    else
        memcpy(reader->special, default_special, sizeof default_special);
}

static enum mics_status add_special(const struct reader *reader, struct mics_err *err)
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
            return mics_err_set(err, MICS_ERR_FORMAT, "special_tokens: '%s' is there twice", name);

        const enum mics_status status = mics_tokenizer_add_special(tokenizer, name, id, err);

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
static void add_token(const struct reader *reader, const struct mics_cursor *item, uint32_t rank)
{
    struct mics_reading *reading = reader->reading;
    const uint32_t found = mics_cursor_get_u32(item, "rank", 0, MICS_TOKENIZER_MAX_IDS);
    size_t size = 0;

    if (found != rank)
        mics_cursor_reject(item, "rank", "expected %lu, found %lu", (unsigned long)rank,
                           (unsigned long)found);
    const char *text = mics_cursor_get_string(item, "token_bytes");
    unsigned char *bytes = malloc(strlen(text) + 1);

    if (!bytes)
        mics_cursor_nomem(item);
    else if (!mics_base64_decode(text, strlen(text), bytes, &size) ||
             (rank < 256 && (size != 1 || bytes[0] != rank)))
        mics_cursor_reject(item, "token_bytes",
                           rank < 256 ? "expected the byte %lu in base64"
                                      : "token %lu is not base64",
                           (unsigned long)rank);
    else if (mics_cursor_ok(item))
        reading->status = mics_vocab_add(&reader->tokenizer->vocab, reader->special_count + rank,
                                         bytes, size, MICS_TOKEN_MODEL, reading->err);
    free(bytes);
}

static void read_vocab(struct reader *reader)
{
    const struct mics_cursor vocab =
        mics_cursor_get_array(&reader->root, "vocab", 256, MICS_TOKENIZER_MAX_IDS / 2);
    const uint32_t all = (uint32_t)mics_cursor_count(&vocab) + reader->special_count;
    const uint32_t size = mics_cursor_opt_u32(&reader->config, "default_vocab_size",
                                              reader->special_count + 256, all, all);

    reader->vocab_size = size - reader->special_count;
    for (uint32_t i = 0; i < reader->vocab_size && mics_cursor_ok(&vocab); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&vocab, i);

        add_token(reader, &item, i);
    }
}

static enum mics_status read_file(struct reader *reader, struct mics_err *err)
{
    struct mics_tokenizer *tokenizer = reader->tokenizer;
    enum mics_status status;

    reader->config = mics_cursor_get_object(&reader->root, "config");
    reader->pattern = mics_cursor_get_string(&reader->config, "pattern");
    read_version(reader);
    find_special(reader);
    read_vocab(reader);
    if (reader->reading->status != MICS_OK)
        return reader->reading->status;
    status = add_special(reader, err);
    if (status != MICS_OK)
        return status;
    mics_model_find_bytes(&tokenizer->model, &tokenizer->vocab);
    status = mics_tokenizer_add_rank_merges(tokenizer, err);
    if (status != MICS_OK)
        return status;
    tokenizer->model.bpe.whole_first = true;
    status =
        mics_splitter_init(&tokenizer->splitter, reader->pattern, strlen(reader->pattern), err);
    tokenizer->cut.classes = tokenizer->splitter.classes;
    tokenizer->cut.spaces =
        tokenizer->splitter.classes || strcmp(reader->pattern, TEKKEN_PATTERN) == 0;
    if (status != MICS_OK)
        mics_err_prefix(err, "config.pattern");
    return status;
}

enum mics_status mics_tokenizer_read_tekken(struct mics_tokenizer *tokenizer,
                                            const struct mics_tokenizer_file *file,
                                            struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    struct reader reader = {.tokenizer = tokenizer, .reading = &reading};
    json_t *root = NULL;
    enum mics_status status =
        mics_foreign_read((const char *)file->bytes, file->size, MAX_VALUES, &root, err);

    if (status == MICS_OK) {
        reader.root = mics_cursor_begin(root, &reading);
        status = read_file(&reader, err);
    }
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->name);
    free(reader.special);
    json_decref(root);
    return status;
}
