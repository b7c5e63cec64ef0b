/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/train_internal.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define END_OF_TEXT "<|endoftext|>"

uint32_t mics_byte_character(unsigned char byte)
{
    uint32_t others = 0;

    if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad))
        return byte;
    for (unsigned i = 0; i < byte; i++)
        others += !((i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i != 0xad));
    return 0x100 + others;
}

/* Write the token's bytes as characters. `text` has room for 2 * size + 1 bytes. */
static void spell(const struct mics_trained_token *token, char *text)
{
    for (uint32_t i = 0; i < token->size; i++) {
        const uint32_t character = mics_byte_character(token->bytes[i]);

        if (character >= 0x80)
            *text++ = (char)(0xc0 | character >> 6);
        *text++ = (char)(character < 0x80 ? character : 0x80 | (character & 0x3f));
    }
    *text = '\0';
}

static json_t *spelling(const struct mics_trained_token *token)
{
    char *text = malloc(2 * (size_t)token->size + 1);
    json_t *string = NULL;

    if (text) {
        spell(token, text);
        string = json_string(text);
    }
    free(text);
    return string;
}

/* NULL: out of memory, here and below. */
static json_t *vocab(const struct mics_vocabulary *vocabulary)
{
    json_t *object = json_object();
    bool fits = object != NULL;

    for (uint32_t id = 0; fits && id < vocabulary->token_count; id++) {
        json_t *name = spelling(&vocabulary->tokens[id]);

        fits = name && json_object_set_new(object, json_string_value(name), json_integer(id)) == 0;
        json_decref(name);
    }
    fits = fits &&
           json_object_set_new(object, END_OF_TEXT, json_integer(vocabulary->token_count)) == 0;
    if (fits)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *merges(const struct mics_vocabulary *vocabulary)
{
    json_t *array = json_array();
    bool fits = array != NULL;

    for (size_t i = 0; fits && i < vocabulary->merge_count; i++) {
        const struct mics_trained_merge *merge = &vocabulary->merges[i];
        json_t *left = spelling(&vocabulary->tokens[merge->left]);
        json_t *right = spelling(&vocabulary->tokens[merge->right]);

        /* json_pack() takes over the strings, also when it fails. */
        fits = json_array_append_new(array, json_pack("[o, o]", left, right)) == 0;
    }
    if (fits)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", 1);
}

static json_t *tokenizer(const struct mics_vocabulary *vocabulary)
{
    json_t *end = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                            (int)vocabulary->token_count, "content", END_OF_TEXT, "single_word", 0,
                            "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
    json_t *model = json_pack(
        "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
        "ignore_merges", 0, "vocab", vocab(vocabulary), "merges", merges(vocabulary));

    return json_pack("{s:s, s:n, s:n, s:[o], s:n, s:o, s:n, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", end, "normalizer", "pre_tokenizer",
                     byte_level(), "post_processor", "decoder", byte_level(), "model", model);
}

static json_t *configuration(void)
{
    return json_pack("{s:s, s:s, s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                     "bos_token", END_OF_TEXT, "eos_token", END_OF_TEXT,
                     "clean_up_tokenization_spaces", 0);
}

/* Consumes `doc`, NULL if there was no memory for it. */
static enum mics_status put_file(const char *name, json_t *doc, struct mics_tokenizer_file *file,
                                 struct mics_err *err)
{
    char *text = doc ? json_dumps(doc, JSON_INDENT(1)) : NULL;

    json_decref(doc);
    if (!text)
        return mics_err_nomem(err);
    snprintf(file->name, sizeof file->name, "%s", name);
    file->bytes = (unsigned char *)text;
    file->size = strlen(text);
    return MICS_OK;
}

const char *const mics_trained_names[MICS_TRAINED_FILES] = {"tokenizer.json",
                                                            "tokenizer_config.json"};

enum mics_status mics_trained_files(const struct mics_vocabulary *vocabulary,
                                    struct mics_tokenizer_file files[MICS_TRAINED_FILES],
                                    struct mics_err *err)
{
    const enum mics_status status =
        put_file(mics_trained_names[0], tokenizer(vocabulary), &files[0], err);

    return status == MICS_OK ? put_file(mics_trained_names[1], configuration(), &files[1], err)
                             : status;
}
