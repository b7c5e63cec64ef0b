/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.c - products alone, collectives alone, then both; and products until each rank has
 * computed as many. */
#include "measure/overlap.h"

#include "base/clock.h"
#include "comm/agree.h"
#include "device/launch.h"
#include "measure/series.h"
#include "measure/statistics.h"

#include <math.h>
#include <stdlib.h>

enum {
    MATRIX = 192, /* rows and columns of the products: less than a millisecond each */
    AHEAD = 8,    /* products enqueued at once, so that the stream is hardly ever idle */
    MAX_ITERS = 128,
    ROUNDS_MIN = 5,
    ROUNDS_MAX = 12
};

/* Length of a round; long compared with a scheduler's time slice. */
static const double load_s = 60e-3;

/* All ranks compute for so long before and after what is counted: those that share cores do not
 * begin and end together, and are faster while others do not compute yet, or any more. */
static const double edge_s = 20e-3;

/* Rounds are repeated until the standard errors of what computation loses, and of the collective's
 * time relative to it, are below these, or for the time asked for. Ranks that share cores need
 * many. */
static const double slowdown_error_max = 0.02, overlap_error_max = 0.05;

enum mics_status mics_bench_load_init(const struct mics_bench *bench, double rounds_s,
                                      struct mics_bench_load *out, struct mics_err *err)
{
    const struct mics_device_ops *ops = bench->device->ops;
    const size_t bytes = sizeof(float) * 3 * MATRIX * MATRIX;
    enum mics_status status;

    *out = (struct mics_bench_load){.bench = bench, .rounds_s = rounds_s};
    status = ops->alloc(bench->device, bytes, &out->memory, err);
    if (status == MICS_OK)
        status = ops->stream_open(bench->device, "load", 0, &out->stream, err);
    if (status == MICS_OK)
        status = ops->event_open(bench->device, &out->done, err);
    if (status == MICS_OK)
        mics_launch_zero(out->stream, &(struct mics_args_zero){out->memory, bytes});
    else
        mics_bench_load_fini(out);
    return status;
}

void mics_bench_load_fini(struct mics_bench_load *load)
{
    if (!load->bench)
        return;
    const struct mics_device_ops *ops = load->bench->device->ops;

    if (load->done)
        ops->event_close(load->done);
    if (load->stream)
        ops->stream_close(load->stream);
    if (load->memory)
        ops->release(load->bench->device, load->memory);
    *load = (struct mics_bench_load){0};
}

/* AHEAD products. */
static enum mics_status compute(const struct mics_bench_load *load, struct mics_err *err)
{
    float *matrix = load->memory;
    const struct mics_args_matmul product = {
        .a = matrix,
        .b = matrix + MATRIX * MATRIX,
        .out = matrix + 2 * MATRIX * MATRIX,
        .m = MATRIX,
        .n = MATRIX,
        .k = MATRIX,
        .lda = MATRIX,
        .ldb = MATRIX,
        .ldout = MATRIX,
    };

    for (int i = 0; i < AHEAD; i++)
        mics_launch_matmul(load->stream, &product);
    return load->bench->device->ops->stream_sync(load->stream, err);
}

/* Not counted. */
static enum mics_status compute_for(const struct mics_bench_load *load, double seconds,
                                    struct mics_err *err)
{
    const double begin = mics_now_s();
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && mics_now_s() - begin < seconds)
        status = compute(load, err);
    return status;
}

/* Products per second of this rank: alone, or as long as the collectives that are enqueued before
 * `done` take. */
static enum mics_status compute_rate(const struct mics_bench_load *load, bool alone, double *rate,
                                     struct mics_err *err)
{
    const struct mics_device_ops *ops = load->bench->device->ops;
    const double begin = mics_now_s();
    enum mics_status status = MICS_OK;
    double count = 0;

    do {
        status = compute(load, err);
        count += AHEAD;
    } while (status == MICS_OK &&
             (alone ? mics_now_s() - begin < load_s : !ops->event_reached(load->done)));
    const double passed_s = mics_now_s() - begin;
    *rate = count / passed_s;
    return status == MICS_OK ? compute_for(load, edge_s + passed_s / 4, err) : status;
}

/* What one rank measured. */
struct times {
    double alone_s, overlap_s;       /* of one collective */
    double alone_rate, overlap_rate; /* of products */
};

/* The collectives, enqueued on the bench's stream. */
struct exchange {
    struct mics_exchange_replay *replay;
    struct mics_pieces buffers[MICS_BUFFER_COUNT];
    uint32_t iters;
};

static void enqueue(const struct mics_bench_load *load, const struct exchange *exchange)
{
    const struct mics_bench *bench = load->bench;

    for (uint32_t i = 0; i < exchange->iters; i++)
        mics_exchange_replay_enqueue(exchange->replay, bench->stream, 0, 1, exchange->buffers);
    bench->device->ops->event_record(load->done, bench->stream);
}

