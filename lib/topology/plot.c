/* SPDX-License-Identifier: Apache-2.0 */
/* plot.c - bandwidth curves: bytes over seconds, measured and by latency + bytes / bandwidth. */
#include "topology/plot.h"

#include "topology/topology.h"

static const char by_size[] =
    "set xlabel 'bytes'\nset format x '%.0b %BB'\nset logscale x 2\nset xtics rotate by -35\n"
    "set ylabel 'bandwidth, bytes/s'\nset format y '%.0s %cB/s'\nset logscale y 10\n"
    "set key bottom right\nset samples 200\n";

static void put_title(FILE *out, const char *what, const struct mics_topology *topology)
{
    fputs("set title ", out);
    mics_gnuplot_textf(out, "%s: %.40s, %u node%s x %u", what, topology->name, topology->nodes,
                       topology->nodes == 1 ? "" : "s", topology->per_node);
    fputc('\n', out);
}

/* "x / (alpha + x / beta)" */
static void put_line(FILE *out, const struct mics_link *link)
{
    fprintf(out, "x/(%.6g+x/%.6g)", link->latency_s, link->bandwidth_bytes);
}

static void plot_links(FILE *out, const struct mics_topology *topology)
{
    const struct {
        const struct mics_link *link;
        const char *words;
    } links[] = {{&topology->node_link, "inside a node, one rank"},
                 {&topology->net_link, "between nodes, whole node"}};
    int drawn = 0;

    put_title(out, "Links", topology);
    fprintf(out, "%sset xrange [1024:1073741824]\nplot ", by_size);
    for (int i = 0; i < 2; i++) {
        const struct mics_link *link = links[i].link;

        if (link->bandwidth_bytes <= 0)
            continue;
        fputs(drawn++ ? ", " : "", out);
        put_line(out, link);
        fprintf(out, " with lines lt %d title '%s, %s'", i + 1, links[i].words,
                link->samples ? "fit" : "declared");
    }
    fputc('\n', out);
}

/* The block $NAME of [bytes, seconds, ...] with `columns` numbers; returns the number of rows. */
static size_t put_points(FILE *out, const char *name, const json_t *points, size_t columns)
{
    const json_t *point;
    size_t i, rows = 0;

    fprintf(out, "$%s << END\n", name);
    json_array_foreach(points, i, point)
    {
        bool valid = json_array_size(point) >= columns;

        for (size_t k = 0; k < columns && valid; k++)
            valid = json_number_value(json_array_get(point, k)) > 0;
        if (!valid)
            continue;
        for (size_t k = 0; k < columns; k++)
            fprintf(out, "%s%.9g", k ? " " : "", json_number_value(json_array_get(point, k)));
        fputc('\n', out);
        rows++;
    }
    fputs("END\n", out);
    return rows;
}

/* One collective on groups of all shapes. The costs of the topology are those of the document's
 * array, in its order. */
static void plot_collective(FILE *out, const struct mics_topology *topology,
                            enum mics_collective collective)
{
    const json_t *entries = json_object_get(topology->doc, "collectives");
    char name[32];
    size_t rows[64] = {0};
    unsigned drawn = 0;

    for (uint32_t i = 0; i < topology->cost_count && i < 64; i++) {
        if (topology->costs[i].collective != collective)
            continue;
        snprintf(name, sizeof name, "points%u", i);
        rows[i] = put_points(out, name, json_object_get(json_array_get(entries, i), "points"), 2);
    }
    snprintf(name, sizeof name, "%s", mics_collective_name(collective));
    put_title(out, name, topology);
    fprintf(out, "%sset xrange [1024:*]\n", by_size);
    fputs("plot sample ", out);
    for (uint32_t i = 0; i < topology->cost_count && i < 64; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];
        const unsigned type = drawn % 8 + 1;

        if (cost->collective != collective)
            continue;
        fputs(drawn++ ? ", " : "", out);
        if (rows[i] > 0)
            fprintf(out, "$points%u using 1:($1/$2) with points lt %u title '%u x %u', ", i, type,
                    cost->nodes, cost->per_node);
        fputs(rows[i] > 0 ? "" : "[1024:67108864] ", out);
        put_line(out, &cost->cost);
        if (rows[i] > 0)
            fprintf(out, " with lines lt %u lw 1 dt 2 %s", type,
                    drawn == 1 ? "title 'fit: latency + bytes / bandwidth'" : "notitle");
        else
            fprintf(out, " with lines lt %u dt 2 title '%u x %u, fit'", type, cost->nodes,
                    cost->per_node);
    }
    fputc('\n', out);
}

/* The same collective by the flat and the hierarchical algorithm. */
static void plot_exchange(FILE *out, const struct mics_topology *topology,
                          const struct mics_algorithm_timing *timing)
{
    char title[64];

    fputs("$exchange << END\n", out);
    for (uint32_t i = 0; i < timing->count; i++)
        fprintf(out, "%.9g %.9g %.9g\n", timing->points[i].bytes, timing->points[i].flat_s,
                timing->points[i].hierarchical_s);
    fputs("END\n", out);
    snprintf(title, sizeof title, "%s on %u x %u", mics_collective_name(timing->collective),
             timing->nodes, timing->per_node);
    put_title(out, title, topology);
    fprintf(out,
            "%splot $exchange using 1:($1/$2) with linespoints lt 1 title 'flat', "
            "$exchange using 1:($1/$3) with linespoints lt 2 title 'hierarchical, %u segment%s'\n",
            by_size, timing->segments, timing->segments == 1 ? "" : "s");
}

static bool has_collective(const struct mics_topology *topology, enum mics_collective collective)
{
    for (uint32_t i = 0; i < topology->cost_count; i++)
        if (topology->costs[i].collective == collective)
            return true;
    return false;
}

static void plot_all(struct mics_gnuplot *gnuplot, const struct mics_topology *topology)
{
    FILE *out = mics_gnuplot_begin(gnuplot, "links", 0);

    if (out)
        plot_links(out, topology);
    for (int i = 0; i < MICS_COLLECTIVE_COUNT; i++) {
        if (!has_collective(topology, (enum mics_collective)i))
            continue;
        out = mics_gnuplot_begin(gnuplot, mics_collective_name((enum mics_collective)i), 0);
        if (out)
            plot_collective(out, topology, (enum mics_collective)i);
    }
    for (uint32_t i = 0; i < topology->algorithm_timing_count; i++) {
        const struct mics_algorithm_timing *timing = &topology->algorithm_timings[i];
        char name[48];

        snprintf(name, sizeof name, "exchange_%s_%ux%u_%u",
                 mics_collective_name(timing->collective), timing->nodes, timing->per_node,
                 timing->segments);
        out = mics_gnuplot_begin(gnuplot, name, 0);
        if (out)
            plot_exchange(out, topology, timing);
    }
}

enum mics_status mics_topology_plot(struct mics_gnuplot *gnuplot, const json_t *doc,
                                    struct mics_err *err)
{
    struct mics_topology *topology = NULL;
    enum mics_status status = mics_topology_from_doc((json_t *)(uintptr_t)doc, &topology, err);

    if (status == MICS_OK && topology->nodes * topology->per_node == 1)
        status = mics_err_set(err, MICS_ERR_INFEASIBLE, "one rank has no links to draw");
    if (status == MICS_OK)
        plot_all(gnuplot, topology);
    mics_topology_free(topology);
    return status;
}
