/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dir.h"
#include "base/file.h"
#include "data/tokenizer/companions.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

/* Files that a tokenizer is read from, the first that is there, and who reads them. tokenizer.model
 * is the name of two formats. */
static const struct reader {
    const char *name; /* of the file; * is anything */
    bool (*accepts)(const struct mics_tokenizer_file *file);
    enum mics_status (*read)(struct mics_tokenizer *tokenizer,
                             const struct mics_tokenizer_file *file, struct mics_err *err);
} readers[] = {
    {"tokenizer.json", NULL, mics_tokenizer_read_json},
    {"vocab.json", NULL, mics_tokenizer_read_vocab_merges},
    {"encoder.json", NULL, mics_tokenizer_read_vocab_merges},
    {"vocab.txt", NULL, mics_tokenizer_read_vocab_text},
    {"tokenizer.model", mics_tokenizer_is_tiktoken, mics_tokenizer_read_tiktoken},
    {"tokenizer.model", NULL, mics_tokenizer_read_sentencepiece},
    {"*.tiktoken", NULL, mics_tokenizer_read_tiktoken},
    {"tekken*.json", NULL, mics_tokenizer_read_tekken},
};

/* Files beside it that belong to it. */
static const char *const companions[] = {
    "merges.txt",        "vocab.bpe",           "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "config.json",           "generation_config.json",
};

/* The first two are one with the main file. The others are covered by what they change. */
#define MAIN_COMPANIONS 2

const struct mics_tokenizer_file *mics_tokenizer_file(const struct mics_tokenizer *tokenizer,
                                                      const char *name)
{
    for (size_t i = 0; i < tokenizer->file_count; i++)
        if (fnmatch(name, tokenizer->files[i].name, 0) == 0)
            return &tokenizer->files[i];
    return NULL;
}

void mics_tokenizer_free(struct mics_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    mics_vocab_fini(&tokenizer->vocab);
    mics_model_fini(&tokenizer->model);
    mics_added_fini(&tokenizer->added);
    mics_splitter_fini(&tokenizer->splitter);
    mics_decoding_free(tokenizer->decoding);
    if (tokenizer->normalizer.free_state != NULL)
        tokenizer->normalizer.free_state(tokenizer->normalizer.state);
    if (tokenizer->pretokenizer.free_state != NULL)
        tokenizer->pretokenizer.free_state(tokenizer->pretokenizer.state);
    for (size_t i = 0; i < tokenizer->file_count; i++)
        free(tokenizer->files[i].bytes);
    free(tokenizer->files);
    free(tokenizer->path);
    free(tokenizer);
}

static struct mics_tokenizer *new_tokenizer(void)
{
    struct mics_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);

    if (tokenizer == NULL)
        return NULL;
    mics_model_init(&tokenizer->model);
    tokenizer->end = tokenizer->customary_end = MICS_NO_TOKEN;
    return tokenizer;
}

enum mics_status mics_tokenizer_open_bytes(struct mics_tokenizer **out, struct mics_err *err)
{
    *out = new_tokenizer();
    if (*out == NULL)
        return mics_err_nomem(err);
    (*out)->is_bytes = true;
    (*out)->end = 256;
    (*out)->fingerprint = XXH64("bytes", 5, 0);
    return MICS_OK;
}

/* Add a file; `bytes` go over to the tokenizer, also after a failure. */
static enum mics_status add_file(struct mics_tokenizer *tokenizer, const char *name, void *bytes,
                                 size_t size, struct mics_err *err)
{
    struct mics_tokenizer_file *grown =
        realloc(tokenizer->files, (tokenizer->file_count + 1) * sizeof *grown);

    if (grown == NULL || strlen(name) >= sizeof grown->name) {
        tokenizer->files = grown == NULL ? tokenizer->files : grown;
        free(bytes);
        return grown == NULL ? mics_err_nomem(err)
                             : mics_err_set(err, MICS_ERR_FORMAT,
                                            "\"%s\": the name is longer "
                                            "than %zu bytes",
                                            name, sizeof grown->name - 1);
    }
    tokenizer->files = grown;
    grown += tokenizer->file_count++;
    *grown = (struct mics_tokenizer_file){.bytes = bytes, .size = size};
    strcpy(grown->name, name);
    return MICS_OK;
}

