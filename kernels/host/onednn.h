/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onednn.h - single matrix products by oneDNN, each computed in the thread that calls.
 *
 * A primitive, which oneDNN generates code for, belongs to one shape and is kept for the next
 * product of it; the least recently used is dropped. The library is opened when it is first needed.
 * Any thread may call these functions, except that mics_onednn_free() comes last.
 */
#ifndef MICS_KERNELS_HOST_ONEDNN_H
#define MICS_KERNELS_HOST_ONEDNN_H

#include "base/err.h"
#include "ops.h"

#include <stdbool.h>
#include <stddef.h>

/* The primitives and working memory of the callers of one pool. */
struct mics_onednn;

/* Whether mics was built with oneDNN. */
bool mics_onednn_is_built(void);

/* MICS_ERR_ARG: the environment variable MICS_ONEDNN is neither 0 nor 1. MICS_ERR_UNSUPPORTED: it
 * is 1, but mics was built without oneDNN. */
enum mics_status mics_onednn_check_switch(struct mics_err *err);

/* Reads the environment. NULL: out of memory. */
struct mics_onednn *mics_onednn_new(void);
void mics_onednn_free(struct mics_onednn *onednn); /* NULL is fine */

/* Whether mics was built with it and this processor multiplies bf16 in hardware (AVX512-BF16, with
 * or without AMX). Does not open the library. */
bool mics_onednn_can_bf16(void);

/* What MICS_ONEDNN was when `onednn` was made: unset, 0 or 1. It is about products of bf16. */
enum mics_onednn_asked { MICS_ONEDNN_AUTO, MICS_ONEDNN_NEVER, MICS_ONEDNN_ALWAYS };
enum mics_onednn_asked mics_onednn_asked(const struct mics_onednn *onednn);

/* Write all that decides which instructions compute a product: "oneDNN 2.6.3, avx512_core_amx". */
enum mics_status mics_onednn_describe(struct mics_onednn *onednn, char *text, size_t size,
                                      struct mics_err *err);

/* Make the primitive of a product, and working memory for `threads` callers at a time, so that
 * mics_onednn_multiply() of the same shape makes neither. */
enum mics_status mics_onednn_prepare(struct mics_onednn *onednn,
                                     const struct mics_args_matmul *args, unsigned threads,
                                     struct mics_err *err);

/* out = a' b' (+ out, if add is set, which is then `out`) (+ bias), k > 0, without activation. All
 * of a, b and bias are of type dtype. Sums are fp32; with MICS_BF16, which needs
 * mics_onednn_can_bf16(), results in bf16 are rounded once. false: it has failed, as
 * mics_onednn_failure() tells. */
bool mics_onednn_multiply(struct mics_onednn *onednn, const struct mics_args_matmul *args);

/* The first failure of a product; it names MICS_ONEDNN=0. */
enum mics_status mics_onednn_failure(struct mics_onednn *onednn, struct mics_err *err);

#endif
