/* SPDX-License-Identifier: Apache-2.0 */
/*
 * companions.h - what the files beside a tokenizer's main file say about ids, read as transformers
 * reads them. For lib/data/tokenizer only.
 *
 * tokenizer_config.json  names of special tokens, added_tokens_decoder, flags, the class
 * special_tokens_map.json  the same names; it counts, and before tokenizer_config.json, unless that
 *   has added_tokens_decoder
 * added_tokens.json  tokens and their ids; it counts unless there is an added_tokens_decoder
 * config.json, generation_config.json  eos_token_id, for a tokenizer whose files name no end
 */
#ifndef MICS_DATA_TOKENIZER_COMPANIONS_H
#define MICS_DATA_TOKENIZER_COMPANIONS_H

#include "data/tokenizer/tokenizer_internal.h"

#include <jansson.h>

struct mics_companions {
    json_t *config, *map, *added; /* NULL: there is no such file */
    bool map_counts, added_counts;
};

/* A token that a file names. text NULL: none, and `said` if a file says so with null. */
struct mics_named_token {
    const char *text, *file;
    bool said;
    json_t *value; /* borrowed: a text, or an object with "content" */
};

/* Read the files that the tokenizer has. MICS_ERR_FORMAT: one of them is malformed. The caller
 * frees *out also after an error. */
enum mics_status mics_companions_read(const struct mics_tokenizer *tokenizer,
                                      struct mics_companions *out, struct mics_err *err);
void mics_companions_free(struct mics_companions *companions); /* all zeros is fine */

/* The class of the tokenizer without "Fast" at its end, in buf[size]; "" if it is not said. */
enum mics_status mics_companions_class(const struct mics_companions *companions, char *buf,
                                       size_t size, struct mics_err *err);
/* A boolean of tokenizer_config.json; absent or null leaves *out unchanged. */
enum mics_status mics_companions_flag(const struct mics_companions *companions, const char *key,
                                      bool *out, struct mics_err *err);
/* The token of a key such as "eos_token". */
enum mics_status mics_companions_named(const struct mics_companions *companions, const char *key,
                                       struct mics_named_token *out, struct mics_err *err);

/* Do files list added tokens with their ids? */
bool mics_companions_list_tokens(const struct mics_companions *companions);

/* Add the tokens that the files list or name, once the main file is read. MICS_ERR_FORMAT: two
 * files have different texts for an id, or different ids for a text, or an id is another one than
 * the tokenizers library would give. */
enum mics_status mics_companions_apply(struct mics_tokenizer *tokenizer, struct mics_err *err);

/* Set what is around a text, by tokenizer->around and what files say of it. */
enum mics_status mics_companions_set_around(struct mics_tokenizer *tokenizer, struct mics_err *err);

/* *out = the object that a file has, NULL: there is no such file. The caller owns it. */
enum mics_status mics_companion_read(const struct mics_tokenizer *tokenizer, const char *name,
                                     json_t **out, struct mics_err *err);

/* end.c: set tokenizer->end by what all files say, or end_problem if they do not tell. */
enum mics_status mics_tokenizer_find_end(struct mics_tokenizer *tokenizer, struct mics_err *err);

#endif
