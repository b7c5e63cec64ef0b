/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - text files as training and validation sequences.
 *
 * The last `val_fraction` of the bytes of each document is for validation and the rest for
 * training, so both have the same kind of text. Each part is one sequence of tokens (tokens.h), cut
 * into windows of `seq` tokens; the targets are the tokens shifted by one.
 *
 * Training treats its tokens as a ring: an epoch begins at a random offset and cuts the ring into
 * floor(tokens / seq) windows, so window borders differ from epoch to epoch. Within an epoch each
 * window comes once, in an order that is a keyed permutation of [0, windows): a Feistel network
 * over the next even power of two, iterated until the result is in range (cycle walking: Black and
 * Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). So the tokens of sample i need no table
 * and no state: they are a pure function of (seed, i, the text), whatever the number of ranks.
 *
 * Validation windows begin at the first token and are always the same.
 */
#ifndef MICS_DATA_DATA_H
#define MICS_DATA_DATA_H

#include "data/corpus.h"
#include "data/tokens.h"

struct mics_data_options {
    const char *const *patterns; /* see mics_corpus_open() */
    size_t pattern_count;
    double val_fraction; /* in [0, 0.5] */
    uint32_t seq;        /* T >= 1 */
    uint32_t vocab_size; /* of the model */
    uint64_t seed;
};

/* Immutable once open, so any number of threads may read it. */
struct mics_data {
    struct mics_corpus corpus;
    struct mics_tokens train, val;
    uint64_t train_windows; /* of an epoch; >= 1 */
    uint64_t val_windows;   /* 0: too little text for validation */
    uint32_t seq;
    uint64_t seed;
};

/* MICS_ERR_FORMAT: no such files, no text, less text than one sequence, or a vocabulary that does
 * not include the tokens. */
enum mics_status mics_data_open(const struct mics_data_options *options, struct mics_data *data,
                                struct mics_err *err);
void mics_data_close(struct mics_data *data); /* all zeros is fine */

/* tokens[T], targets[T] of training sample `sample`, counted from the beginning of training. */
void mics_data_read_train(const struct mics_data *data, uint64_t sample, int32_t *tokens,
                          int32_t *targets);

/* tokens[T], targets[T] of validation window `window` < val_windows. */
void mics_data_read_val(const struct mics_data *data, uint64_t window, int32_t *tokens,
                        int32_t *targets);

/* The sequence in a step's global batch that is row `row` of a rank's micro-step. Each micro-step
 * takes the next world_size * micro_batch sequences, in the order of the ranks; so for all
 * (world_size, micro_batch, micro_steps) of the same product a step covers the same [0,
 * global_batch). */
uint64_t mics_data_batch_slot(uint32_t micro_step, uint32_t world_size, uint32_t rank,
                              uint32_t micro_batch, uint32_t row);

/* The image of `index` under the permutation of [0, count) that (seed, epoch) select. index <
 * count, 1 <= count <= 2^62. */
uint64_t mics_data_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

#endif
