/* SPDX-License-Identifier: Apache-2.0 */
/* attention_emulated.cc - attention by plain loops in float, rounded at the end. */
#include "attention_emulated.h"

#include "queue.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <time.h>
#include <vector>

namespace
{

/* One head's rows of a tensor. */
struct rows {
    __nv_bfloat16 *at;
    size_t stride;

    float get(unsigned t, unsigned d) const
    {
        return __bfloat162float(at[t * stride + d]);
    }
};

/* What both directions have. */
struct shape {
    unsigned B, T, H, H_kv, D;
    bool causal;
};

struct head {
    struct rows q, k, v;
};

bool is_asked(const char *mode)
{
    const char *asked = getenv("MICS_EMULATED_ATTENTION");

    return asked && (!mode || strcmp(asked, mode) == 0);
}

__nv_bfloat16 *bf16(const void *memory)
{
    return static_cast<__nv_bfloat16 *>(const_cast<void *>(memory));
}

struct head head_of(const struct shape &s, const void *qkv, unsigned b, unsigned h)
{
    const size_t stride = (size_t)(s.H + 2 * s.H_kv) * s.D;
    __nv_bfloat16 *row = bf16(qkv) + (size_t)b * s.T * stride;
    const unsigned kv = h / (s.H / s.H_kv);

    return {{row + h * s.D, stride},
            {row + (s.H + kv) * s.D, stride},
            {row + (s.H + s.H_kv + kv) * s.D, stride}};
}

struct rows out_of(const struct shape &s, const void *out, unsigned b, unsigned h)
{
    const size_t stride = (size_t)s.H * s.D;

