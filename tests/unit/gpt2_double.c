/* SPDX-License-Identifier: Apache-2.0 */
#include "model_double.h"

#include "model/family.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double *double_tensor(const struct model_double *g, uint32_t unit, const char *suffix)
{
    const struct mics_unit *made = &g->model->units[unit];

    for (uint32_t i = 0; i < made->tensor_count; i++) {
        const char *name = made->tensors[i].name;
        const size_t length = strlen(name), wanted = strlen(suffix);

        if (length >= wanted && strcmp(name + length - wanted, suffix) == 0)
            return g->params[unit] + made->tensors[i].offset;
    }
    abort();
}

static void double_norm(const struct model_double *g, const double *in, const double *weight,
                        const double *bias, double *out)
{
    const uint32_t C = g->model->config.n_embd;

    for (uint32_t t = 0; t < g->T; t++) {
        const double *x = in + t * C;
        double mean = 0, variance = 0;

        for (uint32_t c = 0; c < C; c++)
            mean += x[c] / C;
        for (uint32_t c = 0; c < C; c++)
            variance += (x[c] - mean) * (x[c] - mean) / C;
        for (uint32_t c = 0; c < C; c++)
            out[t * C + c] =
                (x[c] - mean) / sqrt(variance + g->model->config.layer_norm_epsilon) * weight[c] +
                bias[c];
    }
}

/* out[T, n] (+)= in[T, k] weight[k, n] + bias. */
static void double_linear(const struct model_double *g, const double *in, const double *weight,
                          const double *bias, uint32_t k, uint32_t n, double *out, bool add)
{
    for (uint32_t t = 0; t < g->T; t++)
        for (uint32_t j = 0; j < n; j++) {
            double sum = bias[j];

            for (uint32_t i = 0; i < k; i++)
                sum += in[t * k + i] * weight[i * n + j];
            out[t * n + j] = sum + (add ? out[t * n + j] : 0);
        }
}

/* One head's attention of position t: out[D] from qkv[T, 3C]. */
static void double_attend(const struct model_double *g, const double *qkv, uint32_t head,
                          uint32_t t, double *out)
{
    const uint32_t C = g->model->config.n_embd, D = C / g->model->config.n_head;
    const double *q = qkv + t * 3 * C + head * D;
    const uint32_t seen = g->model->family->bidirectional ? g->T : t + 1;
    double total = 0;

    memset(out, 0, D * sizeof *out);
    for (uint32_t s = 0; s < seen; s++) {
        const double *k = qkv + s * 3 * C + C + head * D, *v = k + C;
        double score = 0;

        for (uint32_t d = 0; d < D; d++)
            score += q[d] * k[d] / sqrt(D);
        total += exp(score);
        for (uint32_t d = 0; d < D; d++)
            out[d] += exp(score) * v[d];
    }
    for (uint32_t d = 0; d < D; d++)
        out[d] /= total;
}

/* By the family each norm is of what a sublayer takes, or of the sum after it. */
static void double_block(const struct model_double *g, uint32_t unit, double *x)
{
    const uint32_t C = g->model->config.n_embd, F = g->model->config.n_inner, H = C, T = g->T;
    double *normed = malloc(T * C * sizeof *x), *qkv = malloc(T * 3 * C * sizeof *x);
    double *mixed = malloc(T * H * sizeof *x), *hidden = malloc(T * F * sizeof *x);
    const double *const weight_1 = double_tensor(g, unit, "ln_1.weight");
    const double *const weight_2 = double_tensor(g, unit, "ln_2.weight");
    const double *const bias_1 = double_tensor(g, unit, "ln_1.bias");
    const double *const bias_2 = double_tensor(g, unit, "ln_2.bias");
    const uint32_t heads = g->model->config.n_head;
    const bool after = g->model->family->norm_place == MICS_NORM_AFTER;
    const double *taken = after ? x : normed;

    if (!after)
        double_norm(g, x, weight_1, bias_1, normed);
    double_linear(g, taken, double_tensor(g, unit, "c_attn.weight"),
                  double_tensor(g, unit, "c_attn.bias"), C, 3 * C, qkv, false);
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t h = 0; h < heads; h++)
            double_attend(g, qkv, h, t, mixed + t * C + h * (C / heads));
    double_linear(g, mixed, double_tensor(g, unit, "attn.c_proj.weight"),
                  double_tensor(g, unit, "attn.c_proj.bias"), C, C, x, true);
    if (after)
        double_norm(g, x, weight_1, bias_1, x);
    else
        double_norm(g, x, weight_2, bias_2, normed);
    double_linear(g, taken, double_tensor(g, unit, "c_fc.weight"),
                  double_tensor(g, unit, "c_fc.bias"), C, F, hidden, false);
    for (uint32_t i = 0; i < T * F; i++) {
        const double u = hidden[i];

        hidden[i] = 0.5 * u * (1 + tanh(sqrt(2 / acos(-1)) * (u + 0.044715 * u * u * u)));
    }
    double_linear(g, hidden, double_tensor(g, unit, "mlp.c_proj.weight"),
                  double_tensor(g, unit, "mlp.c_proj.bias"), F, C, x, true);
    if (after)
        double_norm(g, x, weight_2, bias_2, x);
    free(normed);
    free(qkv);
    free(mixed);
    free(hidden);
}

static double double_row_loss(const struct model_double *g, const double *row, int32_t target)
{
    const uint32_t C = g->model->config.n_embd, V = g->model->config.vocab_size;
    const double *wte = double_tensor(g, 0, "wte.weight");
    double total = 0, wanted = 0;

    if (target < 0)
        return 0;
    for (uint32_t v = 0; v < V; v++) {
        double logit = 0;

        for (uint32_t c = 0; c < C; c++)
            logit += row[c] * wte[v * C + c];
        total += exp(logit);
        wanted = v == (uint32_t)target ? logit : wanted;
    }
    return log(total) - wanted;
}

double gpt2_double_loss(const struct model_double *g, const int32_t *tokens, const int32_t *targets)
{
    const uint32_t C = g->model->config.n_embd, T = g->T;
    const double *wte = double_tensor(g, 0, "wte.weight"), *wpe = double_tensor(g, 0, "wpe.weight");
    double *x = calloc(T * C, sizeof *x), loss = 0;

    for (uint32_t t = 0; t < T; t++)
        for (uint32_t c = 0; c < C; c++)
            x[t * C + c] = wte[(uint32_t)tokens[t] * C + c] + wpe[t * C + c];
    for (uint32_t i = 1; i < g->model->unit_count; i++)
        double_block(g, i, x);
    double_norm(g, x, double_tensor(g, 0, "ln_f.weight"), double_tensor(g, 0, "ln_f.bias"), x);
    for (uint32_t t = 0; t < T; t++)
        loss += double_row_loss(g, x + t * C, targets[t]);
    free(x);
    return loss;
}
