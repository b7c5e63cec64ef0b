/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler.h - draws a token from logits: temperature, then the k most likely (top-k: Fan et al.
 * 2018), then the fewest of them whose probabilities add up to p (top-p: Holtzman et al., "The
 * Curious Case of Neural Text Degeneration", 2020), in this order, as transformers has it.
 */
#ifndef MICS_SAMPLE_SAMPLER_H
#define MICS_SAMPLE_SAMPLER_H

#include "base/err.h"

#include <stdint.h>

struct mics_sampler_options {
    double temperature; /* >= 0; 0: always the most likely token */
    uint32_t top_k;     /* 0: all */
    double top_p;       /* in (0, 1]; 1: all */
    uint64_t seed;
};

/* One thread at a time. */
struct mics_sampler;

enum mics_status mics_sampler_new(const struct mics_sampler_options *options, uint32_t vocab_size,
                                  struct mics_sampler **out, struct mics_err *err);
void mics_sampler_free(struct mics_sampler *sampler); /* NULL is fine */

/* Draw from logits[vocab_size], which may hold NaN only where the model has diverged: such tokens
 * are never drawn. The random number is a function of (seed, text, index): token `index` of text
 * number `text` is the same whatever else is generated. Among equally likely tokens, the first is
 * drawn. */
uint32_t mics_sampler_draw(struct mics_sampler *sampler, const float *logits, uint64_t text,
                           uint64_t index);

#endif
