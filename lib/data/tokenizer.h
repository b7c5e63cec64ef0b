/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.h - text to token ids and back, exactly as the library that made the tokenizer does.
 *
 * A tokenizer is read from what a model comes with: tokenizer.json, vocab.json and merges.txt,
 * vocab.txt (of BERT), a .tiktoken file, tekken.json, or tokenizer.model (of SentencePiece, or
 * Llama 3's). Without any, tokens are the bytes of the text and 256, which ends a document. What a
 * file asks for and is not supported is refused by name. Files beside the main one count as they do
 * in transformers: tokenizer/companions.h.
 *
 * Text that looks like a special token is ordinary text, unless MICS_TOKENIZER_SPECIAL is given.
 */
#ifndef MICS_DATA_TOKENIZER_H
#define MICS_DATA_TOKENIZER_H

#include "ckpt/tokenizer_files.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MICS_NO_TOKEN UINT32_MAX

/* Immutable once open: any number of threads may use it, each with its own mics_encoder. */
struct mics_tokenizer;

/* Open the tokenizer of a file, or of the folder that has its files. MICS_ERR_FORMAT: one line with
 * the file and what is wrong with it or not supported. */
enum mics_status mics_tokenizer_open(const char *path, struct mics_tokenizer **out,
                                     struct mics_err *err);
/* From files in memory, which are copied. */
enum mics_status mics_tokenizer_open_files(const struct mics_tokenizer_file *files, size_t count,
                                           struct mics_tokenizer **out, struct mics_err *err);
/* The tokenizer of bytes: 257 ids, 256 ends a document. */
enum mics_status mics_tokenizer_open_bytes(struct mics_tokenizer **out, struct mics_err *err);
void mics_tokenizer_free(struct mics_tokenizer *tokenizer); /* NULL is fine */

bool mics_tokenizer_is_bytes(const struct mics_tokenizer *tokenizer);
uint32_t mics_tokenizer_size(const struct mics_tokenizer *tokenizer); /* ids are below it */
/* The same without ids at the end that only a name has, such as a pad_token that no vocabulary has:
 * without MICS_TOKENIZER_SPECIAL no text has them, and a model need not have rows for them. */
uint32_t mics_tokenizer_text_size(const struct mics_tokenizer *tokenizer);
/* The id that ends a document (<|endoftext|>, </s>, <|end_of_text|>); MICS_NO_TOKEN: its files do
 * not tell. */
uint32_t mics_tokenizer_end(const struct mics_tokenizer *tokenizer);
/* MICS_ERR_FORMAT: there is no end, and why. */
enum mics_status mics_tokenizer_need_end(const struct mics_tokenizer *tokenizer,
                                         struct mics_err *err);
/* Let another token end documents: an id, or its text; before other threads use the tokenizer. It
 * changes the fingerprint. MICS_ERR_ARG: there is no such token. */
enum mics_status mics_tokenizer_set_end(struct mics_tokenizer *tokenizer, const char *token,
                                        struct mics_err *err);
/* The id that --end-token has where there is no tokenizer. MICS_ERR_ARG: it is none. */
enum mics_status mics_parse_token_id(const char *token, uint32_t *out, struct mics_err *err);
/* Let it be the tokenizer that a document describes: its end, or MICS_NO_TOKEN, and, unless NULL,
 * its fingerprint in hexadecimal digits. */
void mics_tokenizer_restore(struct mics_tokenizer *tokenizer, uint32_t end,
                            const char *fingerprint);
/* The id that the post-processor puts before a text (<s>, <|begin_of_text|>); MICS_NO_TOKEN: none.
 */
uint32_t mics_tokenizer_begin(const struct mics_tokenizer *tokenizer);
/* The id of a token by its text, special or not; MICS_NO_TOKEN: none. */
uint32_t mics_tokenizer_id(const struct mics_tokenizer *tokenizer, const char *token);
/* Is it a special token, which decoding may leave out? */
bool mics_tokenizer_is_special(const struct mics_tokenizer *tokenizer, uint32_t id);
/* Does a word begin with that token? In WordPiece with every token but those with its prefix (##),
 * otherwise with one whose text begins with white space (or ▁). The first token of a text begins
 * a word, too. */
bool mics_tokenizer_begins_word(const struct mics_tokenizer *tokenizer, uint32_t id);
/* The text of the token that files name by a key such as "bos_token". *out belongs to the caller;
 * NULL: they name none. */
enum mics_status mics_tokenizer_named(const struct mics_tokenizer *tokenizer, const char *key,
                                      char **out, struct mics_err *err);
/* The files it was read from; none for bytes. They belong to the tokenizer. */
const struct mics_tokenizer_file *mics_tokenizer_files(const struct mics_tokenizer *tokenizer,
                                                       size_t *count);
/* XXH64 over what decides ids and the end: names, sizes and bytes of the main files, and what those
 * beside them change; that of bytes is fixed. */
uint64_t mics_tokenizer_fingerprint(const struct mics_tokenizer *tokenizer);

enum mics_tokenizer_flags {
    MICS_TOKENIZER_SPECIAL = 1,  /* special tokens in the text become their ids */
    MICS_TOKENIZER_TEMPLATE = 2, /* add what the post-processor adds (<s>, <|begin_of_text|>) */
    MICS_TOKENIZER_CONTINUES = 4 /* the text is what follows a cut by mics_tokenizer_cut() */
};

/* Memory that encoding reuses. One thread at a time. */
struct mics_encoder;

enum mics_status mics_encoder_new(const struct mics_tokenizer *tokenizer, struct mics_encoder **out,
                                  struct mics_err *err);
void mics_encoder_free(struct mics_encoder *encoder); /* NULL is fine */

/* Encode `size` bytes. *ids belong to the encoder, until its next call. Invalid UTF-8 is encoded
 * byte by byte where the tokenizer has bytes, as U+FFFD where it has not. *special: how often a
 * special token was in the text and taken as ordinary text; NULL is fine. MICS_ERR_FORMAT: a match
 * limit of a regular expression was exceeded. */
enum mics_status mics_encode(struct mics_encoder *encoder, const char *text, size_t size, int flags,
                             const uint32_t **ids, size_t *count, uint64_t *special,
                             struct mics_err *err);

/* The last cut < size so that text[0, cut) and what follows, with MICS_TOKENIZER_CONTINUES, have
 * together the ids of the whole, without MICS_TOKENIZER_TEMPLATE; 0: no such place is known. */
size_t mics_tokenizer_cut(const struct mics_tokenizer *tokenizer, const char *text, size_t size);

/* A decoder of ids that come one by one: it keeps what may still change. */
struct mics_decoder;

enum mics_status mics_decoder_new(const struct mics_tokenizer *tokenizer, bool skip_special,
                                  struct mics_decoder **out, struct mics_err *err);
void mics_decoder_free(struct mics_decoder *decoder); /* NULL is fine */
/* Append ids; *text are the bytes that are now complete: whole UTF-8 characters, and U+FFFD for
 * what cannot become one. They belong to the decoder, until its next call. Ids that the tokenizer
 * does not have (rows of padding of a vocabulary) decode to nothing. */
enum mics_status mics_decode(struct mics_decoder *decoder, const uint32_t *ids, size_t count,
                             const char **text, size_t *size, struct mics_err *err);
/* The rest, and begin again. */
enum mics_status mics_decode_end(struct mics_decoder *decoder, const char **text, size_t *size,
                                 struct mics_err *err);

#endif
