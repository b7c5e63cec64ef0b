/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_host_passes.c - memory-bound operations, which pass over their operands once or twice. */
#include "kernels_host.h"

static void run_layernorm(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_layernorm(x->pool, &(struct mics_args_layernorm){.dtype = x->dtype,
                                                               .out = x->b,
                                                               .mean = x->d,
                                                               .rstd = x->d + m->B * m->T,
                                                               .in = x->a,
                                                               .weight = x->c,
                                                               .bias = x->c,
                                                               .rows = m->B * m->T,
                                                               .C = m->C,
                                                               .eps = 1e-5f});
}

static double bytes_2(const struct model *m)
{
    return 8 * rows(m) * m->C;
}

static double bytes_3(const struct model *m)
{
    return 12 * rows(m) * m->C;
}

/* The least: grad_out, in and grad_in read once, grad_in written. */
static double bytes_4(const struct model *m)
{
    return 16 * rows(m) * m->C;
}

static void run_layernorm_grad(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_layernorm_grad(x->pool,
                             &(struct mics_args_layernorm_grad){.dtype = x->dtype,
                                                                .grad_in = x->b,
                                                                .grad_weight = x->c,
                                                                .grad_bias = x->c + m->C,
                                                                .grad_out = x->a,
                                                                .in = x->a + m->B * m->T * m->C,
                                                                .weight = x->c + 2 * m->C,
                                                                .mean = x->d,
                                                                .rstd = x->d + m->B * m->T,
                                                                .rows = m->B * m->T,
                                                                .C = m->C});
}

static void run_gelu(struct arrays *x)
{
    mics_host_gelu(
        x->pool, &(struct mics_args_gelu){.dtype = x->dtype,
                                          .out = x->b,
                                          .in = x->a,
                                          .count = 4ull * x->model->B * x->model->T * x->model->C});
}

static double gelu_bytes(const struct model *m)
{
    return 4 * bytes_2(m);
}

static void run_gelu_grad(struct arrays *x)
{
    mics_host_gelu_grad(x->pool, &(struct mics_args_gelu_grad){.dtype = x->dtype,
                                                               .grad_in = x->b,
                                                               .in = x->a,
                                                               .grad_out = x->b,
                                                               .count = 4ull * x->model->B *
                                                                        x->model->T * x->model->C});
}

static double gelu_grad_bytes(const struct model *m)
{
    return 4 * bytes_3(m);
}

static void run_bias_grad(struct arrays *x)
{
    mics_host_bias_grad(x->pool, &(struct mics_args_bias_grad){.dtype = x->dtype,
                                                               .grad_bias = x->c,
                                                               .grad_out = x->a,
                                                               .rows = x->model->B * x->model->T,
                                                               .n = 4 * x->model->C});
}

static double bias_grad_bytes(const struct model *m)
{
    return 16 * rows(m) * m->C;
}

static void run_embedding(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_embedding(x->pool, &(struct mics_args_embedding){.dtype = x->dtype,
                                                               .out = x->b,
                                                               .tokens = x->tokens,
                                                               .wte = x->a,
                                                               .wpe = x->c,
                                                               .B = m->B,
                                                               .T = m->T,
                                                               .C = m->C});
}

static void run_embedding_grad(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_embedding_grad(x->pool, &(struct mics_args_embedding_grad){.dtype = x->dtype,
                                                                         .grad_wte = x->b,
                                                                         .grad_wpe = x->c,
                                                                         .tokens = x->tokens,
                                                                         .grad_out = x->a,
                                                                         .B = m->B,
                                                                         .T = m->T,
                                                                         .C = m->C,
                                                                         .V = m->V});
}

/* Read: grad_out, the token's and the position's row; written: both rows. */
static double embedding_grad_bytes(const struct model *m)
{
    return 20 * rows(m) * m->C;
}

static void run_cross_entropy(struct arrays *x)
{
    double loss = 0;

    mics_host_cross_entropy(x->pool, &(struct mics_args_cross_entropy){.dtype = x->dtype,
                                                                       .logits = x->b,
                                                                       .targets = x->tokens,
                                                                       .loss_sum = &loss,
                                                                       .rows = x->model->chunk,
                                                                       .V = x->model->V,
                                                                       .grad = true});
}

static double cross_entropy_bytes(const struct model *m)
{
    return 8.0 * m->chunk * m->V;
}

static void run_squared_norm(struct arrays *x)
{
    double sum = 0;

    mics_host_squared_norm(x->pool, &(struct mics_args_squared_norm){
                                        .sum = &sum, .in = x->a, .count = x->model->params});
}

static double norm_bytes(const struct model *m)
{
    return 4.0 * (double)m->params;
}

static void run_update(struct arrays *x, enum mics_optimizer optimizer)
{
    const uint64_t count = x->model->params;

    mics_host_update(x->pool, &(struct mics_args_update){.optimizer = optimizer,
                                                         .step = 9,
                                                         .param = x->b,
                                                         .state = {x->c, x->d},
                                                         .grad = x->a,
                                                         .scalars = &x->scalars,
                                                         .count = count,
                                                         .decay_count = count / 2,
                                                         .lr = 1e-9f,
                                                         .settings = {.beta1 = 0.9f,
                                                                      .beta2 = 0.95f,
                                                                      .eps = 1e-8f,
                                                                      .momentum = 0.9f,
                                                                      .weight_decay = 0.1f,
                                                                      .clip = 1}});
}

static void run_adamw(struct arrays *x)
{
    run_update(x, MICS_OPT_ADAMW);
}

static double adamw_bytes(const struct model *m)
{
    return 28.0 * (double)m->params;
}

static void run_sgd(struct arrays *x)
{
    run_update(x, MICS_OPT_SGD);
}

static void run_lion(struct arrays *x)
{
    run_update(x, MICS_OPT_LION);
}

static double one_state_bytes(const struct model *m)
{
    return 20.0 * (double)m->params;
}

const struct entry bench_passes[] = {
    {"layernorm", run_layernorm, NULL, bytes_2, false},
    {"layernorm_grad", run_layernorm_grad, NULL, bytes_4, false},
    {"gelu", run_gelu, NULL, gelu_bytes, false},
    {"gelu_grad", run_gelu_grad, NULL, gelu_grad_bytes, false},
    {"bias_grad", run_bias_grad, NULL, bias_grad_bytes, false},
    {"embedding", run_embedding, NULL, bytes_3, false},
    {"embedding_grad", run_embedding_grad, NULL, embedding_grad_bytes, false},
    {"cross_entropy", run_cross_entropy, NULL, cross_entropy_bytes, false},
    {"squared_norm", run_squared_norm, NULL, norm_bytes, true},
    {"adamw", run_adamw, NULL, adamw_bytes, true},
    {"sgd", run_sgd, NULL, one_state_bytes, true},
    {"lion", run_lion, NULL, one_state_bytes, true},
    {0},
};
