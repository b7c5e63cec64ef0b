/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiktoken.c - files of tiktoken, "base64 rank" a line: OpenAI's, and Llama 3's tokenizer.model.
 *
 * Any two neighbours whose bytes together are a token may become it, the lowest rank first. The
 * regular expression is not in the file: it follows from its name and, as a check, from the number
 * of its ranks; so do the special tokens, unless tokenizer_config.json lists them.
 */
#include "data/tokenizer/companions.h"

#include <stdio.h>
#include <string.h>

#define O200K_PATTERN                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                                                               \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                                                               \
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3_PATTERN                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                     \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

struct special {
    const char *text;
    uint32_t id;
};

static const struct encoding {
    const char *name; /* the file's, without .tiktoken */
    uint32_t ranks;
    const char *pattern;
    struct special special[11];
} encodings[] = {
    {"r50k_base", 50256, MICS_GPT2_PATTERN, {{"<|endoftext|>", 50256}}},
    {"p50k_base", 50280, MICS_GPT2_PATTERN, {{"<|endoftext|>", 50256}}},
    {"cl100k_base",
     100256,
     LLAMA3_PATTERN,
     {{"<|endoftext|>", 100257},
      {"<|fim_prefix|>", 100258},
      {"<|fim_middle|>", 100259},
      {"<|fim_suffix|>", 100260},
      {"<|endofprompt|>", 100276}}},
    {"o200k_base", 199998, O200K_PATTERN, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
    /* Llama 3; its other 246 special tokens are named by read_llama3(). */
    {"tokenizer.model",
     128000,
     LLAMA3_PATTERN,
     {{"<|begin_of_text|>", 128000},
      {"<|end_of_text|>", 128001},
      {"<|reserved_special_token_0|>", 128002},
      {"<|reserved_special_token_1|>", 128003},
      {"<|reserved_special_token_2|>", 128004},
      {"<|reserved_special_token_3|>", 128005},
      {"<|start_header_id|>", 128006},
      {"<|end_header_id|>", 128007},
      {"<|reserved_special_token_4|>", 128008},
      {"<|eot_id|>", 128009}}},
};

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c == '\0' ? NULL : strchr(digits, c);

    return found == NULL ? -1 : (int)(found - digits);
}

bool mics_base64_decode(const char *text, size_t length, unsigned char *bytes, size_t *size)
{
    uint32_t bits = 0, count = 0;

    *size = 0;
    if (length == 0 || length % 4 != 0)
        return false;
    while (text[length - 1] == '=' && length % 4 != 2)
        length--;
    for (size_t i = 0; i < length; i++) {
        const int digit = base64_digit(text[i]);

        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count >= 8) {
            count -= 8;
            bytes[(*size)++] = (unsigned char)(bits >> count);
        }
    }
    return (bits & ((1u << count) - 1)) == 0;
}

char *mics_base64_encode(const unsigned char *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((size + 2) / 3 * 4 + 1), *end = text;

    if (!text)
        return NULL;
    for (size_t i = 0; i < size; i += 3) {
        const uint32_t second = i + 1 < size ? bytes[i + 1] : 0;
        const uint32_t third = i + 2 < size ? bytes[i + 2] : 0;
        const uint32_t bits = (uint32_t)bytes[i] << 16 | second << 8 | third;

        *end++ = digits[bits >> 18];
        *end++ = digits[bits >> 12 & 63];
        *end++ = i + 1 < size ? digits[bits >> 6 & 63] : '=';
        *end++ = i + 2 < size ? digits[bits & 63] : '=';
    }
    *end = '\0';
    return text;
}

/* Add the token of a line. */
static enum mics_status add_line(struct mics_tokenizer *tokenizer, const char *line, size_t length,
                                 struct mics_err *err)
{
    const char *blank = memchr(line, ' ', length);
    const size_t first = blank == NULL ? 0 : (size_t)(blank - line);
    unsigned char bytes[1024];
    uint32_t rank = 0;
    size_t size;

    if (first == 0 || first > sizeof bytes || first + 1 == length ||
        !mics_base64_decode(line, first, bytes, &size))
        return mics_err_set(err, MICS_ERR_FORMAT, "expected a token in base64 and its rank");
    for (size_t i = first + 1; i < length; i++) {
        if (line[i] < '0' || line[i] > '9' || rank >= MICS_TOKENIZER_MAX_IDS)
            return mics_err_set(err, MICS_ERR_FORMAT, "expected a rank below %u",
                                MICS_TOKENIZER_MAX_IDS);
        rank = 10 * rank + (uint32_t)(line[i] - '0');
    }
    return mics_vocab_add(&tokenizer->vocab, rank, bytes, size, MICS_TOKEN_MODEL, err);
}

static enum mics_status read_ranks(struct mics_tokenizer *tokenizer,
                                   const struct mics_tokenizer_file *file, struct mics_err *err)
{
    const char *text = (const char *)file->bytes, *end = text + file->size;

    for (unsigned long line = 1; text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((newline == NULL ? end : newline) - text);
        const char *next = text + length + (newline != NULL);

        if (length > 0 && text[length - 1] == '\r')
            length--;
        if (length > 0 && add_line(tokenizer, text, length, err) != MICS_OK) {
            mics_err_prefix(err, "line %lu", line);
            return MICS_ERR_FORMAT;
        }
        text = next;
    }
    return MICS_OK;
}

enum mics_status mics_tokenizer_add_rank_merges(struct mics_tokenizer *tokenizer,
                                                struct mics_err *err)
{
    const struct mics_vocab *vocab = &tokenizer->vocab;
    enum mics_status status = MICS_OK;

