/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases.c - one case on one rank: what it enqueues, its data, its check and its times.
 *
 * An all-gather has its shard in `send` and makes `recv`; a reduce-scatter takes `send` and leaves
 * its shard in `recv`; in place, the shard's pieces are where they belong in the array. All-reduces
 * are in place: out of place the array is copied before. An all_to_all takes `send` and makes
 * `recv`. The gradients of sync are in `send`, and
 * the sum of the shard in `recv`.
 *
 * Timing is a warm-up, a barrier, then all iterations enqueued with an event after each. As in
 * training the stream is never idle between iterations, and still each iteration has its own time.
 * A GPU may finish a small collective before the host has launched the next: then the stream is
 * held until many are enqueued.
 */
#include "base/num.h"
#include "comm/agree.h"
#include "device/launch.h"
#include "measure/measure_run.h"
#include "measure/statistics.h"

#include <stdlib.h>
#include <string.h>

enum { KEYS = 13, BASES = 17, SLOPES = 5 };

static uint32_t mix(uint64_t element, uint64_t salt)
{
    uint64_t x = (element + 1) * 0x9e3779b97f4a7c15u + salt * 0xc2b2ae3d27d4eb4fu;

    x ^= x >> 29;
    return (uint32_t)((x * 0xbf58476d1ce4e5b9u) >> 33);
}

static double base_of(uint32_t hash)
{
    return 1 + hash % BASES;
}

static double slope_of(uint32_t hash)
{
    return (hash >> 8) % SLOPES;
}

float mics_bench_value(uint64_t key, uint64_t element, uint64_t salt)
{
    const uint32_t hash = mix(element, salt);

    return (float)(base_of(hash) + (double)(1 + key % KEYS) * slope_of(hash));
}

/* Sum of 1 + r mod KEYS over the keys below `end`. */
static double keys_below(uint64_t end)
{
    const uint64_t rounds = end / KEYS, rest = end % KEYS;

    return (double)(rounds * KEYS * (KEYS + 1) / 2 + rest * (rest + 1) / 2);
}

double mics_bench_sum(uint64_t first, uint64_t count, uint64_t element, uint64_t salt)
{
    const uint32_t hash = mix(element, salt);

    return (double)count * base_of(hash) +
           (keys_below(first + count) - keys_below(first)) * slope_of(hash);
}

void mics_bench_fill(float *data, uint64_t count, uint64_t key, uint64_t element, uint64_t salt)
{
    for (uint64_t i = 0; i < count; i++)
        data[i] = mics_bench_value(key, element + i, salt);
}

uint64_t mics_bench_count_wrong(const float *data, uint64_t count, uint64_t key, uint64_t element,
                                uint64_t salt)
{
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < count; i++)
        wrong += data[i] != mics_bench_value(key, element + i, salt);
    return wrong;
}

uint64_t mics_bench_count_wrong_sums(const float *data, uint64_t count, uint64_t key, uint64_t keys,
                                     uint64_t element, uint64_t salt)
{
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < count; i++)
        wrong += (double)data[i] != mics_bench_sum(key, keys, element + i, salt);
    return wrong;
}

static float *recv_of(const struct mics_bench_case *c)
{
    return c->bench->buffer;
}

static float *send_of(const struct mics_bench_case *c)
{
    return recv_of(c) + mics_bench_case_elements(c);
}

/* The same element as the host sees it. */
static float *mirror(const struct mics_bench_case *c, const float *data)
{
    return (float *)c->bench->mirror + (data - (const float *)c->bench->buffer);
}

/* Where the mirror is the buffer, this is a copy onto itself, which does nothing. */
static void upload(const struct mics_bench_case *c, float *data, uint64_t count)
{
    mics_launch_copy(c->bench->stream,
                     &(struct mics_args_copy){data, mirror(c, data), count * sizeof *data});
}

static void download(const struct mics_bench_case *c, const float *data, uint64_t count)
{
    mics_launch_copy(c->bench->stream,
                     &(struct mics_args_copy){mirror(c, data), data, count * sizeof *data});
}

uint64_t mics_bench_case_elements(const struct mics_bench_case *c)
{
    return c->count * c->comms->size;
}

/* A sync by one hop uses the executor of the all-reduces. */
static struct mics_executor *executor_of(const struct mics_bench_case *c)
{
    const bool native = c->algo == MICS_BENCH_MPI;

    if (c->algo == MICS_BENCH_TWO_HOP)
        return c->partition;
    if (c->op == MICS_BENCH_ALL_REDUCE || c->op == MICS_BENCH_SYNC)
        return native ? &c->comms->native_replicated : &c->comms->replicated;
    return native ? &c->comms->native_sharded : &c->comms->sharded;
}

