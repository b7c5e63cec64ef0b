/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - the measurements in order, and the document with their results. */
#include "probe/probe.h"

#include "comm/agree.h"
#include "comm/world.h"
#include "measure/calibrate.h"
#include "measure/measure_kernels.h"
#include "measure/statistics.h"
#include "probe/slow_nodes.h"
#include "topology/gpu_info.h"
#include "topology/node_info.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What a probe writes where nodes differ: "other_parts" and "node_classes" of the topology
 * (node_members.h).
 */

/* Nodes with the same number of ranks. */
struct part {
    uint32_t per_node, ranks, nodes;
    uint32_t first_rank; /* the world's */
};

/* Memory counts as equal within this share: the kernel and the driver keep a little more on one
 * node than on another. */
static const double memory_tolerance = 1.0 / 16;

/* figures[size] of the ranks become figures[node_count] of the nodes. */
static enum mics_status reduce_to_nodes(const struct mics_world *world,
                                        struct mics_rank_figures *figures, struct mics_err *err)
{
    const uint32_t k = world->local_size;
    double *scratch = malloc(k * sizeof *scratch);

    if (!scratch)
        return mics_err_nomem(err);
    for (uint32_t node = 0; node < world->node_count; node++) {
        struct mics_rank_figures of_node = figures[node * k];

        for (uint32_t i = 0; i < k; i++) {
            const uint64_t bytes = figures[node * k + i].memory_bytes;

            of_node.memory_bytes = bytes < of_node.memory_bytes ? bytes : of_node.memory_bytes;
            scratch[i] = figures[node * k + i].flops;
        }
        of_node.flops = mics_median(scratch, k);
        for (uint32_t i = 0; i < k; i++)
            scratch[i] = figures[node * k + i].memory_bandwidth;
        of_node.memory_bandwidth = mics_median(scratch, k);
        figures[node] = of_node;
    }
    free(scratch);
    return MICS_OK;
}

static bool is_alike(const struct mics_rank_figures *a, const struct mics_rank_figures *b)
{
    const double more = (double)(a->memory_bytes > b->memory_bytes ? a : b)->memory_bytes;
    const double less = (double)(a->memory_bytes > b->memory_bytes ? b : a)->memory_bytes;

    return strcmp(a->device, b->device) == 0 && more - less <= memory_tolerance * more;
}

/* The class of the nodes that are like `first`, which are marked; NULL: out of memory. */
static json_t *class_of(const struct mics_rank_figures *nodes, uint32_t count, uint32_t first,
                        bool *done, double *scratch)
{
    json_t *indices = json_array();
    uint64_t least = nodes[first].memory_bytes;
    uint32_t members = 0;
    double flops;

    for (uint32_t i = first; i < count; i++) {
        if (done[i] || !is_alike(&nodes[first], &nodes[i]))
            continue;
        done[i] = true;
        least = nodes[i].memory_bytes < least ? nodes[i].memory_bytes : least;
        if (json_array_append_new(indices, json_integer(i)) != 0) {
            json_decref(indices);
            return NULL;
        }
        scratch[members] = nodes[i].flops;
        scratch[count + members++] = nodes[i].memory_bandwidth;
    }
    flops = mics_median(scratch, members);
    return json_pack("{s:o, s:s, s:I, s:f, s:f}", "nodes", indices, "device", nodes[first].device,
                     "memory_bytes", (json_int_t)least, "flops_per_s", flops,
                     "memory_bandwidth_bytes_per_s", mics_median(scratch + count, members));
}

static enum mics_status append_classes(json_t *doc, const struct mics_rank_figures *nodes,
                                       uint32_t count, struct mics_err *err)
{
    json_t *classes = json_array();
    bool *done = calloc(count, sizeof *done);
    double *scratch = calloc(2 * (size_t)count, sizeof *scratch);
    bool failed = !classes || !done || !scratch;

    for (uint32_t i = 0; i < count && !failed; i++)
        if (!done[i])
            failed = json_array_append_new(classes, class_of(nodes, count, i, done, scratch)) != 0;
    if (!failed && json_array_size(classes) > 1)
        failed = json_object_set(doc, "node_classes", classes) != 0;
    json_decref(classes);
    free(done);
    free(scratch);
    return failed ? mics_err_nomem(err) : MICS_OK;
}