static enum mics_status measure(const struct mics_bench_load *load, const struct exchange *exchange,
                                struct times *out, struct mics_err *err)
{
    const struct mics_bench *bench = load->bench;
    const struct mics_device_ops *ops = bench->device->ops;
    struct mics_comm *world = bench->world->comm;
    enum mics_status status = mics_comm_barrier_now(world, err);
    double begin;

    if (status == MICS_OK)
        status = compute_for(load, edge_s, err);
    if (status == MICS_OK)
        status = compute_rate(load, true, &out->alone_rate, err);
    if (status == MICS_OK)
        status = mics_comm_barrier_now(world, err);
    begin = mics_now_s();
    enqueue(load, exchange);
    if (status == MICS_OK)
        status = mics_bench_wait(bench, err);
    out->alone_s = (mics_now_s() - begin) / exchange->iters;
    if (status == MICS_OK)
        status = mics_comm_barrier_now(world, err);
    if (status == MICS_OK)
        status = compute_for(load, edge_s, err);
    begin = mics_now_s();
    enqueue(load, exchange);
    if (status == MICS_OK)
        status = compute_rate(load, false, &out->overlap_rate, err);
    if (status == MICS_OK)
        status = mics_bench_wait(bench, err);
    out->overlap_s = (ops->event_time(load->done) - begin) / exchange->iters;
    return status;
}

/* Medians over the ranks of the times, since the collective synchronises them; of what computation
 * loses the mean, since cores that one rank loses another may have won. */
static enum mics_status combine(const struct mics_bench_load *load, const struct times *own,
                                struct mics_overlap_point *out, struct mics_err *err)
{
    const struct mics_world *world = load->bench->world;
    double *alone = calloc(world->size, sizeof *alone);
    double *overlap = calloc(world->size, sizeof *overlap);
    double slowdown = 0;
    enum mics_status status;
    struct times *all = mics_all_gather(world->comm, own, sizeof *own, &status, err);

    if (status == MICS_OK && (!alone || !overlap))
        status = mics_err_nomem(err);
    for (uint32_t i = 0; i < world->size && status == MICS_OK; i++) {
        alone[i] = all[i].alone_s;
        overlap[i] = all[i].overlap_s;
        slowdown += (1 - all[i].overlap_rate / all[i].alone_rate) / world->size;
    }
    if (status == MICS_OK) {
        out->alone_s = mics_median(alone, world->size);
        out->overlap_s = mics_median(overlap, world->size);
        out->slowdown = slowdown;
    }
    free(all);
    free(alone);
    free(overlap);
    return status;
}

/* A quantity over all rounds. */
struct sums {
    double sum, squares;
};

static void add(struct sums *sums, double value)
{
    sums->sum += value;
    sums->squares += value * value;
}

/* Standard error of the mean. */
static double error_of(const struct sums *sums, int count)
{
    const double mean = sums->sum / count;

    return sqrt(fmax(0, sums->squares / count - mean * mean) / (count - 1));
}

/* Has rank 0 measured for so long since `begin`? The same on all ranks. */
static bool has_passed(const struct mics_bench_load *load, double begin, double seconds,
                       enum mics_status *status, struct mics_err *err)
{
    struct mics_comm *world = load->bench->world->comm;
    double passed_s = mics_now_s() - begin;

    if (*status == MICS_OK)
        *status = mics_comm_broadcast_now(world, &passed_s, sizeof passed_s, 0, err);
    return passed_s >= seconds;
}

/* As many rounds on all ranks, since all have the same results. */
static enum mics_status repeat(const struct mics_bench_load *load, const struct exchange *exchange,
                               struct mics_overlap_point *out, struct mics_err *err)
{
    const double begin = mics_now_s();
    struct sums alone = {0}, overlap = {0}, slowdown = {0};
    enum mics_status status = MICS_OK;
    bool enough = false;

    for (int n = 1; n <= ROUNDS_MAX && !enough && status == MICS_OK; n++) {
        struct mics_overlap_point round = {0};
        struct times own = {0};

        status = measure(load, exchange, &own, err);
        if (status == MICS_OK)
            status = combine(load, &own, &round, err);
        add(&alone, round.alone_s);
        add(&overlap, round.overlap_s);
        add(&slowdown, round.slowdown);
        out->alone_s = alone.sum / n;
        out->overlap_s = overlap.sum / n;
        out->slowdown = fmin(1, fmax(0, slowdown.sum / n));
        enough =
            n >= ROUNDS_MIN && ((error_of(&slowdown, n) <= slowdown_error_max &&
                                 error_of(&overlap, n) <= overlap_error_max * out->overlap_s) ||
                                has_passed(load, begin, load->rounds_s, &status, err));
    }
    return status;
}

enum mics_status mics_bench_overlap(const struct mics_bench_load *load,
                                    struct mics_bench_comms *comms, enum mics_collective collective,
                                    uint64_t bytes, double alone_s, struct mics_overlap_point *out,
                                    struct mics_err *err)
{
    const uint64_t count = bytes / sizeof(float) / comms->size;
    struct exchange exchange = {
        .iters = (uint32_t)fmax(1, fmin(MAX_ITERS, ceil(load_s / fmax(alone_s, 1e-9))))};
    enum mics_status status = mics_series_open(load->bench, comms, collective, count,
                                               &exchange.replay, exchange.buffers, err);

