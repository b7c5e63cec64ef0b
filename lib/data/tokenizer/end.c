/* SPDX-License-Identifier: Apache-2.0 */
/*
 * end.c - which token ends a document.
 *
 * The first of these that tells: eos_token of special_tokens_map.json or tokenizer_config.json, as
 * transformers takes it; eos_token_id of config.json, then of generation_config.json, of a list the
 * first; the main file, if its format has a token for it; the default of the tokenizer's class; the
 * only special token that has one of the customary names; the token between texts, sep_token or
 * [SEP], of models like BERT that have no other. The text of an ordinary token says
 * nothing.
 */
#include "data/tokenizer/companions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "--end-token=TEXT|ID"

/* The end in tokenizers of DeepSeek, with U+FF5C for bars and U+2581 for blanks. */
#define DEEPSEEK_END                                                                               \
    "<\xef\xbd\x9c"                                                                                \
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"

/* What many tokenizers have at the end of documents. */
static const char *const customary[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                        DEEPSEEK_END};

#define CUSTOMARY_COUNT (sizeof customary / sizeof customary[0])

/* Those that were taken before companions were read: fingerprints of then are still those of now
 * where they ended documents rightly. */
#define CUSTOMARY_FIRST 4

/* Defaults of classes in transformers. */
static const struct {
    const char *class, *end;
} class_ends[] = {
    {"GPT2Tokenizer", "<|endoftext|>"},
    {"Qwen2Tokenizer", "<|endoftext|>"},
    {"CodeGenTokenizer", "<|endoftext|>"},
    {"GPTNeoXTokenizer", "<|endoftext|>"},
    {"LlamaTokenizer", "</s>"},
    {"CodeLlamaTokenizer", "</s>"},
    {"RobertaTokenizer", "</s>"},
    {"BloomTokenizer", "</s>"},
    {"GemmaTokenizer", "<eos>"},
    {"CohereTokenizer", "<|END_OF_TURN_TOKEN|>"},
};

uint32_t mics_tokenizer_customary_end(const struct mics_tokenizer *tokenizer)
{
    uint32_t id = tokenizer->end;

    for (size_t i = 0; i < CUSTOMARY_FIRST && id == MICS_NO_TOKEN; i++)
        id = mics_tokenizer_id(tokenizer, customary[i]);
    return id;
}

static bool is_control(const struct mics_tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer->vocab.size &&
           (tokenizer->vocab.tokens[id].flags & (MICS_TOKEN_SPECIAL | MICS_TOKEN_ADDED)) != 0;
}

/* The id of a special token; MICS_NO_TOKEN: there is none, or an ordinary one of that text. */
static uint32_t special_id(const struct mics_tokenizer *tokenizer, const char *text)
{
    const uint32_t id = mics_tokenizer_id(tokenizer, text);

    return mics_tokenizer_is_special(tokenizer, id) ? id : MICS_NO_TOKEN;
}

/* eos_token_id of a configuration: an id, or a list whose first is meant. *told: it is there. */
static enum mics_status find_configured(struct mics_tokenizer *tokenizer, const char *name,
                                        bool *told, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = mics_companion_read(tokenizer, name, &doc, err);
    const json_t *value = json_object_get(doc, "eos_token_id");
    json_int_t id;

    if (!value) /* of models that do more than text */
        value = json_object_get(json_object_get(doc, "text_config"), "eos_token_id");
    if (json_is_array(value))
        value = json_array_get(value, 0);
    *told = false;
    if (status == MICS_OK && value && !json_is_null(value) && !json_is_integer(value))
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "%s: eos_token_id: expected an id, or a list of ids", name);
    id = json_is_integer(value) ? json_integer_value(value) : -1;
    json_decref(doc);
    if (status != MICS_OK || id < 0)
        return status;
    *told = true;
    if (id >= tokenizer->vocab.size ||
        (tokenizer->vocab.tokens[id].flags & MICS_TOKEN_PRESENT) == 0)
        mics_err_set(&tokenizer->end_problem, MICS_ERR_FORMAT,
                     "%s: eos_token_id %lld is not in the vocabulary of %s: " OPTION
                     " says which token ends a document",
                     name, (long long)id, tokenizer->main_file->name);
    else if (!is_control(tokenizer, (uint32_t)id))
        mics_err_set(&tokenizer->end_problem, MICS_ERR_FORMAT,
                     "%s: eos_token_id %lld is an ordinary token of %s: " OPTION
                     " says which token ends a document",
                     name, (long long)id, tokenizer->main_file->name);
    else
        tokenizer->end = (uint32_t)id;
    return MICS_OK;
}

/* What is between two texts. */
static enum mics_status guess_separator(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    struct mics_named_token named;
    enum mics_status status =
        mics_companions_named(tokenizer->companions, "sep_token", &named, err);

    if (status == MICS_OK && !(named.said && !named.text))
        tokenizer->end = special_id(tokenizer, named.text ? named.text : "[SEP]");
    return status;
}