enum mics_status mics_node_classes_add(json_t *doc, const struct mics_world *world,
                                       const struct mics_rank_figures *own, struct mics_err *err)
{
    enum mics_status status;
    struct mics_rank_figures *all = mics_all_gather(world->comm, own, sizeof *own, &status, err);

    if (status == MICS_OK)
        status = reduce_to_nodes(world, all, err);
    if (status == MICS_OK)
        status = append_classes(doc, all, world->node_count, err);
    free(all);
    return status;
}

static int by_ranks(const void *left, const void *right)
{
    const struct part *a = left, *b = right;

    if (a->ranks != b->ranks)
        return a->ranks > b->ranks ? -1 : 1;
    return a->per_node > b->per_node ? -1 : a->per_node < b->per_node;
}

/* The parts of a world, the one with most ranks first. The caller calls free(*out). */
static enum mics_status list_parts(const struct mics_world *world, struct part **out,
                                   uint32_t *count, struct mics_err *err)
{
    struct part *parts = calloc(world->node_count, sizeof *parts);
    uint32_t rank = 0;

    if (!parts)
        return mics_err_nomem(err);
    *count = 0;
    for (uint32_t node = 0; node < world->node_count; node++) {
        const uint32_t ranks = world->ranks_of_node[node];
        uint32_t p = 0;

        while (p < *count && parts[p].per_node != ranks)
            p++;
        if (p == *count)
            parts[(*count)++] = (struct part){.per_node = ranks, .first_rank = rank};
        parts[p].ranks += ranks;
        parts[p].nodes++;
        rank += ranks;
    }
    qsort(parts, *count, sizeof *parts, by_ranks);
    *out = parts;
    return MICS_OK;
}

/* The world of this rank's part. Collective; the caller closes *out. */
static enum mics_status open_part(struct mics_world *world, struct mics_world **out,
                                  struct mics_err *err)
{
    const uint32_t per_node = world->ranks_of_node[world->node];
    uint32_t block = world->local_rank;
    struct mics_comm *comm = NULL;
    enum mics_status status;

    for (uint32_t node = 0; node < world->node; node++)
        block += world->ranks_of_node[node] == per_node ? per_node : 0;
    status = mics_comm_split(world->comm, (int)per_node, (int)world->rank, (int)block, &comm, err);
    return status == MICS_OK ? mics_world_open_over(comm, 0, out, err) : status;
}

/* Broadcast a document: the root's replaces *doc of the others, which is freed and may be NULL.
 * Collective. */
static enum mics_status share_document(struct mics_comm *comm, uint32_t root, json_t **doc,
                                       struct mics_err *err)
{
    const bool is_root = (uint32_t)comm->rank == root;
    char *text = is_root ? json_dumps(*doc, JSON_REAL_PRECISION(17)) : NULL;
    uint64_t size = text ? strlen(text) : 0;
    enum mics_status status = mics_comm_broadcast_now(comm, &size, sizeof size, (int)root, err);

    if (status == MICS_OK && size == 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK && !is_root && !(text = malloc(size)))
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = mics_comm_broadcast_now(comm, text, size, (int)root, err);
    if (status == MICS_OK && !is_root) {
        json_decref(*doc);
        *doc = json_loadb(text, size, 0, NULL);
        status = *doc ? MICS_OK : mics_err_nomem(err);
    }
    free(text);
    return status;
}

/* Parts of the time: for products and for copies, and for each class of links. The collectives get
 * the rest, or collectives_part if a loaded machine left less. */
static const double rates_part = 0.06, links_part = 0.12, collectives_part = 0.5;

