/* SPDX-License-Identifier: Apache-2.0 */
/* plot.c - memory and throughput of the alternatives of a plan, and throughput of several plans. */
#include "plan/plot.h"

#include "plan/memory.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static const double gib = 1 << 30;

/* One number of shards of parameters, gradients and optimizer state. */
struct bar {
    const struct mics_alternative *alternative;
    struct mics_memory memory;
};

/* What is drawn in one colour, from the bottom up. */
enum part { PARAMS, GRADS, OPTIM, SLOTS, ACTIVATIONS, LIBRARIES, SNAPSHOT, PART_COUNT };

static const char *const part_names[PART_COUNT] = {
    [PARAMS] = "parameter shards",
    [GRADS] = "gradient shards",
    [OPTIM] = "optimizer state",
    [SLOTS] = "gathered units",
    [ACTIVATIONS] = "activations, batch",
    [LIBRARIES] = "context, libraries",
    [SNAPSHOT] = "snapshot",
};

static uint64_t part_bytes(const struct mics_memory *memory, bool in_host, enum part part)
{
    const struct mics_region *regions = memory->regions;

    switch (part) {
    case PARAMS:
        return regions[MICS_REGION_PARAM].bytes;
    case GRADS:
        return regions[MICS_REGION_GRAD].bytes;
    case OPTIM:
        return regions[MICS_REGION_OPTIM].bytes;
    case SLOTS:
        return regions[MICS_REGION_PARAM_SLOT].bytes + regions[MICS_REGION_GRAD_SLOT].bytes;
    case ACTIVATIONS:
        return regions[MICS_REGION_SAVED].bytes + regions[MICS_REGION_SCRATCH].bytes +
               regions[MICS_REGION_BATCH].bytes;
    case LIBRARIES:
        return memory->workspace_bytes + memory->context_bytes + memory->communicator_bytes;
    case SNAPSHOT:
        return in_host ? memory->snapshot_bytes : 0;
    case PART_COUNT:
        break;
    }
    return 0;
}

static bool is_chosen(const struct mics_alternative *alternative)
{
    return alternative->why[0] == '\0';
}

static int compare_bars(const void *a, const void *b)
{
    const struct mics_shape *x = &((const struct bar *)a)->alternative->choice.shape;
    const struct mics_shape *y = &((const struct bar *)b)->alternative->choice.shape;

    if (x->p_param != y->p_param)
        return x->p_param < y->p_param ? -1 : 1;
    if (x->p_grad != y->p_grad)
        return x->p_grad < y->p_grad ? -1 : 1;
    return (x->p_optim > y->p_optim) - (x->p_optim < y->p_optim);
}

static bool same_shards(const struct mics_shape *a, const struct mics_shape *b)
{
    return a->p_param == b->p_param && a->p_grad == b->p_grad && a->p_optim == b->p_optim;
}

/* Is `a` to be drawn rather than `b` of the same shards: chosen, else faster, else smaller? */
static bool is_better(const struct mics_alternative *a, const struct mics_alternative *b)
{
    if (is_chosen(a) != is_chosen(b))
        return is_chosen(a);
    if (a->predicted.tokens_per_s != b->predicted.tokens_per_s)
        return a->predicted.tokens_per_s > b->predicted.tokens_per_s;
    return a->total_bytes < b->total_bytes;
}

/* The best alternative of each number of shards, by increasing numbers. *out is the caller's. */
static enum mics_status make_bars(const struct mics_plan *plan, struct bar **out, size_t *count,
                                  struct mics_err *err)
{
    struct bar *bars = calloc(plan->alternative_count + 1, sizeof *bars);
    enum mics_status status = MICS_OK;
    size_t n = 0;

