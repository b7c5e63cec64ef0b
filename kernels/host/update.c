/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update.c - the optimizers' updates, fp16's loss scale, and the squared norm that clipping needs.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/vector.h"

#include <math.h>
#include <string.h>

/*
 * One step of an optimizer on a slice.
 *
 * Every element, also in a padded end, goes through the same inner loop, so that its new value does
 * not depend on how the vector was cut. Bound by memory: per element 12 bytes of parameter and
 * gradient, 8 of each state, 2 of a copy; about 15 flops for AdamW, 6 for SGD, 9 for Lion. Within
 * 1e-6 of the formulas in ops.h in double.
 */

/* Elements that go through one call of an inner loop; shorter ends are padded. */
#define LANES 16

struct update {
    const struct mics_args_update *args;
    float scale;              /* of the gradient */
    float beta1, rest1;       /* rest = 1 - beta, computed in double */
    float beta2, rest2;       /* */
    float rate, root2;        /* AdamW: lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step) */
    float decaying, constant; /* `decay` of elements that decay, and of those that do not */
};

/* `decay` is what the parameter is multiplied by first: 1 - lr weight_decay, or 1. */
static inline void update_adamw(const struct update *u, float decay, float *restrict param,
                                float *restrict m, float *restrict v, const float *restrict grad)
{
    for (unsigned i = 0; i < LANES; i++) {
        float g = grad[i] * u->scale;
        float first = u->beta1 * m[i] + u->rest1 * g;
        float second = u->beta2 * v[i] + u->rest2 * (g * g);

        m[i] = first;
        v[i] = second;
        param[i] = decay * param[i] -
                   u->rate * (first / (sqrtf(second) * u->root2 + u->args->settings.eps));
    }
}

/* `decay` is weight_decay, or 0. */
static inline void update_sgd(const struct update *u, float decay, float *restrict param,
                              float *restrict m, const float *restrict grad)
{
    for (unsigned i = 0; i < LANES; i++) {
        float g = grad[i] * u->scale + decay * param[i];

        m[i] = u->args->settings.momentum * m[i] + g;
        param[i] -= u->args->lr * m[i];
    }
}

/* `decay` as AdamW's. NaN stays NaN. */
static inline void update_lion(const struct update *u, float decay, float *restrict param,
                               float *restrict m, const float *restrict grad)
{
    for (unsigned i = 0; i < LANES; i++) {
        float g = grad[i] * u->scale;
        float direction = u->beta1 * m[i] + u->rest1 * g;
        float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : direction;

        m[i] = u->beta2 * m[i] + u->rest2 * g;
        param[i] = decay * param[i] - u->args->lr * sign;
    }
}

MICS_TYPED void update_lanes(const struct update *u, float decay, float *param, float *first,
                             float *second, const float *grad, const enum mics_optimizer optimizer)
{
    if (optimizer == MICS_OPT_ADAMW)
        update_adamw(u, decay, param, first, second, grad);
    else if (optimizer == MICS_OPT_SGD)
        update_sgd(u, decay, param, first, grad);
    else
        update_lion(u, decay, param, first, grad);
}

/* Elements [i, i + count) of the parameters in two bytes, unless there is no copy. */
static inline void update_copy(const struct mics_args_update *args, uint64_t i, size_t count)
{
    if (args->copy && args->copy_f16)
        for (size_t j = 0; j < count; j++)
            args->copy[i + j] = mics_f16_round(args->param[i + j]);
    else
        for (size_t j = 0; args->copy && j < count; j++)
            args->copy[i + j] = mics_bf16_round(args->param[i + j]);
}

