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

/* Blocks of rows, or of assignments, whose sums are made apart and then added in order. */
enum { PARTS = 16, SERIAL_ELEMENTS = 16384 /* below, one thread does all of them */ };

static uint64_t grain_of(uint64_t row_elements)
{
    return mics_max_u64(1, GRAIN_ELEMENTS / mics_max_u64(1, row_elements));
}

/* Router ------------------------------------------------------------------------------------- */

/* Logits, then their softmax, with zeros up to a whole vector; `log_sum` is logsumexp(). A NaN
 * among the logits makes all NaN. */
struct softmax {
    float p[MICS_EXPERTS_MAX + MICS_LANES];
    float log_sum;
};

/* From `count` logits in s->p. */
static void make_softmax(struct softmax *s, uint32_t count)
{
    mics_vf most = mics_vset(-INFINITY), sum = {0};
    float lanes[MICS_LANES], max = -INFINITY;

    for (uint32_t e = count; e < mics_round_up(count, MICS_LANES); e++)
        s->p[e] = -INFINITY;
    for (uint32_t e = 0; e < count; e += MICS_LANES)
        most = mics_vmax(mics_vload(s->p + e), most); /* not of NaN */
    mics_vstore(lanes, most);
    for (uint32_t e = 0; e < MICS_LANES; e++)
        max = lanes[e] > max ? lanes[e] : max;
    for (uint32_t e = 0; e < count; e += MICS_LANES) {
        const mics_vf power = mics_vexp(mics_vload(s->p + e) - mics_vset(max));

        mics_vstore(s->p + e, power);
        sum += power;
    }
    const float total = mics_vsum(sum);
    for (uint32_t e = 0; e < count; e += MICS_LANES)
        mics_vstore(s->p + e, mics_vload(s->p + e) / mics_vset(total));
    s->log_sum = max + logf(total);
}

static void softmax_of(const float *logits, uint32_t count, struct softmax *s)
{
    memcpy(s->p, logits, count * sizeof *logits);
    make_softmax(s, count);
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
    struct softmax s;

    if (args->renormalise) {
        for (uint32_t j = 0; j < args->k; j++)
            s.p[j] = logits[experts[j]];
        make_softmax(&s, args->k);
        memcpy(weights, s.p, args->k * sizeof *weights);
        return;
    }
    softmax_of(logits, args->E, &s);
    for (uint32_t j = 0; j < args->k; j++)
        weights[j] = s.p[experts[j]];
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
    const int32_t *const experts = args->experts + r * args->k;
    const float *const weights = args->weights + r * args->k;
    const float *const slope = args->grad_weights + r * args->k;
    float mean = 0;

    for (uint32_t j = 0; j < args->k; j++)
        mean += weights[j] * slope[j];
    for (uint32_t e = 0; e < args->E; e++)
        grad[e] = args->renormalise ? 0 : -s->p[e] * mean;
    for (uint32_t j = 0; j < args->k; j++)
        grad[experts[j]] = weights[j] * (slope[j] - mean);
}

/* What both losses of balance add. */
static void losses_backward(const struct mics_args_route_grad *args, uint64_t r,
                            const struct softmax *s, float *grad)
{
    const bool counted = args->z_coefficient > 0 && args->targets[r] >= 0;
    const float scale = args->grad_scale ? (float)*args->grad_scale : 1;
    const float z = counted ? 2 * args->z_coefficient * s->log_sum : 0;
    const float *const balance =
        args->balance ? args->balance + r / args->group_rows * args->E : NULL;
    float mean = 0;

    for (uint32_t e = 0; balance && e < args->E; e++)
        mean += s->p[e] * balance[e];
    for (uint32_t e = 0; balance && e < args->E; e++)
        grad[e] += scale * (s->p[e] * (balance[e] - mean + z));
    for (uint32_t e = 0; !balance && e < args->E; e++)
        grad[e] += scale * (s->p[e] * z);
}