    if (!bars)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < plan->alternative_count; i++) {
        const struct mics_alternative *alternative = &plan->alternatives[i];
        size_t k = 0;

        while (k < n &&
               !same_shards(&bars[k].alternative->choice.shape, &alternative->choice.shape))
            k++;
        if (k == n || is_better(alternative, bars[k].alternative))
            bars[k].alternative = alternative;
        n += k == n;
    }
    qsort(bars, n, sizeof *bars, compare_bars);
    for (size_t i = 0; i < n && status == MICS_OK; i++)
        status = mics_memory_compute_on(plan->topology, plan->model, &bars[i].alternative->choice,
                                        &bars[i].memory, err);
    if (status != MICS_OK) {
        free(bars);
        return status;
    }
    *out = bars;
    *count = n;
    return MICS_OK;
}

/* "8", or "8/64/64" where the numbers of shards differ. */
static void shards_text(const struct mics_shape *shape, char *text, size_t size)
{
    if (shape->p_grad == shape->p_param && shape->p_optim == shape->p_param)
        snprintf(text, size, "%u", shape->p_param);
    else
        snprintf(text, size, "%u/%u/%u", shape->p_param, shape->p_grad, shape->p_optim);
}

static void put_subject(FILE *out, const char *what, const struct mics_plan *plan)
{
    char recipe[64];

    snprintf(recipe, sizeof recipe, "%u node%s x %u", plan->choice.shape.nodes,
             plan->choice.shape.nodes == 1 ? "" : "s", plan->choice.shape.per_node);
    fputs("set title ", out);
    mics_gnuplot_textf(out, "%s: %.40s on %.40s, %s", what, plan->model->config.name,
                       plan->topology->name, recipe);
    fputc('\n', out);
}

static void put_memory_data(FILE *out, const struct mics_plan *plan, const struct bar *bars,
                            size_t count, uint64_t totals[PART_COUNT])
{
    const bool in_host = strcmp(plan->topology->device, "host") == 0;

    fputs("$memory << END\n", out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%zu", i);
        for (int part = 0; part < PART_COUNT; part++) {
            const uint64_t bytes = part_bytes(&bars[i].memory, in_host, (enum part)part);

            totals[part] += bytes;
            fprintf(out, " %.6g", (double)bytes / gib);
        }
        fprintf(out, " %.6g\n", (double)mics_memory_total(&bars[i].memory, plan->topology) / gib);
    }
    fputs("END\n", out);
}

/* The range of the axis, which leaves room for an arrow down to the bar of the chosen plan. */
static void mark_chosen(FILE *out, const struct mics_plan *plan, const struct bar *bars,
                        size_t count)
{
    double top = (double)plan->memory_limit / gib;

    for (size_t i = 0; i < count; i++) {
        const double total = (double)mics_memory_total(&bars[i].memory, plan->topology) / gib;

        top = total > top ? total : top;
    }
    fprintf(out, "set yrange [0:%.6g]\n", 1.2 * top);
    for (size_t i = 0; i < count; i++) {
        if (!is_chosen(bars[i].alternative))
            continue;
        fprintf(out,
                "set label 'chosen' at %zu, graph 0.97 center front\n"
                "set arrow from %zu, graph 0.94 to %zu, %.6g head filled lw 1.5 front\n",
                i, i, i, 1.01 * (double)mics_memory_total(&bars[i].memory, plan->topology) / gib);
    }
}

