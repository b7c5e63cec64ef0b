/* SPDX-License-Identifier: Apache-2.0 */
#include "model_double.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor by its whole name, wherever it is. */
static const double *named(const struct model_double *g, const char *name)
{
    for (uint32_t u = 0; u < g->model->unit_count; u++)
        for (uint32_t i = 0; i < g->model->units[u].tensor_count; i++)
            if (strcmp(g->model->units[u].tensors[i].name, name) == 0)
                return g->params[u] + g->model->units[u].tensors[i].offset;
    abort();
}

static const double *of_layer(const struct model_double *g, uint32_t layer, const char *name)
{
    char whole[80];

    snprintf(whole, sizeof whole, "layers.%u.%s", layer, name);
    return named(g, whole);
}

static void norm(const struct model_double *g, const double *in, const double *weight, double *out)
{
    const uint32_t C = g->model->config.n_embd;

    for (uint32_t t = 0; t < g->T; t++) {
        const double *x = in + t * C;
        double square = 0;

        for (uint32_t c = 0; c < C; c++)
            square += x[c] * x[c] / C;
        for (uint32_t c = 0; c < C; c++)
            out[t * C + c] = x[c] / sqrt(square + g->model->config.layer_norm_epsilon) * weight[c];
    }
}

/* A new [T, n] = in[T, k] weight[n, k]'. */
static double *product(const struct model_double *g, const double *in, const double *weight,
                       uint32_t k, uint32_t n)
{
    double *out = calloc((size_t)g->T * n, sizeof *out);

    for (uint32_t t = 0; t < g->T; t++)
        for (uint32_t j = 0; j < n; j++)
            for (uint32_t i = 0; i < k; i++)
                out[t * n + j] += in[t * k + i] * weight[j * k + i];
    return out;
}

/* By the cases of Llama 3.1's definition, over lengths of waves. */
static double frequency(const struct mics_model_config *c, uint32_t i)
{
    const struct mics_rope_scaling *s = &c->rope_scaling;
    const double f = pow(c->rope_theta, -2.0 * i / c->head_dim), wave = 2 * acos(-1) / f;

    if (s->kind != MICS_ROPE_LLAMA3 || wave < s->original_positions / s->high_freq_factor)
        return f;
    if (wave > s->original_positions / s->low_freq_factor)
        return f / s->factor;
    const double smooth = (s->original_positions / wave - s->low_freq_factor) /
                          (s->high_freq_factor - s->low_freq_factor);

    return (1 - smooth) * f / s->factor + smooth * f;
}

/* As complex numbers of the two halves of each head. */
static void rotate(const struct model_double *g, double *x, uint32_t heads)
{
    const uint32_t D = g->model->config.head_dim;

    for (uint32_t t = 0; t < g->T; t++)
        for (uint32_t h = 0; h < heads; h++)
            for (uint32_t i = 0; i < D / 2; i++) {
                double *re = x + (t * heads + h) * D + i, *im = re + D / 2, old = *re;
                const double angle = t * frequency(&g->model->config, i);

                *re = old * cos(angle) - *im * sin(angle);
                *im = *im * cos(angle) + old * sin(angle);
            }
}

/* Head h of position t: out[D]; a group of query heads shares a key head. */
static void attend(const struct model_double *g, const double *q, const double *k, const double *v,
                   uint32_t h, uint32_t t, double *out)
{
    const uint32_t H = g->model->config.n_head, H_kv = g->model->config.n_kv_head;
    const uint32_t D = g->model->config.head_dim, shared = h / (H / H_kv);
    double total = 0;

    memset(out, 0, D * sizeof *out);
    for (uint32_t s = 0; s <= t; s++) {
        double score = 0;

        for (uint32_t d = 0; d < D; d++)
            score += q[(t * H + h) * D + d] * k[(s * H_kv + shared) * D + d] / sqrt(D);
        total += exp(score);
        for (uint32_t d = 0; d < D; d++)
            out[d] += exp(score) * v[(s * H_kv + shared) * D + d];
    }
    for (uint32_t d = 0; d < D; d++)
        out[d] /= total;
}

static void add_and_free(double *x, double *more, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] += more[i];
    free(more);
}

static void attention(const struct model_double *g, uint32_t layer, const double *normed, double *x)
{
    const struct mics_model_config *c = &g->model->config;
    const uint32_t C = c->n_embd, A = c->n_head * c->head_dim, K = c->n_kv_head * c->head_dim;
    double *q = product(g, normed, of_layer(g, layer, "self_attn.q_proj.weight"), C, A);
    double *k = product(g, normed, of_layer(g, layer, "self_attn.k_proj.weight"), C, K);
    double *v = product(g, normed, of_layer(g, layer, "self_attn.v_proj.weight"), C, K);
    double *mixed = calloc((size_t)g->T * A, sizeof *mixed);

    rotate(g, q, c->n_head);
    rotate(g, k, c->n_kv_head);
    for (uint32_t t = 0; t < g->T; t++)
        for (uint32_t h = 0; h < c->n_head; h++)
            attend(g, q, k, v, h, t, mixed + t * A + h * c->head_dim);
    add_and_free(x, product(g, mixed, of_layer(g, layer, "self_attn.o_proj.weight"), A, C),
                 (size_t)g->T * C);
    free(q);
    free(k);
    free(v);
    free(mixed);
}

static void mlp(const struct model_double *g, uint32_t layer, const double *normed, double *x)
{
    const uint32_t C = g->model->config.n_embd, F = g->model->config.n_inner;
    double *gate = product(g, normed, of_layer(g, layer, "mlp.gate_proj.weight"), C, F);
    double *up = product(g, normed, of_layer(g, layer, "mlp.up_proj.weight"), C, F);

    for (uint32_t i = 0; i < g->T * F; i++)
        up[i] *= gate[i] / (1 + exp(-gate[i]));
    add_and_free(x, product(g, up, of_layer(g, layer, "mlp.down_proj.weight"), F, C),
                 (size_t)g->T * C);
    free(gate);
    free(up);
}

static double row_loss(const double *logits, uint32_t V, int32_t target)
{
    double total = 0;

    for (uint32_t v = 0; v < V; v++)
        total += exp(logits[v]);
    return target < 0 ? 0 : log(total) - logits[target];
}

double llama_double_loss(const struct model_double *g, const int32_t *tokens,
                         const int32_t *targets)
{
    const struct mics_model_config *c = &g->model->config;
    const uint32_t C = c->n_embd, T = g->T, V = c->vocab_size;
    const double *embedding = named(g, "embed_tokens.weight");
    double *x = calloc((size_t)T * C, sizeof *x), *normed = calloc((size_t)T * C, sizeof *x);
    double loss = 0;

    for (uint32_t t = 0; t < T; t++)
        memcpy(x + t * C, embedding + (uint32_t)tokens[t] * C, C * sizeof *x);
    for (uint32_t i = 0; i < c->n_layer; i++) {
        norm(g, x, of_layer(g, i, "input_layernorm.weight"), normed);
        attention(g, i, normed, x);
        norm(g, x, of_layer(g, i, "post_attention_layernorm.weight"), normed);
        mlp(g, i, normed, x);
    }
    norm(g, x, named(g, "norm.weight"), normed);
    double *logits = product(g, normed, c->untied ? named(g, "lm_head.weight") : embedding, C, V);
    for (uint32_t t = 0; t < T; t++)
        loss += row_loss(logits + t * V, V, targets[t]);
    free(x);
    free(normed);
    free(logits);
    return loss;
}
