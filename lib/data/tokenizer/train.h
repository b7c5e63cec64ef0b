/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train.h - make a tokenizer from text: byte-level BPE (Sennrich et al., "Neural Machine
 * Translation of Rare Words with Subword Units", 2016; over bytes as GPT-2).
 *
 * The text is split into pieces by GPT-2's expression, and equal pieces are counted once. The
 * vocabulary begins with the 256 bytes, in GPT-2's order; then the adjacent pair with the highest
 * count becomes a token, again and again. Among pairs with the same count, the one with the smaller
 * ids comes first. The result depends on the text only, and its merges are those of the BpeTrainer
 * of Hugging Face's library tokenizers. <|endoftext|> is the last token.
 */
#ifndef MICS_DATA_TOKENIZER_TRAIN_H
#define MICS_DATA_TOKENIZER_TRAIN_H

#include "base/progress.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

#define MICS_TRAIN_MIN_VOCAB 257 /* the bytes, and <|endoftext|> */
#define MICS_TRAIN_MAX_VOCAB 1000000

struct mics_tokenizer_train_options {
    uint32_t vocab_size;              /* tokens, with the bytes and <|endoftext|> */
    uint64_t min_count;               /* how often a pair must occur to become a token; 1 or more */
    mics_progress_callback *progress; /* bytes of text that have been counted; NULL is fine */
    void *progress_context;
};

/* Files that describe the tokenizer: tokenizer.json, and tokenizer_config.json, which transformers
 * reads. */
enum { MICS_TRAINED_FILES = 2 };
extern const char *const mics_trained_names[MICS_TRAINED_FILES];

/* They are replaced together, as this set of their folder (base/file_set.h). */
#define MICS_TRAINED_SET "tokenizer"

struct mics_trained_tokenizer {
    struct mics_tokenizer_file files[MICS_TRAINED_FILES];
    uint32_t vocab_size;    /* below what was asked for if no pair occurs min_count times */
    uint64_t bytes, tokens; /* of the text, without <|endoftext|> */
    uint64_t pieces;        /* that differ */
};

/* Train on the documents of a corpus, with one thread per core. The result belongs to the caller.
 * MICS_ERR_ARG: vocab_size is not in [MICS_TRAIN_MIN_VOCAB, MICS_TRAIN_MAX_VOCAB]. MICS_ERR_FORMAT:
 * the pieces that differ have 4 GiB or more. */
enum mics_status mics_tokenizer_train(const struct mics_corpus *corpus,
                                      const struct mics_tokenizer_train_options *options,
                                      struct mics_trained_tokenizer *out, struct mics_err *err);
void mics_trained_tokenizer_free(struct mics_trained_tokenizer *trained); /* all zeros is fine */

#endif