    return {bf16(out) + (size_t)b * s.T * stride + h * s.D, stride};
}

float dot(const struct rows &a, unsigned i, const struct rows &b, unsigned j, unsigned D)
{
    float sum = 0;

    for (unsigned d = 0; d < D; d++)
        sum += a.get(i, d) * b.get(j, d);
    return sum;
}

/* Scores of query i; those of later keys are absent. */
std::vector<float> scores(const struct shape &s, const struct head &head, unsigned i)
{
    std::vector<float> p(s.causal ? i + 1 : s.T);

    for (unsigned j = 0; j < p.size(); j++)
        p[j] = dot(head.q, i, head.k, j, s.D) / std::sqrt((float)s.D);
    return p;
}

void forward_row(const struct shape &s, const struct head &head, const struct rows &out, float *lse,
                 unsigned i)
{
    std::vector<float> p = scores(s, head, i);
    float max = -INFINITY, sum = 0;

    for (float one : p)
        max = std::fmax(max, one);
    for (float &one : p)
        sum += one = std::exp(one - max);
    for (unsigned d = 0; d < s.D; d++) {
        float value = 0;

        for (unsigned j = 0; j < p.size(); j++)
            value += p[j] * head.v.get(j, d);
        out.at[i * out.stride + d] = __float2bfloat16(value / sum);
    }
    lse[i] = max + std::log(sum);
}

/* Adds what query i gives: to its row of q, and to all rows of k and v that it sees. */
void backward_row(const struct shape &s, const struct head &head, const struct rows &grad_out,
                  float delta, float lse, unsigned i, float *q, std::vector<float> *k,
                  std::vector<float> *v)
{
    const std::vector<float> p = scores(s, head, i);

    for (unsigned j = 0; j < p.size(); j++) {
        const float one = std::exp(p[j] - lse);
        const float ds = one * (dot(grad_out, i, head.v, j, s.D) - delta) / std::sqrt((float)s.D);

        for (unsigned d = 0; d < s.D; d++) {
            q[d] += ds * head.k.get(j, d);
            (*k)[j * s.D + d] += ds * head.q.get(i, d);
            (*v)[j * s.D + d] += one * grad_out.get(i, d);
        }
    }
}

void round_to(const struct rows &to, const std::vector<float> &from, const struct shape &s)
{
    for (unsigned t = 0; t < s.T; t++)
        for (unsigned d = 0; d < s.D; d++)
            to.at[t * to.stride + d] = __float2bfloat16(from[t * s.D + d]);
}

/* The gradients of keys and values of one head, and of its group of queries. */
void backward_group(const struct shape &s, const struct mics_op_attention_grad *args, unsigned b,
                    unsigned kv)
{
    std::vector<float> k(s.T * s.D), v(s.T * s.D);
    const unsigned group = s.H / s.H_kv;

    for (unsigned h = kv * group; h < (kv + 1) * group; h++) {
        const struct rows grad_out = out_of(s, args->grad_out, b, h);
        const struct rows out = out_of(s, args->out, b, h);
        std::vector<float> q(s.T * s.D);

        for (unsigned i = 0; i < s.T; i++)
            backward_row(s, head_of(s, args->qkv, b, h), grad_out, dot(grad_out, i, out, i, s.D),
                         args->lse[((size_t)b * s.H + h) * s.T + i], i, &q[i * s.D], &k, &v);
        round_to(head_of(s, args->grad_qkv, b, h).q, q, s);
    }
    round_to(head_of(s, args->grad_qkv, b, kv * group).k, k, s);
    round_to(head_of(s, args->grad_qkv, b, kv * group).v, v, s);
}

/* What was asked for beside the result; `last` is the last row of a head. */
void disturb(const struct shape &s, __nv_bfloat16 *last)
{
    const struct timespec nap = {0, 100000000};

    if (is_asked("slow"))
        nanosleep(&nap, NULL);
    for (unsigned d = 0; d < s.D && is_asked("wrong"); d++)
        last[d] = __float2bfloat16(0);
}

void forward(const struct mics_op_attention *args)
{
    const struct shape s = {args->B, args->T, args->H, args->H_kv, args->D, args->causal};
    const struct rows last = out_of(s, args->out, 0, 0);

    for (unsigned head = 0; head < s.B * s.H && !is_asked("silent"); head++)
        for (unsigned i = 0; i < s.T; i++)
            forward_row(s, head_of(s, args->qkv, head / s.H, head % s.H),
                        out_of(s, args->out, head / s.H, head % s.H),
                        args->lse + (size_t)head * s.T, i);
    disturb(s, last.at + (s.T - 1) * last.stride);
}

void backward(const struct mics_op_attention_grad *args)
{
    const struct shape s = {args->B, args->T, args->H, args->H_kv, args->D, args->causal};
    const struct rows last = head_of(s, args->grad_qkv, 0, 0).q;

    for (unsigned kv = 0; kv < s.B * s.H_kv && !is_asked("silent"); kv++)
        backward_group(s, args, kv / s.H_kv, kv % s.H_kv);
    disturb(s, last.at + (s.T - 1) * last.stride);
}

} // namespace

bool emu_attention_takes(const struct mics_cuda_at *, const struct mics_op_attention *args)
{
    return is_asked(nullptr) && args->dtype == MICS_BF16;
}

bool emu_attention_takes_grad(const struct mics_cuda_at *,
                              const struct mics_op_attention_grad *args)
{
    return is_asked(nullptr) && args->dtype == MICS_BF16;
}

cudaError_t emu_attention(const struct mics_cuda_at *at, const struct mics_op_attention *args)
{
    const struct mics_op_attention copy = *args;

    if (is_asked("failing"))
        return cudaErrorNotSupported;
    emu_enqueue_plain(at->stream, [copy] { forward(&copy); });
    return cudaSuccess;
}

cudaError_t emu_attention_grad(const struct mics_cuda_at *at,
                               const struct mics_op_attention_grad *args)
{
    const struct mics_op_attention_grad copy = *args;

    if (is_asked("failing"))
        return cudaErrorNotSupported;
    emu_enqueue_plain(at->stream, [copy] { backward(&copy); });
    return cudaSuccess;
}
