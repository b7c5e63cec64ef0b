/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology_dot.c - each node is a cluster of ranks around its link, and of its network cards, which
 * an edge connects with the network.
 */
#include "topology/topology_dot.h"

#include "base/units.h"
#include "doc/dot.h"

#include <stdlib.h>
#include <string.h>

/* Ranks of a node that are drawn one by one, and slow nodes that are. */
enum { MAX_RANKS = 16, MAX_SLOW = 6 };

/* A class of links: what one of them reaches, and of what. */
struct link_class {
    const struct mics_link *link;
    double expected;  /* bytes/s; 0: unknown */
    const char *what; /* the expectation is of */
};

struct scene {
    const struct mics_topology *topology;
    struct link_class node, net;
};

/* Colours by share, best first; the last one is for links that were not measured. */
static const struct grade {
    double from;
    const char *colour, *words;
} grades[] = {
    {.9, "#1a8f4a", "90 % or more"},
    {.75, "#9ab800", "75 to 90 %"},
    {.5, "#f08c00", "50 to 75 %"},
    {0, "#d02020", "below 50 %"},
};
static const char unknown_colour[] = "#888888";

static const char *colour_of(double share)
{
    size_t i = 0;

    if (share < 0)
        return unknown_colour;
    while (share < grades[i].from)
        i++;
    return grades[i].colour;
}

/* The rate of NVLinks that the probe read from the driver, of the GPU with the fewest. */
static double nvlink_rate(const json_t *doc)
{
    const json_t *gpus = json_object_get(json_object_get(doc, "machine"), "gpus"), *gpu;
    double least = 0;
    size_t i;

    json_array_foreach(gpus, i, gpu)
    {
        const double rate = json_number_value(json_object_get(gpu, "nvlink_bytes_per_s"));

        if (i == 0 || rate < least)
            least = rate;
    }
    return least;
}

static double cards_rate(const json_t *doc)
{
    const json_t *net = json_object_get(json_object_get(doc, "links"), "net");

    return json_number_value(json_object_get(net, "cards")) *
           json_number_value(json_object_get(net, "card_bytes_per_s"));
}

static struct scene make_scene(const struct mics_topology *topology,
                               const struct mics_instance *expected)
{
    struct scene scene = {.topology = topology,
                          .node = {.link = &topology->node_link},
                          .net = {.link = &topology->net_link}};

    if (expected) {
        scene.node.expected = expected->link_rate * expected->link_factor;
        scene.net.expected = expected->card_rate * expected->cards * expected->net_factor;
        scene.node.what = scene.net.what = expected->name;
    } else {
        scene.node.expected = nvlink_rate(topology->doc);
        scene.node.what = "NVLink at NCCL's rate";
        scene.net.expected = cards_rate(topology->doc);
        scene.net.what = "the network cards' rate";
    }
    return scene;
}

/* Share of the expectation of a link that is `times_slower` than the median of its class; of a
 * class without expectation it is the share of the median. -1: not measured. */
static double share_of(const struct link_class *class, double times_slower)
{
    const double typical = class->expected > 0 ? class->link->bandwidth_bytes / class->expected : 1;

    return class->link->samples == 0 ? -1 : typical / times_slower;
}

/* Is `name` one of the words of `hosts`, which has one host or two? */
static bool names_host(const char *hosts, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = hosts; at && (at = strstr(at, name)) != NULL; at += length)
        if ((at == hosts || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' '))
            return true;
    return false;
}

static const char *host_of(const struct mics_topology *topology, uint32_t node)
{
    return json_string_value(json_array_get(json_object_get(topology->doc, "hosts"), node));
}

/* How many times slower than the median a document says that something of the node is: its links of
 * a class ("net_link"), or with `rank` that rank in any respect; 1: not slow. */
static double slowness(const struct mics_topology *topology, uint32_t node, const char *what,
                       const uint32_t *rank)
{
    const json_t *outliers = json_object_get(topology->doc, "outliers"), *outlier;
    const char *host = host_of(topology, node);
    double worst = 1;
    char where[32];
    size_t i;

    snprintf(where, sizeof where, "rank %u", rank ? *rank : 0);
    json_array_foreach(outliers, i, outlier)
    {
        const char *kind = json_string_value(json_object_get(outlier, "what"));
        const char *place = json_string_value(json_object_get(outlier, "where"));
        const char *hosts = json_string_value(json_object_get(outlier, "host"));
        const double times = json_number_value(json_object_get(outlier, "times_slower"));
        const bool here = rank ? place && strcmp(place, where) == 0
                               : kind && strcmp(kind, what) == 0 && host && names_host(hosts, host);

        if (here && times > worst)
            worst = times;
    }
    return worst;
}

