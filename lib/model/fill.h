/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill.h - what a model predicts for tokens of one whole sequence, on the host: an encoder, whose
 * attention sees all tokens, for masked ones.
 */
#ifndef MICS_MODEL_FILL_H
#define MICS_MODEL_FILL_H

#include "model/model.h"

struct mics_pool;

struct mics_fill_options {
    const struct mics_model *model; /* of a family */
    float *const *params;           /* [unit_count] flat vectors, fp32, with zeros in the padding */
    struct mics_pool *pool;
    const int32_t *tokens; /* [count] */
    uint32_t count;
    const uint32_t *positions; /* [position_count], below count */
    uint32_t position_count;
};

/* logits[position_count, V]. MICS_ERR_ARG: more tokens than the model has positions, or an id
 * outside of its vocabulary. */
enum mics_status mics_fill_logits(const struct mics_fill_options *options, float *logits,
                                  struct mics_err *err);

#endif