/* Read a file of a folder, if it is there. */
static enum mics_status load_file(struct mics_tokenizer *tokenizer, const char *folder,
                                  const char *name, struct mics_err *err)
{
    char path[MICS_PATH_MAX], *bytes;
    bool exists = false;
    size_t size;
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder, name);

    if (status == MICS_OK)
        status = mics_file_exists(path, &exists, err);
    if (status != MICS_OK || !exists)
        return status;
    status = mics_file_read_regular(path, MICS_TOKENIZER_MAX_BYTES, &bytes, &size, err);
    return status == MICS_OK ? add_file(tokenizer, name, bytes, size, err) : status;
}

/* Which of the files, or of those in a folder, is the tokenizer? */
static const struct reader *find_reader(const struct mics_tokenizer *tokenizer,
                                        const struct mics_tokenizer_file **file)
{
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        *file = mics_tokenizer_file(tokenizer, readers[i].name);
        if (*file != NULL && (readers[i].accepts == NULL || readers[i].accepts(*file)))
            return &readers[i];
    }
    return NULL;
}

static uint64_t sum_main_files(const struct mics_tokenizer *tokenizer)
{
    XXH64_state_t *state = XXH64_createState();
    uint64_t sum = 0;

    if (state == NULL)
        return 0;
    XXH64_reset(state, 0);
    for (size_t i = 0; i <= MAIN_COMPANIONS; i++) {
        const struct mics_tokenizer_file *file =
            i == 0 ? tokenizer->main_file : mics_tokenizer_file(tokenizer, companions[i - 1]);

        if (file != NULL) {
            const uint64_t size = file->size;

            XXH64_update(state, file->name, strlen(file->name) + 1);
            XXH64_update(state, &size, sizeof size);
            XXH64_update(state, file->bytes, file->size);
        }
    }
    sum = XXH64_digest(state);
    XXH64_freeState(state);
    return sum;
}

void mics_tokenizer_note(struct mics_tokenizer *tokenizer, const void *bytes, size_t size)
{
    tokenizer->settings_sum = XXH64(bytes, size, tokenizer->settings_sum);
}

void mics_tokenizer_sum_up(struct mics_tokenizer *tokenizer)
{
    uint64_t sum = tokenizer->main_sum;

    if (tokenizer->is_bytes)
        return;
    if (tokenizer->settings_sum != 0)
        sum = XXH64(&tokenizer->settings_sum, sizeof tokenizer->settings_sum, sum);
    if (tokenizer->end != tokenizer->customary_end)
        sum = XXH64(&tokenizer->end, sizeof tokenizer->end, sum);
    tokenizer->fingerprint = sum;
}

/* Read the main file, and then what others beside it change. */
static enum mics_status read_with_companions(struct mics_tokenizer *tokenizer,
                                             const struct reader *reader, struct mics_err *err)
{
    enum mics_status status = reader->read(tokenizer, tokenizer->main_file, err);

    if (status != MICS_OK)
        return status;
    tokenizer->customary_end = mics_tokenizer_customary_end(tokenizer);
    status = mics_companions_apply(tokenizer, err);
    if (status != MICS_OK)
        return status;
    status = mics_companions_set_around(tokenizer, err);
    return status == MICS_OK ? mics_tokenizer_find_end(tokenizer, err) : status;
}

/* Read the files that the tokenizer has. */
static enum mics_status read_files(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    struct mics_companions beside = {.config = NULL};
    const struct reader *reader = find_reader(tokenizer, &tokenizer->main_file);
    enum mics_status status;

    if (reader == NULL)
        return mics_err_set(
            err, MICS_ERR_FORMAT,
            "no tokenizer.json, vocab.json, vocab.txt, tokenizer.model, tekken.json or .tiktoken");
    status = mics_companions_read(tokenizer, &beside, err);
    tokenizer->companions = &beside;
    if (status == MICS_OK)
        status = read_with_companions(tokenizer, reader, err);
    tokenizer->companions = NULL;
    mics_companions_free(&beside);
    if (status != MICS_OK)
        return status;
    mics_added_finish(&tokenizer->added);
    status = mics_model_finish(&tokenizer->model, &tokenizer->vocab, err);
    if (status != MICS_OK)
        return status;
    tokenizer->main_sum = sum_main_files(tokenizer);
    mics_tokenizer_sum_up(tokenizer);
    return MICS_OK;
}

