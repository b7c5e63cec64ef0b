/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - what collectives and computation cost each other, by running both.
 *
 * On hosts the ranks of a node share its cores, and MPI's progress, the copies of the kernel's
 * network stack and sums need some of them; ranks that share cores also take turns, so that some
 * reach a collective later than others. How much is measured, not derived, in the order of
 * training: matrix products in stretches, and beside each stretch a collective for which the next
 * one waits, as for parameters that are gathered a layer ahead.
 */
#include "measure/load.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "comm/agree.h"
#include "device/launch.h"
#include "measure/series.h"
#include "measure/statistics.h"
#include "topology/cost.h"

#include <math.h>
#include <stdlib.h>

/* What computes: a stream and three matrices. */
struct mics_load {
    const struct mics_bench *bench;
    struct mics_stream *stream;
    void *memory;
    bool brief;
    double rounds_s;
    double rate; /* products per second of a rank, mean of all */
};

enum {
    MATRIX = 192, /* rows and columns of the products: less than a millisecond each */
    AHEAD = 8,    /* products enqueued at once, so that the stream is hardly ever idle */
    STRETCHES_MIN = 2,
    STRETCHES_MAX = 40,
    STRETCH = 2, /* a stretch takes so many times as long as the collective alone, at least */
    ROUNDS_MIN = 5,
    ROUNDS_MAX = 12,
    BRIEF_ROUNDS = 3,
};

/* Computation uses all processors if it uses this part of their time, or more: the kernel takes
 * some. */
static const double full_part = 0.9;

/* Length of the counted part of a round; long compared with a scheduler's time slice. */
static const double load_s = 60e-3, stretches_s = 90e-3;

/* All ranks also compute for this long before and after the counted part: ranks that share cores do
 * not begin and end together, and each is faster while another one is idle. */
static const double edge_s = 20e-3;

/* Rounds are repeated until the standard errors of the slowdown of computation, and of the
 * collective's time relative to that time, are below these, or until the requested time is over.
 * Ranks that share cores need many rounds. */
static const double slowdown_error_max = 0.02, overlap_error_max = 0.05;

/* Sizes: a small one, and the largest that takes no longer than this. */
static const double small_bytes = 256 * 1024, longest_s = 0.2, brief_longest_s = 20e-3;

static void enqueue_products(const struct mics_load *load, uint32_t count)
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

    for (uint32_t i = 0; i < count; i++)
        mics_launch_matmul(load->stream, &product);
}

/* AHEAD products. */
static enum mics_status compute(const struct mics_load *load, struct mics_err *err)
{
    enqueue_products(load, AHEAD);
    return load->bench->device->ops->stream_sync(load->stream, err);
}

/* Not counted. */
static enum mics_status compute_for(const struct mics_load *load, double seconds,
                                    struct mics_err *err)
{
    const double begin = mics_now_s();
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && mics_now_s() - begin < seconds)
        status = compute(load, err);
    return status;
}

/* Products per second of this rank while all compute. */
static enum mics_status compute_rate(const struct mics_load *load, double *rate,
                                     struct mics_err *err)
{
    const double begin = mics_now_s();
    enum mics_status status = MICS_OK;
    double count = 0;

    do {
        status = compute(load, err);
        count += AHEAD;
    } while (status == MICS_OK && mics_now_s() - begin < load_s);
    *rate = count / (mics_now_s() - begin);
    return status == MICS_OK ? compute_for(load, edge_s, err) : status;
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

static enum mics_status set_rate(struct mics_load *load, struct mics_err *err)
{
    const struct mics_world *world = load->bench->world;
    double own = 0;
    enum mics_status status = mics_comm_barrier_now(world->comm, err);

