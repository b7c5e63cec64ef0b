/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series.c - time a size, exchange the times, choose the next size.
 *
 * After each size all ranks exchange (median, best, elapsed). Whether there is a next size, and its
 * number of batches, follow from the median over the ranks and from rank 0's clock. Both are the
 * same on all ranks, so no rank waits for a collective that others do not begin.
 */
#include "measure/series.h"
#include "base/clock.h"
#include "base/num.h"
#include "measure/statistics.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
    MIN_SIZES = 5,
    MIN_BATCHES = 3,
    MAX_BATCHES = 15,
    MAX_ITERS = 16,
    FIRST_ITERS = 4,
    GROWTH = 4
};

/* If a collective of the next size takes less than this, it is measured in any case: it is beyond
 * the bursts of a shaped link. */
static const double short_s = 60e-3;
static const double batch_s = 300e-6; /* a batch of short collectives */

/* Exchanged after each size. median < 0: the rank took no part. */
struct rank_times {
    double median, best, elapsed;
};

/* One size. */
struct round {
    struct mics_bench_comms *comms; /* may be NULL */
    enum mics_collective collective;
    uint64_t count; /* elements of one rank's piece */
    uint32_t ranks, iters, batches;
};

static uint64_t round_bytes(const struct round *round)
{
    return round->count * round->ranks * sizeof(float);
}

enum mics_status mics_series_open(const struct mics_bench *bench, struct mics_bench_comms *comms,
                                  enum mics_collective collective, uint64_t count,
                                  struct mics_series_case *out, struct mics_err *err)
{
    static const enum mics_exchange_kind kinds[MICS_COLLECTIVE_COUNT] = {
        [MICS_ALL_GATHER] = MICS_EXCHANGE_GATHER,
        [MICS_REDUCE_SCATTER] = MICS_EXCHANGE_REDUCE,
        [MICS_ALL_REDUCE] = MICS_EXCHANGE_SYNC,
    };
    *out = (struct mics_series_case){bench, comms, collective, count, NULL, {{0}}};
    if (collective == MICS_ALL_TO_ALL)
        return MICS_OK;
    struct mics_executor *executor =
        collective == MICS_ALL_REDUCE ? &comms->replicated : &comms->sharded;
    const struct mics_plan_choice choice = mics_bench_choice(executor, false, 1);
    const uint64_t total = count * comms->size;
    const struct mics_layout layout =
        mics_layout_cut(&executor->groups[MICS_UNIT_DENSE].shape, total, 1);

    for (int b = 0; b < MICS_BUFFER_COUNT; b++)
        out->buffers[b] = (struct mics_pieces){bench->buffer, layout.segment_count};
    out->buffers[MICS_BUFFER_PARAM_SHARD] = out->buffers[MICS_BUFFER_REDUCED] =
        mics_pieces_in_slot(bench->buffer, &layout, layout.param_piece,
                            executor->groups[MICS_UNIT_DENSE].index.param, MICS_F32);
    return mics_exchange_replay_new(executor, &choice, kinds[collective], total, &out->replay, err);
}

void mics_series_enqueue(const struct mics_series_case *c)
{
    float *buffer = c->bench->buffer;

    if (c->replay)
        mics_exchange_replay_enqueue(c->replay, c->bench->stream, 0, 1, c->buffers);
    else
        mics_comm_all_to_all(c->comms->comm, c->bench->stream, buffer,
                             buffer + c->count * c->comms->size, c->count, MICS_F32);
}

void mics_series_close(struct mics_series_case *c)
{
    mics_exchange_replay_free(c->replay);
    c->replay = NULL;
}

static enum mics_status time_batch(const struct mics_series_case *c, uint32_t iters,
                                   double *seconds, struct mics_err *err)
{
    const double start = mics_now_s();
    enum mics_status status;

    for (uint32_t i = 0; i < iters; i++)
        mics_series_enqueue(c);
    status = mics_bench_wait(c->bench, err);
    *seconds = (mics_now_s() - start) / iters;
    return status;
}

/* One batch as warm-up, then those that count. */
static enum mics_status time_size(const struct mics_bench *bench, const struct round *round,
                                  struct rank_times *out, struct mics_err *err)
{
    struct mics_series_case c;
    double seconds[MAX_BATCHES], warmup;
    enum mics_status status;

    *out = (struct rank_times){.median = -1, .best = -1};
    if (!round->comms)
        return MICS_OK;
    status = mics_series_open(bench, round->comms, round->collective, round->count, &c, err);
    if (status == MICS_OK)
        status = time_batch(&c, round->iters, &warmup, err);
    for (uint32_t i = 0; i < round->batches && status == MICS_OK; i++)
        status = time_batch(&c, round->iters, &seconds[i], err);
    mics_series_close(&c);
    if (status != MICS_OK)
        return status;
    out->median = mics_median(seconds, round->batches);
    out->best = seconds[0]; /* mics_median() has sorted them */
    return MICS_OK;
}