static bool is_bad(const struct mics_topology *topology, uint32_t node)
{
    const json_t *bad = json_object_get(topology->doc, "bad_nodes"), *index;
    size_t i;

    json_array_foreach(bad, i,
                       index) if (json_integer_value(index) == (json_int_t)node) return true;
    return false;
}

/* Differs a node from the others in anything that is drawn? */
static bool is_slow(const struct mics_topology *topology, uint32_t node)
{
    if (is_bad(topology, node) || slowness(topology, node, "node_link", NULL) > 1 ||
        slowness(topology, node, "net_link", NULL) > 1)
        return true;
    for (uint32_t i = 0; i < topology->per_node; i++) {
        const uint32_t rank = node * topology->per_node + i;

        if (slowness(topology, node, "", &rank) > 1)
            return true;
    }
    return false;
}

/* color=... label="240 GB/s, 96 %": the label unless `quiet`. */
static void put_link(FILE *out, const struct link_class *class, double times_slower, bool quiet)
{
    const double share = share_of(class, times_slower);
    char rate[32];

    fprintf(out, " [color=\"%s\"", colour_of(share));
    if (times_slower > 1)
        fputs(", penwidth=4", out);
    if (!quiet) {
        mics_format_rate(class->link->bandwidth_bytes / times_slower, rate, sizeof rate);
        fputs(", label=", out);
        if (share >= 0 && (class->expected > 0 || times_slower > 1))
            mics_dot_textf(out, " %s, %.0f %% ", rate, 100 * share);
        else
            mics_dot_textf(out, " %s ", rate);
    }
    fputs("]\n", out);
}

static void put_rank(FILE *out, const struct scene *scene, uint32_t node, uint32_t local)
{
    const uint32_t rank = node * scene->topology->per_node + local;
    const double times = slowness(scene->topology, node, "", &rank);

    fprintf(out, "    r%u [label=", rank);
    if (times > 1) {
        mics_dot_textf(out, "rank %u\n%.1f x slower", rank, times);
        fputs(", fillcolor=\"#ffd6d6\", color=\"#d02020\", penwidth=2]\n", out);
    } else {
        mics_dot_textf(out, "rank %u", rank);
        fputs("]\n", out);
    }
}

static void put_ranks(FILE *out, const struct scene *scene, uint32_t node)
{
    const uint32_t k = scene->topology->per_node;
    const double times = slowness(scene->topology, node, "node_link", NULL);

    if (k > 1)
        fprintf(out, "    l%u [label=\"link\", shape=ellipse, fillcolor=\"#f2f2f2\"]\n", node);
    if (k > MAX_RANKS) {
        fprintf(out, "    r%u [label=\"%u ranks\"]\n    r%u -- l%u", node * k, k, node * k, node);
        put_link(out, &scene->node, times, false);
        return;
    }
    for (uint32_t i = k; i-- > 0;) /* Graphviz puts the last one left */
        put_rank(out, scene, node, i);
    for (uint32_t i = k; k > 1 && i-- > 0;) {
        fprintf(out, "    r%u -- l%u", node * k + i, node);
        put_link(out, &scene->node, times, i + 1 != k);
    }
}

static void put_cards(FILE *out, const struct scene *scene, uint32_t node)
{
    const json_t *net = json_object_get(json_object_get(scene->topology->doc, "links"), "net");
    const json_int_t cards = json_integer_value(json_object_get(net, "cards"));
    const double rate = json_number_value(json_object_get(net, "card_bytes_per_s"));

    fprintf(out, "    c%u [fillcolor=\"#e8eef7\", label=", node);
    if (cards > 0)
        mics_dot_textf(out, "%lld card%s, %.0f Gbit/s each", (long long)cards,
                       cards == 1 ? "" : "s", rate * 8 / 1e9);
    else
        mics_dot_text(out, "network card");
    fputs("]\n", out);
    fprintf(out, "    %c%u -- c%u [color=\"#bbbbbb\", penwidth=1]\n",
            scene->topology->per_node > 1 ? 'l' : 'r',
            scene->topology->per_node > 1 ? node : node * scene->topology->per_node, node);
}

