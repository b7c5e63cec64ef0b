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

/* The time until *end_s is divided among the series that are left, so time that one saves goes to
 * the others. Measurements beside computation are not part of it. Rank 0's clock counts for all
 * ranks. */
static enum mics_status measure_shape(const struct mics_bench *bench, const struct mics_load *load,
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
    }
    const double begin_s = mics_now_s();
    if (status == MICS_OK && load)
        status = mics_load_beside(load, &comms, out, err);
    *end_s += mics_now_s() - begin_s;
    mics_bench_comms_close(&comms);
    return status;
}

enum mics_status mics_collectives_measure(const struct mics_bench *bench,
                                          const struct mics_load *load, double budget_s,
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
    struct mics_load *load = NULL;
    struct mics_straggler_point stragglers[MICS_STRAGGLER_POINTS] = {0};
    struct timings timings = {0};
    uint32_t count = 0;
    enum mics_status status = MICS_OK;

    if (mics_bench_size_count(request) > MICS_ALGORITHM_POINTS)
        return mics_err_set(err, MICS_ERR_ARG, "more than %d sizes", MICS_ALGORITHM_POINTS);
    if (bench->device->on_host)
        status = mics_load_open(bench, false, seconds, &load, err);
    if (status == MICS_OK)
        status = mics_collectives_measure(bench, load, seconds, &measured, &count, err);
    if (status == MICS_OK && load)
        status = mics_load_stragglers(load, stragglers, err);
    mics_load_close(load);
    if (status == MICS_OK)
        status = time_groups(bench, request, &timings, err);
    if (status == MICS_OK && doc)
        status = fill_in(doc, measured, count, bench->device->on_host ? stragglers : NULL, &timings,
                         err);
    free(measured);
    free(timings.list);
    return status;
}
