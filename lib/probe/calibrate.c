/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - the probe's measurements of collectives, then flat and hierarchical ones in turn, size by size. */
#include "probe/calibrate.h"
#include "bench/collectives.h"
#include "probe/doc.h"
#include "topology/topology.h"

#include <stdlib.h>
#include <string.h>

/* As many segments as a plan may choose. */
static const uint32_t segment_counts[] = {1, 2, 4};

enum { SEGMENT_COUNTS = sizeof segment_counts / sizeof *segment_counts };

struct races {
    struct mics_algorithm_timing *list;
    uint32_t count;
};

static enum mics_status time_one(const struct mics_bench_request *request,
                                 const struct mics_bench_case *c, double *seconds,
                                 struct mics_err *err)
{
    struct mics_bench_row row = {.bytes = mics_bench_case_elements(c) * sizeof(float)};
    const enum mics_status status = mics_bench_measure(c, request, &row, err);

    if (status == MICS_OK && row.wrong > 0)
        return mics_err_set(err, MICS_ERR_COMM, "%s of %llu bytes: %llu elements are wrong",
                            mics_bench_op_name(c->op), (unsigned long long)row.bytes,
                            (unsigned long long)row.wrong);
    *seconds = row.median_s;
    return status;
}

/* One size of one race after the other, the flat one once: points of races[SEGMENT_COUNTS]. */
static enum mics_status time_size(const struct mics_bench *bench,
                                  const struct mics_bench_request *request,
                                  const struct mics_bench_place *places, enum mics_bench_op op,
                                  uint64_t bytes, struct mics_algorithm_timing *races,
                                  struct mics_err *err)
{
    const struct mics_bench_seat *seat = &places[0].seat;
    const uint32_t most = segment_counts[SEGMENT_COUNTS - 1];
    struct mics_bench_case c = {.bench = bench, .place = &places[0], .op = op, .in_place = true};
    double flat_s = 0, staged_s = 0;
    enum mics_status status;

    c.count = mics_bench_count(bytes, seat->nodes * seat->per_node, most);
    c.segments = 1;
    status = time_one(request, &c, &flat_s, err);
    c.algo = MICS_BENCH_HIERARCHICAL;
    for (int i = 0; i < SEGMENT_COUNTS && status == MICS_OK; i++) {
        struct mics_algorithm_timing *race = &races[i];

        c.place = &places[i];
        c.segments = segment_counts[i];
        status = time_one(request, &c, &staged_s, err);
        race->points[race->count] = (struct mics_algorithm_point){
            (double)(mics_bench_case_elements(&c) * sizeof(float)), flat_s, staged_s};
        if (race->count == 0 ||
            race->points[race->count].bytes > race->points[race->count - 1].bytes)
            race->count++;
    }
    return status;
}

static enum mics_status race_op(const struct mics_bench *bench,
                                const struct mics_bench_request *request,
                                const struct mics_bench_place *places, enum mics_bench_op op,
                                struct mics_algorithm_timing *races, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (int i = 0; i < SEGMENT_COUNTS; i++)
        races[i] = (struct mics_algorithm_timing){
            .collective = op == MICS_BENCH_ALL_GATHER ? MICS_ALL_GATHER : MICS_REDUCE_SCATTER,
            .nodes = places[0].seat.nodes,
            .per_node = places[0].seat.per_node,
            .segments = segment_counts[i],
        };
    for (uint64_t bytes = request->min_bytes; bytes > 0 && status == MICS_OK;
         bytes = mics_bench_next_size(request, bytes))
        status = time_size(bench, request, places, op, bytes, races, err);
    return status;
}

/* Groups of `nodes` whole nodes, side by side. Each number of segments has communicators of its own. */
static enum mics_status race_group(const struct mics_bench *bench,
                                   const struct mics_bench_request *request, uint32_t nodes,
                                   struct races *races, struct mics_err *err)
{
    const struct mics_bench_seat seat =
        mics_bench_seat_of(bench->world, MICS_BENCH_PARTITION, nodes * bench->world->local_size);
    struct mics_bench_place places[SEGMENT_COUNTS];
    enum mics_status status = MICS_OK;

    memset(places, 0, sizeof places);
    for (int i = 0; i < SEGMENT_COUNTS && status == MICS_OK; i++)
        status = mics_bench_place_open(bench, &seat, segment_counts[i], &places[i], err);
    for (int op = MICS_BENCH_ALL_GATHER; op <= MICS_BENCH_REDUCE_SCATTER && status == MICS_OK;
         op++) {
        status = race_op(bench, request, places, (enum mics_bench_op)op, &races->list[races->count],
                         err);
        races->count += SEGMENT_COUNTS;
    }
    for (int i = 0; i < SEGMENT_COUNTS; i++)
        mics_bench_place_close(&places[i]);
    return status;
}

static enum mics_status run_races(const struct mics_bench *bench,
                                  const struct mics_bench_request *request, struct races *races,
                                  struct mics_err *err)
{
    const uint32_t n = bench->world->node_count;
    enum mics_status status = MICS_OK;

    /* No number up to 65536 has more than 128 divisors. */
    races->list = calloc((size_t)128 * 2 * SEGMENT_COUNTS, sizeof *races->list);
    if (!races->list)
        return mics_err_nomem(err);
    if (bench->world->local_size == 1)
        return MICS_OK;
    for (uint32_t nodes = 2; nodes <= n && status == MICS_OK; nodes++)
        if (n % nodes == 0)
            status = race_group(bench, request, nodes, races, err);
    return status;
}

/* The document's own costs give way to the measured ones. */
static enum mics_status fill_in(json_t *doc, const struct mics_measured *measured, uint32_t count,
                                const struct races *races, struct mics_err *err)
{
    struct mics_collective_cost *costs = calloc(count, sizeof *costs);
    json_t *exchanges = NULL;
    enum mics_status status = costs ? MICS_OK : mics_err_nomem(err);

    for (uint32_t i = 0; i < count && costs; i++)
        costs[i] = measured[i].cost;
    if (status == MICS_OK)
        status = mics_topology_set_costs(doc, costs, count, err);
    if (status == MICS_OK)
        status = mics_probe_doc_add_points(doc, measured, count, err);
    if (status == MICS_OK)
        status = mics_algorithm_timings_to_doc(races->list, races->count, &exchanges, err);
    if (status == MICS_OK && json_object_set_new(doc, "exchanges", exchanges) != 0)
        status = mics_err_nomem(err);
    free(costs);
    return status;
}

enum mics_status mics_calibrate(const struct mics_bench *bench,
                                const struct mics_bench_request *request, double seconds,
                                json_t *doc, struct mics_err *err)
{
    struct mics_measured *measured = NULL;
    struct races races = {0};
    uint32_t count = 0;
    enum mics_status status = MICS_OK;

    if (mics_bench_size_count(request) > MICS_ALGORITHM_POINTS)
        return mics_err_set(err, MICS_ERR_ARG, "more than %d sizes", MICS_ALGORITHM_POINTS);
    status = mics_collectives_measure(bench, seconds, &measured, &count, err);
    if (status == MICS_OK)
        status = run_races(bench, request, &races, err);
    if (status == MICS_OK && doc)
        status = fill_in(doc, measured, count, &races, err);
    free(measured);
    free(races.list);
    return status;
}
