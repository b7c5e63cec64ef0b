/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train_internal.h - the parts of the trainer: train_pieces.c counts pieces, train.c merges pairs,
 * train_json.c writes the result.
 */
#ifndef MICS_DATA_TOKENIZER_TRAIN_INTERNAL_H
#define MICS_DATA_TOKENIZER_TRAIN_INTERNAL_H

#include "data/tokenizer/train.h"

struct mics_piece_count {
    const unsigned char *bytes; /* of one of its occurrences, in the corpus */
    uint64_t size, count;
};

/* The pieces that differ, sorted by bytes: they are the same for any number of threads. */
struct mics_piece_counts {
    struct mics_piece_count *list;
    size_t count;
};

/* Count the pieces that GPT-2's expression cuts the documents into. */
enum mics_status mics_piece_counts_new(const struct mics_corpus *corpus,
                                       const struct mics_tokenizer_train_options *options,
                                       struct mics_piece_counts *out, struct mics_err *err);
void mics_piece_counts_fini(struct mics_piece_counts *pieces); /* all zeros is fine */

struct mics_trained_token {
    unsigned char *bytes;
    uint32_t size;
};

struct mics_trained_merge {
    uint32_t left, right; /* ids */
};

/* Tokens in the order of their ids, without <|endoftext|>, and merges in the order of ranks. */
struct mics_vocabulary {
    struct mics_trained_token *tokens;
    uint32_t token_count;
    struct mics_trained_merge *merges;
    size_t merge_count, merge_capacity;
};

/* The character that stands for a byte in tokenizer.json, as of GPT-2: printable bytes of Latin-1
 * are themselves, and the others follow from U+0100 on, in their order. */
uint32_t mics_byte_character(unsigned char byte);

/* Write tokenizer.json and tokenizer_config.json. */
enum mics_status mics_trained_files(const struct mics_vocabulary *vocabulary,
                                    struct mics_tokenizer_file files[MICS_TRAINED_FILES],
                                    struct mics_err *err);

#endif
