/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.c - for each shape: split the world, three series, three fits. */
#include "bench/collectives.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

static enum mics_status measure(const struct mics_bench *bench, struct mics_bench_comms *comms,
                                enum mics_collective collective, double budget_s,
                                struct mics_measured *out, struct mics_err *err)
{
    struct mics_series series;
    enum mics_status status =
        mics_series_run(bench, comms, collective, comms->size, budget_s, &series, err);

    if (status != MICS_OK)
        return status;
    *out = (struct mics_measured){.count = series.count};
    out->cost.collective = collective;
    out->cost.nodes = comms->nodes;
    out->cost.per_node = comms->per_node;
    for (size_t i = 0; i < series.count; i++)
        out->points[i] = series.samples[i];
    status = mics_fit_link(series.samples, mics_fit_drop_bursts(series.samples, series.count),
                           &out->cost.cost, err);
    out->cost.cost.samples = series.batches;
    mics_series_fini(&series);
    return status;
}

/* Each series gets its part of what is left, so time that one saves serves the others. Ranks' clocks
 * may differ: a series listens to rank 0 only. */
static enum mics_status measure_shape(const struct mics_bench *bench,
                                      const struct mics_group_shape *shape, double end_s,
                                      uint32_t series_left, struct mics_measured *out,
                                      struct mics_err *err)
{
    const struct mics_bench_grouping grouping = mics_bench_grouping_of_shape(bench->world, shape);
    struct mics_comm *world = bench->world->comm;
    struct mics_bench_comms comms;
    enum mics_status status = mics_bench_comms_open(bench, &grouping, false, &comms, err);

    for (int c = 0; c < MICS_COLLECTIVE_COUNT && status == MICS_OK; c++) {
        double budget_s = fmax(0, end_s - mics_now_s()) / (series_left - (uint32_t)c);

        status = world->ops->broadcast_now(world, &budget_s, sizeof budget_s, 0, err);
        if (status == MICS_OK)
            status = measure(bench, &comms, (enum mics_collective)c, budget_s, &out[c], err);
    }
    mics_bench_comms_close(&comms);
    return status;
}

enum mics_status mics_collectives_measure(const struct mics_bench *bench, double budget_s,
                                          struct mics_measured **out, uint32_t *count,
                                          struct mics_err *err)
{
    const double end_s = mics_now_s() + budget_s;
    struct mics_group_shape *shapes = NULL;
    struct mics_measured *measured = NULL;
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
        status = measure_shape(bench, &shapes[i], end_s, total - i * MICS_COLLECTIVE_COUNT,
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
