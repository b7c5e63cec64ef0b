/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encoded.h - text that is encoded when it is opened, and kept in memory: small files, and JSON
 * lines. What is larger is encoded once, into files of tokens (token_file.h).
 *
 * A document is the token that begins a text, if the tokenizer has one, its tokens, and the token
 * that ends it, likewise. Special tokens in the text are ordinary text.
 */
#ifndef MICS_DATA_ENCODED_H
#define MICS_DATA_ENCODED_H

#include "data/corpus.h"
#include "data/json_line.h"
#include "data/tokenizer.h"

/* Bytes of text that are encoded at most. */
#define MICS_ENCODED_MAX ((uint64_t)256 << 20)

/* A document, or the part of one, in ids[]. */
struct mics_encoded_part {
    uint64_t first, count;
    bool val; /* for validation */
};

struct mics_encoded {
    uint32_t *ids; /* with MICS_TOKEN_PROMPT (tokens.h) where a prompt is masked */
    uint64_t count, capacity;
    struct mics_encoded_part *parts;
    uint64_t part_count, part_capacity;
    uint64_t special; /* special tokens that were in the text */
    struct mics_bad_lines bad_lines;
};

struct mics_encoded_options {
    const struct mics_tokenizer *tokenizer; /* NULL: bytes */
    double val_fraction;                    /* of the bytes of a text, of the lines of a file */
    bool mask_prompt;                       /* of JSON lines */
    uint64_t bad_lines;                     /* damaged JSON lines that are skipped, at most */
};

/* Encode the mapped files of a corpus, each as one document. MICS_ERR_FORMAT: they have more than
 * MICS_ENCODED_MAX bytes, or the tokenizer fails. */
enum mics_status mics_encoded_texts(const struct mics_corpus *corpus,
                                    const struct mics_encoded_options *options,
                                    struct mics_encoded *out, struct mics_err *err);

/* Encode files of JSON lines. Each line is an object with a string "text", or with "prompt" and
 * "answer" or "completion", which become one document; blank lines are skipped. MICS_ERR_FORMAT:
 * the same, or more lines than `bad_lines` are not such objects, with file and line. */
enum mics_status mics_encoded_lines(const struct mics_corpus *corpus,
                                    const struct mics_encoded_options *options,
                                    struct mics_encoded *out, struct mics_err *err);

void mics_encoded_free(struct mics_encoded *encoded); /* all zeros is fine */

#endif
