/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cross_entropy.c - the loss of a chunk of logits, and its gradient in their place.
 *
 * A row is read for its maximum, then exponentiated and summed, then scaled: the second and the third
 * pass find it in the cache. Each row's loss is kept until all of a group are known and added in order.
 */
#include "host/flat.h"
#include "host/kernels.h"
#include "host/vmath.h"

#include <math.h>

#define GROUP        1024 /* rows whose losses are held at a time */
#define RUN          1024 /* exponentials summed in single precision */
#define GRAIN_FLOATS (16 * 1024)

struct cross_entropy {
    const struct mics_op_cross_entropy *args;
    uint64_t first; /* row of losses[0] */
    double losses[GROUP];
};

static float row_max(const float *logits, uint32_t V)
{
    mics_vf even = mics_vset(-INFINITY), odd = even;
    float lanes[MICS_LANES], max = -INFINITY;
    uint32_t v = 0;

    for (; v + 2 * MICS_LANES <= V; v += 2 * MICS_LANES) {
        even = mics_vmax(mics_vload(logits + v), even);
        odd = mics_vmax(mics_vload(logits + v + MICS_LANES), odd);
    }
    for (; v < V; v++)
        max = logits[v] > max ? logits[v] : max;
    mics_vstore(lanes, mics_vmax(even, odd));
    for (unsigned i = 0; i < MICS_LANES; i++)
        max = lanes[i] > max ? lanes[i] : max;
    return max;
}

/* The sum of exp(logits - max) of a short run; with `keep` the exponentials replace the logits. */
static float sum_run(float *logits, uint32_t count, float max, bool keep)
{
    mics_vf sum = {0};
    float lanes[MICS_LANES] = {0};
    uint32_t i = 0;

    for (; i + MICS_LANES <= count; i += MICS_LANES) {
        mics_vf e = mics_vexp_low(mics_vload(logits + i) - max);

        sum += e;
        if (keep)
            mics_vstore(logits + i, e);
    }
    if (i < count) {
        mics_vf e = mics_vexp_low(mics_vload_part(logits + i, count - i) - max);

        mics_vstore_part(lanes, e, count - i);
        if (keep)
            mics_vstore_part(logits + i, e, count - i);
        sum += mics_vload(lanes);
    }
    return mics_vsum(sum);
}

static double row_loss(float *logits, uint32_t V, uint32_t target, bool grad)
{
    float max = row_max(logits, V), at_target = logits[target], scale;
    double sum = 0;

    for (uint32_t v = 0; v < V; v += RUN)
        sum += sum_run(logits + v, V - v < RUN ? V - v : RUN, max, grad);
    if (grad) {
        scale = (float)(1.0 / sum);
        for (uint32_t v = 0; v < V; v++)
            logits[v] *= scale;
        logits[target] -= 1.0f;
    }
    return log(sum) + (double)max - (double)at_target;
}

static void loss_rows(void *context, uint64_t begin, uint64_t end)
{
    struct cross_entropy *ce = context;
    const struct mics_op_cross_entropy *args = ce->args;

    for (uint64_t i = begin; i < end; i++) {
        float *logits = (float *)args->logits + (ce->first + i) * args->V;
        int32_t target = args->targets[ce->first + i];

        ce->losses[i] = 0;
        if (target >= 0 && (uint32_t)target < args->V)
            ce->losses[i] = row_loss(logits, args->V, (uint32_t)target, args->grad);
        else if (args->grad)
            memset(logits, 0, args->V * sizeof(float));
    }
}

void mics_host_cross_entropy(struct mics_pool *pool, const struct mics_op_cross_entropy *args)
{
    struct cross_entropy ce = {.args = args};

    for (uint64_t done = 0; done < args->rows; done += GROUP) {
        uint64_t rows = mics_min_u64(args->rows - done, GROUP);

        ce.first = done;
        mics_pool_run(pool, rows, GRAIN_FLOATS / ((uint64_t)args->V + 1) + 1, loss_rows, &ce);
        for (uint64_t i = 0; i < rows; i++)
            *args->loss_sum += ce.losses[i];
    }
}
