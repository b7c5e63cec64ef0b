/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer_json.h - the parts of tokenizer.json that change and cut text, which SentencePiece's
 * models have too. For lib/data/tokenizer only.
 */
#ifndef MICS_DATA_TOKENIZER_TOKENIZER_JSON_H
#define MICS_DATA_TOKENIZER_TOKENIZER_JSON_H

#include "data/tokenizer/internal.h"
#include "doc/cursor.h"

/* What SentencePiece writes for a space, U+2581. */
#define MICS_METASPACE "\xe2\x96\x81"

/* Read member "normalizer" of `root`: NFC, NFD, NFKC, NFKD, Prepend, Replace of a string, or a
 * Sequence of them. Absent or null leaves *out unchanged. *forms_only: nothing but Unicode's normal
 * forms is in it. MICS_ERR_FORMAT: something else, by its path and name. */
enum mics_status mics_normalizer_read(const struct mics_cursor *root, struct mics_normalizer *out,
                                      bool *forms_only, struct mics_err *err);

/* Read member "pre_tokenizer" of `root` into splitter and pretokenizer: ByteLevel, Split, Digits,
 * Punctuation, Metaspace, or a Sequence of them. *byte_level: tokens are bytes. */
enum mics_status mics_pretokenizer_read(const struct mics_cursor *root,
                                        struct mics_tokenizer *tokenizer, bool *byte_level,
                                        struct mics_err *err);

/* Let long texts be cut before U+2581, where no token of the vocabulary, which must be complete,
 * reaches across: pieces are then words, and ids stay those of the whole text. */
enum mics_status mics_pretokenizer_cut_words(struct mics_tokenizer *tokenizer,
                                             struct mics_err *err);

#endif