    for (uint32_t id = 0; id < vocab->size; id++) {
        const struct mics_token *token = &vocab->tokens[id];
        const unsigned char *text = vocab->text.bytes + token->offset;

        if ((token->flags & MICS_TOKEN_MODEL) == 0)
            continue;
        for (uint32_t cut = 1; cut < token->length && status == MICS_OK; cut++) {
            const uint32_t left = mics_vocab_find(vocab, text, cut);
            const uint32_t right = left == MICS_NO_TOKEN
                                       ? MICS_NO_TOKEN
                                       : mics_vocab_find(vocab, text + cut, token->length - cut);

            if (right != MICS_NO_TOKEN)
                status = mics_bpe_add_merge(&tokenizer->model.bpe, left, right, id, id, err);
        }
    }
    return status;
}

enum mics_status mics_tokenizer_add_special(struct mics_tokenizer *tokenizer, const char *text,
                                            uint32_t id, struct mics_err *err)
{
    const struct mics_added_token token = {.text = (char *)text, /* which is copied */
                                           .length = (uint32_t)strlen(text),
                                           .id = id,
                                           .special = true};

    return mics_tokenizer_add_token(tokenizer, &token, err);
}

/* Special tokens 5 and on of Llama 3. */
static enum mics_status finish_llama3(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    char text[40];

    for (unsigned i = 5; i <= 250 && status == MICS_OK; i++) {
        snprintf(text, sizeof text, "<|reserved_special_token_%u|>", i);
        status = mics_tokenizer_add_special(tokenizer, text, 128005 + i, err);
    }
    return status;
}

/* The special tokens that the files beside it list, or else those that the encoding has. */
static enum mics_status add_specials(struct mics_tokenizer *tokenizer,
                                     const struct encoding *encoding, struct mics_err *err)
{
    const bool llama3 = strcmp(encoding->name, "tokenizer.model") == 0;
    enum mics_status status = MICS_OK;

    tokenizer->sparse_ids = true;
    tokenizer->end = encoding->special[llama3].id;
    tokenizer->around = (struct mics_around){
        .is_set = true,
        .keys = {"bos_token", "eos_token"},
        .ids = {llama3 ? encoding->special[0].id : MICS_NO_TOKEN, tokenizer->end},
        .wanted = {llama3, false},
    };
    if (mics_companions_list_tokens(tokenizer->companions))
        return MICS_OK;
    for (const struct special *special = encoding->special;
         special->text != NULL && status == MICS_OK; special++)
        status = mics_tokenizer_add_special(tokenizer, special->text, special->id, err);
    return status == MICS_OK && llama3 ? finish_llama3(tokenizer, err) : status;
}

static const struct encoding *find_encoding(const char *name)
{
    for (size_t i = 0; i < sizeof encodings / sizeof encodings[0]; i++) {
        const size_t length = strlen(encodings[i].name);

        if (strncmp(name, encodings[i].name, length) == 0 &&
            (name[length] == '\0' || strcmp(name + length, ".tiktoken") == 0))
            return &encodings[i];
    }
    return NULL;
}

/* What the file does not have. */
static enum mics_status finish(struct mics_tokenizer *tokenizer, const struct encoding *encoding,
                               struct mics_err *err)
{
    enum mics_status status;

    if (tokenizer->vocab.used != encoding->ranks)
        return mics_err_set(err, MICS_ERR_FORMAT, "%lu ranks; %s has %lu",
                            (unsigned long)tokenizer->vocab.used, encoding->name,
                            (unsigned long)encoding->ranks);
    for (unsigned byte = 0; byte < 256; byte++)
        if (tokenizer->model.byte_ids[byte] == MICS_NO_TOKEN)
            return mics_err_set(err, MICS_ERR_FORMAT, "byte 0x%02x is not a token", byte);
    status = add_specials(tokenizer, encoding, err);
    if (status == MICS_OK)
        status = mics_splitter_init(&tokenizer->splitter, encoding->pattern,
                                    strlen(encoding->pattern), err);
    tokenizer->model.bpe.whole_first = true;
    tokenizer->cut.classes = tokenizer->splitter.classes;
    tokenizer->cut.spaces = true; /* also of O200K_PATTERN */
    return status;
}

bool mics_tokenizer_is_tiktoken(const struct mics_tokenizer_file *file)
{
    const char *text = (const char *)file->bytes;
    const char *blank = memchr(text, ' ', file->size < 1024 ? file->size : 1024);
    unsigned char bytes[1024];
    size_t size;

    return blank != NULL && mics_base64_decode(text, (size_t)(blank - text), bytes, &size);
}

enum mics_status mics_tokenizer_read_tiktoken(struct mics_tokenizer *tokenizer,
                                              const struct mics_tokenizer_file *file,
                                              struct mics_err *err)
{
    const struct encoding *encoding = find_encoding(file->name);
    enum mics_status status;

    if (encoding == NULL)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "%s: the regular expression and the special tokens of this file are "
                            "not known; r50k_base, p50k_base, cl100k_base and o200k_base are",
                            file->name);
    status = read_ranks(tokenizer, file, err);
    if (status != MICS_OK)
        goto out;
    mics_model_find_bytes(&tokenizer->model, &tokenizer->vocab);
    status = mics_tokenizer_add_rank_merges(tokenizer, err);
    if (status != MICS_OK)
        goto out;
    status = finish(tokenizer, encoding, err);
out:
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->name);
    return status;
}