/* Fewer than LANES elements, padded. */
MICS_TYPED void update_part(const struct update *u, float decay, uint64_t i, size_t count,
                            const enum mics_optimizer optimizer, const unsigned states)
{
    const struct mics_args_update *args = u->args;
    float param[LANES] = {0}, state[MICS_OPTIMIZER_STATES_MAX][LANES] = {{0}}, grad[LANES] = {0};
    const size_t bytes = count * sizeof(float);

    memcpy(param, args->param + i, bytes);
    memcpy(grad, args->grad + i, bytes);
    for (unsigned s = 0; s < states; s++)
        memcpy(state[s], args->state[s] + i, bytes);
    update_lanes(u, decay, param, state[0], state[1], grad, optimizer);
    memcpy(args->param + i, param, bytes);
    for (unsigned s = 0; s < states; s++)
        memcpy(args->state[s] + i, state[s], bytes);
    update_copy(args, i, count);
}

MICS_TYPED void update_range(const struct update *u, float decay, uint64_t i, uint64_t stop,
                             const enum mics_optimizer optimizer, const unsigned states)
{
    const struct mics_args_update *args = u->args;

    for (; i + LANES <= stop; i += LANES) {
        update_lanes(u, decay, args->param + i, args->state[0] + i,
                     states > 1 ? args->state[1] + i : NULL, args->grad + i, optimizer);
        update_copy(args, i, LANES);
    }
    if (i < stop)
        update_part(u, decay, i, stop - i, optimizer, states);
}

MICS_TYPED void update_blocks(const struct update *u, uint64_t begin, uint64_t end,
                              const enum mics_optimizer optimizer, const unsigned states)
{
    const uint64_t first = begin * MICS_FLAT_BLOCK, stop = mics_flat_stop(end, u->args->count);
    const uint64_t decay_stop = mics_min_u64(u->args->decay_count, stop);
    const uint64_t split = decay_stop < first ? first : decay_stop;

    update_range(u, u->decaying, first, split, optimizer, states);
    update_range(u, u->constant, split, stop, optimizer, states);
}

static void adamw_blocks(void *context, uint64_t begin, uint64_t end)
{
    update_blocks(context, begin, end, MICS_OPT_ADAMW, 2);
}

static void sgd_blocks(void *context, uint64_t begin, uint64_t end)
{
    update_blocks(context, begin, end, MICS_OPT_SGD, 1);
}

static void lion_blocks(void *context, uint64_t begin, uint64_t end)
{
    update_blocks(context, begin, end, MICS_OPT_LION, 1);
}

/* What the summed gradients are multiplied by: factor * min(1, clip / (norm + 1e-6)), with factor =
 * 1 / targets and norm = factor times the square root of squared_norm, without the loss scale.
 * false: nothing may be changed, because there are no targets, a gradient has overflowed, or
 * clipping is on (clip > 0) and the norm or the loss is not finite. */
static bool update_scale(const struct mics_args_update *args, float *scale)
{
    const struct mics_args_scalars *scalars = args->scalars;
    const float clip = args->settings.clip;
    double factor, norm;

    if (scalars->targets == 0 || (args->loss_scale && args->loss_scale->overflow))
        return false;
    factor = 1.0 / scalars->targets;
    if (clip > 0) {
        norm = sqrt(scalars->squared_norm) * factor;
        if (!isfinite(norm) || !isfinite(scalars->loss_sum))
            return false;
        if (clip < norm + 1e-6)
            factor *= clip / (norm + 1e-6);
    }
    if (args->loss_scale)
        factor /= args->loss_scale->used;
    *scale = (float)factor;
    return true;
}

void mics_host_update(struct mics_pool *pool, const struct mics_args_update *args)
{
    static void (*const blocks[MICS_OPT_COUNT])(void *context, uint64_t begin, uint64_t end) = {
        [MICS_OPT_ADAMW] = adamw_blocks,
        [MICS_OPT_SGD] = sgd_blocks,
        [MICS_OPT_LION] = lion_blocks,
    };
    const struct mics_optimizer_settings *with = &args->settings;
    const bool coupled = args->optimizer == MICS_OPT_SGD;
    const double beta1 = with->beta1, beta2 = with->beta2;
    struct update update = {
        .args = args,
        .beta1 = with->beta1,
        .rest1 = (float)(1 - beta1),
        .beta2 = with->beta2,
        .rest2 = (float)(1 - beta2),
        .rate = (float)(args->lr / (1 - pow(beta1, args->step))),
        .root2 = (float)(1 / sqrt(1 - pow(beta2, args->step))),
        .decaying =
            coupled ? with->weight_decay : (float)(1 - (double)args->lr * with->weight_decay),
        .constant = coupled ? 0.0f : 1.0f,
    };

    if (update_scale(args, &update.scale))
        mics_flat_run(pool, args->count, blocks[args->optimizer], &update);
    else if (args->copy)
        mics_host_cast(pool,
                       &(struct mics_args_cast){args->copy, args->param, args->count,
                                                args->copy_f16 ? MICS_F16 : MICS_BF16, MICS_F32});
}