    if (status == MICS_OK)
        status = compute_rate(load, &own, err);
    return status == MICS_OK ? mean_of_ranks(world, own, &load->rate, err) : status;
}

/* A stretch of computation of one rank: how long it takes, and its process's time on processors. */
struct stretch {
    double seconds, cpu_s;
};

/* What one rank measured: a stretch without a collective beside it and one with, and seconds of
 * that collective, with its waits for other ranks. */
struct times {
    struct stretch alone, beside;
    double collective_s;
};

/* The collectives, on the bench's stream, and what is computed beside each of them. */
struct exchange {
    struct mics_series_case what;
    uint32_t stretches; /* up to STRETCHES_MAX */
    uint32_t products;  /* of a stretch */
    struct mics_event *begin[STRETCHES_MAX], *end[STRETCHES_MAX], *computed[STRETCHES_MAX];
};

/* Stretches of computation one after another. With collectives, the next one is exchanged beside
 * each, as parameters are gathered for the next layer: a collective begins when the stretch before
 * the current one has ended, and a stretch when the collective beside the one before has. */
static enum mics_status run_stretches(const struct mics_load *load, const struct exchange *exchange,
                                      bool collectives, struct stretch *out, struct mics_err *err)
{
    const struct mics_device_ops *ops = load->bench->device->ops;
    struct mics_stream *stream = load->bench->stream;
    const double begin = mics_now_s(), cpu_begin = mics_process_cpu_s();
    enum mics_status status;

    for (uint32_t k = 0; k < exchange->stretches; k++) {
        if (collectives && k > 0)
            ops->event_wait(load->stream, exchange->end[k - 1]);
        if (collectives && k > 0)
            ops->event_wait(stream, exchange->computed[k - 1]);
        if (collectives) {
            ops->event_record(exchange->begin[k], stream);
            mics_series_enqueue(&exchange->what);
            ops->event_record(exchange->end[k], stream);
        }
        enqueue_products(load, exchange->products);
        ops->event_record(exchange->computed[k], load->stream);
    }
    status = ops->stream_sync(load->stream, err);
    out->seconds = (mics_now_s() - begin) / exchange->stretches;
    out->cpu_s = (mics_process_cpu_s() - cpu_begin) / exchange->stretches;
    return status == MICS_OK ? compute_for(load, edge_s + out->seconds, err) : status;
}

/* The mean time of a collective beside computation. */
static double collective_time(const struct mics_load *load, const struct exchange *exchange)
{
    const struct mics_device_ops *ops = load->bench->device->ops;
    double seconds = 0;

    for (uint32_t k = 0; k < exchange->stretches; k++)
        seconds += ops->event_time(exchange->end[k]) - ops->event_time(exchange->begin[k]);
    return seconds / exchange->stretches;
}

static enum mics_status measure_round(const struct mics_load *load, const struct exchange *exchange,
                                      struct times *out, struct mics_err *err)
{
    struct mics_comm *world = load->bench->world->comm;
    enum mics_status status = mics_comm_barrier_now(world, err);