/* `alike`: how many nodes this one stands for. */
static void put_node(FILE *out, const struct scene *scene, uint32_t node, uint32_t alike)
{
    const struct mics_topology *topology = scene->topology;
    const char *host = host_of(topology, node);
    char name[80];

    snprintf(name, sizeof name, host ? "%.60s" : "node", host ? host : "");
    if (!host && alike == 1)
        snprintf(name, sizeof name, "node %u", node);
    fprintf(out, "  subgraph cluster_n%u {\n    style=\"rounded,filled\"; fontsize=13; ", node);
    if (is_bad(topology, node)) {
        fputs("color=\"#d02020\"; penwidth=3; fillcolor=\"#fff4f4\"; label=", out);
        mics_dot_textf(out, "%s: to leave out", name);
    } else {
        fputs("color=\"#666666\"; fillcolor=\"#fbfbfb\"; label=", out);
        if (alike > 1)
            mics_dot_textf(out, "%s and %u alike (x %u)", name, alike - 1, alike);
        else
            mics_dot_text(out, name);
    }
    fputs("\n", out);
    put_ranks(out, scene, node);
    if (topology->nodes > 1)
        put_cards(out, scene, node);
    fputs("  }\n", out);
    if (topology->nodes > 1) {
        fprintf(out, "  c%u -- network", node);
        put_link(out, &scene->net, slowness(topology, node, "net_link", NULL), false);
    }
}

static void put_expectation(FILE *out, const char *name, const struct link_class *class)
{
    char rate[32];

    if (class->link->bandwidth_bytes <= 0)
        return;
    fprintf(out, "    <TR><TD COLSPAN=\"2\" ALIGN=\"LEFT\">%s: ", name);
    if (class->link->samples == 0)
        fputs("declared, not measured", out);
    else if (class->expected > 0)
        fprintf(out, "of %s, ", mics_format_rate(class->expected, rate, sizeof rate));
    else
        fputs("of the median link", out);
    if (class->link->samples > 0 && class->expected > 0)
        mics_dot_html(out, class->what);
    fputs("</TD></TR>\n", out);
}

static void put_legend(FILE *out, const struct scene *scene)
{
    fputs("  legend [shape=plaintext, style=\"\", label=<<TABLE BORDER=\"1\" COLOR=\"#cccccc\" "
          "CELLBORDER=\"0\" CELLSPACING=\"2\">\n"
          "    <TR><TD COLSPAN=\"2\">links: share of the expectation</TD></TR>\n",
          out);
    for (size_t i = 0; i < sizeof grades / sizeof *grades; i++)
        fprintf(out,
                "    <TR><TD BGCOLOR=\"%s\" WIDTH=\"28\"></TD><TD ALIGN=\"LEFT\">%s</TD></TR>\n",
                grades[i].colour, grades[i].words);
    fprintf(out,
            "    <TR><TD BGCOLOR=\"%s\" WIDTH=\"28\"></TD><TD ALIGN=\"LEFT\">not "
            "measured</TD></TR>\n",
            unknown_colour);
    put_expectation(out, "inside a node", &scene->node);
    put_expectation(out, "between nodes", &scene->net);
    fputs("    </TABLE>>]\n", out);
}

static void put_nodes(FILE *out, const struct scene *scene)
{
    const uint32_t nodes = scene->topology->nodes;
    uint32_t slow = 0, first_alike = nodes, alike = 0;

    if (nodes <= MICS_DOT_NODES) {
        for (uint32_t i = 0; i < nodes; i++)
            put_node(out, scene, i, 1);
        return;
    }
    for (uint32_t i = 0; i < nodes; i++) {
        if (!is_slow(scene->topology, i)) {
            if (alike++ == 0)
                first_alike = i;
        } else if (slow++ < MAX_SLOW) {
            put_node(out, scene, i, 1);
        }
    }
    if (alike > 0)
        put_node(out, scene, first_alike, alike);
    if (slow > MAX_SLOW)
        fprintf(out,
                "  more [label=\"%u more slow nodes\", color=\"#d02020\", "
                "fillcolor=\"#ffd6d6\"]\n  more -- network [color=\"#bbbbbb\"]\n",
                slow - MAX_SLOW);
}

enum mics_status mics_topology_dot(FILE *out, const json_t *doc,
                                   const struct mics_instance *expected, struct mics_err *err)
{
    struct mics_topology *topology = NULL;
    const enum mics_status status =
        mics_topology_from_doc((json_t *)(uintptr_t)doc, &topology, err);
    char title[200];

    if (status != MICS_OK)
        return status;
    const struct scene scene = make_scene(topology, expected);
    snprintf(title, sizeof title, "%s: %u node%s x %u %s", topology->name, topology->nodes,
             topology->nodes == 1 ? "" : "s", topology->per_node, topology->device);
    mics_dot_begin(out, "TB", title);
    if (topology->nodes > 1)
        fputs("  network [label=\"network\", shape=ellipse, width=3, fillcolor=\"#e8eef7\"]\n",
              out);
    put_nodes(out, &scene);
    if (topology->nodes * topology->per_node > 1)
        put_legend(out, &scene);
    fputs("}\n", out);
    mics_topology_free(topology);
    return MICS_OK;
}