/* In addition, for each size of a collective beside computation, unless all is to be short. */
static const double load_part = 0.2, load_least_s = 1;

/* The measurements, and what the document is made of. */
struct probe {
    struct mics_bench bench;
    double seconds;
    struct mics_topology *topology;
    struct mics_slow_nodes nodes;
    double from_host, to_host; /* bytes/s; 0: the device is the host */
};

static enum mics_status probe_collectives(struct probe *probe, struct mics_err *err)
{
    const double left_s = fmax(probe->seconds - mics_bench_elapsed_s(&probe->bench),
                               collectives_part * probe->seconds);
    struct mics_topology *topology = probe->topology;
    struct mics_load *load = NULL;
    enum mics_status status = MICS_OK;

    if (probe->bench.device->on_host && probe->seconds >= load_least_s)
        status = mics_load_open(&probe->bench, true, load_part * probe->seconds, &load, err);
    if (status == MICS_OK)
        status = mics_collectives_measure(&probe->bench, load, left_s, &topology->costs,
                                          &topology->cost_count, err);
    mics_load_close(load);
    return status;
}

static void name_topology(const struct probe *probe)
{
    const struct mics_world *world = probe->bench.world;
    struct mics_topology *topology = probe->topology;
    const char *host = world->host_of_node[0];
    const int length = (int)strcspn(host, "#"); /* before the number of a declared node */

    snprintf(topology->name, sizeof topology->name, "%.*s", length, host);
    snprintf(topology->source, sizeof topology->source, "measured");
    snprintf(topology->device, sizeof topology->device, "%s",
             mics_bench_device_name(&probe->bench));
    snprintf(topology->flops_dtype, sizeof topology->flops_dtype, "%s",
             mics_dtype_name(probe->bench.product_dtype));
    topology->onednn = probe->bench.onednn;
    topology->nodes = world->node_count;
    topology->per_node = world->local_size;
    topology->memory_bytes = probe->bench.memory_bytes;
    topology->cores = probe->bench.threads;
}

static enum mics_status measure(struct probe *probe, struct mics_err *err)
{
    const struct mics_world *world = probe->bench.world;
    struct mics_topology *topology = probe->topology;
    const double links_s = links_part * probe->seconds;
    enum mics_status status =
        mics_slow_nodes_measure_ranks(&probe->nodes, &probe->bench, rates_part * probe->seconds,
                                      &topology->flops, &topology->memory_bandwidth, err);

    if (status == MICS_OK && probe->bench.device->on_host)
        status = mics_bench_kernel_rates(&probe->bench, probe->seconds, &topology->kernel_rates,
                                         &topology->kernel_rate_count, &topology->drift, err);
    if (status == MICS_OK)
        status = mics_bench_host_copies(&probe->bench, &probe->from_host, &probe->to_host, err);
    if (status == MICS_OK && world->local_size > 1)
        status = mics_slow_nodes_measure_links(&probe->nodes, &probe->bench, MICS_LINK_NODE,
                                               links_s, &topology->node_link, err);
    if (status == MICS_OK && world->node_count > 1)
        status = mics_slow_nodes_measure_links(&probe->nodes, &probe->bench, MICS_LINK_NET, links_s,
                                               &topology->net_link, err);
    if (status == MICS_OK && world->size > 1)
        status = probe_collectives(probe, err);
    return status;
}

/* The most of all ranks. */
static enum mics_status measure_process(struct mics_world *world, uint64_t *out,
                                        struct mics_err *err)
{
    const uint64_t own = mics_process_resident_bytes();
    enum mics_status status;
    uint64_t *all = mics_all_gather(world->comm, &own, sizeof own, &status, err);

    for (uint32_t i = 0; i < world->size && status == MICS_OK; i++)
        *out = all[i] > *out ? all[i] : *out;
    free(all);
    return status;
}

