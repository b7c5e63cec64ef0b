/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear.h - a linear layer on a device, with its gradients. Private to lib/model.
 *
 * Weights are stored [in, out], as GPT-2 checkpoints have them, or [out, in], as Llama's.
 */
#ifndef MICS_MODEL_DECODER_LINEAR_H
#define MICS_MODEL_DECODER_LINEAR_H

#include "device/device.h"

struct mics_linear {
    const void *weight, *bias; /* [in, out], [out]; the bias may be NULL */
    uint32_t in, out;
    bool transposed;                   /* the weight is [out, in] */
    enum mics_dtype dtype, grad_dtype; /* of all but the gradients of parameters, and of those */
};

/* out[rows, out] = in[rows, in] weight + bias, weight as [in, out]. */
void mics_linear_forward(struct mics_stream *stream, const struct mics_linear *layer, uint32_t rows,
                         const void *in, void *out);

/* out = in weight + bias + residual[rows, out]. */
void mics_linear_forward_add(struct mics_stream *stream, const struct mics_linear *layer,
                             uint32_t rows, const void *in, const void *residual, void *out);

/* pre = in weight + bias, out = gelu(pre), both [rows, out]. */
void mics_linear_forward_gelu(struct mics_stream *stream, const struct mics_linear *layer,
                              uint32_t rows, const void *in, void *pre, void *out);

/* grad_weight += in' grad_out, stored as the weight is; grad_bias += column sums of grad_out, unless it is NULL. */
void mics_linear_grad_params(struct mics_stream *stream, const struct mics_linear *layer,
                             uint32_t rows, const void *in, const void *grad_out, void *grad_weight,
                             void *grad_bias);

/* grad_in[rows, in] = grad_out weight'. */
void mics_linear_grad_in(struct mics_stream *stream, const struct mics_linear *layer, uint32_t rows,
                         const void *grad_out, void *grad_in);

/* The same behind a GELU: times its derivative at pre[rows, in]. */
void mics_linear_grad_in_gelu(struct mics_stream *stream, const struct mics_linear *layer,
                              uint32_t rows, const void *grad_out, const void *pre, void *grad_in);

#endif
