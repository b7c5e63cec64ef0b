/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - text files as training and validation sequences.
 *
 * The last `val_fraction` of the bytes of each document is for validation, the rest for training; so
 * both are of the same kind. Each half is one line of tokens (tokens.h), cut into windows of `seq`
 * tokens; the targets are the tokens one place on.
 *
 * Training takes the line as a circle: an epoch begins at a random place and cuts it into
 * floor(tokens / seq) windows, seen in a random order (order.h), so that the borders of the windows
 * differ from epoch to epoch. Which tokens sample i has is a pure function of (seed, i, the text).
 * Validation windows begin at the line's start, always the same.
 */
#ifndef MICS_DATA_DATA_H
#define MICS_DATA_DATA_H

#include "data/corpus.h"
#include "data/tokens.h"

#include <stdint.h>

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
    uint64_t train_windows; /* an epoch; >= 1 */
    uint64_t val_windows;   /* may be 0: too little text for validation */
    uint32_t seq;
    uint64_t seed;
};

/* MICS_ERR_FORMAT: no such files, no text, not enough for one sequence, a vocabulary that cannot
 * hold the tokens. */
enum mics_status mics_data_open(const struct mics_data_options *options, struct mics_data *data,
                                struct mics_err *err);
void mics_data_close(struct mics_data *data); /* of zeros is fine */

/* tokens[T], targets[T] of training sample `sample` (counted from the beginning of training). */
void mics_data_train(const struct mics_data *data, uint64_t sample, int32_t *tokens,
                     int32_t *targets);

/* The same of validation window `window` < val_windows. */
void mics_data_val(const struct mics_data *data, uint64_t window, int32_t *tokens,
                   int32_t *targets);

/*
 * order.h - in which order the sequences of a corpus are seen.
 *
 * Training draws samples 0, 1, 2, ... one after another, `windows` of them an epoch. Within an epoch every
 * window comes once, in an order that is a keyed permutation of [0, windows): a Feistel network over
 * the next even power of two, walked until it falls inside (Black and Rogaway, "Ciphers with
 * Arbitrary Finite Domains", 2002). So sample i needs no table and no state: it is a pure function of
 * (seed, i), whatever the number of ranks.
 */

/* Place of `index` in the permutation of [0, count) that (seed, epoch) names. index < count,
 * 1 <= count <= 2^62. */
uint64_t mics_order_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

/* A number in [0, count) for the epoch: where the epoch's first window begins. count >= 1. */
uint64_t mics_order_offset(uint64_t seed, uint64_t epoch, uint64_t count);

/* The place in a step's global batch of sequence `row` of a rank's micro-step: every micro-step takes
 * the next world_size * micro_batch sequences, rank by rank. For all (world_size, micro_batch,
 * micro_steps) of the same product, a step covers the same [0, global_batch). */
uint64_t mics_order_place(uint32_t micro_step, uint32_t world_size, uint32_t rank,
                          uint32_t micro_batch, uint32_t row);

#endif
