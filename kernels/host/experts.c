/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c - mixtures of experts but for their products: the choice of the router with its
 * gradient and its losses, the sort by expert, and rows in the order of experts and back.
 */
#include "host/kernels.h"
#include "host/numbers.h"
#include "host/pool.h"
#include "host/vector.h"
#include "host/vmath.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { GRAIN_ELEMENTS = 16384 };

static uint64_t grain_of(uint64_t row_elements)
{
    return mics_max_u64(1, GRAIN_ELEMENTS / mics_max_u64(1, row_elements));
}

/* Router ------------------------------------------------------------------------------------- */

struct softmax {
    float max, sum;
};

static struct softmax softmax_of(const float *logits, uint32_t E)
{
    struct softmax s = {-INFINITY, 0};

    for (uint32_t e = 0; e < E; e++)
        s.max = logits[e] > s.max ? logits[e] : s.max;
    for (uint32_t e = 0; e < E; e++)
        s.sum += expf(logits[e] - s.max);
    return s;
}

static float probability(const struct softmax *s, float logit)
{
    return expf(logit - s->max) / s->sum;
}

/* Does a come before b, which has a lower index? Then b is replaced. */
static bool is_larger(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

static void choose(const float *logits, uint32_t E, uint32_t k, int32_t *experts)
{
    uint32_t count = 0;

    for (uint32_t e = 0; e < E; e++) {
        uint32_t at = count;

        while (at > 0 && is_larger(logits[e], logits[experts[at - 1]]))
            at--;
        if (at == k)
            continue;
        count += count < k;
        memmove(&experts[at + 1], &experts[at], (count - at - 1) * sizeof *experts);
        experts[at] = (int32_t)e;
    }
}

static void weigh(const struct mics_args_route *args, const float *logits, const int32_t *experts,
                  float *weights)
{
    float chosen[MICS_EXPERTS_MAX];
    struct softmax s;

    for (uint32_t j = 0; j < args->k; j++)
        chosen[j] = logits[experts[j]];
    s = args->renormalise ? softmax_of(chosen, args->k) : softmax_of(logits, args->E);
    for (uint32_t j = 0; j < args->k; j++)
        weights[j] = probability(&s, chosen[j]);
}

static void route_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_route *args = context;

    for (uint64_t r = begin; r < end; r++) {
        const float *const logits = args->logits + r * args->E;

        choose(logits, args->E, args->k, args->experts + r * args->k);
        weigh(args, logits, args->experts + r * args->k, args->weights + r * args->k);
    }
}

void mics_host_route(struct mics_pool *pool, const struct mics_args_route *args)
{
    assert(args->k <= args->E && args->E <= MICS_EXPERTS_MAX);
    mics_pool_run(pool, args->rows, grain_of(args->E), route_rows, (void *)args);
}

/* The gradient of the weights of a row's slots, into grad[E]. */
static void weights_backward(const struct mics_args_route_grad *args, uint64_t r,
                             const struct softmax *s, float *grad)
{
    const float *const logits = args->logits + r * args->E;
    const int32_t *const experts = args->experts + r * args->k;
    const float *const weights = args->weights + r * args->k;
    const float *const slope = args->grad_weights + r * args->k;
    float mean = 0;

    for (uint32_t j = 0; j < args->k; j++)
        mean += weights[j] * slope[j];
    for (uint32_t e = 0; e < args->E; e++)
        grad[e] = args->renormalise ? 0 : -probability(s, logits[e]) * mean;
    for (uint32_t j = 0; j < args->k; j++)
        grad[experts[j]] = weights[j] * (slope[j] - mean);
}

static void losses_backward(const struct mics_args_route_grad *args, uint64_t r,
                            const struct softmax *s, float *grad)
{
    const float *const logits = args->logits + r * args->E;
    const bool counted = args->z_coefficient > 0 && args->targets[r] >= 0;
    const float z = counted ? 2 * args->z_coefficient * (s->max + logf(s->sum)) : 0;
    const float *const balance =
        args->balance ? args->balance + r / args->group_rows * args->E : NULL;
    float mean = 0;

    for (uint32_t e = 0; balance && e < args->E; e++)
        mean += probability(s, logits[e]) * balance[e];
    for (uint32_t e = 0; e < args->E; e++)
        grad[e] += probability(s, logits[e]) * (z + (balance ? balance[e] - mean : 0));
}