/* Add a size to the series: the sample is the median over the ranks that took part. */
static enum mics_status add_size(struct mics_series *series, const struct rank_times *reports,
                                 uint32_t size, const struct round *round, struct mics_err *err)
{
    double *best = malloc(size * sizeof *best), *medians = malloc(size * sizeof *medians);
    uint32_t count = 0;

    if (!best || !medians) {
        free(best);
        free(medians);
        return mics_err_nomem(err);
    }
    for (uint32_t i = 0; i < size; i++) {
        best[i] = reports[i].best;
        if (reports[i].median >= 0)
            medians[count++] = reports[i].median;
    }
    series->samples[series->count] = (struct mics_sample){
        .bytes = (double)round_bytes(round),
        .seconds = count > 0 ? mics_median(medians, count) : 0,
    };
    series->best[series->count++] = best;
    series->batches += round->batches;
    free(medians);
    return count > 0 ? MICS_OK : mics_err_set(err, MICS_ERR_ARG, "no rank took part");
}

/* Iterations and batches of a size whose collective takes `seconds`, in the rest of the budget: a
 * sixth of it at most, so that six sizes leave a third for the larger ones. */
static void choose_repetitions(struct round *round, double seconds, double left_s)
{
    const double fit = left_s / 6 / seconds; /* collectives in a sixth of what is left */

    round->iters = (uint32_t)fmax(1, fmin(MAX_ITERS, batch_s / seconds));
    round->batches = (uint32_t)fmax(MIN_BATCHES, fmin(MAX_BATCHES, fit / round->iters - 1));
}

/* Set up the next size, which takes up to GROWTH times as long as the last one. False: the series
 * ends. */
static bool prepare(const struct mics_series *series, const struct mics_bench *bench,
                    struct round *round, double left_s)
{
    const uint64_t first = MICS_SERIES_FIRST_BYTES / sizeof(float) / round->ranks;
    const uint64_t arrays = round->collective == MICS_ALL_TO_ALL ? 2 : 1;
    double expected = 1e-3;

    round->count = mics_max_u64(first, 1) << (2 * series->count);
    if (series->count > 0)
        expected = GROWTH * series->samples[series->count - 1].seconds;
    if (series->count == MICS_SERIES_MAX || arrays * round_bytes(round) > bench->buffer_bytes)
        return false;
    if (series->count >= MIN_SIZES + (expected < short_s) && expected * (1 + MIN_BATCHES) > left_s)
        return false;
    choose_repetitions(round, expected, left_s);
    if (series->count == 0)
        round->iters = FIRST_ITERS;
    return true;
}

/* Time a size and exchange the times, and rank 0's clock. */
static enum mics_status run_size(const struct mics_bench *bench, const struct round *round,
                                 double begun_s, struct rank_times *reports, double *elapsed_s,
                                 struct mics_err *err)
{
    struct mics_comm *world = bench->world->comm;
    struct rank_times own;
    enum mics_status status = time_size(bench, round, &own, err);

    own.elapsed = mics_now_s() - begun_s;
    if (status == MICS_OK)
        status = mics_comm_all_gather_now(world, &own, reports, sizeof own, err);
    *elapsed_s = reports[0].elapsed;
    return status;
}

enum mics_status mics_series_run(const struct mics_bench *bench, struct mics_bench_comms *comms,
                                 enum mics_collective collective, uint32_t ranks, double budget_s,
                                 struct mics_series *out, struct mics_err *err)
{
    const uint32_t size = bench->world->size;
    const double begun_s = mics_now_s();
    struct rank_times *reports = calloc(size, sizeof *reports);
    struct round round = {.comms = comms, .collective = collective, .ranks = ranks};
    enum mics_status status = reports ? MICS_OK : mics_err_nomem(err);
    double elapsed_s = 0;

    *out = (struct mics_series){0};
    while (status == MICS_OK && prepare(out, bench, &round, budget_s - elapsed_s)) {
        status = run_size(bench, &round, begun_s, reports, &elapsed_s, err);
        if (status == MICS_OK)
            status = add_size(out, reports, size, &round, err);
    }
    free(reports);
    if (status != MICS_OK)
        mics_series_fini(out);
    return status;
}

void mics_series_fini(struct mics_series *series)
{
    for (size_t i = 0; i < series->count; i++)
        free(series->best[i]);
    series->count = 0;
}
