/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - data sets as training and validation sequences.
 *
 * The data are one source (source.h) or a blend of several with weights. The tokens of sample i of
 * the training need no table and no state: they are a pure function of (seed, i, the data),
 * whatever the number of ranks.
 *
 * Blend. Sample i is of the source in whose part of [0, 1) the fraction of i times the golden ratio
 * lies, in 32 bits; the parts are as large as the weights. So each source has its share of any
 * samples in a row, but for a few. The samples of a source are counted by the sum of floors of a
 * line, as in Graham, Knuth and Patashnik, "Concrete Mathematics", 3.5, in O(log i).
 *
 * Order. A source treats its tokens as a ring: an epoch begins at a random offset and cuts the ring
 * into floor(tokens / seq) windows, so window borders differ from epoch to epoch. Within an epoch
 * each window comes once, in an order that is a keyed permutation of [0, windows): a Feistel
 * network over the next even power of two, iterated until the result is in range (cycle walking:
 * Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). With MICS_PACK_DOCUMENT the
 * windows are the rows of source.h instead, the same in all epochs.
 *
 * Targets are the tokens shifted by one: MICS_TARGET_NONE for those of a prompt, if masked (in
 * files of tokens: as encoded), and for padding; with MICS_PACK_DOCUMENT MICS_TARGET_LAST at the
 * end of a document.
 *
 * Of a model that predicts masked tokens, tokens and targets are those of masking.h instead. With
 * MICS_PACK_DOCUMENT each document, and each piece of a longer one, has the tokens before and
 * behind it that the tokenizer puts around a text, [CLS] and [SEP]. What ends documents in the data
 * counts as the latter: [SEP] takes the place of the last token of a document. Attention of such a
 * model stays within documents, padding is one of its own, and MICS_TARGET_LAST at the last token
 * of a document says so: this token is not masked, whatever it is.
 *
 * Validation has the last part of each source, or, if there are data for validation only, just
 * these. Its windows begin at the first token of each source and are always the same. The last is
 * as short as what is left, and padded; so with MICS_PACK_CONCAT every token but the first of a
 * source is a target once, unless it is masked.
 */
#ifndef MICS_DATA_DATA_H
#define MICS_DATA_DATA_H

#include "data/masking.h"
#include "data/source.h"

#define MICS_DATA_MAX_SOURCES 64

struct mics_data_options {
    /* Words separated by blanks: each a pattern of files (corpus.h) or WEIGHT:PATTERN, which is a
     * source of its own. All have weights or none has. A pattern of files of ids without a header
     * may end in ":u16" or ":u32", their type. */
    const char *const *patterns;
    size_t pattern_count;
    const char *const *val_patterns; /* data for validation only; none: a part of the data */
    size_t val_pattern_count;
    const struct mics_tokenizer *tokenizer; /* of text and JSON lines; NULL: bytes */
    const char *end_token; /* of token files that do not say it and have no tokenizer; or NULL */
    double val_fraction;   /* in [0, 0.5] */
    bool val_only;         /* all tokens are for validation, whatever val_fraction is */
    uint32_t seq;          /* T >= 1 */
    uint32_t vocab_size;   /* of the model */
    uint64_t seed;
    enum mics_pack pack;
    bool mask_prompt;   /* prompts of JSON lines are no targets */
    uint64_t bad_lines; /* damaged JSON lines that are skipped in each data set, at most */
    bool binary;        /* see struct mics_source_options */
};

/* Immutable once open, so any number of threads may read it. */
struct mics_data {
    struct mics_source *sources;            /* [source_count] */
    double weights[MICS_DATA_MAX_SOURCES];  /* their sum is 1 */
    uint64_t limits[MICS_DATA_MAX_SOURCES]; /* ends of their parts of [0, 2^32) */
    size_t source_count;
    struct mics_data *val; /* data for validation only, or NULL */
    /* Sums over the sources. */
    uint64_t train_windows; /* sequences of an epoch; >= 1, with val_only 0 */
    uint64_t val_windows;   /* also those of `val`; 0: too little text; with val_only >= 1 */
    uint64_t val_tokens;    /* that are not trained on; of `val` all */
    uint64_t train_tokens, documents, bytes;
    uint64_t special;     /* special tokens in the text, which were encoded as ordinary text */
    uint64_t bad_lines;   /* damaged JSON lines that were skipped */
    uint64_t fingerprint; /* of files, tokenizer, weights and packing, but not of names */
    uint32_t seq, vocab_size;
    uint64_t seed;
    enum mics_pack pack;
    bool mask_prompt;
    const struct mics_masking *masking; /* borrowed; NULL: the next token is predicted */
};

/* MICS_ERR_FORMAT: no such files, no text, less text than one sequence, a vocabulary that does not
 * include the tokens, or weights that are none. */
enum mics_status mics_data_open(const struct mics_data_options *options, struct mics_data *data,
                                struct mics_err *err);
void mics_data_close(struct mics_data *data); /* all zeros is fine */

/* Predict masked tokens instead of the next, before anything is read. It changes the fingerprint,
 * and `masking` outlives the data. MICS_ERR_FORMAT: the data have less text for validation than a
 * sequence, unless documents are kept apart, or files of tokens have prompts. MICS_ERR_ARG: prompts
 * are masked. On failure the data may only be closed. */
enum mics_status mics_data_set_masking(struct mics_data *data, const struct mics_masking *masking,
                                       struct mics_err *err);

/* tokens[T], targets[T] of training sample `sample`, counted from the beginning of training.
 * MICS_ERR_FORMAT: an id in a file is not in the vocabulary; with file and position. */
enum mics_status mics_data_read_train(const struct mics_data *data, uint64_t sample,
                                      int32_t *tokens, int32_t *targets, struct mics_err *err);

/* Ask the kernel to read ahead what that sample needs from files. */
void mics_data_prefetch(const struct mics_data *data, uint64_t sample);

/* tokens[T], targets[T] of validation window `window` < val_windows. */
enum mics_status mics_data_read_val(const struct mics_data *data, uint64_t window, int32_t *tokens,
                                    int32_t *targets, struct mics_err *err);

/* How many of the first `samples` samples are of source `source`; divided by its train.windows,
 * its epochs. */
uint64_t mics_data_source_samples(const struct mics_data *data, size_t source, uint64_t samples);

/* The sequence in a step's global batch that is row `row` of a rank's micro-step. Each micro-step
 * takes the next world_size * micro_batch sequences, in the order of the ranks; so for all
 * (world_size, micro_batch, micro_steps) of the same product a step covers the same [0,
 * global_batch). */
uint64_t mics_data_batch_slot(uint32_t micro_step, uint32_t world_size, uint32_t rank,
                              uint32_t micro_batch, uint32_t row);

/* The image of `index` under the permutation of [0, count) that (seed, epoch) select. index <
 * count, 1 <= count <= 2^62. */
uint64_t mics_data_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

/* The path of the file that `address` is mapped from, or NULL: for mics_handle_sigbus(). */
const char *mics_data_find_path(const void *data, const void *address);

#endif