enum mics_status mics_bench_case_open(struct mics_bench_case *c, struct mics_err *err)
{
    static const enum mics_exchange_kind kinds[MICS_BENCH_OP_COUNT] = {
        [MICS_BENCH_ALL_GATHER] = MICS_EXCHANGE_GATHER,
        [MICS_BENCH_REDUCE_SCATTER] = MICS_EXCHANGE_REDUCE,
        [MICS_BENCH_ALL_REDUCE] = MICS_EXCHANGE_SYNC,
        [MICS_BENCH_SYNC] = MICS_EXCHANGE_SYNC};

    if (c->op == MICS_BENCH_ALL_TO_ALL)
        return MICS_OK;
    const bool two_hop = c->algo == MICS_BENCH_TWO_HOP;
    struct mics_executor *executor = executor_of(c);
    struct mics_plan_choice choice =
        mics_bench_choice(executor, two_hop || c->algo == MICS_BENCH_HIERARCHICAL, c->segments);

    if (two_hop)
        choice.micro_steps = c->micro_steps;
    return mics_exchange_replay_new(executor, &choice,
                                    two_hop ? MICS_EXCHANGE_GRADIENTS : kinds[c->op],
                                    mics_bench_case_elements(c), &c->replay, err);
}

void mics_bench_case_close(struct mics_bench_case *c)
{
    mics_exchange_replay_free(c->replay);
    c->replay = NULL;
}

static struct mics_layout layout_of(const struct mics_bench_case *c)
{
    return mics_layout_cut(&executor_of(c)->groups[MICS_UNIT_DENSE].shape,
                           mics_bench_case_elements(c), c->segments);
}

/* Where this rank's shard is: in its place in `array`, or piece after piece in `shard`. */
static struct mics_pieces pieces_of(const struct mics_bench_case *c, float *array, float *shard)
{
    const struct mics_layout layout = layout_of(c);
    const uint64_t piece = layout.param_piece;

    if (c->in_place)
        return mics_pieces_in_slot(array, &layout, piece,
                                   executor_of(c)->groups[MICS_UNIT_DENSE].index.param, MICS_F32);
    return (struct mics_pieces){shard, piece};
}

static float *piece_at(const struct mics_pieces *pieces, uint32_t segment)
{
    return (float *)pieces->first + segment * pieces->stride;
}

/* Elements of the shard of sync, and where it begins in the gradients. */
static uint64_t shard_count(const struct mics_bench_case *c)
{
    return mics_bench_case_elements(c) / c->partition->groups[MICS_UNIT_DENSE].shape.p_grad;
}

static uint64_t shard_begin(const struct mics_bench_case *c)
{
    return c->partition->groups[MICS_UNIT_DENSE].index.grad * shard_count(c);
}

/* By two hops the operations of micro-steps [first, first + count); by one hop an all-reduce of the
 * gradients in each, and the shard is added up. */
static void enqueue_sync(const struct mics_bench_case *c, uint32_t first, uint32_t count)
{
    struct mics_stream *stream = c->bench->stream;
    float *sum = recv_of(c), *own = send_of(c) + shard_begin(c);
    const uint64_t all = mics_bench_case_elements(c); /* in one segment */
    const struct mics_pieces one[MICS_BUFFER_COUNT] = {
        [MICS_BUFFER_GRAD_SHARD] = {send_of(c), all},
    };
    const struct mics_pieces two[MICS_BUFFER_COUNT] = {
        [MICS_BUFFER_GRAD_SLOT] = {send_of(c), all},
        [MICS_BUFFER_REDUCED] = {own, all},
        [MICS_BUFFER_GRAD_SHARD] = {sum, shard_count(c)},
    };

    if (c->algo == MICS_BENCH_TWO_HOP) {
        mics_exchange_replay_enqueue(c->replay, stream, first, count, two);
        return;
    }
    for (uint32_t i = first; i < first + count; i++) {
        mics_exchange_replay_enqueue(c->replay, stream, 0, 1, one);
        if (i == 0)
            mics_launch_copy(stream,
                             &(struct mics_args_copy){sum, own, shard_count(c) * sizeof *sum});
        else
            mics_launch_accumulate(
                stream, &(struct mics_args_accumulate){
                            .sum = sum, .in = own, .count = shard_count(c), .dtype = MICS_F32});
    }
}