void mics_host_loss_scale(struct mics_pool *pool, const struct mics_args_loss_scale *args)
{
    struct mics_loss_scale *state = args->state;
    struct mics_args_scalars *scalars = args->scalars;

    (void)pool;
    state->used = state->factor;
    state->overflow = !isfinite(scalars->squared_norm) || !isfinite(scalars->loss_sum);
    state->at_minimum = state->overflow && state->patience <= 1 && state->factor <= args->min;
    scalars->squared_norm /= state->used * state->used;
    if (args->counts)
        scalars->skipped = state->at_minimum ? INFINITY : state->overflow;
    if (!state->overflow) {
        if (args->drains)
            return;
        state->clean++;
        if (args->window == 0 || state->clean < args->window)
            return;
        state->factor = fmin(state->factor * args->step, args->max);
        state->patience = args->hysteresis;
        state->clean = 0;
        return;
    }
    state->overflows++;
    state->clean = 0;
    if (state->patience > 1)
        state->patience--;
    else
        state->factor = fmax(state->factor / args->step, args->min);
}

/*
 * The sum of squares of an array, in double.
 *
 * Each block of a fixed size is summed by one thread; the sums of the blocks are added in order. 4
 * bytes and 2 flops per element.
 */

#define NORM_GROUP 1024 /* blocks whose sums are held at a time */

struct squared_norm {
    const float *in;
    uint64_t count;
    double sums[NORM_GROUP];
};

static mics_vd widen(const float *from)
{
    mics_vf_half half;

    memcpy(&half, from, sizeof(half));
    return __builtin_convertvector(half, mics_vd);
}

static double sum_block(const float *in, uint64_t count)
{
    mics_vd even = {0}, odd = {0};
    double sum = 0;
    uint64_t i = 0;

    for (; i + MICS_LANES <= count; i += MICS_LANES) {
        mics_vd a = widen(in + i), b = widen(in + i + MICS_LANES / 2);

        even += a * a;
        odd += b * b;
    }
    even += odd;
    for (unsigned lane = 0; lane < MICS_LANES / 2; lane++)
        sum += even[lane];
    for (; i < count; i++)
        sum += (double)in[i] * in[i];
    return sum;
}

static void sum_blocks(void *context, uint64_t begin, uint64_t end)
{
    struct squared_norm *norm = context;

    for (uint64_t block = begin; block < end; block++) {
        uint64_t first = block * MICS_FLAT_BLOCK;

        norm->sums[block] =
            sum_block(norm->in + first, mics_flat_stop(block + 1, norm->count) - first);
    }
}

void mics_host_squared_norm(struct mics_pool *pool, const struct mics_args_squared_norm *args)
{
    const uint64_t group = (uint64_t)NORM_GROUP * MICS_FLAT_BLOCK;

    for (uint64_t done = 0; done < args->count; done += group) {
        struct squared_norm norm = {args->in + done, mics_min_u64(args->count - done, group), {0}};
        uint64_t blocks = mics_ceil_div(norm.count, MICS_FLAT_BLOCK);

        mics_flat_run(pool, norm.count, sum_blocks, &norm);
        for (uint64_t block = 0; block < blocks; block++)
            *args->sum += args->check_only ? 0 * norm.sums[block] : norm.sums[block];
    }
}
