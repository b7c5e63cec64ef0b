/* SPDX-License-Identifier: Apache-2.0 */
/*
 * masking.h - masked language modelling: which tokens of a sequence a model has to predict.
 *
 * Of the ordinary tokens of a sequence a share `rate` is chosen (Devlin et al., "BERT", 2019): 80 %
 * of these become the mask token, 10 % another ordinary token at random, and 10 % stay. Their
 * targets are what they were; all other tokens have MICS_TARGET_NONE. Special tokens are never
 * chosen and never put in. Of n ordinary tokens floor(n rate + u) are chosen, u random in [0, 1),
 * so that the expected number is n rate, but never more than ceil(n rate): those with the smallest
 * random numbers, of equal ones the first. So a model computes its head for a fixed number of
 * tokens (mics_model_targets_max()), and no masked token is ever left out.
 *
 * With whole_words all tokens of a word are chosen, or none of them ("whole word masking" of BERT's
 * later models): words by the random numbers of their first tokens, as long as their tokens are not
 * more than are left of that number; a word that is longer is passed over. A word is a run of
 * ordinary tokens up to the next one that begins a word (mics_tokenizer_begins_word()). Each of its
 * tokens is replaced on its own.
 *
 * All of it is a pure function of (seed, sample, position), whatever the number of ranks and the
 * micro-batch, before and after a resume. A sample's number counts all samples of a training, so
 * that the masks of a text differ from epoch to epoch. Those of validation depend on the number of
 * the window only: they are the same in all runs, of single tokens, at a rate of MICS_MASK_RATE
 * (model.h).
 *
 * Where the tokenizer puts tokens around a text, the first and the last token of a sequence become
 * these ([CLS] and [SEP], <s> and </s>): sequences are cut from all documents, which the last token
 * separates, as RoBERTa's are (Liu et al. 2019, "full sentences"). Where documents are kept apart,
 * data.h says what is around each of them.
 */
#ifndef MICS_DATA_MASKING_H
#define MICS_DATA_MASKING_H

#include "data/tokenizer.h"

struct mics_masking_options {
    const struct mics_tokenizer *tokenizer; /* NULL: all ids but the mask's are ordinary */
    const char *mask_token; /* an id, or a text; NULL: as the tokenizer has it, [MASK] or <mask> */
    uint32_t vocab_size;    /* of the model */
    uint32_t seq;           /* T */
    double rate;            /* in (0, 1) */
    uint64_t seed;
    bool whole_words;
};

/* Immutable once open, so any number of threads may use it. */
struct mics_masking {
    double rate;
    uint64_t seed;
    uint32_t seq;
    uint32_t mask;
    uint32_t begin, end;  /* around a sequence; MICS_NO_TOKEN: none */
    uint8_t *is_ordinary; /* [vocab_size] */
    int32_t *ordinary;    /* the ids of ordinary tokens */
    uint8_t *begins_word; /* [vocab_size]; NULL: words are not kept whole */
    uint32_t vocab_size, ordinary_count;
};

/* The mask token of a tokenizer; MICS_NO_TOKEN: it has none. */
uint32_t mics_tokenizer_mask(const struct mics_tokenizer *tokenizer);

/* MICS_ERR_FORMAT: there is no mask token, it is not in the model's vocabulary, there are no
 * ordinary tokens, or there are words without a tokenizer that knows where they begin. */
enum mics_status mics_masking_open(const struct mics_masking_options *options,
                                   struct mics_masking *out, struct mics_err *err);
void mics_masking_close(struct mics_masking *masking); /* all zeros is fine */

/* Mask tokens[T] of a training sample, or with `val` of a window of the validation, in place, and
 * write targets[T]. */
enum mics_status mics_masking_apply(const struct mics_masking *masking, bool val, uint64_t sample,
                                    int32_t *tokens, int32_t *targets, struct mics_err *err);

/* The same for a sequence of whole documents in its first `length` tokens, and padding:
 * targets[T] come with MICS_TARGET_LAST at the last token of each document, which stays and is
 * never chosen, as padding is, and MICS_TARGET_NONE elsewhere. Nothing is put around the
 * sequence. */
enum mics_status mics_masking_apply_documents(const struct mics_masking *masking, bool val,
                                              uint64_t sample, uint32_t length, int32_t *tokens,
                                              int32_t *targets, struct mics_err *err);

/* Of all that decides what is masked but the seed. */
uint64_t mics_masking_fingerprint(const struct mics_masking *masking, uint64_t seed);

#endif
