/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the host's operations, one function for each structure of ops.h.
 *
 * They run in a stream's thread, parallel over the pool, allocate nothing, and cannot fail: the
 * arguments were made by the library.
 */
#ifndef MICS_KERNELS_HOST_KERNELS_H
#define MICS_KERNELS_HOST_KERNELS_H

#include "host/pool.h"
#include "ops.h"

/* The widest head (D) of the attention kernels, whose blocks lie on the stack of the pool's threads:
 * up to 700 KiB. */
#define MICS_HOST_HEAD_MAX MICS_HEAD_MAX

void mics_host_zero(struct mics_pool *pool, const struct mics_op_zero *args);
void mics_host_copy(struct mics_pool *pool, const struct mics_op_copy *args);
void mics_host_call(struct mics_pool *pool, const struct mics_op_call *args);
void mics_host_cast(struct mics_pool *pool, const struct mics_op_cast *args);
void mics_host_accumulate(struct mics_pool *pool, const struct mics_op_accumulate *args);
void mics_host_matmul(struct mics_pool *pool, const struct mics_op_matmul *args);
void mics_host_bias_grad(struct mics_pool *pool, const struct mics_op_bias_grad *args);
void mics_host_layernorm(struct mics_pool *pool, const struct mics_op_layernorm *args);
void mics_host_layernorm_grad(struct mics_pool *pool, const struct mics_op_layernorm_grad *args);
void mics_host_rmsnorm(struct mics_pool *pool, const struct mics_op_rmsnorm *args);
void mics_host_rmsnorm_grad(struct mics_pool *pool, const struct mics_op_rmsnorm_grad *args);
void mics_host_add(struct mics_pool *pool, const struct mics_op_add *args);
void mics_host_gelu(struct mics_pool *pool, const struct mics_op_gelu *args);
void mics_host_gelu_grad(struct mics_pool *pool, const struct mics_op_gelu_grad *args);
void mics_host_swiglu(struct mics_pool *pool, const struct mics_op_swiglu *args);
void mics_host_swiglu_grad(struct mics_pool *pool, const struct mics_op_swiglu_grad *args);
void mics_host_qk_norm(struct mics_pool *pool, const struct mics_op_qk_norm *args);
void mics_host_qk_norm_grad(struct mics_pool *pool, const struct mics_op_qk_norm_grad *args);
void mics_host_rope(struct mics_pool *pool, const struct mics_op_rope *args);
void mics_host_attention(struct mics_pool *pool, const struct mics_op_attention *args);
void mics_host_attention_grad(struct mics_pool *pool, const struct mics_op_attention_grad *args);
void mics_host_embedding(struct mics_pool *pool, const struct mics_op_embedding *args);
void mics_host_embedding_grad(struct mics_pool *pool, const struct mics_op_embedding_grad *args);
void mics_host_cross_entropy(struct mics_pool *pool, const struct mics_op_cross_entropy *args);
void mics_host_squared_norm(struct mics_pool *pool, const struct mics_op_squared_norm *args);
void mics_host_adamw(struct mics_pool *pool, const struct mics_op_adamw *args);
void mics_host_sgd(struct mics_pool *pool, const struct mics_op_sgd *args);

#endif
