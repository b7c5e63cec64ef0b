/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt2_double.h - GPT-2's loss in double precision, written for clarity and with nothing shared
 * with the library but its tensors' places: the reference for gradients by finite differences.
 */
#ifndef MICS_TESTS_GPT2_DOUBLE_H
#define MICS_TESTS_GPT2_DOUBLE_H

#include "model/model.h"

struct gpt2_double {
    const struct mics_model *model;
    double **params; /* [unit_count], flat as the units */
    uint32_t T;      /* of one sequence */
};

/* Sum of the losses of one sequence of T tokens. */
double double_loss(const struct gpt2_double *g, const int32_t *tokens, const int32_t *targets);

#endif
