/* SPDX-License-Identifier: Apache-2.0 */
/* attention_reference.cc - attention and its gradient by plain loops in double. */
#include "attention_case.h"

#include <cmath>
#include <cuda_bf16.h>

/* From a counter to (-1, 1): splitmix (Steele et al. 2014); the sum of four makes it bell-shaped. */
static double draw(uint64_t *state)
{
    double sum = 0;

    for (int i = 0; i < 4; i++) {
        uint64_t z = *state += 0x9e3779b97f4a7c15u;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        sum += (double)((z ^ (z >> 31)) >> 11) * 0x1p-53 - 0.5;
    }
    return sum * std::sqrt(3.0);
}

static void fill(std::vector<double> *to, size_t count, enum mics_dtype dtype, double size,
                 uint64_t seed)
{
    to->resize(count);
    for (double &one : *to) {
        float value = (float)(draw(&seed) * size);

        one = dtype == MICS_BF16 ? __bfloat162float(__float2bfloat16(value)) : value;
    }
}

/* Row t of sequence b: where head h of the queries, and its keys and values, begin. */
struct place {
    size_t query, key, value;
};

static struct place place_of(const struct attention_shape &s, unsigned b, unsigned t, unsigned h)
{
    size_t row = ((size_t)b * s.T + t) * (s.H + 2 * s.H_kv) * s.D;
    unsigned kv = h / (s.H / s.H_kv);

    return {row + h * s.D, row + (s.H + kv) * s.D, row + (s.H + s.H_kv + kv) * s.D};
}

static double dot(const double *a, const double *b, unsigned D)
{
    double sum = 0;

    for (unsigned d = 0; d < D; d++)
        sum += a[d] * b[d];
    return sum;
}

/* Probabilities of query i; the log of the sum of exponentials of its scores. */
static double softmax(const struct attention_case &c, unsigned b, unsigned h, unsigned i,
                      std::vector<double> *p)
{
    const struct attention_shape &s = c.shape;
    double max = -INFINITY, sum = 0;

    p->assign(s.causal ? i + 1 : s.T, 0);
    for (unsigned j = 0; j < p->size(); j++) {
        (*p)[j] = dot(&c.qkv[place_of(s, b, i, h).query], &c.qkv[place_of(s, b, j, h).key], s.D) /
                  std::sqrt((double)s.D);
        max = std::fmax(max, (*p)[j]);
    }
    for (double &one : *p)
        sum += one = std::exp(one - max);
    for (double &one : *p)
        one /= sum;
    return max + std::log(sum);
}

static void reference_row(struct attention_case *c, unsigned b, unsigned h, unsigned i,
                          std::vector<double> *p)
{
    const struct attention_shape &s = c->shape;
    size_t at = (((size_t)b * s.T + i) * s.H + h) * s.D, query = place_of(s, b, i, h).query;
    const double *dout = &c->grad_out[at];
    double *out = &c->out[at], scale = 1 / std::sqrt((double)s.D), delta;

    c->lse[((size_t)b * s.H + h) * s.T + i] = softmax(*c, b, h, i, p);
    for (unsigned j = 0; j < p->size(); j++)
        for (unsigned d = 0; d < s.D; d++)
            out[d] += (*p)[j] * c->qkv[place_of(s, b, j, h).value + d];
    delta = dot(dout, out, s.D);
    for (unsigned j = 0; j < p->size(); j++) {
        struct place of = place_of(s, b, j, h);
        double ds = (*p)[j] * (dot(dout, &c->qkv[of.value], s.D) - delta) * scale;

        for (unsigned d = 0; d < s.D; d++) {
            c->grad[of.value + d] += (*p)[j] * dout[d];
            c->grad[of.key + d] += ds * c->qkv[query + d];
            c->grad[query + d] += ds * c->qkv[of.key + d];
        }
    }
}

struct attention_case attention_case_make(const struct attention_shape &s, enum mics_dtype dtype,
                                          double size)
{
    size_t rows = (size_t)s.B * s.T;
    struct attention_case c = {};
    std::vector<double> p;

    c.shape = s;
    c.dtype = dtype;
    fill(&c.qkv, rows * (s.H + 2 * s.H_kv) * s.D, dtype, size, 1);
    fill(&c.grad_out, rows * s.H * s.D, dtype, 1, 2);
    c.out.resize(c.grad_out.size());
    c.lse.resize(rows * s.H);
    c.grad.resize(c.qkv.size());
    for (unsigned b = 0; b < s.B; b++)
        for (unsigned h = 0; h < s.H; h++)
            for (unsigned i = 0; i < s.T; i++)
                reference_row(&c, b, h, i, &p);
    return c;
}
