/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology_print.c - a topology as tables, for people and for scripts.
 *
 * The document is read and checked as by every program. What a topology in memory does not hold
 * (outliers, copies to the host, GPUs) is taken from the document itself.
 */
#include "topology/topology_print.h"
#include "topology/compute.h"
#include "topology/cost.h"
#include "topology/gpu_info.h"

#include "base/units.h"
#include "doc/tree_print.h"

#include <string.h>

static void put_device(struct mics_table *table, const struct mics_topology *topology, int tsv)
{
    char count[32], profile[96];
    struct mics_compute compute;

    mics_table_cell(table, "device");
    mics_table_cell(table, "%s", topology->device);
    if (topology->cores > 0) {
        mics_table_cell(table, tsv ? "cores" : "cores per rank");
        mics_table_cell(table, "%u", topology->cores);
    }
    mics_table_cell(table, tsv ? "flops_per_s" : "compute per rank");
    if (tsv)
        mics_table_cell(table, "%.12g", topology->flops);
    else
        mics_table_cell(table, "%sFLOP/s in %s",
                        mics_format_count(topology->flops, count, sizeof count),
                        topology->flops_dtype);
    if (tsv) {
        mics_table_cell(table, "flops_dtype");
        mics_table_cell(table, "%s", topology->flops_dtype);
    }
    mics_table_cell(table, tsv ? "memory_bytes" : "memory per rank");
    mics_table_bytes(table, tsv, topology->memory_bytes);
    mics_table_cell(table, tsv ? "memory_bandwidth_bytes_per_s" : "memory bandwidth");
    mics_table_rate(table, tsv, topology->memory_bandwidth);
    if (mics_topology_is_host(topology) && topology->kernel_rate_count > 0) {
        mics_table_cell(table, tsv ? "drift" : "drift of products");
        mics_table_cell(table, tsv ? "%.12g" : "%.1f %%", (tsv ? 1 : 100) * topology->drift);
    }
    if (mics_topology_is_host(topology))
        return;
    mics_table_cell(table, "attention");
    mics_table_cell(table, "at FlashAttention-2's rates, not measured");
    mics_compute_init(&compute, topology);
    if (*mics_compute_describe_profile(&compute, profile, sizeof profile)) {
        mics_table_cell(table, "profile");
        mics_table_cell(table, "%s", profile);
    }
}

/* The link of a GPU to its host, of the catalogue, and copies over it if they were measured. */
static void put_host_copies(struct mics_table *table, const struct mics_topology *topology, int tsv)
{
    static const struct {
        const char *key, *words;
    } copies[] = {{"from_host_bytes_per_s", "copies from the host"},
                  {"to_host_bytes_per_s", "copies to the host"}};
    const json_t *device = json_object_get(topology->doc, "device");
    const json_t *link = json_object_get(device, "host_link");

    if (link && tsv) {
        mics_table_cell(table, "host_link");
        mics_table_cell(table, "%s", json_string_value(json_object_get(link, "name")));
    }
    if (link) {
        if (tsv)
            mics_table_cell(table, "host_link_bytes_per_s");
        else
            mics_table_cell(table, "link to the host, %s",
                            json_string_value(json_object_get(link, "name")));
        mics_table_rate(table, tsv, json_number_value(json_object_get(link, "bytes_per_s")));
    }
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        const json_t *rate = json_object_get(device, copies[i].key);

        if (!json_is_number(rate))
            continue;
        mics_table_cell(table, "%s", tsv ? copies[i].key : copies[i].words);
        mics_table_rate(table, tsv, json_number_value(rate));
    }
}

