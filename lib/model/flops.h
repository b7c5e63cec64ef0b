/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flops.h - counting what a stage costs: floating-point operations of the matrix products and of attention, and
 * bytes of memory that every operation reads and writes. Private to lib/model.
 *
 * Caches are left out: an operand is read once by each operation that needs it.
 */
#ifndef MICS_MODEL_FLOPS_H
#define MICS_MODEL_FLOPS_H

#include "model/model.h"

/* What was counted, with the bytes of a number, and of one of a gradient of parameters. */
struct mics_work {
    double flops, bytes, size, grad_size;
};

/* Numbers that a norm moves for each element: in and out; its gradient takes the gradient of the output and
 * the input, and reads and writes the gradient of the input. */
#define MICS_WORK_NORM      2.0
#define MICS_WORK_NORM_GRAD 4.0

/* Nothing counted yet. */
struct mics_work mics_work_of(const struct mics_batch *batch);

/* out[m, n] = a[m, k] b[k, n]; `add`: as much is read and added. */
void mics_work_matmul(struct mics_work *work, double m, double n, double k, bool add);

/* A pass over memory: numbers read and written. */
void mics_work_pass(struct mics_work *work, double numbers);

/* The gradient of a matrix [m, n], from k rows: added to what is there. */
void mics_work_matrix_grad(struct mics_work *work, double m, double n, double k);

/* Both gradients of a linear layer without bias, of weight and input. */
void mics_work_linear_grad(struct mics_work *work, double rows, double in, double out);

/* The head: norm, product with [V, C] and its spare rows, loss, `at_once` rows at a time, and when training the way back, which is
 * part of its forward. */
struct mics_work mics_work_head(const struct mics_model *model, const struct mics_batch *batch,
                                uint32_t at_once);

/* Of a forward and of a backward, which counts nothing unless the batch trains. */
struct mics_stage_work mics_work_stage(const struct mics_batch *batch,
                                       const struct mics_work *forward,
                                       const struct mics_work *backward);

#endif