static void route_grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_route_grad *args = context;
    float grad[MICS_EXPERTS_MAX];

    for (uint64_t r = begin; r < end; r++) {
        const struct softmax s = softmax_of(args->logits + r * args->E, args->E);

        weights_backward(args, r, &s, grad);
        if (args->balance || args->z_coefficient > 0)
            losses_backward(args, r, &s, grad);
        for (uint32_t e = 0; e < args->E; e++)
            mics_store_as(args->grad_logits, r * args->E + e, grad[e], args->dtype);
    }
}

void mics_host_route_grad(struct mics_pool *pool, const struct mics_args_route_grad *args)
{
    assert(args->k <= args->E && args->E <= MICS_EXPERTS_MAX);
    mics_pool_run(pool, args->rows, grain_of(args->E), route_grad_rows, (void *)args);
}

/* Experts [begin, end) of all groups. */
static void load_experts(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_router_load *args = context;
    const uint32_t E = args->E, width = 2 * E;

    for (uint64_t first = 0; first < args->rows; first += args->group_rows) {
        const uint64_t at = first / args->group_rows * width;
        const uint64_t stop = mics_min_u64(args->rows, first + args->group_rows);
        float counts[MICS_EXPERTS_MAX] = {0};
        double sums[MICS_EXPERTS_MAX] = {0};

        for (uint64_t r = first; r < stop; r++) {
            const float *const logits = args->logits + r * E;
            const struct softmax s = softmax_of(logits, E);

            for (uint32_t j = 0; j < args->k; j++)
                counts[args->experts[r * args->k + j]] += 1;
            for (uint64_t e = begin; e < end; e++)
                sums[e] += (double)probability(&s, logits[e]);
        }
        for (uint64_t e = begin; e < end; e++) {
            args->load[at + e] = counts[e] + (args->add ? args->add[at + e] : 0);
            args->load[at + E + e] = (float)sums[e] + (args->add ? args->add[at + E + e] : 0);
        }
    }
}

void mics_host_router_load(struct mics_pool *pool, const struct mics_args_router_load *args)
{
    double sum = 0;

    assert(args->E <= MICS_EXPERTS_MAX);
    mics_pool_run(pool, args->E, args->E, load_experts, (void *)args);
    if (!(args->z_coefficient > 0))
        return;
    for (uint64_t r = 0; r < args->rows; r++) {
        const struct softmax s = softmax_of(args->logits + r * args->E, args->E);
        const double z = (double)s.max + log((double)s.sum);

        if (args->targets[r] >= 0)
            sum += z * z;
    }
    *args->loss_sum += (double)args->z_coefficient * sum;
}

void mics_host_balance_loss(struct mics_pool *pool, const struct mics_args_balance_loss *args)
{
    const uint32_t E = args->E;
    double total = 0;

    (void)pool;
    for (uint32_t g = 0; g < args->groups; g++) {
        const float *const counts = args->load + (size_t)g * 2 * E, *const sums = counts + E;
        const int32_t *const targets = args->targets + (size_t)g * args->group_rows;
        uint32_t counted = 0;
        double aux = 0;

        for (uint32_t r = 0; r < args->group_rows; r++)
            counted += targets[r] >= 0;
        const double scale = args->coefficient * counted * E / (args->divisor * args->divisor);
        for (uint32_t e = 0; e < E; e++)
            aux += (double)counts[e] * (double)sums[e];
        for (uint32_t e = 0; args->balance && e < E; e++)
            args->balance[(size_t)g * E + e] = (float)(scale * (double)counts[e]);
        total += scale * aux;
    }
    *args->loss_sum += total;
}

/* Rows by expert ----------------------------------------------------------------------------- */