void mics_topology_rows(struct mics_table *table, const struct mics_topology *topology, int tsv)
{
    mics_table_cell(table, tsv ? "name" : "cluster");
    mics_table_cell(table, "%s", topology->name);
    mics_table_cell(table, "source");
    mics_table_cell(table, "%s", topology->source);
    if (tsv) {
        mics_table_cell(table, "nodes");
        mics_table_cell(table, "%u", topology->nodes);
        mics_table_cell(table, "per_node");
        mics_table_cell(table, "%u", topology->per_node);
    } else {
        mics_table_cell(table, "ranks");
        mics_table_cell(table, "%u = %u node%s x %u", topology->nodes * topology->per_node,
                        topology->nodes, topology->nodes == 1 ? "" : "s", topology->per_node);
    }
    put_device(table, topology, tsv);
    put_host_copies(table, topology, tsv);
    const json_t *memory =
        json_object_get(json_object_get(topology->doc, "machine"), "memory_bytes");
    if (json_is_integer(memory)) {
        mics_table_cell(table, tsv ? "host_memory_bytes" : "host memory of a node");
        mics_table_bytes(table, tsv, (uint64_t)json_integer_value(memory));
    }
}

static void put_link(struct mics_table *table, const struct mics_link *link, int tsv)
{
    mics_table_time(table, tsv, link->latency_s);
    mics_table_rate(table, tsv, link->bandwidth_bytes);
    if (link->samples == 0 && !tsv) {
        mics_table_cell(table, "declared");
        mics_table_cell(table, "-");
    } else {
        mics_table_cell(table, "%u", link->samples);
        mics_table_share(table, tsv, link->spread);
    }
}

static enum mics_status print_cluster(FILE *out, const struct mics_topology *topology, int tsv,
                                      struct mics_err *err)
{
    struct mics_table *table = mics_table_new("<|<");

    mics_topology_rows(table, topology, tsv);
    return mics_table_finish(table, out, tsv, err);
}

