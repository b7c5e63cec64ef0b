/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_double.h - the loss of a GPT-2 and of a Llama in double precision, written for clarity and
 * with nothing shared with the library but its tensors' names and places: the reference for
 * gradients by finite differences.
 */
#ifndef MICS_TESTS_MODEL_DOUBLE_H
#define MICS_TESTS_MODEL_DOUBLE_H

#include "model/model.h"

struct model_double {
    const struct mics_model *model;
    double **params; /* [unit_count], flat as the units */
    uint32_t T;      /* of one sequence */
};

/* Sum of the losses of one sequence of T tokens. */
typedef double double_loss(const struct model_double *g, const int32_t *tokens,
                           const int32_t *targets);
double_loss gpt2_double_loss, llama_double_loss;

#endif