static void enqueue(const struct mics_bench_case *c)
{
    float *send = send_of(c), *recv = recv_of(c);
    const struct mics_layout layout = layout_of(c);
    struct mics_pieces buffers[MICS_BUFFER_COUNT] = {{0}};

    switch (c->op) {
    case MICS_BENCH_SYNC:
        enqueue_sync(c, 0, c->micro_steps);
        return;
    case MICS_BENCH_ALL_TO_ALL:
        mics_comm_all_to_all(c->algo == MICS_BENCH_MPI ? c->comms->native : c->comms->comm,
                             c->bench->stream, send, recv, c->count, MICS_F32);
        return;
    case MICS_BENCH_ALL_GATHER:
        buffers[MICS_BUFFER_PARAM_SLOT] = (struct mics_pieces){recv, layout.segment_count};
        buffers[MICS_BUFFER_PARAM_SHARD] = pieces_of(c, recv, send);
        break;
    case MICS_BENCH_REDUCE_SCATTER:
        buffers[MICS_BUFFER_GRAD_SLOT] = (struct mics_pieces){send, layout.segment_count};
        buffers[MICS_BUFFER_REDUCED] = pieces_of(c, send, recv);
        break;
    default:
        buffers[MICS_BUFFER_GRAD_SHARD] = (struct mics_pieces){recv, layout.grad_piece};
        if (!c->in_place)
            mics_launch_copy(
                c->bench->stream,
                &(struct mics_args_copy){recv, send, mics_bench_case_elements(c) * sizeof *recv});
    }
    mics_exchange_replay_enqueue(c->replay, c->bench->stream, 0, 1, buffers);
}

/* Groups side by side have data of their own. */
static uint64_t first_key(const struct mics_bench_case *c)
{
    return (uint64_t)c->comms->index * c->comms->size;
}

static uint64_t own_key(const struct mics_bench_case *c)
{
    return first_key(c) + (uint64_t)c->comms->comm->rank;
}

static void fill_gather(const struct mics_bench_case *c, uint64_t salt)
{
    const struct mics_layout layout = layout_of(c);
    const struct mics_pieces pieces = pieces_of(c, recv_of(c), send_of(c));

    for (uint32_t t = 0; t < c->segments; t++)
        mics_bench_fill(mirror(c, piece_at(&pieces, t)), layout.param_piece, own_key(c),
                        t * layout.param_piece, salt);
}

/* The whole array, of a sum or an all_to_all. */
static void fill_array(const struct mics_bench_case *c, uint64_t salt)
{
    const bool in_recv = c->op == MICS_BENCH_ALL_REDUCE && c->in_place;

    mics_bench_fill(mirror(c, in_recv ? recv_of(c) : send_of(c)), mics_bench_case_elements(c),
                    own_key(c), 0, salt);
}

static uint64_t wrong_in_gather(const struct mics_bench_case *c, uint64_t salt)
{
    const struct mics_layout layout = layout_of(c);
    const uint64_t piece = layout.param_piece;
    uint64_t wrong = 0;

    for (uint32_t rank = 0; rank < c->comms->size; rank++) {
        const uint32_t index =
            mics_shape_index(&executor_of(c)->groups[MICS_UNIT_DENSE].shape, rank).param;

        for (uint32_t t = 0; t < c->segments; t++)
            wrong += mics_bench_count_wrong(
                mirror(c, recv_of(c) + mics_layout_piece_offset(&layout, t, piece, index)), piece,
                first_key(c) + rank, t * piece, salt);
    }
    return wrong;
}

/* Block r must be what the rank of block r has for this one. */
static uint64_t wrong_in_blocks(const struct mics_bench_case *c, uint64_t salt)
{
    const uint64_t own = (uint64_t)c->comms->comm->rank * c->count;
    uint64_t wrong = 0;

    for (uint32_t rank = 0; rank < c->comms->size; rank++)
        wrong += mics_bench_count_wrong(mirror(c, recv_of(c) + rank * c->count), c->count,
                                        first_key(c) + rank, own, salt);
    return wrong;
}

static uint64_t wrong_in_shard(const struct mics_bench_case *c, uint64_t salt)
{
    const struct mics_layout layout = layout_of(c);
    const struct mics_pieces pieces = pieces_of(c, send_of(c), recv_of(c));
    const uint32_t index = executor_of(c)->groups[MICS_UNIT_DENSE].index.grad;
    uint64_t wrong = 0;

    for (uint32_t t = 0; t < c->segments; t++)
        wrong += mics_bench_count_wrong_sums(
            mirror(c, piece_at(&pieces, t)), layout.grad_piece, first_key(c), c->comms->size,
            mics_layout_piece_offset(&layout, t, layout.grad_piece, index), salt);
    return wrong;
}

