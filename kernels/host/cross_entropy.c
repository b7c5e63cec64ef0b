/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cross_entropy.c - the loss of a chunk of logits, and its gradient in their place.
 *
 * A row is read for its maximum, then exponentiated and summed, then scaled: the second and third
 * pass read it from the cache. The losses of a group of rows are stored, then added in order. 8
 * bytes (4 in bf16) and about 20 flops per element; the loss is within 1e-6 of a computation in
 * double.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/vector.h"
#include "host/vmath.h"

#include <math.h>

#define GROUP        1024 /* rows whose losses are held at a time */
#define RUN          1024 /* exponentials summed in single precision */
#define GRAIN_FLOATS (16 * 1024)

struct cross_entropy {
    const struct mics_args_cross_entropy *args;
    uint64_t first; /* row of losses[0] */
    double losses[GROUP];
    bool hits[GROUP];
};

MICS_TYPED float row_max(const void *logits, uint32_t V, const enum mics_dtype type)
{
    mics_vf even = mics_vset(-INFINITY), odd = even;
    float lanes[MICS_LANES], max = -INFINITY;
    uint32_t v = 0;

    for (; v + 2 * MICS_LANES <= V; v += 2 * MICS_LANES) {
        even = mics_vmax(mics_vload_as(logits, v, type), even);
        odd = mics_vmax(mics_vload_as(logits, v + MICS_LANES, type), odd);
    }
    for (; v < V; v++) {
        const float one = mics_load_as(logits, v, type);

        max = one > max ? one : max;
    }
    mics_vstore(lanes, mics_vmax(even, odd));
    for (unsigned i = 0; i < MICS_LANES; i++)
        max = lanes[i] > max ? lanes[i] : max;
    return max;
}

/* The sum of exp(logits - max) of a short run; with `keep` the exponentials replace the logits. */
MICS_TYPED float sum_run(void *logits, uint32_t count, float max, bool keep,
                         const enum mics_dtype type)
{
    mics_vf sum = {0};
    float lanes[MICS_LANES] = {0};
    uint32_t i = 0;

    for (; i + MICS_LANES <= count; i += MICS_LANES) {
        mics_vf e = mics_vexp(mics_vload_as(logits, i, type) - max);

        sum += e;
        if (keep)
            mics_vstore_as(logits, i, e, type);
    }
    if (i < count) {
        mics_vf e = mics_vexp(mics_vload_part_as(logits, i, count - i, type) - max);

        mics_vstore_part(lanes, e, count - i);
        if (keep)
            mics_vstore_part_as(logits, i, e, count - i, type);
        sum += mics_vload(lanes);
    }
    return mics_vsum(sum);
}

/* Softmax minus the target. In fp32 the logits have been replaced by their exponentials; in bf16
 * these are recomputed, because storing them would round twice. */
MICS_TYPED mics_vf softmax_of(mics_vf x, float max, float scale, const enum mics_dtype type)
{
    return type == MICS_F32 ? x * scale : mics_vexp(x - max) * scale;
}

/* `scale`: the factor of the gradient over the sum of the exponentials. */
MICS_TYPED void row_grad(void *logits, uint32_t V, uint32_t target, float max, float scale,
                         float factor, const enum mics_dtype type)
{
    const mics_vf of_target =
        softmax_of(mics_vset(mics_load_as(logits, target, type)), max, scale, type);
    uint32_t v = 0;

    for (; v + MICS_LANES <= V; v += MICS_LANES)
        mics_vstore_as(logits, v, softmax_of(mics_vload_as(logits, v, type), max, scale, type),
                       type);
    if (v < V) {
        const mics_vf x = mics_vload_part_as(logits, v, V - v, type);

        mics_vstore_part_as(logits, v, softmax_of(x, max, scale, type), V - v, type);
    }
    mics_store_as(logits, target, of_target[0] - factor, type);
}

MICS_TYPED double row_loss(const struct mics_args_cross_entropy *args, void *logits,
                           uint32_t target, bool *hit, const enum mics_dtype type)
{
    const bool keep = args->grad && type == MICS_F32;
    const float max = row_max(logits, args->V, type),
                at_target = mics_load_as(logits, target, type);
    const float factor = args->grad_scale ? (float)*args->grad_scale : 1.0f;
    double sum = 0;

    *hit = at_target >= max;
    for (uint32_t v = 0; v < args->V; v += RUN)
        sum += sum_run(mics_element(logits, v, type), args->V - v < RUN ? args->V - v : RUN, max,
                       keep, type);
    if (args->grad)
        row_grad(logits, args->V, target, max, factor * (float)(1.0 / sum), factor, type);
    return log(sum) + (double)max - (double)at_target;
}

static double loss_of(const struct mics_args_cross_entropy *args, void *logits, uint32_t target,
                      bool *hit)
{
    if (args->dtype == MICS_BF16)
        return row_loss(args, logits, target, hit, MICS_BF16);
    if (args->dtype == MICS_F16)
        return row_loss(args, logits, target, hit, MICS_F16);
    return row_loss(args, logits, target, hit, MICS_F32);
}

static void loss_rows(void *context, uint64_t begin, uint64_t end)
{
    struct cross_entropy *ce = context;
    const struct mics_args_cross_entropy *args = ce->args;
    const uint64_t ld = args->ld ? args->ld : args->V;

    for (uint64_t i = begin; i < end; i++) {
        void *logits = mics_element(args->logits, (ce->first + i) * ld, args->dtype);
        const int32_t target = args->targets[ce->first + i];

        ce->losses[i] = 0;
        ce->hits[i] = false;
        if (target >= 0 && (uint32_t)target < args->V)
            ce->losses[i] = loss_of(args, logits, (uint32_t)target, &ce->hits[i]);
        else if (args->grad)
            memset(logits, 0, args->V * mics_dtype_bytes(args->dtype));
    }
}

void mics_host_cross_entropy(struct mics_pool *pool, const struct mics_args_cross_entropy *args)
{
    struct cross_entropy ce = {.args = args};

    for (uint64_t done = 0; done < args->rows; done += GROUP) {
        uint64_t rows = mics_min_u64(args->rows - done, GROUP);

        ce.first = done;
        mics_pool_run(pool, rows, GRAIN_FLOATS / ((uint64_t)args->V + 1) + 1, loss_rows, &ce);
        for (uint64_t i = 0; i < rows; i++)
            *args->loss_sum += ce.losses[i];
        for (uint64_t i = 0; args->hits && i < rows; i++)
            *args->hits += ce.hits[i];
    }
}
