/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statistics.c - medians by sorting, because sets are small, and an exact fit of least deviations.
 *
 * Some line with the least sum of weighted absolute deviations goes through two of the points, or
 * through one with a coefficient at its bound. There are few points, so all of these lines are
 * tried: no iteration, no tuning, and the same result every time.
 */
#include "measure/statistics.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double mics_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double mics_mad(double *values, size_t count, double median)
{
    for (size_t i = 0; i < count; i++)
        values[i] = fabs(values[i] - median);
    return mics_median(values, count);
}

struct mics_class mics_class_of(const double *times, size_t count, double *scratch)
{
    struct mics_class class;

    memcpy(scratch, times, count * sizeof *times);
    class.median = mics_median(scratch, count);
    class.mad = mics_mad(scratch, count, class.median);
    return class;
}

bool mics_class_is_slow(const struct mics_class *class, double time)
{
    return time > MICS_SLOW_TIMES * class->median &&
           time > class->median + MICS_SLOW_MADS * class->mad;
}

static const double min_slope = 1e-15; /* seconds per byte: 1 PB/s */
static const double burst = 1.25;      /* times the rate that lasts, and more */

struct line {
    double alpha, slope, deviation;
};

static double deviation_of(const struct mics_sample *sample, const struct line *line)
{
    return fabs((line->alpha + line->slope * sample->bytes) / sample->seconds - 1);
}

/* Make `best` the line of these coefficients if it is allowed and better. */
static void consider(const struct mics_sample *samples, size_t count, double alpha, double slope,
                     struct line *best)
{
    struct line line = {.alpha = alpha, .slope = slope};

    if (!(alpha >= 0) || !(slope >= min_slope))
        return;
    for (size_t i = 0; i < count && line.deviation < best->deviation; i++)
        line.deviation += deviation_of(&samples[i], &line);
    if (line.deviation < best->deviation)
        *best = line;
}

static struct line find_best(const struct mics_sample *samples, size_t count)
{
    struct line best = {.deviation = INFINITY};

    for (size_t i = 0; i < count; i++) {
        const struct mics_sample *a = &samples[i];

        consider(samples, count, 0, fmax(a->seconds / a->bytes, min_slope), &best);
        consider(samples, count, fmax(a->seconds - min_slope * a->bytes, 0), min_slope, &best);
        for (size_t j = 0; j < i; j++) {
            const struct mics_sample *b = &samples[j];
            const double slope = (a->seconds - b->seconds) / (a->bytes - b->bytes);

            consider(samples, count, a->seconds - slope * a->bytes, slope, &best);
        }
    }
    return best;
}

static enum mics_status check(const struct mics_sample *samples, size_t count, struct mics_err *err)
{
    size_t sizes = 0;

    if (count > MICS_FIT_MAX)
        return mics_err_set(err, MICS_ERR_ARG, "%zu samples; a fit takes up to %d", count,
                            MICS_FIT_MAX);
    for (size_t i = 0; i < count; i++) {
        if (!(samples[i].seconds > 0) || !isfinite(samples[i].seconds) || !(samples[i].bytes >= 0))
            return mics_err_set(err, MICS_ERR_ARG, "sample %zu: %g s for %g bytes", i,
                                samples[i].seconds, samples[i].bytes);
        sizes += samples[i].bytes != samples[0].bytes;
    }
    if (sizes == 0)
        return mics_err_set(err, MICS_ERR_ARG, "a fit needs samples of two sizes");
    return MICS_OK;
}

enum mics_status mics_fit_link(const struct mics_sample *samples, size_t count,
                               struct mics_link *out, struct mics_err *err)
{
    const enum mics_status status = check(samples, count, err);
    double deviations[MICS_FIT_MAX];
    struct line line;

    if (status != MICS_OK)
        return status;
    line = find_best(samples, count);
    for (size_t i = 0; i < count; i++)
        deviations[i] = deviation_of(&samples[i], &line);
    *out = (struct mics_link){
        .latency_s = line.alpha,
        .bandwidth_bytes = 1 / line.slope,
        .samples = (uint32_t)count,
        .spread = mics_median(deviations, count),
    };
    return MICS_OK;
}

size_t mics_fit_drop_bursts(struct mics_sample *samples, size_t count)
{
    double sustained = 0; /* the best rate of the larger ones that are kept */
    size_t kept = count;

    for (size_t i = count; i-- > 0;) {
        const double rate = samples[i].bytes / samples[i].seconds;

        if (i == 0 || i + 1 == count || rate <= burst * sustained) {
            sustained = fmax(sustained, rate);
            continue;
        }
        memmove(&samples[i], &samples[i + 1], (kept - i - 1) * sizeof *samples);
        kept--;
    }
    return kept;
}

void mics_sustain(struct mics_sample *samples, size_t count)
{
    double sustained = 0; /* the best rate of the larger ones */

    for (size_t i = count; i-- > 0;) {
        if (sustained > 0)
            samples[i].seconds = fmax(samples[i].seconds, samples[i].bytes / sustained);
        sustained = fmax(sustained, samples[i].bytes / samples[i].seconds);
    }
}

size_t mics_samples_thin(struct mics_sample *samples, size_t count, size_t most)
{
    assert(most >= 2);
    if (count <= most)
        return count;
    for (size_t i = 0; i < most; i++)
        samples[i] = samples[i * (count - 1) / (most - 1)];
    return most;
}

enum mics_status mics_collective_cost_fit(enum mics_collective collective, uint32_t nodes,
                                          uint32_t per_node, struct mics_sample *samples,
                                          size_t count, struct mics_collective_cost *out,
                                          struct mics_err *err)
{
    *out = (struct mics_collective_cost){
        .collective = collective, .nodes = nodes, .per_node = per_node};
    if (nodes > 1)
        mics_sustain(samples, count);
    assert(count <= MICS_COLLECTIVE_POINTS);
    for (size_t i = 0; i < count; i++)
        out->points[out->point_count++] =
            (struct mics_collective_point){samples[i].bytes, samples[i].seconds};
    return mics_fit_link(samples, mics_fit_drop_bursts(samples, count), &out->cost, err);
}