static uint64_t count_wrong(const struct mics_bench_case *c, uint64_t salt)
{
    if (c->op == MICS_BENCH_ALL_GATHER)
        return wrong_in_gather(c, salt);
    if (c->op == MICS_BENCH_REDUCE_SCATTER)
        return wrong_in_shard(c, salt);
    if (c->op == MICS_BENCH_ALL_TO_ALL)
        return wrong_in_blocks(c, salt);
    return mics_bench_count_wrong_sums(mirror(c, recv_of(c)), mics_bench_case_elements(c),
                                       first_key(c), c->comms->size, 0, salt);
}

/* The shard must be the sum over all ranks and micro-steps. */
static uint64_t count_wrong_sync(const struct mics_bench_case *c, uint64_t salt)
{
    const float *sum = mirror(c, recv_of(c));
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < shard_count(c); i++) {
        double want = 0;

        for (uint32_t step = 0; step < c->micro_steps; step++)
            want += mics_bench_sum(0, c->bench->world->size, shard_begin(c) + i, salt + step);
        wrong += (double)sum[i] != want;
    }
    return wrong;
}

/* Each micro-step has gradients of its own. */
static enum mics_status check_sync(const struct mics_bench_case *c, uint64_t salt, uint64_t *wrong,
                                   struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t step = 0; step < c->micro_steps && status == MICS_OK; step++) {
        fill_array(c, salt + step);
        upload(c, send_of(c), mics_bench_case_elements(c));
        enqueue_sync(c, step, 1);
        status = mics_bench_wait(c->bench, err);
    }
    if (status != MICS_OK)
        return status;
    download(c, recv_of(c), shard_count(c));
    status = mics_bench_wait(c->bench, err);
    if (status == MICS_OK)
        *wrong = count_wrong_sync(c, salt);
    return status;
}

/* Run the case once on data that depends on `salt`, and count this rank's wrong elements.
 * Collective. */
static enum mics_status check(const struct mics_bench_case *c, uint64_t salt, uint64_t *wrong,
                              struct mics_err *err)
{
    const uint64_t both = 2 * mics_bench_case_elements(c);
    enum mics_status status;

    if (c->op == MICS_BENCH_SYNC)
        return check_sync(c, salt, wrong, err);
    memset(c->bench->mirror, 0xff, both * sizeof(float)); /* NaN: what is left of it is wrong */
    if (c->op == MICS_BENCH_ALL_GATHER)
        fill_gather(c, salt);
    else
        fill_array(c, salt);
    upload(c, recv_of(c), both);
    enqueue(c);
    download(c, recv_of(c), both);
    status = mics_bench_wait(c->bench, err);
    if (status == MICS_OK)
        *wrong = count_wrong(c, salt);
    return status;
}

/* Statistics of one rank, which all ranks exchange. */
struct rank_times {
    double mean, min, median, p99, mad;
    uint64_t wrong;
};

static enum mics_status open_events(struct mics_device *device, struct mics_event **events,
                                    uint32_t count, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < count && status == MICS_OK; i++)
        status = device->ops->event_open(device, &events[i], err);
    return status;
}

static enum mics_status warm_up(const struct mics_bench_case *c, uint32_t times,
                                struct mics_err *err)
{
    struct mics_comm *world = c->bench->world->comm;
    enum mics_status status;

    for (uint32_t i = 0; i < times; i++)
        enqueue(c);
    status = mics_bench_wait(c->bench, err);
    return status == MICS_OK ? mics_comm_barrier_now(world, err) : status;
}

/* Iterations, of one or two collectives each, that are enqueued before a held stream is released.
 * Few enough for the launch queue of a driver, and for NCCL's 2048 slots of transfers between nodes
 * (2 for each channel of a collective): if one of them is missing, NCCL waits for ever. */
enum { HELD_ITERATIONS = 16 };

/* Only collectives that run on the device: those that the host executes are not launched ahead.
 * Only after a warm-up: the first launch connects NCCL and loads code, which may require an idle
 * GPU. */
static bool is_held(const struct mics_bench_case *c, uint32_t warmup)
{
    return warmup > 0 && c->bench->comm->health && c->op != MICS_BENCH_SYNC && c->segments == 1 &&
           mics_bench_case_elements(c) * sizeof(float) < MICS_BENCH_SEGMENT_BYTES;
}

static void enqueue_iterations(const struct mics_bench_case *c, uint32_t iters,
                               struct mics_event **events, struct mics_stream_hold *hold)
{
    const struct mics_device_ops *ops = c->bench->device->ops;

