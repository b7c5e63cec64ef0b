/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - linear layers and norms: which operations they launch. */
#include "device/launch.h"
#include "model/transformer/transformer.h"

/* Where a tensor begins in the parameters of a pass; NULL: none. */
static const void *param_of(const struct mics_pass *pass, uint32_t unit, uint32_t tensor)
{
    if (tensor == MICS_NO_TENSOR || !pass->params)
        return NULL;
    return (const char *)pass->params +
           pass->model->units[unit].tensors[tensor].offset * mics_dtype_bytes(pass->batch.dtype);
}

/* The same in the gradients. */
static void *grad_of(const struct mics_pass *pass, uint32_t unit, uint32_t tensor)
{
    if (tensor == MICS_NO_TENSOR || !pass->grads)
        return NULL;
    return (char *)pass->grads + pass->model->units[unit].tensors[tensor].offset *
                                     mics_dtype_bytes(pass->batch.grad_dtype);
}

/* Whether its gradient is written in this pass. */
static bool is_written(const struct mics_pass *pass, uint32_t unit, uint32_t tensor)
{
    return pass->first && tensor != MICS_NO_TENSOR &&
           pass->model->units[unit].tensors[tensor].offset < pass->model->units[unit].written_count;
}

struct mics_linear mics_linear_of(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                                  uint32_t bias, uint32_t in, uint32_t out)
{
    return (struct mics_linear){
        .stream = pass->stream,
        .weight = param_of(pass, unit, weight),
        .bias = param_of(pass, unit, bias),
        .grad_weight = grad_of(pass, unit, weight),
        .grad_bias = grad_of(pass, unit, bias),
        .in = in,
        .out = out,
        .transposed = !pass->model->family->weights_in_out,
        .writes_grad = is_written(pass, unit, weight),
        .dtype = pass->batch.dtype,
        .grad_dtype = pass->batch.grad_dtype,
    };
}