static enum mics_status print_links(FILE *out, const struct mics_topology *topology, int tsv,
                                    struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new(tsv ? "link|latency_s|bandwidth_bytes_per_s|samples|spread"
                           : "<link|>latency|>bandwidth|>samples|>spread");

    if (topology->node_link.bandwidth_bytes > 0) {
        mics_table_cell(table, tsv ? "node" : "inside a node, one rank");
        put_link(table, &topology->node_link, tsv);
    }
    if (topology->net_link.bandwidth_bytes > 0) {
        mics_table_cell(table, tsv ? "net" : "between nodes, whole node");
        put_link(table, &topology->net_link, tsv);
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

/* The largest size of the points; of those beside computation how many times longer the collective
 * takes, and the part of computation's speed that is lost. */
static void put_measured(struct mics_table *table, const struct mics_collective_cost *cost, int tsv)
{
    if (cost->point_count > 0)
        mics_table_bytes(table, tsv, (uint64_t)cost->points[cost->point_count - 1].bytes);
    else
        mics_table_cell(table, "-");
    if (cost->overlap_count > 0) {
        const struct mics_overlap_point *last = &cost->overlap[cost->overlap_count - 1];

        mics_table_cell(table, tsv ? "%.6g" : "%.2f times", last->overlap_s / last->alone_s);
        mics_table_share(table, tsv, last->slowdown);
    } else {
        mics_table_cell(table, "-");
        mics_table_cell(table, "-");
    }
}

static enum mics_status print_collectives(FILE *out, const struct mics_topology *topology, int tsv,
                                          struct mics_err *err)
{
    struct mics_table *table = mics_table_new(
        tsv ? "collective|nodes|per_node|latency_s|bandwidth_bytes_per_s|samples|spread|"
              "measured_to_bytes|beside_compute_times|compute_lost"
            : "<collective|>nodes|>ranks per node|>latency|>bandwidth|>samples|>spread|"
              ">measured to|>beside compute|>compute lost");

    for (uint32_t i = 0; i < topology->cost_count; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];

        mics_table_cell(table, "%s", mics_collective_name(cost->collective));
        mics_table_cell(table, "%u", cost->nodes);
        mics_table_cell(table, "%u", cost->per_node);
        put_link(table, &cost->cost, tsv);
        put_measured(table, cost, tsv);
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

/* For scripts: what the rows of print_collectives() are fitted to. */
static enum mics_status print_points(FILE *out, const struct mics_topology *topology,
                                     struct mics_err *err)
{
    struct mics_table *table = mics_table_new("measured|nodes|per_node|bytes|seconds");

    for (uint32_t i = 0; i < topology->cost_count; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];

        for (uint32_t k = 0; k < cost->point_count; k++) {
            mics_table_cell(table, "%s", mics_collective_name(cost->collective));
            mics_table_cell(table, "%u", cost->nodes);
            mics_table_cell(table, "%u", cost->per_node);
            mics_table_cell(table, "%.12g", cost->points[k].bytes);
            mics_table_time(table, 1, cost->points[k].seconds);
        }
    }
    fputc('\n', out);
    return mics_table_finish(table, out, 1, err);
}

static enum mics_status print_stragglers(FILE *out, const struct mics_topology *topology, int tsv,
                                         struct mics_err *err)
{
    struct mics_table *table = mics_table_new(
        tsv ? "computing_s|behind_s" : ">ranks that compute for|>the last is behind the mean by");

    for (uint32_t i = 0; i < topology->straggler_count; i++) {
        mics_table_time(table, tsv, topology->stragglers[i].computing_s);
        mics_table_time(table, tsv, topology->stragglers[i].behind_s);
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

/* Operations at the largest of their measured sizes. */
static enum mics_status print_kernel_rates(FILE *out, const struct mics_topology *topology, int tsv,
                                           struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new(tsv ? "operation|form|dtype|points|m|n|k|seconds"
                           : "<operation|<form|<dtype|>points|>m|>n|>k|>time");

    for (uint32_t i = 0; i < topology->kernel_rate_count; i++) {
        const struct mics_kernel_rates *rates = &topology->kernel_rates[i];
        const struct mics_kernel_point *last = &rates->points[rates->count - 1];
        const char *form = mics_kernel_form_name(rates->kernel, rates->form);

        mics_table_cell(table, "%s", mics_kernel_name(rates->kernel));
        mics_table_cell(table, "%s", form[0] ? form : "-");
        mics_table_cell(table, "%s", rates->dtype == MICS_F32 ? "f32" : "bf16");
        mics_table_cell(table, "%u", rates->count);
        mics_table_cell(table, "%.0f", last->m);
        mics_table_cell(table, "%.0f", last->n);
        mics_table_cell(table, "%.0f", last->k);
        mics_table_time(table, tsv, last->seconds);
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

static void put_window(struct mics_table *table, const struct mics_algorithm_timing *timing,
                       int tsv)
{
    const struct mics_hierarchical_window window = mics_algorithm_timing_window(timing);

    if (window.from == 0) {
        mics_table_cell(table, tsv ? "-" : "never");
        mics_table_cell(table, "-");
        return;
    }
    mics_table_bytes(table, tsv, (uint64_t)window.from);
    mics_table_bytes(table, tsv, (uint64_t)window.to);
}

/* Flat and hierarchical: the sizes at which hierarchical is faster, and both times at the largest
 * size. */
static enum mics_status print_algorithm_timings(FILE *out, const struct mics_topology *topology,
                                                int tsv, struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new(tsv ? "exchange|nodes|per_node|segments|hierarchical_from_bytes|"
                             "hierarchical_to_bytes|bytes|"
                             "flat_s|hierarchical_s"
                           : "<exchange|>nodes|>ranks per node|>segments|>hierarchical "
                             "from|>to|>of|>flat|>hierarchical");

    for (uint32_t i = 0; i < topology->algorithm_timing_count; i++) {
        const struct mics_algorithm_timing *timing = &topology->algorithm_timings[i];
        const struct mics_algorithm_point *last = &timing->points[timing->count - 1];

        mics_table_cell(table, "%s", mics_collective_name(timing->collective));
        mics_table_cell(table, "%u", timing->nodes);
        mics_table_cell(table, "%u", timing->per_node);
        mics_table_cell(table, "%u", timing->segments);
        put_window(table, timing, tsv);
        mics_table_bytes(table, tsv, (uint64_t)last->bytes);
        mics_table_time(table, tsv, last->flat_s);
        mics_table_time(table, tsv, last->hierarchical_s);
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

/* For scripts: the times by which print_algorithm_timings() compares. */
static enum mics_status print_algorithm_points(FILE *out, const struct mics_topology *topology,
                                               struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new("compared|nodes|per_node|segments|bytes|flat_s|hierarchical_s");

    for (uint32_t i = 0; i < topology->algorithm_timing_count; i++) {
        const struct mics_algorithm_timing *timing = &topology->algorithm_timings[i];

        for (uint32_t k = 0; k < timing->count; k++) {
            mics_table_cell(table, "%s", mics_collective_name(timing->collective));
            mics_table_cell(table, "%u", timing->nodes);
            mics_table_cell(table, "%u", timing->per_node);
            mics_table_cell(table, "%u", timing->segments);
            mics_table_cell(table, "%.12g", timing->points[k].bytes);
            mics_table_time(table, 1, timing->points[k].flat_s);
            mics_table_time(table, 1, timing->points[k].hierarchical_s);
        }
    }
    fputc('\n', out);
    return mics_table_finish(table, out, 1, err);
}

/* An array of maps in the document, as a table with a column for each of the keys. */
struct map_table {
    const char *array, *tsv_header, *header, *keys[6];
};

static const struct map_table map_tables[] = {
    {"outliers",
     "outlier|where|host|value|median|times_slower",
     "<outlier|<where|<host|>value|>median|>times slower",
     {"what", "where", "host", "value", "median", "times_slower"}},
    {"node_classes",
     "class|nodes|memory_bytes|flops_per_s|memory_bandwidth_bytes_per_s",
     "<class of nodes|<nodes|>bytes per rank|>FLOP/s|>bytes/s",
     {"device", "nodes", "memory_bytes", "flops_per_s", "memory_bandwidth_bytes_per_s"}},
    {"other_parts",
     "part|per_node|nodes",
     "<other part|>ranks per node|>nodes",
     {"name", "per_node", "nodes"}},
};

static enum mics_status print_maps(FILE *out, const json_t *doc, const struct map_table *kind,
                                   int tsv, struct mics_err *err)
{
    const json_t *array = json_object_get(doc, kind->array), *map;
    struct mics_table *table;
    size_t i;

    if (json_array_size(array) == 0)
        return MICS_OK;
    table = mics_table_new(tsv ? kind->tsv_header : kind->header);
    json_array_foreach(array, i, map) for (size_t k = 0; k < 6 && kind->keys[k]; k++)
        mics_tree_print_cell(table, json_object_get(map, kind->keys[k]));
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

enum mics_status mics_topology_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    struct mics_topology *topology = NULL;
    enum mics_status status = mics_topology_from_doc((json_t *)(uintptr_t)doc, &topology, err);

    if (status != MICS_OK)
        goto out;
    status = print_cluster(out, topology, tsv, err);
    if (status != MICS_OK)
        goto out;
    if (topology->nodes * topology->per_node > 1)
        status = print_links(out, topology, tsv, err);
    if (status != MICS_OK)
        goto out;
    status = mics_gpu_info_print(out, json_object_get(doc, "machine"), tsv, err);
    if (status != MICS_OK)
        goto out;
    if (topology->cost_count > 0)
        status = print_collectives(out, topology, tsv, err);
    if (status != MICS_OK)
        goto out;
    if (topology->cost_count > 0 && tsv)
        status = print_points(out, topology, err);
    if (status != MICS_OK)
        goto out;
    if (topology->straggler_count > 0)
        status = print_stragglers(out, topology, tsv, err);
    if (status != MICS_OK)
        goto out;
    if (topology->algorithm_timing_count > 0)
        status = print_algorithm_timings(out, topology, tsv, err);
    if (status != MICS_OK)
        goto out;
    if (topology->algorithm_timing_count > 0 && tsv)
        status = print_algorithm_points(out, topology, err);
    if (status != MICS_OK)
        goto out;
    if (topology->kernel_rate_count > 0)
        status = print_kernel_rates(out, topology, tsv, err);
    if (status != MICS_OK)
        goto out;
    for (size_t i = 0; i < sizeof map_tables / sizeof *map_tables && status == MICS_OK; i++)
        status = print_maps(out, doc, &map_tables[i], tsv, err);
out:
    mics_topology_free(topology);
    return status;
}