static json_t *world_hosts(const struct mics_world *world)
{
    json_t *hosts = json_array();

    for (uint32_t i = 0; i < world->node_count; i++) {
        if (json_array_append_new(hosts, json_string(world->host_of_node[i])) != 0) {
            json_decref(hosts);
            return NULL;
        }
    }
    return hosts;
}

static bool add_members(json_t *doc, const struct probe *probe)
{
    const struct mics_world *world = probe->bench.world;

    return json_object_set_new(doc, "hosts", world_hosts(world)) == 0 &&
           json_object_set_new(doc, "declared_nodes", json_boolean(world->declared)) == 0 &&
           json_object_set(doc, "outliers", probe->nodes.list) == 0;
}

static enum mics_status topology_doc(const struct probe *probe, json_t **out, struct mics_err *err)
{
    json_t *doc = NULL, *bad_nodes = NULL;
    enum mics_status status = mics_topology_to_doc(probe->topology, &doc, err);

    if (status == MICS_OK)
        status = mics_slow_nodes_indices(&probe->nodes, &bad_nodes, err);
    if (status == MICS_OK &&
        (json_object_set_new(doc, "bad_nodes", bad_nodes) != 0 || !add_members(doc, probe)))
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        *out = doc;
    else
        json_decref(doc);
    return status;
}

static enum mics_status add_machine(json_t *doc, struct mics_err *err)
{
    json_t *machine = NULL;
    enum mics_status status = mics_node_describe(&machine, err);

    if (status == MICS_OK)
        status = mics_gpu_info_add(machine, err);
    if (status != MICS_OK) {
        json_decref(machine);
        return status;
    }
    if (json_object_set_new(doc, "machine", machine) != 0)
        return mics_err_nomem(err);
    return status;
}

/* What is known of a GPU beyond its rates. */
static enum mics_status add_gpu_figures(const struct probe *probe, json_t *doc,
                                        struct mics_err *err)
{
    json_t *device = json_object_get(doc, "device");
    const uint64_t free_bytes = probe->bench.free_bytes;

    if (probe->bench.device->on_host)
        return MICS_OK;
    if (json_object_set_new(device, "free_bytes", json_integer((json_int_t)free_bytes)) != 0 ||
        json_object_set_new(device, "from_host_bytes_per_s", json_real(probe->from_host)) != 0 ||
        json_object_set_new(device, "to_host_bytes_per_s", json_real(probe->to_host)) != 0)
        return mics_err_nomem(err);
    return MICS_OK;
}

static enum mics_status make_document(const struct probe *probe, json_t **out, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = topology_doc(probe, &doc, err);

    if (status == MICS_OK)
        status = add_gpu_figures(probe, doc, err);
    if (status == MICS_OK && probe->bench.world->rank == 0)
        status = add_machine(doc, err);
    if (status == MICS_OK)
        *out = doc;
    else
        json_decref(doc);
    return status;
}

static enum mics_status add_classes(const struct probe *probe, json_t *doc, struct mics_err *err)
{
    const struct mics_bench *bench = &probe->bench;
    struct mics_rank_figures own = {.memory_bytes = bench->own_memory_bytes,
                                    .flops = probe->nodes.own.flops,
                                    .memory_bandwidth = probe->nodes.own.memory_rate};

    snprintf(own.device, sizeof own.device, "%s", mics_bench_device_name(bench));
    return mics_node_classes_add(doc, bench->world, &own, err);
}

/* Nodes of one size. */
static enum mics_status probe_part(struct mics_world *world, enum mics_device_kind kind,
                                   double seconds, json_t **out, struct mics_err *err)
{
    struct probe probe = {.seconds = seconds};
    uint64_t process_bytes = 0;
    enum mics_status status = measure_process(world, &process_bytes, err);

    if (status == MICS_OK)
        status = mics_bench_init(&probe.bench, world, kind, 0, err);
    if (status == MICS_OK)
        status = mics_slow_nodes_init(&probe.nodes, world, err);
    if (status == MICS_OK && !(probe.topology = calloc(1, sizeof *probe.topology)))
        status = mics_err_nomem(err);
    if (status == MICS_OK) {
        name_topology(&probe);
        probe.topology->process_bytes = process_bytes;
        status = measure(&probe, err);
    }
    if (status == MICS_OK)
        status = make_document(&probe, out, err);
    if (status == MICS_OK)
        status = add_classes(&probe, *out, err);
    mics_topology_free(probe.topology);
    mics_slow_nodes_fini(&probe.nodes);
    mics_bench_fini(&probe.bench);
    return status;
}