    if (status == MICS_OK)
        status = compute_for(load, edge_s, err);
    if (status == MICS_OK)
        status = run_stretches(load, exchange, false, &out->alone, err);
    if (status == MICS_OK)
        status = mics_comm_barrier_now(world, err);
    if (status == MICS_OK)
        status = compute_for(load, edge_s, err);
    if (status == MICS_OK)
        status = run_stretches(load, exchange, true, &out->beside, err);
    if (status == MICS_OK)
        status = mics_bench_wait(load->bench, err);
    if (status == MICS_OK)
        out->collective_s = collective_time(load, exchange);
    return status;
}

/* Does computation alone use all processors that the ranks of this machine share? Ranks that
 * together use more than this one may use have processors of their own. */
static bool is_full(const struct mics_load *load, const struct stretch *alone)
{
    const double ranks = mics_world_host_ranks(load->bench->world);
    const double part = ranks * alone->cpu_s / alone->seconds / mics_processors();

    return part >= full_part && part <= 2 - full_part;
}

/* Seconds that computation of this rank loses to a collective beside it. Where computation uses all
 * processors, that is what the collective uses of them, in time at the share that a rank has: the
 * length of stretches also contains what ranks drift apart, which cancels only over many rounds. */
static double lost_time(const struct mics_load *load, const struct times *times)
{
    const struct stretch *alone = &times->alone, *beside = &times->beside;

    if (!is_full(load, alone))
        return beside->seconds - alone->seconds;
    return (beside->cpu_s - alone->cpu_s) * alone->seconds / alone->cpu_s;
}

/* What the ranks tell each other of a round. */
struct told {
    double collective_s, lost_s;
};

/* The collective's time is the median over the ranks, since it synchronises them. The time that
 * computation loses is the mean, since another rank may gain the core that one loses. */
static enum mics_status combine(const struct mics_load *load, const struct times *own,
                                double *collective_s, double *lost_s, struct mics_err *err)
{
    const struct mics_world *world = load->bench->world;
    double *seconds = calloc(world->size, sizeof *seconds);
    enum mics_status status;
    const struct told mine = {own->collective_s, lost_time(load, own)};
    struct told *all = mics_all_gather(world->comm, &mine, sizeof mine, &status, err);

    if (status == MICS_OK && !seconds)
        status = mics_err_nomem(err);
    for (uint32_t i = 0; i < world->size && status == MICS_OK; i++) {
        seconds[i] = all[i].collective_s;
        *lost_s += all[i].lost_s / world->size;
    }
    if (status == MICS_OK)
        *collective_s = mics_median(seconds, world->size);
    free(all);
    free(seconds);
    return status;
}

/* After a failure, which the caller reports: events may only be closed when no stream has them. */
static void drain(const struct mics_load *load)
{
    const struct mics_device_ops *ops = load->bench->device->ops;
    struct mics_err again;

    (void)ops->stream_sync(load->stream, &again);
    (void)ops->stream_sync(load->bench->stream, &again);
}

static void close_events(const struct mics_load *load, struct exchange *exchange)
{
    const struct mics_device_ops *ops = load->bench->device->ops;

    for (uint32_t k = 0; k < exchange->stretches; k++) {
        ops->event_close(exchange->begin[k]);
        ops->event_close(exchange->end[k]);
        ops->event_close(exchange->computed[k]);
    }
}

static enum mics_status open_events(const struct mics_load *load, struct exchange *exchange,
                                    struct mics_err *err)
{
    struct mics_device *device = load->bench->device;
    enum mics_status status = MICS_OK;

    for (uint32_t k = 0; k < exchange->stretches && status == MICS_OK; k++) {
        status = device->ops->event_open(device, &exchange->begin[k], err);
        if (status == MICS_OK)
            status = device->ops->event_open(device, &exchange->end[k], err);
        if (status == MICS_OK)
            status = device->ops->event_open(device, &exchange->computed[k], err);
    }
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

    return count == 1 ? INFINITY : sqrt(fmax(0, sums->squares / count - mean * mean) / (count - 1));
}

/* Has rank 0 measured for so long since `begin`? The same on all ranks. */
static bool has_passed(const struct mics_load *load, double begin, double seconds,
                       enum mics_status *status, struct mics_err *err)
{
    struct mics_comm *world = load->bench->world->comm;
    double passed_s = mics_now_s() - begin;

    if (*status == MICS_OK)
        *status = mics_comm_broadcast_now(world, &passed_s, sizeof passed_s, 0, err);
    return passed_s >= seconds;
}

/* As many rounds on all ranks, since all have the same results. */
static enum mics_status repeat(const struct mics_load *load, const struct exchange *exchange,
                               struct mics_overlap_point *out, struct mics_err *err)
{
    const double begin = mics_now_s();
    struct sums overlap = {0}, slowdown = {0};
    enum mics_status status = MICS_OK;
    bool enough = false;