static void route_grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_route_grad *args = context;
    const bool losses = args->balance || args->z_coefficient > 0;
    float grad[MICS_EXPERTS_MAX];
    struct softmax s;

    for (uint64_t r = begin; r < end; r++) {
        if (losses || !args->renormalise)
            softmax_of(args->logits + r * args->E, args->E, &s);
        weights_backward(args, r, &s, grad);
        if (losses)
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

/* A group of rows, of which each part has sums of its own. */
struct load {
    const struct mics_args_router_load *args;
    uint64_t first, stop;
    uint32_t counts[PARTS][MICS_EXPERTS_MAX];
    double sums[PARTS][MICS_EXPERTS_MAX], squares[PARTS];
};

static void load_parts(void *context, uint64_t begin, uint64_t end)
{
    struct load *load = context;
    const struct mics_args_router_load *args = load->args;
    const uint64_t rows = mics_ceil_div(load->stop - load->first, PARTS);
    const bool z_loss = args->z_coefficient > 0;
    struct softmax s;

    for (uint64_t part = begin; part < end; part++) {
        const uint64_t stop = mics_min_u64(load->stop, load->first + (part + 1) * rows);
        uint32_t *const counts = load->counts[part];
        double *const sums = load->sums[part];

        memset(counts, 0, args->E * sizeof *counts);
        memset(sums, 0, args->E * sizeof *sums);
        load->squares[part] = 0;
        for (uint64_t r = load->first + part * rows; r < stop; r++) {
            softmax_of(args->logits + r * args->E, args->E, &s);
            for (uint32_t j = 0; j < args->k; j++)
                counts[args->experts[r * args->k + j]]++;
            for (uint32_t e = 0; e < args->E; e++)
                sums[e] += (double)s.p[e];
            if (z_loss && args->targets[r] >= 0)
                load->squares[part] += (double)s.log_sum * (double)s.log_sum;
        }
    }
}

void mics_host_router_load(struct mics_pool *pool, const struct mics_args_router_load *args)
{
    const uint32_t E = args->E;
    struct load load = {.args = args};
    double squares = 0;

    assert(E <= MICS_EXPERTS_MAX);
    for (; load.first < args->rows; load.first = load.stop) {
        const uint64_t at = load.first / args->group_rows * 2 * E;

        load.stop = mics_min_u64(args->rows, load.first + args->group_rows);
        const bool serial = (load.stop - load.first) * E < SERIAL_ELEMENTS;
        mics_pool_run(pool, PARTS, serial ? PARTS : 1, load_parts, &load);
        for (uint32_t e = 0; e < E; e++) {
            uint32_t count = 0;
            double sum = 0;

            for (uint32_t part = 0; part < PARTS; part++) {
                count += load.counts[part][e];
                sum += load.sums[part][e];
            }
            args->load[at + e] = (float)count + (args->add ? args->add[at + e] : 0);
            args->load[at + E + e] = (float)sum + (args->add ? args->add[at + E + e] : 0);
        }
        for (uint32_t part = 0; part < PARTS; part++)
            squares += load.squares[part];
    }
    if (args->z_coefficient > 0)
        *args->loss_sum += (double)args->z_coefficient * squares;
    if (args->z_coefficient > 0 && args->own_sum)
        *args->own_sum += (double)args->z_coefficient * squares;
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
    if (args->own_sum)
        *args->own_sum += total;
}

struct entropy {
    const struct mics_args_router_stats *args;
    double sums[PARTS];
};

static void entropy_parts(void *context, uint64_t begin, uint64_t end)
{
    struct entropy *entropy = context;
    const struct mics_args_router_stats *args = entropy->args;
    const uint64_t rows = mics_ceil_div(args->rows, PARTS);
    struct softmax s;

    for (uint64_t part = begin; part < end; part++) {
        const uint64_t stop = mics_min_u64(args->rows, (part + 1) * rows);

        entropy->sums[part] = 0;
        for (uint64_t r = part * rows; r < stop; r++) {
            const float *const logits = args->logits + r * args->E;
            float mean = 0; /* of the logits */

            softmax_of(logits, args->E, &s);
            for (uint32_t e = 0; e < args->E; e++)
                mean += s.p[e] == 0 ? 0 : s.p[e] * logits[e];
            entropy->sums[part] += (double)(s.log_sum - mean);
        }
    }
}

void mics_host_router_stats(struct mics_pool *pool, const struct mics_args_router_stats *args)
{
    const bool serial = (uint64_t)args->rows * args->E < SERIAL_ELEMENTS;
    struct entropy entropy = {.args = args};
    double sum = 0;

    assert(args->E <= MICS_EXPERTS_MAX);
    mics_pool_run(pool, PARTS, serial ? PARTS : 1, entropy_parts, &entropy);
    for (uint32_t part = 0; part < PARTS; part++)
        sum += entropy.sums[part];
    args->stats[0] += sum;
    for (uint32_t e = 0; e < args->E; e++)
        args->stats[1 + e] += args->offsets[e + 1] - args->offsets[e];
}

/* Rows by expert ----------------------------------------------------------------------------- */

struct sort {
    const struct mics_args_sort_experts *args;
    uint32_t counts[PARTS][MICS_EXPERTS_MAX]; /* then how many of an expert come before the part */
};

/* Assignments [*begin, returned value) of a part. */
static uint32_t part_of(const struct sort *sort, uint64_t part, uint32_t *begin)
{
    const uint64_t count = (uint64_t)sort->args->rows * sort->args->k;
    const uint64_t each = mics_ceil_div(count, PARTS);

    *begin = (uint32_t)mics_min_u64(count, part * each);
    return (uint32_t)mics_min_u64(count, (part + 1) * each);
}

static void count_parts(void *context, uint64_t begin, uint64_t end)
{
    struct sort *sort = context;

    for (uint64_t part = begin; part < end; part++) {
        uint32_t a, *const counts = sort->counts[part];
        const uint32_t stop = part_of(sort, part, &a);

        memset(counts, 0, sort->args->E * sizeof *counts);
        for (; a < stop; a++)
            counts[sort->args->experts[a]]++;
    }
}

static void place_parts(void *context, uint64_t begin, uint64_t end)
{
    struct sort *sort = context;
    const struct mics_args_sort_experts *args = sort->args;

    for (uint64_t part = begin; part < end; part++) {
        uint32_t a, *const next = sort->counts[part];
        const uint32_t stop = part_of(sort, part, &a);

        for (; a < stop; a++) {
            const int32_t e = args->experts[a];
            const uint32_t at = args->offsets[e] + next[e]++;

            args->position[a] = at < args->offsets[e + 1] ? at : MICS_NO_ROW;
            if (at < args->offsets[e + 1])
                args->order[at] = a;
        }
    }
}

void mics_host_sort_experts(struct mics_pool *pool, const struct mics_args_sort_experts *args)
{
    struct sort sort = {.args = args};
    const bool serial = (uint64_t)args->rows * args->k < SERIAL_ELEMENTS;
    const uint64_t grain = serial ? PARTS : 1;
    const uint32_t most = args->capacity > 0 ? args->capacity : UINT32_MAX;
    uint32_t row = 0;

    assert(args->E <= MICS_EXPERTS_MAX);
    mics_pool_run(pool, PARTS, grain, count_parts, &sort);
    for (uint32_t e = 0; e < args->E; e++) {
        uint32_t before = 0;

        args->offsets[e] = row;
        for (uint32_t part = 0; part < PARTS; part++) {
            const uint32_t count = sort.counts[part][e];

            sort.counts[part][e] = before;
            before += count;
        }
        row += before < most ? before : most;
    }
    args->offsets[args->E] = row;
    mics_pool_run(pool, PARTS, grain, place_parts, &sort);
    for (; row < args->rows * args->k; row++)
        args->order[row] = MICS_NO_ROW;
}

static void gather_range(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_gather_rows *args = context;
    const size_t bytes = args->C * mics_dtype_bytes(args->dtype);

    for (uint64_t i = begin; i < end; i++)
        if (args->order[i] != MICS_NO_ROW)
            memcpy((char *)args->out + i * bytes,
                   (const char *)args->in + args->order[i] / args->k * bytes, bytes);
}

void mics_host_gather_rows(struct mics_pool *pool, const struct mics_args_gather_rows *args)
{
    mics_pool_run(pool, (uint64_t)args->rows * args->k, grain_of(args->C), gather_range,
                  (void *)args);
}

static void scatter_range(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_scatter_rows *args = context;
    const size_t bytes = args->C * mics_dtype_bytes(args->dtype);

    for (uint64_t i = begin; i < end; i++)
        if (args->order[i] != MICS_NO_ROW)
            memcpy((char *)args->out + args->order[i] * bytes, (const char *)args->in + i * bytes,
                   bytes);
}

void mics_host_scatter_rows(struct mics_pool *pool, const struct mics_args_scatter_rows *args)
{
    mics_pool_run(pool, args->rows, grain_of(args->C), scatter_range, (void *)args);
}

/* What a rank sends in the round. */
static void list_sent(const struct mics_args_dispatch_round *args)
{
    const uint32_t experts = args->E / args->ranks;
    const uint32_t *offsets = args->offsets + args->rank * (args->E + 1);

    for (uint32_t d = 0; d < args->ranks; d++) {
        const uint64_t first = offsets[d * experts] + (uint64_t)args->round * args->slots;
        const uint32_t end = offsets[(d + 1) * experts];

        for (uint32_t i = 0; i < args->slots; i++) {
            const uint32_t slot = d * args->slots + i;
            const bool used = first + i < end;

            args->row[slot] = used ? (uint32_t)(first + i) : MICS_NO_ROW;
            args->assignment[slot] = used ? args->order[first + i] : MICS_NO_ROW;
        }
    }
}

/* What it receives, one expert after another, of each from one rank after another. */
static void list_received(const struct mics_args_dispatch_round *args)
{
    const uint32_t experts = args->E / args->ranks, first_expert = args->rank * experts;
    const uint64_t passed = (uint64_t)args->round * args->slots;
    uint32_t rows = 0;

    for (uint32_t e = 0; e < experts; e++) {
        args->received_offsets[e] = rows;
        for (uint32_t s = 0; s < args->ranks; s++) {
            const uint32_t *offsets = args->offsets + s * (args->E + 1) + first_expert;
            const uint64_t begin = offsets[0] + passed, end = begin + args->slots;
            const uint64_t from = offsets[e] > begin ? offsets[e] : begin;
            const uint64_t to = offsets[e + 1] < end ? offsets[e + 1] : end;

            for (uint64_t j = from; j < to; j++)
                args->received[rows++] = s * args->slots + (uint32_t)(j - begin);
        }
    }
    args->received_offsets[experts] = rows;
    while (rows < args->ranks * args->slots)
        args->received[rows++] = MICS_NO_ROW;
}

void mics_host_dispatch_round(struct mics_pool *pool, const struct mics_args_dispatch_round *args)
{
    const uint32_t experts = args->E / args->ranks;
    const uint64_t passed = (uint64_t)args->round * args->slots;

    (void)pool;
    *args->active = 0;
    for (uint32_t s = 0; s < args->ranks; s++)
        for (uint32_t d = 0; d < args->ranks; d++) {
            const uint32_t *offsets = args->offsets + s * (args->E + 1) + d * experts;

            if (offsets[experts] - offsets[0] > passed)
                *args->active = 1;
        }
    list_sent(args);
    list_received(args);
}

static unsigned lanes_from(uint32_t c, uint32_t C)
{
    return C - c < MICS_LANES ? C - c : MICS_LANES;
}

MICS_TYPED void combine_row(const struct mics_args_combine_rows *args, uint64_t r,
                            const enum mics_dtype dtype)
{
    const uint32_t *const position = args->position + r * args->k;

    for (uint32_t c = 0; c < args->C; c += MICS_LANES) {
        const unsigned lanes = lanes_from(c, args->C);
        mics_vf sum = {0};

        if (args->add)
            sum = mics_vload_lanes(args->add, r * args->C + c, lanes, dtype);
        for (uint32_t j = 0; j < args->k; j++)
            if (position[j] != MICS_NO_ROW)
                sum +=
                    mics_vload_lanes(args->in, (uint64_t)position[j] * args->C + c, lanes, dtype);
        mics_vstore_lanes(args->out, r * args->C + c, sum, lanes, dtype);
    }
}

static void combine_range(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_combine_rows *args = context;

    for (uint64_t r = begin; r < end; r++)
        if (args->dtype == MICS_BF16)
            combine_row(args, r, MICS_BF16);
        else if (args->dtype == MICS_F16)
            combine_row(args, r, MICS_F16);
        else
            combine_row(args, r, MICS_F32);
}

void mics_host_combine_rows(struct mics_pool *pool, const struct mics_args_combine_rows *args)
{
    mics_pool_run(pool, args->rows, grain_of((uint64_t)args->k * args->C), combine_range,
                  (void *)args);
}

/* The activation of experts ------------------------------------------------------------------ */

static inline uint32_t slot_of(const uint32_t *order, uint64_t i)
{
    return order ? order[i] : (uint32_t)i;
}

static inline mics_vf weight_of(float weight, bool logistic)
{
    return logistic ? mics_vsigmoid(mics_vset(weight)) : mics_vset(weight);
}

MICS_TYPED void swiglu_row(const struct mics_args_expert_swiglu *args, uint64_t i,
                           const enum mics_dtype dtype)
{
    const uint32_t F = args->F;
    const mics_vf weight = weight_of(args->weights[slot_of(args->order, i)], args->logistic);

    for (uint32_t f = 0; f < F; f += MICS_LANES) {
        const unsigned lanes = lanes_from(f, F);
        const mics_vf gate = mics_vload_lanes(args->in, 2 * i * F + f, lanes, dtype);
        const mics_vf up = mics_vload_lanes(args->in, 2 * i * F + F + f, lanes, dtype);

        mics_vstore_lanes(args->out, i * F + f, weight * (gate / mics_vlogistic_divisor(gate) * up),
                          lanes, dtype);
    }
}

static void swiglu_range(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_expert_swiglu *args = context;

    for (uint64_t i = begin; i < end; i++)
        if (slot_of(args->order, i) == MICS_NO_ROW)
            continue;
        else if (args->dtype == MICS_BF16)
            swiglu_row(args, i, MICS_BF16);
        else if (args->dtype == MICS_F16)
            swiglu_row(args, i, MICS_F16);
        else
            swiglu_row(args, i, MICS_F32);
}

void mics_host_expert_swiglu(struct mics_pool *pool, const struct mics_args_expert_swiglu *args)
{
    mics_pool_run(pool, args->rows, grain_of(args->F), swiglu_range, (void *)args);
}

/* Elements are read before they are written: grad_in may be in. */
MICS_TYPED void swiglu_grad_row(const struct mics_args_expert_swiglu_grad *args, uint64_t i,
                                const enum mics_dtype dtype)
{
    const uint32_t F = args->F, slot = slot_of(args->order, i);
    const mics_vf weight = weight_of(args->weights[slot], args->logistic);
    mics_vf slope = {0};

    for (uint32_t f = 0; f < F; f += MICS_LANES) {
        const unsigned lanes = lanes_from(f, F);
        const uint64_t at = 2 * i * F + f;
        const mics_vf gate = mics_vload_lanes(args->in, at, lanes, dtype);
        const mics_vf up = mics_vload_lanes(args->in, at + F, lanes, dtype);
        const mics_vf grad = mics_vload_lanes(args->grad_out, i * F + f, lanes, dtype);
        const mics_vf s = mics_vsigmoid(gate), of_gate = grad * up;

        slope += of_gate * (gate * s);
        mics_vstore_lanes(args->grad_in, at, weight * of_gate * (s * (1.0f + gate * (1.0f - s))),
                          lanes, dtype);
        mics_vstore_lanes(args->grad_in, at + F, weight * grad * (gate * s), lanes, dtype);
    }
    if (args->logistic)
        slope *= weight * (1.0f - weight);
    args->grad_weights[slot] = mics_vsum(slope);
}

static void swiglu_grad_range(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_expert_swiglu_grad *args = context;

    for (uint64_t i = begin; i < end; i++)
        if (slot_of(args->order, i) == MICS_NO_ROW)
            continue;
        else if (args->dtype == MICS_BF16)
            swiglu_grad_row(args, i, MICS_BF16);
        else if (args->dtype == MICS_F16)
            swiglu_grad_row(args, i, MICS_F16);
        else
            swiglu_grad_row(args, i, MICS_F32);
}

void mics_host_expert_swiglu_grad(struct mics_pool *pool,
                                  const struct mics_args_expert_swiglu_grad *args)
{
    mics_pool_run(pool, args->rows, grain_of(args->F), swiglu_grad_range, (void *)args);
}
