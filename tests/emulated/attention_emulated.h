/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_emulated.h - a variant of attention that only the emulator has: plain loops of the host, so faster than
 * any emulated kernel, and wrong where it is asked to.
 *
 * MICS_EMULATED_ATTENTION says what it does, and that it is there at all: "right", "slow" (right, 100 ms later),
 * "wrong" (one row of one head is 0), "silent" (writes nothing), "failing" (does not run).
 */
#ifndef MICS_TESTS_EMULATED_ATTENTION_EMULATED_H
#define MICS_TESTS_EMULATED_ATTENTION_EMULATED_H

#include "cuda/kernels.h"

/* bf16 only, as other fast variants. */
bool emu_attention_takes(const struct mics_cuda_at *at, const struct mics_op_attention *args);
bool emu_attention_takes_grad(const struct mics_cuda_at *at,
                              const struct mics_op_attention_grad *args);
cudaError_t emu_attention(const struct mics_cuda_at *at, const struct mics_op_attention *args);
cudaError_t emu_attention_grad(const struct mics_cuda_at *at,
                               const struct mics_op_attention_grad *args);

#endif