    for (int n = 1; !enough && status == MICS_OK; n++) {
        struct times own = {0};
        double collective_s = 0, lost_s = 0;

        status = measure_round(load, exchange, &own, err);
        if (status == MICS_OK)
            status = combine(load, &own, &collective_s, &lost_s, err);
        if (status != MICS_OK)
            break;
        add(&overlap, collective_s);
        add(&slowdown, lost_s / collective_s);
        out->overlap_s = overlap.sum / n;
        out->slowdown = fmin(1, fmax(0, slowdown.sum / n));
        enough = n >= (load->brief ? 1 : ROUNDS_MIN) &&
                 (n >= (load->brief ? BRIEF_ROUNDS : ROUNDS_MAX) ||
                  (error_of(&slowdown, n) <= slowdown_error_max &&
                   error_of(&overlap, n) <= overlap_error_max * out->overlap_s) ||
                  has_passed(load, begin, load->rounds_s, &status, err));
    }
    return status;
}

/* Measure the collective of a size that is known alone, all groups side by side; more than a few
 * seconds only for one that takes longer than 60 ms. Collective over the world; *out is the same on
 * all ranks. */
static enum mics_status measure_point(const struct mics_load *load, struct mics_bench_comms *comms,
                                      const struct mics_collective_cost *cost, uint32_t size,
                                      struct mics_overlap_point *out, struct mics_err *err)
{
    const double alone_s = cost->points[size].seconds;
    const uint64_t count = (uint64_t)cost->points[size].bytes / sizeof(float) / comms->size;
    const double products = fmax(AHEAD, ceil(STRETCH * alone_s * load->rate));
    struct exchange exchange = {
        .stretches = (uint32_t)fmax(STRETCHES_MIN,
                                    fmin(STRETCHES_MAX, ceil(stretches_s * load->rate / products))),
        .products = (uint32_t)products,
    };
    enum mics_status status = open_events(load, &exchange, err);

    out->bytes = (double)(count * comms->size * sizeof(float));
    out->alone_s = alone_s;
    if (status == MICS_OK)
        status = mics_series_open(load->bench, comms, cost->collective, count, &exchange.what, err);
    if (status == MICS_OK)
        status = repeat(load, &exchange, out, err);
    if (status != MICS_OK)
        drain(load);
    mics_series_close(&exchange.what);
    close_events(load, &exchange);
    return status;
}

static enum mics_status measure_points(const struct mics_load *load, struct mics_bench_comms *comms,
                                       struct mics_collective_cost *cost, struct mics_err *err)
{
    const double most_s = load->brief ? brief_longest_s : longest_s;
    enum mics_status status = MICS_OK;
    uint32_t last = cost->point_count - 1, small = 0;

    while (last > 0 && cost->points[last].seconds > most_s)
        last--;
    while (small < last && cost->points[small].bytes < small_bytes)
        small++;
    cost->overlap_count = 0;
    if (small < last)
        status =
            measure_point(load, comms, cost, small, &cost->overlap[cost->overlap_count++], err);
    if (status == MICS_OK)
        status = measure_point(load, comms, cost, last, &cost->overlap[cost->overlap_count++], err);
    return status;
}

/* Seconds of a collective without computation beside it: measured, else from its fit. */
static double alone_time(const struct mics_collective_cost *cost, double bytes)
{
    for (uint32_t i = 0; i < cost->point_count; i++)
        if (cost->points[i].bytes == bytes)
            return cost->points[i].seconds;
    return cost->cost.latency_s + bytes / cost->cost.bandwidth_bytes;
}

/* Estimate the points of a collective that was not measured: the waits of a small one for cores,
 * and the rest of the delay in proportion to its time alone. */
static void derive_points(const struct mics_collective_cost *measured,
                          struct mics_collective_cost *cost)
{
    const struct mics_overlap_point *from = measured->overlap;
    const double turns_s = fmax(0, from[0].overlap_s - from[0].alone_s);