    if (status == MICS_OK)
        status = repeat(load, &exchange, out, err);
    mics_exchange_replay_free(exchange.replay);
    out->bytes = (double)(count * comms->size * sizeof(float));
    return status;
}

/* Seconds of computation without waiting for other ranks. */
static const double straggler_times[MICS_STRAGGLER_POINTS] = {0.05, 0.1, 0.2, 0.4};

/* Their rounds may take so many times as long as those of a collective. */
enum { STRAGGLER_ROUNDS_MIN = 4, STRAGGLER_ROUNDS_MAX = 16, STRAGGLER_TIME = 3 };

/* Rounds are repeated until the standard error of each point is below this part of its mean and of
 * the time of computation together, or for the time asked for. */
static const double behind_error_max = 0.1, computing_error_max = 0.005;

/* The time at which this rank has computed so many products for each point, since all began. It
 * goes on for a quarter of the time, as ranks do in training, so that others do not get its part of
 * the cores before they have also computed as many. */
static enum mics_status compute_counts(const struct mics_bench_load *load, double rate,
                                       double *reached_s, struct mics_err *err)
{
    struct mics_comm *world = load->bench->world->comm;
    double before_s = 0, passed_s = 0, count = 0;
    int point = 0;
    enum mics_status status = mics_comm_barrier_now(world, err);
    const double begin = mics_now_s();

    while (status == MICS_OK && point < MICS_STRAGGLER_POINTS) {
        status = compute(load, err);
        passed_s = mics_now_s() - begin;
        count += AHEAD;
        for (; point < MICS_STRAGGLER_POINTS && count >= straggler_times[point] * rate; point++)
            reached_s[point] =
                passed_s - (passed_s - before_s) * (count - straggler_times[point] * rate) / AHEAD;
        before_s = passed_s;
    }
    return status == MICS_OK ? compute_for(load, edge_s + passed_s / 4, err) : status;
}

/* Add to `behind` how far the last rank is behind the mean. */
static enum mics_status compare_ranks(const struct mics_bench_load *load, const double *own,
                                      struct sums *behind, struct mics_err *err)
{
    const struct mics_world *world = load->bench->world;
    enum mics_status status;
    double *all =
        mics_all_gather(world->comm, own, MICS_STRAGGLER_POINTS * sizeof *own, &status, err);

    for (int point = 0; point < MICS_STRAGGLER_POINTS && status == MICS_OK; point++) {
        double sum = 0, last = 0;

        for (uint32_t i = 0; i < world->size; i++) {
            sum += all[i * MICS_STRAGGLER_POINTS + (uint32_t)point];
            last = fmax(last, all[i * MICS_STRAGGLER_POINTS + (uint32_t)point]);
        }
        add(&behind[point], last - sum / world->size);
    }
    free(all);
    return status;
}

static enum mics_status mean_of_ranks(const struct mics_world *world, double own, double *mean,
                                      struct mics_err *err)
{
    enum mics_status status;
    double *all = mics_all_gather(world->comm, &own, sizeof own, &status, err);

    *mean = 0;
    for (uint32_t i = 0; i < world->size && status == MICS_OK; i++)
        *mean += all[i] / world->size;
    free(all);
    return status;
}

static bool are_certain(const struct sums *behind, int rounds)
{
    for (int i = 0; i < MICS_STRAGGLER_POINTS; i++)
        if (error_of(&behind[i], rounds) >
            behind_error_max * behind[i].sum / rounds + computing_error_max * straggler_times[i])
            return false;
    return true;
}

/* As many rounds on all ranks, since all have the same results. */
enum mics_status mics_bench_stragglers(const struct mics_bench_load *load,
                                       struct mics_straggler_point *out, struct mics_err *err)
{
    const struct mics_world *world = load->bench->world;
    const double begin = mics_now_s();
    double own_rate = 0, rate = 0, reached_s[MICS_STRAGGLER_POINTS] = {0};
    struct sums behind[MICS_STRAGGLER_POINTS] = {0};
    bool enough = false;
    enum mics_status status = mics_comm_barrier_now(world->comm, err);

    if (status == MICS_OK)
        status = compute_rate(load, true, &own_rate, err);
    if (status == MICS_OK)
        status = mean_of_ranks(world, own_rate, &rate, err);
    for (int n = 1; n <= STRAGGLER_ROUNDS_MAX && !enough && status == MICS_OK; n++) {
        status = compute_counts(load, rate, reached_s, err);
        if (status == MICS_OK)
            status = compare_ranks(load, reached_s, behind, err);
        for (int i = 0; i < MICS_STRAGGLER_POINTS; i++)
            out[i] = (struct mics_straggler_point){straggler_times[i], behind[i].sum / n};
        enough = n >= STRAGGLER_ROUNDS_MIN &&
                 (are_certain(behind, n) ||
                  has_passed(load, begin, STRAGGLER_TIME * load->rounds_s, &status, err));
    }
    return status;
}
