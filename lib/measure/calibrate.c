/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calibrate.c - for each shape of groups a series and a fit of each collective; then flat and
 * hierarchical exchanges in turn, size by size. Hosts also measure collectives while all ranks
 * compute.
 */
#include "measure/calibrate.h"

#include "base/clock.h"
#include "comm/agree.h"
#include "device/launch.h"
#include "measure/measure_group.h"
#include "measure/series.h"
#include "measure/statistics.h"
#include "topology/cost.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/*
 * Collectives while all ranks compute: how much longer they take, and what computation loses; and
 * how far ranks drift apart when they only compute.
 *
 * On hosts the ranks of a node share its cores, and MPI's progress, the copies of the kernel's
 * network stack and sums need some of them. How much is measured, not derived: each rank computes
 * matrix products on a stream of its own, first alone, then while the collective is repeated on
 * another stream. Ranks that share cores also take turns, so that some reach a collective later
 * than others.
 */

/* What computes: a stream and three matrices. */
struct mics_bench_load {
    const struct mics_bench *bench;
    struct mics_stream *stream;
    struct mics_event *done; /* of the collectives beside it */
    void *memory;
    double rounds_s;
};

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

/* zeroed: fine */
static void load_fini(struct mics_bench_load *load)
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

/* The device must be the host. Measurements are repeated until they are certain, or about
 * `rounds_s` have passed, but a few times at least. On success the caller calls
 * load_fini(). */
static enum mics_status load_init(const struct mics_bench *bench, double rounds_s,
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
        load_fini(out);
    return status;
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
    struct mics_series_case what;
    uint32_t iters;
};

static void enqueue(const struct mics_bench_load *load, const struct exchange *exchange)
{
    const struct mics_bench *bench = load->bench;

    for (uint32_t i = 0; i < exchange->iters; i++)
        mics_series_enqueue(&exchange->what);
    bench->device->ops->event_record(load->done, bench->stream);
}

static enum mics_status measure_round(const struct mics_bench_load *load,
                                      const struct exchange *exchange, struct times *out,
                                      struct mics_err *err)
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

        status = measure_round(load, exchange, &own, err);
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

/* Measure `collective` of `bytes` (the whole array, rounded down to whole elements of each rank) in
 * this rank's group, all groups side by side; alone it takes about `alone_s`. Takes one to
 * three seconds, or `rounds_s` if that is less, longest where ranks share cores, so that results
 * differ; more for a collective longer than 60 ms. Collective over the world; *out is the same on
 * all ranks. */
static enum mics_status time_overlap(const struct mics_bench_load *load,
                                     struct mics_bench_comms *comms,
                                     enum mics_collective collective, uint64_t bytes,
                                     double alone_s, struct mics_overlap_point *out,
                                     struct mics_err *err)
{
    const uint64_t count = bytes / sizeof(float) / comms->size;
    struct exchange exchange = {
        .iters = (uint32_t)fmax(1, fmin(MAX_ITERS, ceil(load_s / fmax(alone_s, 1e-9))))};
    enum mics_status status =
        mics_series_open(load->bench, comms, collective, count, &exchange.what, err);