/* What mics_hostfile_write() reads, and the outliers. */
static enum mics_status check_doc(const struct probe *probe, json_t **out, struct mics_err *err)
{
    json_t *bad_nodes = NULL;
    enum mics_status status = mics_slow_nodes_indices(&probe->nodes, &bad_nodes, err);

    if (status != MICS_OK)
        return status;
    *out = json_pack("{s:i, s:o}", "per_node", (int)probe->bench.world->local_size, "bad_nodes",
                     bad_nodes);
    if (*out && add_members(*out, probe))
        return MICS_OK;
    json_decref(*out);
    return mics_err_nomem(err);
}

enum mics_status mics_probe_check(struct mics_world *world, enum mics_device_kind kind,
                                  double seconds, json_t **out, struct mics_err *err)
{
    struct probe probe = {.seconds = seconds};
    enum mics_status status;

    if (!mics_world_is_even(world))
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "the nodes have different numbers of ranks");
    status = mics_bench_init(&probe.bench, world, kind, 0, err);
    if (status == MICS_OK)
        status = mics_slow_nodes_init(&probe.nodes, world, err);
    if (status == MICS_OK)
        status = mics_slow_nodes_measure(&probe.nodes, &probe.bench, seconds, err);
    if (status == MICS_OK)
        status = check_doc(&probe, out, err);
    mics_slow_nodes_fini(&probe.nodes);
    mics_bench_fini(&probe.bench);
    return status;
}

/* One part measures while the others wait: they share the network. The first part's document gets
 * those of the others. A rank that fails returns at once, and its caller ends the job. */
static enum mics_status probe_parts(struct mics_world *world, struct mics_world *own,
                                    const struct part *parts, uint32_t count,
                                    enum mics_device_kind kind, double seconds, json_t **out,
                                    struct mics_err *err)
{
    json_t *others = json_array(), *first = NULL;
    enum mics_status status = others ? MICS_OK : mics_err_nomem(err);

    for (uint32_t p = 0; p < count && status == MICS_OK; p++) {
        json_t *doc = NULL;

        if (own->local_size == parts[p].per_node)
            status = probe_part(own, kind, seconds / count, &doc, err);
        if (status == MICS_OK)
            status = share_document(world->comm, parts[p].first_rank, &doc, err);
        if (status != MICS_OK)
            json_decref(doc);
        else if (p == 0)
            first = doc;
        else if (json_array_append_new(others, doc) != 0)
            status = mics_err_nomem(err);
    }
    if (status == MICS_OK && json_object_set(first, "other_parts", others) != 0)
        status = mics_err_nomem(err);
    json_decref(others);
    if (status == MICS_OK)
        *out = first;
    else
        json_decref(first);
    return status;
}

enum mics_status mics_probe_run(struct mics_world *world, enum mics_device_kind kind,
                                double seconds, json_t **out, struct mics_err *err)
{
    struct part *parts = NULL;
    struct mics_world *own = NULL;
    uint32_t count = 0;
    enum mics_status status;

    if (mics_world_is_even(world))
        return probe_part(world, kind, seconds, out, err);
    status = list_parts(world, &parts, &count, err);
    if (status == MICS_OK)
        status = open_part(world, &own, err);
    if (status == MICS_OK)
        status = probe_parts(world, own, parts, count, kind, seconds, out, err);
    mics_world_close(own);
    free(parts);
    return status;
}