/* Arguments common to all forward products: out = in weight + bias. */
static struct mics_args_matmul forward_of(const struct mics_linear *layer, uint32_t rows,
                                          const void *in, void *out)
{
    return (struct mics_args_matmul){
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

void mics_linear_forward(const struct mics_linear *layer, uint32_t rows, const void *in, void *out)
{
    mics_linear_forward_add(layer, rows, in, NULL, out);
}

void mics_linear_forward_add(const struct mics_linear *layer, uint32_t rows, const void *in,
                             const void *residual, void *out)
{
    struct mics_args_matmul op = forward_of(layer, rows, in, out);

    op.add = residual;
    mics_launch_matmul(layer->stream, &op);
}

void mics_linear_forward_f32(const struct mics_linear *layer, uint32_t rows, const void *in,
                             float *out)
{
    struct mics_args_matmul op = forward_of(layer, rows, in, out);

    op.out_dtype = MICS_F32;
    mics_launch_matmul(layer->stream, &op);
}

void mics_linear_forward_gelu(const struct mics_linear *layer, uint32_t rows, const void *in,
                              void *pre, void *out)
{
    struct mics_args_matmul op = forward_of(layer, rows, in, out);

    op.pre_gelu = pre;
    mics_launch_matmul(layer->stream, &op);
}

void mics_linear_grad_params(const struct mics_linear *layer, uint32_t rows, const void *in,
                             const void *grad_out)
{
    const bool swap = layer->transposed; /* grad_out' in */
    const uint32_t m = swap ? layer->out : layer->in, n = swap ? layer->in : layer->out;

    mics_launch_matmul(layer->stream, &(struct mics_args_matmul){
                                          .out = layer->grad_weight,
                                          .a = swap ? grad_out : in,
                                          .b = swap ? in : grad_out,
                                          .m = m,
                                          .n = n,
                                          .k = rows,
                                          .lda = m,
                                          .ldb = n,
                                          .ldout = n,
                                          .trans_a = true,
                                          .add = layer->writes_grad ? NULL : layer->grad_weight,
                                          .dtype = layer->dtype,
                                          .out_dtype = layer->grad_dtype,
                                      });
    if (layer->grad_bias)
        mics_launch_bias_grad(layer->stream, &(struct mics_args_bias_grad){
                                                 .grad_bias = layer->grad_bias,
                                                 .grad_out = grad_out,
                                                 .rows = rows,
                                                 .n = layer->out,
                                                 .dtype = layer->dtype,
                                                 .grad_dtype = layer->grad_dtype,
                                             });
}

static struct mics_args_matmul grad_in_of(const struct mics_linear *layer, uint32_t rows,
                                          const void *grad_out, void *grad_in)
{
    return (struct mics_args_matmul){
        .out = grad_in,
        .a = grad_out,
        .b = layer->weight,
        .m = rows,
        .n = layer->in,
        .k = layer->out,
        .lda = layer->out,
        .ldb = layer->transposed ? layer->in : layer->out,
        .ldout = layer->in,
        .trans_b = !layer->transposed,
        .dtype = layer->dtype,
        .out_dtype = layer->dtype,
    };
}

void mics_linear_grad_in(const struct mics_linear *layer, uint32_t rows, const void *grad_out,
                         const void *add, void *grad_in)
{
    struct mics_args_matmul args = grad_in_of(layer, rows, grad_out, grad_in);

    args.add = add;
    mics_launch_matmul(layer->stream, &args);
}

void mics_linear_grad_in_gelu(const struct mics_linear *layer, uint32_t rows, const void *grad_out,
                              const void *pre, void *grad_in)
{
    struct mics_args_matmul args = grad_in_of(layer, rows, grad_out, grad_in);

    args.gelu_of = pre;
    mics_launch_matmul(layer->stream, &args);
}

struct mics_norm mics_norm_of(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                              uint32_t bias, const struct mics_norm_stats *stats)
{
    return (struct mics_norm){
        .stream = pass->stream,
        .kind = pass->model->family->norm,
        .weight = param_of(pass, unit, weight),
        .bias = param_of(pass, unit, bias),
        .grad_weight = grad_of(pass, unit, weight),
        .grad_bias = grad_of(pass, unit, bias),
        .stats = *stats,
        .C = pass->model->config.n_embd,
        .eps = (float)pass->model->config.layer_norm_epsilon,
        .dtype = pass->batch.dtype,
        .grad_dtype = pass->batch.grad_dtype,
    };
}

void mics_norm_forward(const struct mics_norm *norm, uint32_t rows, const void *in, void *out)
{
    if (norm->kind == MICS_NORM_LAYER)
        mics_launch_layernorm(norm->stream, &(struct mics_args_layernorm){
                                                .out = out,
                                                .mean = norm->stats.mean,
                                                .rstd = norm->stats.rstd,
                                                .in = in,
                                                .weight = norm->weight,
                                                .bias = norm->bias,
                                                .rows = rows,
                                                .C = norm->C,
                                                .eps = norm->eps,
                                                .dtype = norm->dtype,
                                            });
    else
        mics_launch_rmsnorm(norm->stream, &(struct mics_args_rmsnorm){
                                              .out = out,
                                              .rstd = norm->stats.rstd,
                                              .in = in,
                                              .weight = norm->weight,
                                              .rows = rows,
                                              .C = norm->C,
                                              .eps = norm->eps,
                                              .dtype = norm->dtype,
                                          });
}

void mics_norm_backward(const struct mics_norm *norm, uint32_t rows, const void *in,
                        const void *grad_out, void *grad_in)
{
    if (norm->kind == MICS_NORM_LAYER)
        mics_launch_layernorm_grad(norm->stream, &(struct mics_args_layernorm_grad){
                                                     .grad_in = grad_in,
                                                     .grad_weight = norm->grad_weight,
                                                     .grad_bias = norm->grad_bias,
                                                     .grad_out = grad_out,
                                                     .in = in,
                                                     .weight = norm->weight,
                                                     .mean = norm->stats.mean,
                                                     .rstd = norm->stats.rstd,
                                                     .rows = rows,
                                                     .C = norm->C,
                                                     .dtype = norm->dtype,
                                                     .grad_dtype = norm->grad_dtype,
                                                 });
    else
        mics_launch_rmsnorm_grad(norm->stream, &(struct mics_args_rmsnorm_grad){
                                                   .grad_in = grad_in,
                                                   .grad_weight = norm->grad_weight,
                                                   .grad_out = grad_out,
                                                   .in = in,
                                                   .weight = norm->weight,
                                                   .rstd = norm->stats.rstd,
                                                   .rows = rows,
                                                   .C = norm->C,
                                                   .dtype = norm->dtype,
                                                   .grad_dtype = norm->grad_dtype,
                                               });
}
