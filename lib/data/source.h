/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - files of one kind as tokens to train on and to validate with: text, JSON lines, or
 * files of tokens.
 *
 * The last `val_fraction` of each file is for validation: of the bytes of a text, of the lines of
 * JSON lines, of the tokens of files of tokens, from the beginning of a document on where the file
 * tells documents. So both parts have the same kind of text.
 */
#ifndef MICS_DATA_SOURCE_H
#define MICS_DATA_SOURCE_H

#include "data/corpus.h"
#include "data/encoded.h"
#include "data/token_file.h"
#include "data/tokens.h"

enum mics_pack {
    MICS_PACK_CONCAT,  /* sequences are cut from all documents end to end */
    MICS_PACK_DOCUMENT /* sequences hold whole documents, and padding */
};

/* "concat", "document" */
const char *mics_pack_name(enum mics_pack pack);
/* MICS_ERR_ARG: no such way. */
enum mics_status mics_pack_parse(const char *name, enum mics_pack *out, struct mics_err *err);

/* Tokens as sequences. */
struct mics_part {
    struct mics_tokens tokens;
    uint64_t windows; /* sequences; the last one for validation may be shorter, and is padded */
    /* MICS_PACK_DOCUMENT: sequence i has the tokens [rows[i], rows[i + 1]), whole documents, or the
     * next piece of one that is longer than a sequence, and what mics_source_repack() leaves room
     * for. Else NULL. */
    uint64_t *rows;
};

struct mics_source_options {
    const struct mics_tokenizer *tokenizer; /* NULL: bytes */
    const char *end_token;                  /* as in mics_data_options */
    double val_fraction;
    bool val_only; /* all is for validation */
    uint32_t seq, vocab_size;
    enum mics_pack pack;
    bool mask_prompt;
    uint64_t bad_lines; /* of JSON lines that are skipped, at most */
    bool binary;        /* text may be any bytes, and nothing is decompressed */
};

/* Immutable once open. */
struct mics_source {
    enum mics_content content;
    struct mics_corpus corpus;     /* the files */
    struct mics_token_file *files; /* [corpus.count] of MICS_CONTENT_TOKENS */
    uint64_t **documents;          /* [corpus.count], where they were looked for, else NULL */
    struct mics_encoded encoded;
    struct mics_part train, val;
    uint64_t document_count;
    uint64_t fingerprint; /* of files and tokenizer */
};

/* Open what corpus->documents names; the corpus goes to the source. What files have is recognised
 * by format.h. MICS_ERR_FORMAT: several kinds, a file that is not what its name says, less than one
 * sequence, or a vocabulary that does not include the tokens. */
enum mics_status mics_source_open(struct mics_corpus *corpus,
                                  const struct mics_source_options *options,
                                  struct mics_source *out, struct mics_err *err);
void mics_source_close(struct mics_source *source); /* all zeros is fine */

/* Lay out the sequences of MICS_PACK_DOCUMENT once more, with room for `begin` more tokens before
 * each document and each piece of one, and for `end` more behind a piece that does not end its
 * document. begin + end < seq. On failure the source may only be closed. */
enum mics_status mics_source_repack(struct mics_source *source, uint32_t seq, uint32_t begin,
                                    uint32_t end, struct mics_err *err);

/* The path of the file that `address` is mapped from, or NULL. Async-signal-safe. */
const char *mics_source_find_path(const struct mics_source *source, const void *address);

#endif