/* Stacked regions; on a terminal of characters, where stacks cannot be told apart, the total. */
static void plot_memory(FILE *out, const struct mics_plan *plan, const struct bar *bars,
                        size_t count)
{
    const double limit = (double)plan->memory_limit / gib;
    uint64_t totals[PART_COUNT] = {0};
    char text[48];

    put_memory_data(out, plan, bars, count, totals);
    put_subject(out, "Memory of a rank", plan);
    fputs("set xlabel 'shards of the state (parameters/gradients/optimizer where they differ)'\n"
          "set ylabel 'GiB'\n"
          "set key invert\n"
          "set style fill solid 1.0 border lc rgb 'white'\nset boxwidth 0.72\n"
          "set grid noxtics\n",
          out);
    fprintf(out, "set xrange [-0.6:%.1f]\nset xtics scale 0 %s(", (double)count - 0.4,
            count > 6 ? "rotate by -35 " : "");
    for (size_t i = 0; i < count; i++) {
        shards_text(&bars[i].alternative->choice.shape, text, sizeof text);
        fputs(i ? ", " : "", out);
        mics_gnuplot_tic(out, text);
        fprintf(out, " %zu", i);
    }
    fputs(")\n", out);
    mark_chosen(out, plan, bars, count);
    fprintf(out, "limit = %.6g\n", limit);
    fputs("if (GPVAL_TERM eq 'dumb') {\n"
          "plot $memory using 1:9 with impulses lt 1 title 'total', limit with lines lt 2 "
          "title 'limit'\n} else {\nplot ",
          out);
    for (int part = PART_COUNT - 1; part >= 0; part--) {
        if (totals[part] == 0)
            continue;
        fputs("$memory using 1:(", out);
        for (int below = 0; below <= part; below++)
            fprintf(out, "%s$%d", below ? "+" : "", below + 2);
        fprintf(out, ") with boxes lt %d title '%s', ", part + 1, part_names[part]);
    }
    fputs("limit with lines lc rgb 'black' lw 2 dt 2 title 'limit'\n}\n", out);
}

/* The points of a curve; x: shards of parameters. */
enum curve { NESTED, OPTIMIZER_OVER_ALL, OTHER, CURVE_COUNT };

static enum curve curve_of(const struct mics_shape *shape)
{
    if (shape->p_param == shape->p_grad && shape->p_grad == shape->p_optim)
        return NESTED;
    if (shape->p_param == shape->p_grad && shape->p_optim == mics_shape_world_size(shape))
        return OPTIMIZER_OVER_ALL;
    return OTHER;
}

static bool is_simulated(const struct mics_alternative *alternative)
{
    return alternative->predicted.tokens_per_s > 0;
}

/* Tokens/s; of an alternative that was not simulated at most these, by its lower bound of a step,
 * or 0. */
static double tokens_per_s(const struct mics_alternative *alternative)
{
    const struct mics_plan_choice *choice = &alternative->choice;

    if (is_simulated(alternative) || alternative->predicted.step_s <= 0)
        return alternative->predicted.tokens_per_s;
    return (double)mics_shape_world_size(&choice->shape) * choice->micro_batch *
           choice->micro_steps * choice->seq / alternative->predicted.step_s;
}

/* Write the block `name` of the alternatives that `wanted` accepts; returns their number. */
static size_t put_throughput(FILE *out, const char *name, const struct bar *bars, size_t count,
                             bool (*wanted)(const struct mics_alternative *, enum curve),
                             enum curve curve, double scale)
{
    size_t points = 0;

    fprintf(out, "$%s << END\n", name);
    for (size_t i = 0; i < count; i++) {
        const struct mics_alternative *alternative = bars[i].alternative;

        if (!wanted(alternative, curve))
            continue;
        fprintf(out, "%u %.6g\n", alternative->choice.shape.p_param,
                alternative->fits ? tokens_per_s(alternative) / scale : 0);
        points++;
    }
    fputs("END\n", out);
    return points;
}

static bool on_curve(const struct mics_alternative *alternative, enum curve curve)
{
    return is_simulated(alternative) && alternative->fits &&
           curve_of(&alternative->choice.shape) == curve;
}

static bool too_large(const struct mics_alternative *alternative, enum curve curve)
{
    (void)curve;
    return !alternative->fits;
}

static bool not_simulated(const struct mics_alternative *alternative, enum curve curve)
{
    (void)curve;
    return alternative->fits && !is_simulated(alternative);
}

static bool chosen(const struct mics_alternative *alternative, enum curve curve)
{
    (void)curve;
    return is_simulated(alternative) && is_chosen(alternative);
}

