/* SPDX-License-Identifier: Apache-2.0 */
#include "model/decoder/linear.h"

#include "device/launch.h"

/* out = in weight + bias, and what follows. */
static struct mics_op_matmul forward_of(const struct mics_linear *layer, uint32_t rows,
                                        const void *in, void *out)
{
    return (struct mics_op_matmul){
        .out = out,
        .a = in,
        .b = layer->weight,
        .bias = layer->bias,
        .m = rows,
        .n = layer->out,
        .k = layer->in,
        .lda = layer->in,
        .ldb = layer->transposed ? layer->in : layer->out,
        .ldout = layer->out,
        .trans_b = layer->transposed,
        .dtype = layer->dtype,
        .out_dtype = layer->dtype,
    };
}

void mics_linear_forward(struct mics_stream *stream, const struct mics_linear *layer, uint32_t rows,
                         const void *in, void *out)
{
    mics_linear_forward_add(stream, layer, rows, in, NULL, out);
}

void mics_linear_forward_add(struct mics_stream *stream, const struct mics_linear *layer,
                             uint32_t rows, const void *in, const void *residual, void *out)
{
    struct mics_op_matmul op = forward_of(layer, rows, in, out);

    op.add = residual;
    mics_launch_matmul(stream, &op);
}

void mics_linear_forward_gelu(struct mics_stream *stream, const struct mics_linear *layer,
                              uint32_t rows, const void *in, void *pre, void *out)
{
    struct mics_op_matmul op = forward_of(layer, rows, in, out);

    op.pre_gelu = pre;
    mics_launch_matmul(stream, &op);
}

void mics_linear_grad_params(struct mics_stream *stream, const struct mics_linear *layer,
                             uint32_t rows, const void *in, const void *grad_out, void *grad_weight,
                             void *grad_bias)
{
    const bool swap = layer->transposed; /* grad_out' in */
    const uint32_t m = swap ? layer->out : layer->in, n = swap ? layer->in : layer->out;

    mics_launch_matmul(stream, &(struct mics_op_matmul){
                                   .out = grad_weight,
                                   .a = swap ? grad_out : in,
                                   .b = swap ? in : grad_out,
                                   .m = m,
                                   .n = n,
                                   .k = rows,
                                   .lda = swap ? layer->out : layer->in,
                                   .ldb = swap ? layer->in : layer->out,
                                   .ldout = n,
                                   .trans_a = true,
                                   .add = grad_weight,
                                   .dtype = layer->dtype,
                                   .out_dtype = layer->grad_dtype,
                               });
    if (!grad_bias)
        return;
    mics_launch_bias_grad(stream, &(struct mics_op_bias_grad){
                                      .grad_bias = grad_bias,
                                      .grad_out = grad_out,
                                      .rows = rows,
                                      .n = layer->out,
                                      .dtype = layer->dtype,
                                      .grad_dtype = layer->grad_dtype,
                                  });
}

void mics_linear_grad_in(struct mics_stream *stream, const struct mics_linear *layer, uint32_t rows,
                         const void *grad_out, void *grad_in)
{
    mics_linear_grad_in_gelu(stream, layer, rows, grad_out, NULL, grad_in);
}

void mics_linear_grad_in_gelu(struct mics_stream *stream, const struct mics_linear *layer,
                              uint32_t rows, const void *grad_out, const void *pre, void *grad_in)
{
    mics_launch_matmul(stream, &(struct mics_op_matmul){
                                   .out = grad_in,
                                   .a = grad_out,
                                   .b = layer->weight,
                                   .gelu_of = pre,
                                   .m = rows,
                                   .n = layer->in,
                                   .k = layer->out,
                                   .lda = layer->out,
                                   .ldb = layer->transposed ? layer->in : layer->out,
                                   .ldout = layer->in,
                                   .trans_b = !layer->transposed,
                                   .dtype = layer->dtype,
                                   .out_dtype = layer->dtype,
                               });
}
