/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adamw.c - Adam with decoupled weight decay (Loshchilov and Hutter 2019).
 *
 * 28 bytes (30 with a copy) and about 15 flops per element: bound by memory. Every element, also in a padded end, goes
 * through the same inner loop, so that its new value does not depend on how the vector was cut.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/update.h"

#include <string.h>

#define LANES MICS_UPDATE_LANES

struct adamw {
    const struct mics_op_adamw *args;
    float scale;        /* of the gradient */
    float beta1, rest1; /* rest = 1 - beta, from the double */
    float beta2, rest2; /* */
    float rate, root2,
        decay; /* lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step), 1 - lr * weight_decay */
};

/* LANES elements; `keep` is what the parameter is multiplied by first. */
static inline void update(const struct adamw *adam, float keep, float *restrict param,
                          float *restrict m, float *restrict v, const float *restrict grad)
{
    for (unsigned i = 0; i < LANES; i++) {
        float g = grad[i] * adam->scale;
        float first = adam->beta1 * m[i] + adam->rest1 * g;
        float second = adam->beta2 * v[i] + adam->rest2 * (g * g);

        m[i] = first;
        v[i] = second;
        param[i] = keep * param[i] -
                   adam->rate * (first / (sqrtf(second) * adam->root2 + adam->args->eps));
    }
}

/* Fewer than LANES elements, padded. */
static void update_part(const struct adamw *adam, float keep, uint64_t i, size_t count)
{
    const struct mics_op_adamw *args = adam->args;
    float param[LANES] = {0}, m[LANES] = {0}, v[LANES] = {0}, grad[LANES] = {0};
    size_t bytes = count * sizeof(float);

    memcpy(param, args->param + i, bytes);
    memcpy(m, args->m + i, bytes);
    memcpy(v, args->v + i, bytes);
    memcpy(grad, args->grad + i, bytes);
    update(adam, keep, param, m, v, grad);
    memcpy(args->param + i, param, bytes);
    mics_update_copy(args->copy, args->param, i, count);
    memcpy(args->m + i, m, bytes);
    memcpy(args->v + i, v, bytes);
}

static void update_range(const struct adamw *adam, float keep, uint64_t i, uint64_t stop)
{
    const struct mics_op_adamw *args = adam->args;

    for (; i + LANES <= stop; i += LANES) {
        update(adam, keep, args->param + i, args->m + i, args->v + i, args->grad + i);
        mics_update_copy(args->copy, args->param, i, LANES);
    }
    if (i < stop)
        update_part(adam, keep, i, stop - i);
}

static void update_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct adamw *adam = context;
    uint64_t first = begin * MICS_FLAT_BLOCK, stop = mics_flat_stop(end, adam->args->count);
    uint64_t split = mics_min_u64(adam->args->decay_count, stop);

    if (split < first)
        split = first;
    update_range(adam, adam->decay, first, split);
    update_range(adam, 1.0f, split, stop);
}

void mics_host_adamw(struct mics_pool *pool, const struct mics_op_adamw *args)
{
    double beta1 = args->beta1, beta2 = args->beta2;
    struct adamw adam = {
        .args = args,
        .beta1 = args->beta1,
        .rest1 = (float)(1 - beta1),
        .beta2 = args->beta2,
        .rest2 = (float)(1 - beta2),
        .rate = (float)(args->lr / (1 - pow(beta1, args->step))),
        .root2 = (float)(1 / sqrt(1 - pow(beta2, args->step))),
        .decay = (float)(1 - (double)args->lr * args->weight_decay),
    };

    if (mics_update_scale(args->scalars, args->clip, &adam.scale))
        mics_flat_run(pool, args->count, update_blocks, &adam);
    else if (args->copy)
        mics_host_cast(pool, &(struct mics_op_cast){args->copy, args->param, args->count, MICS_BF16,
                                                    MICS_F32});
}
