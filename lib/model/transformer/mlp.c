/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlp.c - the MLP, down(activation(fc(taken))), as a sublayer's function.
 *
 * fc puts out `hidden`: what GELU takes, in tanh form in the same product, or gate and up for
 * SwiGLU.
 *
 * In a layer with experts it is the one that all tokens share, times the logistic function of a
 * number of each token. As with other experts the factor is folded into the activation.
 */
#include "device/launch.h"
#include "model/transformer/transformer.h"

static bool is_shared(const struct mics_sublayer *mlp)
{
    return mics_model_is_sparse(mlp->pass->model, mlp->stage->layer);
}

static struct mics_linear shared_linear(const struct mics_sublayer *mlp,
                                        enum mics_block_tensor weight, uint32_t in, uint32_t out)
{
    return mics_sublayer_linear(mlp, weight, weight, MICS_BLOCK_TENSORS, MICS_BLOCK_TENSORS, in,
                                out);
}

/* What gives the number of each token. */
static struct mics_linear shared_router_of(const struct mics_sublayer *mlp)
{
    return shared_linear(mlp, MICS_BLOCK_SHARED_ROUTER, mlp->dims.C, 1);
}

static struct mics_linear fc_of(const struct mics_sublayer *mlp)
{
    if (is_shared(mlp))
        return shared_linear(mlp, MICS_BLOCK_SHARED_GATE, mlp->dims.C, mlp->dims.hidden);
    return mics_sublayer_linear(mlp, MICS_BLOCK_FC, MICS_BLOCK_GATE, MICS_BLOCK_FC_BIAS,
                                MICS_BLOCK_GATE_BIAS, mlp->dims.C, mlp->dims.hidden);
}

static struct mics_linear down_of(const struct mics_sublayer *mlp)
{
    if (is_shared(mlp))
        return shared_linear(mlp, MICS_BLOCK_SHARED_DOWN, mlp->dims.F, mlp->dims.C);
    return mics_sublayer_linear(mlp, MICS_BLOCK_DOWN, MICS_BLOCK_DOWN, MICS_BLOCK_DOWN_BIAS,
                                MICS_BLOCK_DOWN_BIAS, mlp->dims.F, mlp->dims.C);
}

static enum mics_mlp_kind kind_of(const struct mics_sublayer *mlp)
{
    return mlp->pass->model->family->mlp;
}

/* hidden -> activated. GELU of `hidden` as it is stored, as the product's epilogue takes it: the
 * same bits. */
static void activate(const struct mics_sublayer *mlp)
{
    const struct mics_block_activations *acts = mlp->acts;

    if (is_shared(mlp))
        mics_launch_expert_swiglu(mlp->pass->stream, &(struct mics_args_expert_swiglu){
                                                         .out = acts->activated,
                                                         .in = acts->hidden,
                                                         .weights = acts->shared_logits,
                                                         .rows = mlp->dims.rows,
                                                         .F = mlp->dims.F,
                                                         .dtype = mlp->pass->batch.dtype,
                                                         .logistic = true,
                                                     });
    else if (kind_of(mlp) != MICS_MLP_SWIGLU)
        mics_launch_gelu(mlp->pass->stream, &(struct mics_args_gelu){
                                                .out = acts->activated,
                                                .in = acts->hidden,
                                                .count = (uint64_t)mlp->dims.rows * mlp->dims.F,
                                                .dtype = mlp->pass->batch.dtype,
                                                .exact = kind_of(mlp) == MICS_MLP_GELU_EXACT,
                                            });
    else
        mics_launch_swiglu(mlp->pass->stream, &(struct mics_args_swiglu){
                                                  .out = acts->activated,
                                                  .in = acts->hidden,
                                                  .rows = mlp->dims.rows,
                                                  .F = mlp->dims.F,
                                                  .dtype = mlp->pass->batch.dtype,
                                              });
}

/* What the activation takes, unless the same product computes that, too. */
static void forward_hidden(const struct mics_sublayer *mlp)
{
    const struct mics_linear fc = fc_of(mlp), router = shared_router_of(mlp);

    mics_linear_forward(&fc, mlp->dims.rows, mlp->taken, mlp->acts->hidden);
    if (is_shared(mlp))
        mics_linear_forward_f32(&router, mlp->dims.rows, mlp->taken, mlp->acts->shared_logits);
}

