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

/* Every member of an object that is not null must be one of `known`, which ends with NULL.
 * MICS_ERR_FORMAT: another one, by its path. */
enum mics_status mics_json_check_members(const struct mics_cursor *cursor, const char *const *known,
                                         struct mics_err *err);

/* Members of all that is of type ByteLevel. */
extern const char *const mics_byte_level_members[];

/* Read member "normalizer" of `root`: NFC, NFD, NFKC, NFKD, Prepend, Replace of a string, or a
 * Sequence of them. Absent or null leaves *out unchanged. MICS_ERR_FORMAT: something else, by its
 * path and name. */
enum mics_status mics_normalizer_read(const struct mics_cursor *root, struct mics_normalizer *out,
                                      struct mics_err *err);

/* Read member "pre_tokenizer" of `root` into splitter and pretokenizer: ByteLevel, Split, Digits,
 * Punctuation, Metaspace, or a Sequence of them. *byte_level: tokens are bytes. */
enum mics_status mics_pretokenizer_read(const struct mics_cursor *root,
                                        struct mics_tokenizer *tokenizer, bool *byte_level,
                                        struct mics_err *err);

/* Read member "post_processor" of `root`, with the vocabulary complete, into before and after:
 * ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, or a Sequence of them. */
enum mics_status mics_post_processor_read(const struct mics_cursor *root,
                                          struct mics_tokenizer *tokenizer, struct mics_err *err);

/* Read member "decoder" of `root` into metaspace and strip_first_space: ByteLevel, if tokens are
 * bytes (`byte_level`), else Replace, ByteFallback, Fuse, Strip. *byte_tokens: <0xNN> decodes to a
 * byte. */
enum mics_status mics_decoder_read(const struct mics_cursor *root, bool byte_level,
                                   struct mics_tokenizer *tokenizer, bool *byte_tokens,
                                   struct mics_err *err);

/* Where texts with U+2581 for spaces can be cut (cut.c). */
struct mics_word_cuts;

/* *out NULL: there are no such places. */
enum mics_status mics_word_cuts_new(const struct mics_tokenizer *tokenizer,
                                    struct mics_word_cuts **out, struct mics_err *err);
void mics_word_cuts_free(struct mics_word_cuts *cuts); /* NULL is fine */
/* Append the words of a piece of pieces->text. MICS_ERR_NOMEM, without a message. */
enum mics_status mics_word_cuts_apply(const struct mics_word_cuts *cuts,
                                      const struct mics_piece *piece, struct mics_pieces *pieces);

/* Let long texts be cut before U+2581, where no token of the vocabulary, which must be complete,
 * reaches across: pieces are then words, and ids stay those of the whole text. */
enum mics_status mics_pretokenizer_cut_words(struct mics_tokenizer *tokenizer,
                                             struct mics_err *err);

#endif
