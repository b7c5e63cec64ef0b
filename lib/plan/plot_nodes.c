/* SPDX-License-Identifier: Apache-2.0 */
/* plot_nodes.c - throughput of several plans by their number of nodes. */
#include "plan/plan.h"
#include "plan/plot.h"

#include <stdlib.h>
#include <string.h>

/* One plan among several. */
struct point {
    const struct mics_plan *plan;
    size_t series; /* index of the first plan of the same model and machines */
};

static bool same_series(const struct mics_plan *a, const struct mics_plan *b)
{
    return strcmp(a->model->config.name, b->model->config.name) == 0 &&
           strcmp(a->topology->name, b->topology->name) == 0 &&
           strcmp(a->choice.strategy, b->choice.strategy) == 0;
}

static int compare_nodes(const void *a, const void *b)
{
    const struct point *x = a, *y = b;

    if (x->series != y->series)
        return x->series < y->series ? -1 : 1;
    return (x->plan->choice.shape.nodes > y->plan->choice.shape.nodes) -
           (x->plan->choice.shape.nodes < y->plan->choice.shape.nodes);
}

/* Blocks $series0, $series1, ...: nodes, tokens/s, tokens/s of a rank, and tokens/s if each node
 * did what one of the smallest plan does. */
static void put_series(FILE *out, const struct point *points, size_t count, double scale)
{
    double ideal = 0;

    for (size_t i = 0; i < count; i++) {
        const struct mics_plan *plan = points[i].plan;
        const double rate = plan->predicted.tokens_per_s / scale;

        if (i == 0 || points[i].series != points[i - 1].series) {
            fprintf(out, "%s$series%zu << END\n", i ? "END\n" : "", points[i].series);
            ideal = rate / plan->choice.shape.nodes;
        }
        fprintf(out, "%u %.6g %.6g %.6g\n", plan->choice.shape.nodes, rate,
                rate / mics_shape_world_size(&plan->choice.shape),
                ideal * plan->choice.shape.nodes);
    }
    fputs("END\n", out);
}

static double rate_of(const struct mics_plan *plan, bool of_rank)
{
    return plan->predicted.tokens_per_s /
           (of_rank ? mics_shape_world_size(&plan->choice.shape) : 1);
}

/* "llama3-8b on p4d.24xlarge" in the title if all plans are of these. Returns whether they are. */
static bool put_common_title(FILE *out, const struct point *points, size_t count, const char *what)
{
    bool common = true;

    for (size_t i = 1; i < count; i++)
        common =
            common &&
            strcmp(points[i].plan->model->config.name, points[0].plan->model->config.name) == 0 &&
            strcmp(points[i].plan->topology->name, points[0].plan->topology->name) == 0;
    fputs("set title ", out);
    if (common)
        mics_gnuplot_textf(out, "%s: %.40s on %.40s", what, points[0].plan->model->config.name,
                           points[0].plan->topology->name);
    else
        mics_gnuplot_text(out, what);
    fputc('\n', out);
    return common;
}

static void put_series_title(FILE *out, const struct mics_plan *plan, bool common)
{
    if (common)
        mics_gnuplot_text(out, plan->choice.strategy);
    else
        mics_gnuplot_textf(out, "%.24s, %.24s, %s", plan->model->config.name, plan->topology->name,
                           plan->choice.strategy);
}

static void plot_by_nodes(FILE *out, const struct point *points, size_t count, bool of_rank)
{
    size_t drawn = 0;
    double largest = 0;
    const char *prefix;

    for (size_t i = 0; i < count; i++)
        if (rate_of(points[i].plan, of_rank) > largest)
            largest = rate_of(points[i].plan, of_rank);
    const double scale = mics_gnuplot_scale(largest, &prefix);
    put_series(out, points, count, scale);
    const bool common =
        put_common_title(out, points, count, of_rank ? "Predicted, per rank" : "Predicted");
    mics_gnuplot_ylabel(out, "%stokens/s%s", prefix, of_rank ? " per rank" : "");
    fputs("set xlabel 'nodes'\nset logscale x 2\nset offsets graph 0.05, graph 0.05, 0, 0\n", out);
    if (of_rank)
        fprintf(out, "set yrange [0:%.6g]\n", 1.15 * largest / scale);
    else
        fputs("set logscale y 10\n", out);
    fputs("plot ", out);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && points[i].series == points[i - 1].series)
            continue;
        fprintf(out, "%s$series%zu using 1:%d with linespoints lt %zu title ", drawn ? ", " : "",
                points[i].series, of_rank ? 3 : 2, drawn % 8 + 1);
        put_series_title(out, points[i].plan, common);
        drawn++;
        if (!of_rank)
            fprintf(out, ", $series%zu using 1:4 with lines lt %zu dt 3 lw 1 %s", points[i].series,
                    (drawn - 1) % 8 + 1, drawn == 1 ? "title 'linear'" : "notitle");
    }
    fputc('\n', out);
}

enum mics_status mics_plans_plot(struct mics_gnuplot *gnuplot, json_t *const *docs, size_t count,
                                 size_t *wrong, struct mics_err *err)
{
    struct mics_plan **plans = calloc(count + 1, sizeof(struct mics_plan *));
    struct point *points = calloc(count + 1, sizeof *points);
    enum mics_status status = plans && points ? MICS_OK : mics_err_nomem(err);

    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        size_t first = 0;

        *wrong = i;
        status = mics_plan_from_doc(docs[i], &plans[i], err);
        if (status != MICS_OK)
            break;
        while (first < i && !same_series(plans[first], plans[i]))
            first++;
        points[i] = (struct point){plans[i], first};
    }
    if (status == MICS_OK) {
        qsort(points, count, sizeof *points, compare_nodes);
        for (int of_rank = 0; of_rank < 2; of_rank++) {
            FILE *out = mics_gnuplot_begin(gnuplot, of_rank ? "rank_throughput" : "throughput", 0);

            if (out)
                plot_by_nodes(out, points, count, of_rank);
        }
    }
    for (size_t i = 0; plans && i < count; i++)
        mics_plan_free(plans[i]);
    free(plans);
    free(points);
    return status;
}