static void forward(const struct mics_sublayer *mlp)
{
    const struct mics_block_activations *acts = mlp->acts;
    const struct mics_linear fc = fc_of(mlp), down = down_of(mlp);

    if (kind_of(mlp) == MICS_MLP_GELU) {
        mics_linear_forward_gelu(&fc, mlp->dims.rows, mlp->taken, acts->hidden, acts->activated);
    } else {
        forward_hidden(mlp);
        activate(mlp);
    }
    mics_linear_forward_add(&down, mlp->dims.rows, acts->activated, mlp->in, mlp->sum);
}

static void recompute(const struct mics_sublayer *mlp)
{
    if (mlp->pass->batch.recompute == MICS_RECOMPUTE_FULL)
        forward_hidden(mlp);
}

static void shared_activation_backward(const struct mics_sublayer *mlp)
{
    const struct mics_block_activations *acts = mlp->acts;
    const enum mics_dtype dtype = mlp->pass->batch.dtype;

    mics_launch_expert_swiglu_grad(mlp->pass->stream, &(struct mics_args_expert_swiglu_grad){
                                                          .grad_in = acts->hidden,
                                                          .grad_weights = acts->shared_grad_logits,
                                                          .in = acts->hidden,
                                                          .grad_out = acts->wide_b,
                                                          .weights = acts->shared_logits,
                                                          .rows = mlp->dims.rows,
                                                          .F = mlp->dims.F,
                                                          .dtype = dtype,
                                                          .logistic = true,
                                                      });
    mics_launch_cast(mlp->pass->stream, &(struct mics_args_cast){.dst = acts->grad_logits,
                                                                 .src = acts->shared_grad_logits,
                                                                 .count = mlp->dims.rows,
                                                                 .dst_dtype = dtype,
                                                                 .src_dtype = MICS_F32});
}

/* The gradient of `hidden`, into its place for SwiGLU, into wide_b for GELU. */
static const void *activation_backward(const struct mics_sublayer *mlp, const void *grad)
{
    const struct mics_block_activations *acts = mlp->acts;
    const struct mics_linear down = down_of(mlp);

    if (kind_of(mlp) == MICS_MLP_GELU) {
        mics_linear_grad_in_gelu(&down, mlp->dims.rows, grad, acts->hidden, acts->wide_b);
        return acts->wide_b;
    }
    mics_linear_grad_in(&down, mlp->dims.rows, grad, NULL, acts->wide_b);
    if (kind_of(mlp) == MICS_MLP_GELU_EXACT) {
        mics_launch_gelu_grad(mlp->pass->stream,
                              &(struct mics_args_gelu_grad){
                                  .grad_in = acts->wide_b,
                                  .in = acts->hidden,
                                  .grad_out = acts->wide_b,
                                  .count = (uint64_t)mlp->dims.rows * mlp->dims.F,
                                  .dtype = mlp->pass->batch.dtype,
                                  .exact = true,
                              });
        return acts->wide_b;
    }
    if (is_shared(mlp)) {
        shared_activation_backward(mlp);
        return acts->hidden;
    }
    mics_launch_swiglu_grad(mlp->pass->stream, &(struct mics_args_swiglu_grad){
                                                   .grad_in = acts->hidden,
                                                   .in = acts->hidden,
                                                   .grad_out = acts->wide_b,
                                                   .rows = mlp->dims.rows,
                                                   .F = mlp->dims.F,
                                                   .dtype = mlp->pass->batch.dtype,
                                               });
    return acts->hidden;
}

static void backward(const struct mics_sublayer *mlp, const void *grad, const void *add,
                     void *grad_taken)
{
    const struct mics_linear fc = fc_of(mlp), down = down_of(mlp);
    const void *grad_hidden;

    if (mlp->pass->batch.recompute != MICS_RECOMPUTE_NONE)
        activate(mlp);
    mics_linear_grad_params(&down, mlp->dims.rows, mlp->acts->activated, grad);
    grad_hidden = activation_backward(mlp, grad);
    if (is_shared(mlp)) {
        const struct mics_linear router = shared_router_of(mlp);

        mics_sublayer_first_backward(mlp, &router, mlp->acts->grad_logits, add, grad_taken);
        add = grad_taken;
    }
    mics_sublayer_first_backward(mlp, &fc, grad_hidden, add, grad_taken);
}

const struct mics_sublayer_function mics_mlp_function = {forward, recompute, backward};
