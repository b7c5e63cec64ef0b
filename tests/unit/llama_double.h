/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_double.h - Llama's loss in double precision, written for clarity and with nothing shared
 * with the library but its tensors' names and places: the reference for gradients by finite differences.
 */
#ifndef MICS_TESTS_LLAMA_DOUBLE_H
#define MICS_TESTS_LLAMA_DOUBLE_H

#include "model/model.h"

struct llama_double {
    const struct mics_model *model;
    double **params; /* [unit_count], flat as the units */
    uint32_t T;      /* of one sequence */
};

/* Sum of the losses of one sequence of T tokens. */
double llama_double_loss(const struct llama_double *g, const int32_t *tokens,
                         const int32_t *targets);

#endif