void mics_host_sort_experts(struct mics_pool *pool, const struct mics_args_sort_experts *args)
{
    const uint32_t count = args->rows * args->k;
    uint32_t next[MICS_EXPERTS_MAX];

    (void)pool;
    assert(args->E <= MICS_EXPERTS_MAX);
    memset(args->offsets, 0, (args->E + 1) * sizeof *args->offsets);
    for (uint32_t a = 0; a < count; a++)
        args->offsets[args->experts[a] + 1]++;
    for (uint32_t e = 0; e < args->E; e++) {
        next[e] = args->offsets[e];
        args->offsets[e + 1] += args->offsets[e];
    }
    for (uint32_t a = 0; a < count; a++) {
        const uint32_t at = next[args->experts[a]]++;

        args->order[at] = a;
        args->position[a] = at;
    }
}

static void gather_range(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_gather_rows *args = context;
    const size_t bytes = args->C * mics_dtype_bytes(args->dtype);

    for (uint64_t i = begin; i < end; i++)
        memcpy((char *)args->out + i * bytes,
               (const char *)args->in + args->order[i] / args->k * bytes, bytes);
}

void mics_host_gather_rows(struct mics_pool *pool, const struct mics_args_gather_rows *args)
{
    mics_pool_run(pool, (uint64_t)args->rows * args->k, grain_of(args->C), gather_range,
                  (void *)args);
}

MICS_TYPED void combine_row(const struct mics_args_combine_rows *args, uint64_t r,
                            const enum mics_dtype dtype)
{
    const uint32_t *const position = args->position + r * args->k;

    for (uint32_t c = 0; c < args->C; c++) {
        float sum = args->add ? mics_load_as(args->add, r * args->C + c, dtype) : 0;

        for (uint32_t j = 0; j < args->k; j++)
            sum += mics_load_as(args->in, (uint64_t)position[j] * args->C + c, dtype);
        mics_store_as(args->out, r * args->C + c, sum, dtype);
    }
}

static void combine_range(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_combine_rows *args = context;

    for (uint64_t r = begin; r < end; r++)
        if (args->dtype == MICS_BF16)
            combine_row(args, r, MICS_BF16);
        else
            combine_row(args, r, MICS_F32);
}

void mics_host_combine_rows(struct mics_pool *pool, const struct mics_args_combine_rows *args)
{
    mics_pool_run(pool, args->rows, grain_of((uint64_t)args->k * args->C), combine_range,
                  (void *)args);
}

/* The activation of experts ------------------------------------------------------------------ */

static float silu(float x)
{
    return x / (1 + expf(-x));
}

static void swiglu_range(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_expert_swiglu *args = context;

    for (uint64_t i = begin; i < end; i++) {
        const float weight = args->weights[args->order[i]];

        for (uint32_t f = 0; f < args->F; f++) {
            const uint64_t at = 2 * i * args->F + f;
            const float gate = mics_load_as(args->in, at, args->dtype);
            const float up = mics_load_as(args->in, at + args->F, args->dtype);

            mics_store_as(args->out, i * args->F + f, weight * (silu(gate) * up), args->dtype);
        }
    }
}

void mics_host_expert_swiglu(struct mics_pool *pool, const struct mics_args_expert_swiglu *args)
{
    mics_pool_run(pool, args->rows, grain_of(args->F), swiglu_range, (void *)args);
}

static void swiglu_grad_range(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_expert_swiglu_grad *args = context;

    for (uint64_t i = begin; i < end; i++) {
        const float weight = args->weights[args->order[i]];
        float slope = 0;

        for (uint32_t f = 0; f < args->F; f++) {
            const uint64_t at = 2 * i * args->F + f;
            const float gate = mics_load_as(args->in, at, args->dtype);
            const float up = mics_load_as(args->in, at + args->F, args->dtype);
            const float grad = mics_load_as(args->grad_out, i * args->F + f, args->dtype);
            const float sigmoid = 1 / (1 + expf(-gate)), activated = gate * sigmoid;

            slope += grad * activated * up;
            mics_store_as(args->grad_in, at,
                          weight * grad * up * sigmoid * (1 + gate * (1 - sigmoid)), args->dtype);
            mics_store_as(args->grad_in, at + args->F, weight * grad * activated, args->dtype);
        }
        args->grad_weights[args->order[i]] = slope;
    }
}

void mics_host_expert_swiglu_grad(struct mics_pool *pool,
                                  const struct mics_args_expert_swiglu_grad *args)
{
    mics_pool_run(pool, args->rows, grain_of(args->F), swiglu_grad_range, (void *)args);
}
