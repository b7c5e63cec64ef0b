/* SPDX-License-Identifier: Apache-2.0 */
/* plot.c - bandwidth curves: bytes over seconds, measured and by latency + bytes / bandwidth. */
#include "topology/plot.h"

#include "topology/topology.h"

static const char by_size[] =
    "set xlabel 'bytes'\nset format x '%.0b %BB'\nset logscale x 2\nset xtics rotate by -35\n"
    "set ylabel 'bandwidth'\nset format y '%.0s %cB/s'\nset logscale y 10\n"
    "set samples 200\n";

static void put_title(FILE *out, const char *what, const struct mics_topology *topology)
{
    fputs("set title ", out);
    mics_gnuplot_textf(out, "%s: %.40s, %u node%s x %u", what, topology->name, topology->nodes,
                       topology->nodes == 1 ? "" : "s", topology->per_node);
    fputc('\n', out);
}

/* x / (alpha + x / beta), for x up to `to`. */
static void put_line(FILE *out, const struct mics_link *link, double to)
{
    fprintf(out, "(x<=%.9g ? x/(%.6g+x/%.6g) : NaN)", to, link->latency_s, link->bandwidth_bytes);
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
        put_line(out, link, 1 << 30);
        fprintf(out, " with lines lt %d title '%s, %s'", i + 1, links[i].words,
                link->samples ? "fit" : "declared");
    }
    fputc('\n', out);
}

/* The block $NAME of [bytes, seconds]; returns the largest bytes, 0 without points. */
static double put_points(FILE *out, const char *name, const json_t *points)
{
    const json_t *point;
    double largest = 0;
    size_t i;

    fprintf(out, "$%s << END\n", name);
    json_array_foreach(points, i, point)
    {
        const double bytes = json_number_value(json_array_get(point, 0));
        const double seconds = json_number_value(json_array_get(point, 1));

        if (bytes <= 0 || seconds <= 0)
            continue;
        fprintf(out, "%.9g %.9g\n", bytes, seconds);
        largest = bytes > largest ? bytes : largest;
    }
    fputs("END\n", out);
    return largest;
}

enum { MAX_CURVES = 64 };

/* One collective on groups of all shapes. The costs of the topology are those of the document's
 * array, in its order. */
static void plot_collective(FILE *out, const struct mics_topology *topology,
                            enum mics_collective collective)
{
    const json_t *entries = json_object_get(topology->doc, "collectives");
    double largest[MAX_CURVES] = {0};
    unsigned drawn = 0;

    for (uint32_t i = 0; i < topology->cost_count && i < MAX_CURVES; i++) {
        char name[32];

        snprintf(name, sizeof name, "points%u", i);
        if (topology->costs[i].collective == collective)
            largest[i] =
                put_points(out, name, json_object_get(json_array_get(entries, i), "points"));
    }
    put_title(out, mics_collective_name(collective), topology);
    fprintf(out, "%sset xrange [1024:*]\nplot ", by_size);
    for (uint32_t i = 0; i < topology->cost_count && i < MAX_CURVES; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];
        const unsigned type = drawn % 8 + 1;

        if (cost->collective != collective)
            continue;
        fputs(drawn++ ? ", " : "", out);
        if (largest[i] > 0)
            fprintf(out, "$points%u using 1:($1/$2) with points lt %u title '%u x %u', ", i, type,
                    cost->nodes, cost->per_node);
        put_line(out, &cost->cost, largest[i] > 0 ? largest[i] : 64 << 20);
        if (largest[i] > 0)
            fprintf(out, " with lines lt %u lw 1 dt 2 %s", type,
                    drawn == 1 ? "title 'fit'" : "notitle");
        else
            fprintf(out, " with lines lt %u dt 2 title '%u x %u, fit'", type, cost->nodes,
                    cost->per_node);
    }
    fputc('\n', out);
}

static bool same_exchange(const struct mics_algorithm_timing *a,
                          const struct mics_algorithm_timing *b)
{
    return a->collective == b->collective && a->nodes == b->nodes && a->per_node == b->per_node;
}

/* The same collective by the flat algorithm and by the hierarchical one in all numbers of
 * segments. */
static void plot_exchange(FILE *out, const struct mics_topology *topology, uint32_t first)
{
    const struct mics_algorithm_timing *timings = topology->algorithm_timings;
    const uint32_t count = topology->algorithm_timing_count;
    unsigned type = 2;
    char title[64];

    for (uint32_t i = first; i < count; i++) {
        if (!same_exchange(&timings[i], &timings[first]))
            continue;
        fprintf(out, "$exchange%u << END\n", i);
        for (uint32_t k = 0; k < timings[i].count; k++)
            fprintf(out, "%.9g %.9g %.9g\n", timings[i].points[k].bytes,
                    timings[i].points[k].flat_s, timings[i].points[k].hierarchical_s);
        fputs("END\n", out);
    }
    snprintf(title, sizeof title, "%s on %u x %u", mics_collective_name(timings[first].collective),
             timings[first].nodes, timings[first].per_node);
    put_title(out, title, topology);
    fprintf(out, "%splot $exchange%u using 1:($1/$2) with linespoints lt 1 title 'flat'", by_size,
            first);
    for (uint32_t i = first; i < count; i++)
        if (same_exchange(&timings[i], &timings[first]))
            fprintf(out,
                    ", $exchange%u using 1:($1/$3) with linespoints lt %u title 'hierarchical, %u "
                    "segment%s'",
                    i, (type++ - 1) % 8 + 1, timings[i].segments,
                    timings[i].segments == 1 ? "" : "s");
    fputc('\n', out);
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
        uint32_t before = 0;
        char name[48];

        while (before < i && !same_exchange(&topology->algorithm_timings[before], timing))
            before++;
        if (before < i)
            continue;
        snprintf(name, sizeof name, "exchange_%s_%ux%u", mics_collective_name(timing->collective),
                 timing->nodes, timing->per_node);
        out = mics_gnuplot_begin(gnuplot, name, 0);
        if (out)
            plot_exchange(out, topology, i);
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