    if (status == MICS_OK)
        status = repeat(load, &exchange, out, err);
    mics_series_close(&exchange.what);
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
static enum mics_status time_stragglers(const struct mics_bench_load *load,
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

static_assert((int)MICS_SERIES_MAX <= (int)MICS_COLLECTIVE_POINTS, "a series fits into a cost");

static enum mics_status measure(const struct mics_bench *bench, struct mics_bench_comms *comms,
                                enum mics_collective collective, double budget_s,
                                struct mics_collective_cost *out, struct mics_err *err)
{
    struct mics_series series;
    enum mics_status status =
        mics_series_run(bench, comms, collective, comms->size, budget_s, &series, err);

    if (status != MICS_OK)
        return status;
    status = mics_collective_cost_fit(collective, comms->nodes, comms->per_node, series.samples,
                                      series.count, out, err);
    out->cost.samples = series.batches;
    mics_series_fini(&series);
    return status;
}

/* Beside computation, the largest size that takes no longer than this, and one of a sixteenth. */
static const double overlap_max_s = 0.2;

static enum mics_status measure_overlap(const struct mics_bench_load *load,
                                        struct mics_bench_comms *comms,
                                        struct mics_collective_cost *cost, struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    uint32_t last = cost->point_count - 1;

    while (last > 0 && cost->points[last].seconds > overlap_max_s)
        last--;
    for (uint32_t i = last >= 2 ? last - 2 : last; i <= last && status == MICS_OK; i += 2)
        status = time_overlap(load, comms, cost->collective, (uint64_t)cost->points[i].bytes,
                              cost->points[i].seconds, &cost->overlap[cost->overlap_count++], err);
    return status;
}

/* Each series gets its part of the time until *end_s, so time that one saves goes to the others;
 * what is measured beside computation takes none of it. Rank 0's clock counts for all ranks. */
static enum mics_status measure_shape(const struct mics_bench *bench,
                                      const struct mics_bench_load *load,
                                      const struct mics_group_shape *shape, double *end_s,
                                      uint32_t series_left, struct mics_collective_cost *out,
                                      struct mics_err *err)
{
    const struct mics_bench_grouping grouping = mics_bench_grouping_of_shape(bench->world, shape);
    struct mics_comm *world = bench->world->comm;
    struct mics_bench_comms comms;
    enum mics_status status = mics_bench_comms_open(bench, &grouping, false, &comms, err);

    for (int c = 0; c < MICS_COLLECTIVE_COUNT && status == MICS_OK; c++) {
        double budget_s = fmax(0, *end_s - mics_now_s()) / (series_left - (uint32_t)c);

        status = mics_comm_broadcast_now(world, &budget_s, sizeof budget_s, 0, err);
        if (status == MICS_OK)
            status = measure(bench, &comms, (enum mics_collective)c, budget_s, &out[c], err);
        const double begin_s = mics_now_s();
        if (status == MICS_OK && load)
            status = measure_overlap(load, &comms, &out[c], err);
        *end_s += mics_now_s() - begin_s;
    }
    mics_bench_comms_close(&comms);
    return status;
}

enum mics_status mics_collectives_measure(const struct mics_bench *bench,
                                          const struct mics_bench_load *load, double budget_s,
                                          struct mics_collective_cost **out, uint32_t *count,
                                          struct mics_err *err)
{
    double end_s = mics_now_s() + budget_s;
    struct mics_group_shape *shapes = NULL;
    struct mics_collective_cost *measured = NULL;
    uint32_t shape_count = 0;
    enum mics_status status = mics_group_shapes_list(
        bench->world->node_count, bench->world->local_size, &shapes, &shape_count, err);

    if (status != MICS_OK)
        return status;
    const uint32_t total = shape_count * MICS_COLLECTIVE_COUNT;
    measured = calloc(total, sizeof *measured);
    if (!measured)
        status = mics_err_nomem(err);
    for (uint32_t i = 0; i < shape_count && status == MICS_OK; i++)
        status = measure_shape(bench, load, &shapes[i], &end_s, total - i * MICS_COLLECTIVE_COUNT,
                               &measured[i * MICS_COLLECTIVE_COUNT], err);
    free(shapes);
    if (status != MICS_OK) {
        free(measured);
        return status;
    }
    *out = measured;
    *count = total;
    return MICS_OK;
}

/* The numbers of segments that a plan may choose. */
static const uint32_t segment_counts[] = {1, 2, 4};

enum { SEGMENT_COUNTS = sizeof segment_counts / sizeof *segment_counts };

struct timings {
    struct mics_algorithm_timing *list;
    uint32_t count;
};

static enum mics_status time_one(const struct mics_bench_request *request,
                                 struct mics_bench_case *c, double *seconds, struct mics_err *err)
{
    struct mics_bench_row row = {.bytes = mics_bench_case_elements(c) * sizeof(float)};
    enum mics_status status = mics_bench_case_open(c, err);

    if (status == MICS_OK)
        status = mics_bench_measure(c, request, &row, err);
    mics_bench_case_close(c);
    if (status == MICS_OK && row.wrong > 0)
        return mics_err_set(err, MICS_ERR_COMM, "%s of %llu bytes: %llu elements are wrong",
                            mics_bench_op_name(c->op), (unsigned long long)row.bytes,
                            (unsigned long long)row.wrong);
    *seconds = row.median_s;
    return status;
}

/* One size: flat once, then hierarchical in each number of segments. A point for
 * timings[SEGMENT_COUNTS]. */
static enum mics_status time_size(const struct mics_bench *bench,
                                  const struct mics_bench_request *request,
                                  struct mics_bench_comms *comms, enum mics_bench_op op,
                                  uint64_t bytes, struct mics_algorithm_timing *timings,
                                  struct mics_err *err)
{
    const uint32_t most = segment_counts[SEGMENT_COUNTS - 1];
    struct mics_bench_case c = {.bench = bench, .comms = comms, .op = op, .in_place = true};
    double flat_s = 0, hierarchical_s = 0;
    enum mics_status status;

    c.count = mics_bench_count(bytes, comms->size, most);
    c.segments = 1;
    status = time_one(request, &c, &flat_s, err);
    c.algo = MICS_BENCH_HIERARCHICAL;
    for (int i = 0; i < SEGMENT_COUNTS && status == MICS_OK; i++) {
        struct mics_algorithm_timing *timing = &timings[i];

        c.segments = segment_counts[i];
        status = time_one(request, &c, &hierarchical_s, err);
        timing->points[timing->count] = (struct mics_algorithm_point){
            (double)(mics_bench_case_elements(&c) * sizeof(float)), flat_s, hierarchical_s};
        if (timing->count == 0 ||
            timing->points[timing->count].bytes > timing->points[timing->count - 1].bytes)
            timing->count++;
    }
    return status;
}

static enum mics_status time_op(const struct mics_bench *bench,
                                const struct mics_bench_request *request,
                                struct mics_bench_comms *comms, enum mics_bench_op op,
                                struct mics_algorithm_timing *timings, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (int i = 0; i < SEGMENT_COUNTS; i++)
        timings[i] = (struct mics_algorithm_timing){
            .collective = op == MICS_BENCH_ALL_GATHER ? MICS_ALL_GATHER : MICS_REDUCE_SCATTER,
            .nodes = comms->nodes,
            .per_node = comms->per_node,
            .segments = segment_counts[i],
        };
    for (uint64_t bytes = request->min_bytes; bytes > 0 && status == MICS_OK;
         bytes = mics_bench_next_size(request, bytes))
        status = time_size(bench, request, comms, op, bytes, timings, err);
    return status;
}

/* Groups of `nodes` whole nodes, side by side. */
static enum mics_status time_group(const struct mics_bench *bench,
                                   const struct mics_bench_request *request, uint32_t nodes,
                                   struct timings *timings, struct mics_err *err)
{
    const struct mics_group_shape shape = {nodes, bench->world->local_size};
    const struct mics_bench_grouping grouping = mics_bench_grouping_of_shape(bench->world, &shape);
    struct mics_bench_comms comms;
    enum mics_status status = mics_bench_comms_open(bench, &grouping, false, &comms, err);

    for (int op = MICS_BENCH_ALL_GATHER; op <= MICS_BENCH_REDUCE_SCATTER && status == MICS_OK;
         op++) {
        status = time_op(bench, request, &comms, (enum mics_bench_op)op,
                         &timings->list[timings->count], err);
        timings->count += SEGMENT_COUNTS;
    }
    mics_bench_comms_close(&comms);
    return status;
}

static enum mics_status time_groups(const struct mics_bench *bench,
                                    const struct mics_bench_request *request,
                                    struct timings *timings, struct mics_err *err)
{
    const uint32_t n = bench->world->node_count;
    enum mics_status status = MICS_OK;

    /* No number up to 65536 has more than 128 divisors. */
    timings->list = calloc((size_t)128 * 2 * SEGMENT_COUNTS, sizeof *timings->list);
    if (!timings->list)
        return mics_err_nomem(err);
    if (bench->world->local_size == 1)
        return MICS_OK;
    for (uint32_t nodes = 2; nodes <= n && status == MICS_OK; nodes++)
        if (n % nodes == 0)
            status = time_group(bench, request, nodes, timings, err);
    return status;
}

/* Replace the document's costs by the measured ones. */
static enum mics_status fill_in(json_t *doc, const struct mics_collective_cost *measured,
                                uint32_t count, const struct mics_straggler_point *stragglers,
                                const struct timings *timings, struct mics_err *err)
{
    json_t *exchanges = NULL;
    enum mics_status status = mics_topology_set_costs(doc, measured, count, err);

    if (status == MICS_OK && stragglers)
        status = mics_topology_set_stragglers(doc, stragglers, MICS_STRAGGLER_POINTS, err);
    if (status == MICS_OK)
        status = mics_algorithm_timings_to_doc(timings->list, timings->count, &exchanges, err);
    if (status == MICS_OK && json_object_set_new(doc, "exchanges", exchanges) != 0)
        status = mics_err_nomem(err);
    return status;
}

enum mics_status mics_calibrate(const struct mics_bench *bench,
                                const struct mics_bench_request *request, double seconds,
                                json_t *doc, struct mics_err *err)
{
    struct mics_collective_cost *measured = NULL;
    struct mics_bench_load load = {0};
    struct mics_straggler_point stragglers[MICS_STRAGGLER_POINTS] = {0};
    struct timings timings = {0};
    uint32_t count = 0;
    enum mics_status status = MICS_OK;

    if (mics_bench_size_count(request) > MICS_ALGORITHM_POINTS)
        return mics_err_set(err, MICS_ERR_ARG, "more than %d sizes", MICS_ALGORITHM_POINTS);
    if (bench->device->on_host)
        status = load_init(bench, seconds, &load, err);
    if (status == MICS_OK)
        status = mics_collectives_measure(bench, load.bench ? &load : NULL, seconds, &measured,
                                          &count, err);
    if (status == MICS_OK && load.bench)
        status = time_stragglers(&load, stragglers, err);
    load_fini(&load);
    if (status == MICS_OK)
        status = time_groups(bench, request, &timings, err);
    if (status == MICS_OK && doc)
        status = fill_in(doc, measured, count, bench->device->on_host ? stragglers : NULL, &timings,
                         err);
    free(measured);
    free(timings.list);
    return status;
}
