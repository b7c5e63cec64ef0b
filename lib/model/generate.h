/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generate.h - what follows sequences of tokens, on the host: the keys and values of all earlier
 * tokens are kept, so a further token costs one pass over the parameters, whatever came before, but
 * for attention.
 *
 * Several sequences are worked on together, each of its own length. The logits of a sequence do not
 * depend on the others, bit for bit if a call appends MICS_GENERATE_ROWS tokens at most, nor on the
 * number of threads; on how many of its tokens are appended at a time only by rounding.
 */
#ifndef MICS_MODEL_GENERATE_H
#define MICS_MODEL_GENERATE_H

#include "model/model.h"

/* Tokens in one call of which each reads the parameters once. */
#define MICS_GENERATE_ROWS 16

/* One thread at a time. */
struct mics_generator;

/* Everything outlives the generator. */
struct mics_generator_options {
    const struct mics_model *model; /* of a family */
    /* [unit_count] flat vectors, fp32, with zeros in the padding. Matrices that the family stores
     * as [in, out] are transposed in place: these numbers serve this generator only. */
    float *const *params;
    uint32_t sequences; /* 1 or more, at a time */
    struct mics_pool *pool;
};

enum mics_status mics_generator_new(const struct mics_generator_options *options,
                                    struct mics_generator **out, struct mics_err *err);
void mics_generator_free(struct mics_generator *generator); /* NULL is fine */

/* The longest sequence: the model's positions. */
uint32_t mics_generator_limit(const struct mics_generator *generator);
/* Tokens that a sequence has. */
uint32_t mics_generator_length(const struct mics_generator *generator, uint32_t sequence);
/* Begin a sequence again, with no tokens. */
void mics_generator_clear(struct mics_generator *generator, uint32_t sequence);

/* Tokens to append to a sequence; at least one. */
struct mics_generator_input {
    uint32_t sequence;
    const int32_t *tokens;
    uint32_t count;
};

/* Append to `count` different sequences. logits[count, V]: what follows the last token of each.
 * After an error nothing was appended. MICS_ERR_ARG: a token is outside of the vocabulary, or a
 * sequence would become too long. MICS_ERR_NOMEM. */
enum mics_status mics_generator_append(struct mics_generator *generator,
                                       const struct mics_generator_input *inputs, uint32_t count,
                                       float *logits, struct mics_err *err);

#endif
