/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/plot.h"

#include "measure/measure_doc.h"
#include "measure/statistics.h"

/* One curve: rows that differ in size only. */
struct curve {
    const struct mics_bench_row *first;
    struct mics_sample samples[MICS_FIT_MAX];
    size_t count;
    double bus_factor; /* bus bandwidth over bytes / seconds */
};

static bool same_picture(const struct mics_bench_row *a, const struct mics_bench_row *b)
{
    return a->op == b->op && a->group == b->group && a->nodes == b->nodes &&
           a->per_node == b->per_node;
}

static bool same_curve(const struct mics_bench_row *a, const struct mics_bench_row *b)
{
    return same_picture(a, b) && a->algo == b->algo && a->in_place == b->in_place;
}

/* Is the row the first of its kind? */
static bool is_first(const struct mics_bench_result *result, size_t index,
                     bool (*same)(const struct mics_bench_row *, const struct mics_bench_row *))
{
    for (size_t i = 0; i < index; i++)
        if (same(&result->rows[i], &result->rows[index]))
            return false;
    return true;
}

static void collect(const struct mics_bench_result *result, const struct mics_bench_row *first,
                    struct curve *out)
{
    *out = (struct curve){.first = first};
    for (size_t i = 0; i < result->count && out->count < MICS_FIT_MAX; i++) {
        const struct mics_bench_row *row = &result->rows[i];

        if (!same_curve(row, first) || row->time_s <= 0)
            continue;
        out->samples[out->count++] = (struct mics_sample){(double)row->bytes, row->time_s};
        out->bus_factor = mics_bench_busbw(row) * row->time_s / (double)row->bytes;
    }
}

static void put_samples(FILE *out, size_t index, const struct curve *curve)
{
    fprintf(out, "$curve%zu << END\n", index);
    for (size_t i = 0; i < curve->count; i++)
        fprintf(out, "%.12g %.6g\n", curve->samples[i].bytes,
                curve->bus_factor * curve->samples[i].bytes / curve->samples[i].seconds);
    fputs("END\n", out);
}

/* The measured points, and the fit from the smallest to the largest size. */
static void put_curve(FILE *out, size_t index, unsigned type, struct curve *curve)
{
    const struct mics_bench_row *row = curve->first;
    const double from = curve->samples[0].bytes, to = curve->samples[curve->count - 1].bytes;
    struct mics_link fit;

    fprintf(out, "$curve%zu using 1:2 with linespoints lt %u lw 1 title '%s%s'", index, type,
            mics_bench_algo_name(row->algo), row->in_place ? ", in place" : "");
    const size_t kept = mics_fit_drop_bursts(curve->samples, curve->count);
    if (mics_fit_link(curve->samples, kept, &fit, NULL) == MICS_OK)
        fprintf(out,
                ", (x>=%.12g && x<=%.12g ? %.6g*x/(%.6g+x/%.6g) : NaN) with lines lt %u dt 2 lw 1 "
                "%s",
                from, to, curve->bus_factor, fit.latency_s, fit.bandwidth_bytes, type,
                type == 1 ? "title 'fit'" : "notitle");
}

static void plot_rows(FILE *out, const struct mics_bench_result *result, size_t first)
{
    const struct mics_bench_row *row = &result->rows[first];
    unsigned drawn = 0;
    struct curve curve;

    for (size_t i = first; i < result->count; i++) {
        if (!same_picture(&result->rows[i], row) || !is_first(result, i, same_curve))
            continue;
        collect(result, &result->rows[i], &curve);
        put_samples(out, i, &curve);
    }
    mics_gnuplot_ylabel(out, "bus bandwidth");
    fprintf(out,
            "set title '%s, group %s: %u node%s x %u'\nset xlabel 'bytes of the whole array'\n"
            "set format x '%%.0b %%BB'\nset logscale x 2\nset xtics rotate by -35\n"
            "set format y '%%.0s %%cB/s'\nset logscale y 10\n"
            "set samples 200\nplot ",
            mics_bench_op_name(row->op), mics_bench_group_name(row->group), row->nodes,
            row->nodes == 1 ? "" : "s", row->per_node);
    for (size_t i = first; i < result->count; i++) {
        if (!same_picture(&result->rows[i], row) || !is_first(result, i, same_curve))
            continue;
        collect(result, &result->rows[i], &curve);
        if (curve.count == 0)
            continue;
        fputs(drawn ? ", " : "", out);
        put_curve(out, i, drawn % 8 + 1, &curve);
        drawn++;
    }
    fputs(drawn ? "\n" : "1/0 notitle\n", out);
}

enum mics_status mics_bench_plot(struct mics_gnuplot *gnuplot, const json_t *doc,
                                 struct mics_err *err)
{
    struct mics_bench_result result;
    const enum mics_status status = mics_bench_from_doc(doc, &result, err);

    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < result.count; i++) {
        const struct mics_bench_row *row = &result.rows[i];
        char name[48];
        FILE *out;

        if (!is_first(&result, i, same_picture))
            continue;
        snprintf(name, sizeof name, "%s_%s", mics_bench_op_name(row->op),
                 mics_bench_group_name(row->group));
        out = mics_gnuplot_begin(gnuplot, name, 0);
        if (out)
            plot_rows(out, &result, i);
    }
    mics_bench_result_fini(&result);
    return MICS_OK;
}