/* A tic at each number of shards. */
static void put_shard_tics(FILE *out, const struct bar *bars, size_t count)
{
    uint32_t last = 0;

    fputs("set xtics (", out);
    for (size_t i = 0; i < count; i++) {
        const uint32_t p = bars[i].alternative->choice.shape.p_param;

        if (p != last)
            fprintf(out, "%s'%u' %u", last ? ", " : "", p, p);
        last = p;
    }
    fputs(")\n", out);
}

static void plot_throughput(FILE *out, const struct mics_plan *plan, const struct bar *bars,
                            size_t count)
{
    const struct {
        const char *name, *form, *title;
        bool (*wanted)(const struct mics_alternative *, enum curve);
        enum curve curve;
    } series[] = {
        {"nested", "linespoints lt 1", "all state in groups of p", on_curve, NESTED},
        {"optimizer", "linespoints lt 2", "optimizer state over all ranks", on_curve,
         OPTIMIZER_OVER_ALL},
        {"other", "points lt 3 ps 1.3", "other", on_curve, OTHER},
        {"chosen", "points lc rgb 'black' pt 6 ps 2.6 lw 2", "chosen", chosen, NESTED},
        {"large", "points lc rgb '#b00000' pt 2 ps 1.2 lw 2", "does not fit", too_large, NESTED},
        {"slow", "points lc rgb '#888888' pt 10 ps 1.2 lw 2", "at most, not simulated",
         not_simulated, NESTED},
    };
    size_t points[sizeof series / sizeof *series];
    double largest = 0;
    const char *prefix;

    for (size_t i = 0; i < count; i++)
        if (bars[i].alternative->fits && tokens_per_s(bars[i].alternative) > largest)
            largest = tokens_per_s(bars[i].alternative);
    const double scale = mics_gnuplot_scale(largest, &prefix);
    for (size_t i = 0; i < sizeof series / sizeof *series; i++)
        points[i] = put_throughput(out, series[i].name, bars, count, series[i].wanted,
                                   series[i].curve, scale);
    put_subject(out, "Predicted throughput", plan);
    fprintf(out,
            "set xlabel 'shards of the parameters, p'\nset ylabel '%stokens/s'\n"
            "set logscale x 2\nset yrange [0:%.6g]\nset offsets graph 0.05, graph 0.05, 0, 0\n",
            prefix, 1.15 * largest / scale);
    put_shard_tics(out, bars, count);
    fputs("plot ", out);
    for (size_t i = 0, drawn = 0; i < sizeof series / sizeof *series; i++)
        if (points[i] > 0)
            fprintf(out, "%s$%s using 1:2 with %s title '%s'", drawn++ ? ", " : "", series[i].name,
                    series[i].form, series[i].title);
    fputc('\n', out);
}

enum mics_status mics_plan_plot(struct mics_gnuplot *gnuplot, const json_t *doc,
                                struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    struct bar *bars = NULL;
    size_t count = 0;
    enum mics_status status = mics_plan_from_doc((json_t *)(uintptr_t)doc, &plan, err);
    FILE *out;

    if (status == MICS_OK)
        status = make_bars(plan, &bars, &count, err);
    if (status == MICS_OK && count > 0) {
        out = mics_gnuplot_begin(gnuplot, "memory", 16 + 9 * (unsigned)count);
        if (out)
            plot_memory(out, plan, bars, count);
        out = mics_gnuplot_begin(gnuplot, "throughput", 0);
        if (out)
            plot_throughput(out, plan, bars, count);
    }
    free(bars);
    mics_plan_free(plan);
    return status;
}

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
    fprintf(out,
            "set xlabel 'nodes'\nset ylabel '%stokens/s%s'\nset logscale x 2\n"
            "set offsets graph 0.05, graph 0.05, 0, 0\n",
            prefix, of_rank ? " per rank" : "");
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