/* The default of the class, else the only customary one. */
static enum mics_status guess(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    const char *first = NULL;
    char class[64];
    enum mics_status status =
        mics_companions_class(tokenizer->companions, class, sizeof class, err);

    for (size_t i = 0; i < sizeof class_ends / sizeof class_ends[0]; i++)
        if (status == MICS_OK && strcmp(class, class_ends[i].class) == 0)
            tokenizer->end = special_id(tokenizer, class_ends[i].end);
    if (status != MICS_OK || tokenizer->end != MICS_NO_TOKEN)
        return status;
    for (size_t i = 0; i < CUSTOMARY_COUNT; i++) {
        const uint32_t id = special_id(tokenizer, customary[i]);

        if (id == MICS_NO_TOKEN)
            continue;
        if (first) {
            tokenizer->end = MICS_NO_TOKEN;
            mics_err_set(&tokenizer->end_problem, MICS_ERR_FORMAT,
                         "%s: does not say which token ends a document, '%s' or '%s': " OPTION
                         " does",
                         tokenizer->main_file->name, first, customary[i]);
            return MICS_OK;
        }
        first = customary[i];
        tokenizer->end = id;
    }
    return first ? MICS_OK : guess_separator(tokenizer, err);
}

enum mics_status mics_tokenizer_find_end(struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    static const char *const configurations[] = {"config.json", "generation_config.json"};
    const uint32_t own = tokenizer->end;
    struct mics_named_token named;
    enum mics_status status =
        mics_companions_named(tokenizer->companions, "eos_token", &named, err);

    tokenizer->end = MICS_NO_TOKEN;
    if (status != MICS_OK)
        return status;
    if (named.text) {
        tokenizer->end = mics_tokenizer_id(tokenizer, named.text);
        if (tokenizer->end == MICS_NO_TOKEN)
            mics_err_set(&tokenizer->end_problem, MICS_ERR_FORMAT,
                         "%s: eos_token '%.80s' is not in the vocabulary of %s: " OPTION
                         " says which token ends a document",
                         named.file, named.text, tokenizer->main_file->name);
        return MICS_OK;
    }
    for (size_t i = 0; i < 2; i++) {
        bool told = false;

        status = find_configured(tokenizer, configurations[i], &told, err);
        if (status != MICS_OK || told)
            return status;
    }
    tokenizer->end = own;
    return own == MICS_NO_TOKEN && !named.said ? guess(tokenizer, err) : MICS_OK;
}

enum mics_status mics_tokenizer_need_end(const struct mics_tokenizer *tokenizer,
                                         struct mics_err *err)
{
    if (tokenizer->end != MICS_NO_TOKEN)
        return MICS_OK;
    if (tokenizer->end_problem.text[0])
        mics_err_set(err, MICS_ERR_FORMAT, "%s", tokenizer->end_problem.text);
    else
        mics_err_set(err, MICS_ERR_FORMAT,
                     "no file of the tokenizer says which token ends a document: " OPTION " does");
    if (tokenizer->path)
        mics_err_prefix(err, "%s", tokenizer->path);
    return MICS_ERR_FORMAT;
}

/* A number is an id, anything else a token's text. *id is MICS_NO_TOKEN if it is too large. */
static bool is_number(const char *token, uint32_t *id)
{
    unsigned long long number;

    *id = MICS_NO_TOKEN;
    if (token[0] == '\0' || token[strspn(token, "0123456789")] != '\0')
        return false;
    number = strtoull(token, NULL, 10);
    if (number < INT32_MAX)
        *id = (uint32_t)number;
    return true;
}

enum mics_status mics_parse_token_id(const char *token, uint32_t *out, struct mics_err *err)
{
    if (is_number(token, out) && *out != MICS_NO_TOKEN)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG,
                        "--end-token=%s: without a tokenizer an id is expected, not a text", token);
}

enum mics_status mics_tokenizer_set_end(struct mics_tokenizer *tokenizer, const char *token,
                                        struct mics_err *err)
{
    uint32_t id;
    const bool is_id = is_number(token, &id);

    if (id >= mics_tokenizer_size(tokenizer))
        id = MICS_NO_TOKEN;
    if (!is_id && !tokenizer->is_bytes)
        id = mics_tokenizer_id(tokenizer, token);
    if (tokenizer->is_bytes && id != 256)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--end-token=%s: of the tokenizer of bytes 256 ends a document", token);
    if (id == MICS_NO_TOKEN ||
        (!tokenizer->is_bytes && (tokenizer->vocab.tokens[id].flags & MICS_TOKEN_PRESENT) == 0))
        return mics_err_set(err, MICS_ERR_ARG, "--end-token=%s: the tokenizer has no such %s",
                            token, is_id ? "id" : "token");
    tokenizer->end = id;
    mics_tokenizer_sum_up(tokenizer);
    return MICS_OK;
}