    cost->overlap_count = measured->overlap_count;
    for (uint32_t i = 0; i < cost->overlap_count; i++) {
        const double alone_s = alone_time(cost, from[i].bytes);
        const double delay_s = fmax(0, from[i].overlap_s - from[i].alone_s - turns_s);

        cost->overlap[i] = (struct mics_overlap_point){
            from[i].bytes, alone_s, alone_s + turns_s + delay_s * alone_s / from[i].alone_s,
            from[i].slowdown};
    }
}

enum mics_status mics_load_beside(const struct mics_load *load, struct mics_bench_comms *comms,
                                  struct mics_collective_cost *costs, struct mics_err *err)
{
    enum mics_status status = measure_points(load, comms, &costs[0], err);

    for (int c = 1; c < MICS_COLLECTIVE_COUNT && status == MICS_OK; c++) {
        if (load->brief)
            derive_points(&costs[0], &costs[c]);
        else
            status = measure_points(load, comms, &costs[c], err);
    }
    return status;
}

/* Seconds of computation without waiting for other ranks. */
static const double straggler_times[MICS_STRAGGLER_POINTS] = {0.05, 0.1, 0.2, 0.4};

/* Their rounds may take so many times as long as those of a collective. */
enum { STRAGGLER_ROUNDS_MIN = 4, STRAGGLER_ROUNDS_MAX = 16, STRAGGLER_TIME = 3 };

/* Rounds are repeated until the standard error of each point is below this part of its mean and of
 * the time of computation together, or for the time asked for. */
static const double behind_error_max = 0.1, computing_error_max = 0.005;

/* Seconds from the common start until this rank has computed the number of products of each point.
 * It then computes for another quarter of the time, as a rank in training would, so that the other
 * ranks do not get its share of the cores before they have computed as many. */
static enum mics_status compute_counts(const struct mics_load *load, double rate, double *reached_s,
                                       struct mics_err *err)
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
static enum mics_status compare_ranks(const struct mics_load *load, const double *own,
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

static bool are_certain(const struct sums *behind, int rounds)
{
    for (int i = 0; i < MICS_STRAGGLER_POINTS; i++)
        if (error_of(&behind[i], rounds) >
            behind_error_max * behind[i].sum / rounds + computing_error_max * straggler_times[i])
            return false;
    return true;
}

enum mics_status mics_load_stragglers(const struct mics_load *load,
                                      struct mics_straggler_point *out, struct mics_err *err)
{
    const struct mics_world *world = load->bench->world;
    const double begin = mics_now_s();
    double reached_s[MICS_STRAGGLER_POINTS] = {0};
    struct sums behind[MICS_STRAGGLER_POINTS] = {0};
    bool enough = false;
    enum mics_status status = mics_comm_barrier_now(world->comm, err);

    for (int n = 1; n <= STRAGGLER_ROUNDS_MAX && !enough && status == MICS_OK; n++) {
        status = compute_counts(load, load->rate, reached_s, err);
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

void mics_load_close(struct mics_load *load)
{
    if (!load)
        return;
    const struct mics_device_ops *ops = load->bench->device->ops;

    if (load->stream)
        ops->stream_close(load->stream);
    if (load->memory)
        ops->release(load->bench->device, load->memory);
    free(load);
}

enum mics_status mics_load_open(const struct mics_bench *bench, bool brief, double rounds_s,
                                struct mics_load **out, struct mics_err *err)
{
    const struct mics_device_ops *ops = bench->device->ops;
    const size_t bytes = sizeof(float) * 3 * MATRIX * MATRIX;
    struct mics_load *load = calloc(1, sizeof *load);
    enum mics_status status;

    if (!load)
        return mics_err_nomem(err);
    *load = (struct mics_load){.bench = bench, .brief = brief, .rounds_s = rounds_s};
    status = ops->alloc(bench->device, bytes, &load->memory, err);
    if (status == MICS_OK)
        status = ops->stream_open(bench->device, "load", 0, &load->stream, err);
    if (status == MICS_OK) {
        mics_launch_zero(load->stream, &(struct mics_args_zero){load->memory, bytes});
        status = set_rate(load, err);
    }
    if (status != MICS_OK)
        mics_load_close(load);
    else
        *out = load;
    return status;
}