/* *name = the first in alphabetical order of the files in a folder that match; "": none does. */
static enum mics_status find_name(const char *folder, const char *pattern, char name[NAME_MAX + 1],
                                  struct mics_err *err)
{
    struct mics_dir dir;
    const char *next;
    enum mics_status status = mics_dir_open(folder, &dir, err);

    name[0] = '\0';
    while (status == MICS_OK && (next = mics_dir_next(&dir)) != NULL)
        if (fnmatch(pattern, next, FNM_PERIOD) == 0 && (!name[0] || strcmp(next, name) < 0))
            snprintf(name, NAME_MAX + 1, "%s", next);
    return mics_dir_close(&dir, status, err);
}

/* The files of a folder that a tokenizer can have. */
static enum mics_status load_folder(struct mics_tokenizer *tokenizer, const char *folder,
                                    struct mics_err *err)
{
    char name[NAME_MAX + 1];
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < sizeof readers / sizeof readers[0] && status == MICS_OK; i++) {
        if (i > 0 && strcmp(readers[i].name, readers[i - 1].name) == 0)
            continue;
        if (strchr(readers[i].name, '*') == NULL) {
            status = load_file(tokenizer, folder, readers[i].name, err);
            continue;
        }
        status = find_name(folder, readers[i].name, name, err);
        if (status == MICS_OK && name[0])
            status = load_file(tokenizer, folder, name, err);
    }
    return status;
}

static enum mics_status load(struct mics_tokenizer *tokenizer, const char *path,
                             struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    struct stat info;
    enum mics_status status;

    if (stat(path, &info) != 0)
        return mics_err_set_errno(err, "%s", path);
    if (S_ISDIR(info.st_mode)) {
        status = mics_path_format(folder, err, "%s", path);
        if (status == MICS_OK)
            status = load_folder(tokenizer, folder, err);
    } else {
        const char *slash = strrchr(path, '/');

        mics_path_parent(path, folder);
        status = load_file(tokenizer, folder, slash == NULL ? path : slash + 1, err);
    }
    for (size_t i = 0; i < sizeof companions / sizeof companions[0] && status == MICS_OK; i++)
        if (mics_tokenizer_file(tokenizer, companions[i]) == NULL)
            status = load_file(tokenizer, folder, companions[i], err);
    return status;
}

enum mics_status mics_tokenizer_open(const char *path, struct mics_tokenizer **out,
                                     struct mics_err *err)
{
    struct mics_tokenizer *tokenizer = new_tokenizer();
    enum mics_status status;

    *out = NULL;
    if (tokenizer == NULL)
        return mics_err_nomem(err);
    status = load(tokenizer, path, err);
    if (status == MICS_OK) {
        tokenizer->path = strdup(path);
        status = tokenizer->path == NULL ? mics_err_nomem(err) : read_files(tokenizer, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", path);
    }
    if (status != MICS_OK) {
        mics_tokenizer_free(tokenizer);
        return status;
    }
    *out = tokenizer;
    return MICS_OK;
}

enum mics_status mics_tokenizer_open_files(const struct mics_tokenizer_file *files, size_t count,
                                           struct mics_tokenizer **out, struct mics_err *err)
{
    struct mics_tokenizer *tokenizer = new_tokenizer();
    enum mics_status status = MICS_OK;

    *out = NULL;
    if (tokenizer == NULL)
        return mics_err_nomem(err);
    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        unsigned char *copy = malloc(files[i].size + 1);

        if (copy == NULL) {
            status = mics_err_nomem(err);
            break;
        }
        memcpy(copy, files[i].bytes, files[i].size);
        copy[files[i].size] = '\0';
        status = add_file(tokenizer, files[i].name, copy, files[i].size, err);
    }
    if (status == MICS_OK)
        status = read_files(tokenizer, err);
    if (status != MICS_OK) {
        mics_tokenizer_free(tokenizer);
        return status;
    }
    *out = tokenizer;
    return MICS_OK;
}