    ops->event_record(events[0], c->bench->stream);
    for (uint32_t i = 0; i < iters; i++) {
        enqueue(c);
        ops->event_record(events[i + 1], c->bench->stream);
        if (hold && i + 1 == mics_min_u64(iters, HELD_ITERATIONS))
            mics_stream_hold_release(hold);
    }
}

/* seconds[iters] */
static enum mics_status time_iterations(const struct mics_bench_case *c,
                                        const struct mics_bench_request *request,
                                        struct mics_event **events, double *seconds,
                                        struct mics_err *err)
{
    const struct mics_device_ops *ops = c->bench->device->ops;
    const bool held = is_held(c, request->warmup);
    const uint32_t iters = request->iters;
    struct mics_stream_hold hold;

    if (held)
        mics_stream_hold_init(&hold, c->bench->stream);
    enqueue_iterations(c, iters, events, held ? &hold : NULL);
    const enum mics_status status = mics_bench_wait(c->bench, err);
    for (uint32_t i = 0; i < iters && status == MICS_OK; i++)
        seconds[i] = ops->event_time(events[i + 1]) - ops->event_time(events[i]);
    if (held && status != MICS_OK) /* cancelled: the stream runs to its end */
        ops->stream_sync(c->bench->stream, NULL);
    if (held)
        mics_stream_hold_fini(&hold);
    return status;
}

static struct rank_times summarise(double *seconds, uint32_t iters)
{
    struct rank_times own = {0};

    for (uint32_t i = 0; i < iters; i++)
        own.mean += seconds[i] / iters;
    own.median = mics_median(seconds, iters); /* which sorts them */
    own.min = seconds[0];
    own.p99 = seconds[(99 * (uint64_t)iters + 99) / 100 - 1];
    own.mad = mics_mad(seconds, iters, own.median);
    return own;
}

static enum mics_status time_case(const struct mics_bench_case *c,
                                  const struct mics_bench_request *request, struct rank_times *own,
                                  struct mics_err *err)
{
    const uint32_t iters = request->iters;
    struct mics_event **events = calloc(iters + 1, sizeof(struct mics_event *));
    double *seconds = calloc(iters, sizeof *seconds);
    enum mics_status status = events && seconds ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = open_events(c->bench->device, events, iters + 1, err);
    if (status == MICS_OK)
        status = warm_up(c, request->warmup, err);
    if (status == MICS_OK)
        status = time_iterations(c, request, events, seconds, err);
    if (status == MICS_OK)
        *own = summarise(seconds, iters);
    for (uint32_t i = 0; events && i <= iters; i++)
        c->bench->device->ops->event_close(events[i]);
    free(events);
    free(seconds);
    return status;
}

/* medians and mads: [ranks], scratch. */
static void combine(const struct rank_times *all, uint32_t ranks, double *medians, double *mads,
                    struct mics_bench_row *row)
{
    row->min_s = all[0].min;
    for (uint32_t r = 0; r < ranks; r++) {
        row->time_s += all[r].mean / ranks;
        row->min_s = all[r].min < row->min_s ? all[r].min : row->min_s;
        row->p99_s = all[r].p99 > row->p99_s ? all[r].p99 : row->p99_s;
        row->wrong += all[r].wrong;
        if (all[r].median > row->slowest_s) {
            row->slowest_s = all[r].median;
            row->slowest_rank = r;
        }
        medians[r] = all[r].median;
        mads[r] = all[r].mad;
    }
    row->median_s = mics_median(medians, ranks);
    row->spread_s = mics_median(mads, ranks);
}

static enum mics_status exchange(const struct mics_bench *bench, const struct rank_times *own,
                                 struct mics_bench_row *row, struct mics_err *err)
{
    struct mics_comm *world = bench->world->comm;
    const uint32_t ranks = bench->world->size;
    double *scratch = calloc(2 * (size_t)ranks, sizeof *scratch);
    enum mics_status status;
    struct rank_times *all = mics_all_gather(world, own, sizeof *own, &status, err);

    if (status == MICS_OK && !scratch)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        combine(all, ranks, scratch, scratch + ranks, row);
    free(all);
    free(scratch);
    return status;
}

enum mics_status mics_bench_measure(const struct mics_bench_case *c,
                                    const struct mics_bench_request *request,
                                    struct mics_bench_row *row, struct mics_err *err)
{
    struct rank_times own;
    enum mics_status status = time_case(c, request, &own, err);

    if (status == MICS_OK && request->check)
        status = check(c, row->bytes, &own.wrong, err);
    if (status != MICS_OK)
        return status;
    row->checked = request->check;
    row->iters = request->iters;
    return exchange(c->bench, &own, row, err);
}