bool mics_tokenizer_is_bytes(const struct mics_tokenizer *tokenizer)
{
    return tokenizer->is_bytes;
}

uint32_t mics_tokenizer_size(const struct mics_tokenizer *tokenizer)
{
    return tokenizer->is_bytes ? 257 : tokenizer->vocab.size;
}

uint32_t mics_tokenizer_text_size(const struct mics_tokenizer *tokenizer)
{
    return mics_tokenizer_size(tokenizer) - tokenizer->named_count;
}

void mics_tokenizer_restore(struct mics_tokenizer *tokenizer, uint32_t end, const char *fingerprint)
{
    tokenizer->end = end;
    mics_tokenizer_sum_up(tokenizer);
    if (fingerprint != NULL)
        tokenizer->fingerprint = strtoull(fingerprint, NULL, 16);
}

uint32_t mics_tokenizer_end(const struct mics_tokenizer *tokenizer)
{
    return tokenizer->end;
}

uint32_t mics_tokenizer_begin(const struct mics_tokenizer *tokenizer)
{
    return tokenizer->before_count > 0 ? tokenizer->before[0] : MICS_NO_TOKEN;
}

/* A token that mics_vocab_find() does not find. */
static uint32_t find_other(const struct mics_vocab *vocab, const void *text, size_t length)
{
    for (uint32_t id = 0; id < vocab->size; id++) {
        const struct mics_token *token = &vocab->tokens[id];

        if ((token->flags & MICS_TOKEN_PRESENT) != 0 && (token->flags & MICS_TOKEN_MODEL) == 0 &&
            token->length == length && memcmp(vocab->text.bytes + token->offset, text, length) == 0)
            return id;
    }
    return MICS_NO_TOKEN;
}

uint32_t mics_tokenizer_id(const struct mics_tokenizer *tokenizer, const char *token)
{
    size_t length = strlen(token);
    unsigned char *bytes = malloc(length + 1);
    const void *text = token;
    uint32_t id = MICS_NO_TOKEN;

    if (bytes == NULL)
        return MICS_NO_TOKEN;
    /* What is not in the alphabet of byte-level models is no token of the model. */
    if (tokenizer->model.characters)
        id = mics_vocab_find(&tokenizer->vocab, token, length);
    else if (mics_byte_level_decode(token, length, bytes, &length))
        id = mics_vocab_find(&tokenizer->vocab, text = bytes, length);
    else
        length = strlen(token);
    if (id == MICS_NO_TOKEN)
        id = find_other(&tokenizer->vocab, text, length);
    free(bytes);
    return id;
}

static bool is_white_space(unsigned char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

bool mics_tokenizer_is_special(const struct mics_tokenizer *tokenizer, uint32_t id)
{
    if (tokenizer->is_bytes)
        return id == 256;
    return id < tokenizer->vocab.size &&
           (tokenizer->vocab.tokens[id].flags & MICS_TOKEN_SPECIAL) != 0;
}

bool mics_tokenizer_begins_word(const struct mics_tokenizer *tokenizer, uint32_t id)
{
    static const char space[] = "\xe2\x96\x81"; /* ▁ */
    const struct mics_token *token;
    const unsigned char *text;

    if (tokenizer->is_bytes)
        return id < 256 && is_white_space((unsigned char)id);
    if (id >= tokenizer->vocab.size)
        return true;
    token = &tokenizer->vocab.tokens[id];
    text = tokenizer->vocab.text.bytes + token->offset;
    if (tokenizer->model.kind == MICS_MODEL_WORDPIECE) {
        const char *prefix = tokenizer->model.wordpiece.prefix;
        const size_t length = strlen(prefix);

        return length == 0 || token->length <= length || memcmp(text, prefix, length) != 0;
    }
    return token->length > 0 &&
           (is_white_space(text[0]) ||
            (token->length >= sizeof space - 1 && memcmp(text, space, sizeof space - 1) == 0));
}

const struct mics_tokenizer_file *mics_tokenizer_files(const struct mics_tokenizer *tokenizer,
                                                       size_t *count)
{
    *count = tokenizer->file_count;
    return tokenizer->files;
}

uint64_t mics_tokenizer_fingerprint(const struct mics_tokenizer *tokenizer)
{
    return tokenizer->fingerprint;
}
