/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.c - the document mics.topology: read, checked, and written.
 *
 * Every number has a range, so that users of a topology may divide by it. A link that cannot be
 * used, because there is one node or one rank per node, may be absent. To write, the document that
 * the topology came from is copied and its known members are replaced, so that members which this
 * version does not know are kept, in every object.
 */
#include "topology/topology.h"

#include "topology/cost.h"
#include "topology/node_members.h"

#include "doc/cursor.h"
#include "doc/doc.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COSTS = 4096 };

static const double max_rate = 1e21, max_seconds = 3600;

const char *mics_collective_name(enum mics_collective collective)
{
    static const char *const names[MICS_COLLECTIVE_COUNT] = {
        [MICS_ALL_GATHER] = "all_gather",
        [MICS_REDUCE_SCATTER] = "reduce_scatter",
        [MICS_ALL_REDUCE] = "all_reduce",
        [MICS_ALL_TO_ALL] = "all_to_all",
    };

    return names[collective];
}

/* "mics" */
static const char *profile_name(enum mics_profile profile)
{
    return profile == MICS_PROFILE_PYTORCH ? "pytorch" : "mics";
}

bool mics_topology_is_host(const struct mics_topology *topology)
{
    return strcmp(topology->device, "host") == 0;
}

bool mics_topology_dtype_is_known(const char *dtype)
{
    static const char *const known[] = {"f32", "bf16", "f16"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(dtype, known[i]) == 0)
            return true;
    return false;
}

static void read_name(const struct mics_cursor *at, const char *key, char *out, size_t size)
{
    const char *text = mics_cursor_get_string(at, key);

    if (strlen(text) >= size)
        mics_cursor_reject(at, key, "longer than %zu bytes", size - 1);
    else
        strcpy(out, text);
}

static void read_link(const struct mics_cursor *at, struct mics_link *out)
{
    out->latency_s = mics_cursor_get_double(at, "latency_s", 0, max_seconds);
    out->bandwidth_bytes = mics_cursor_get_double(at, "bandwidth_bytes_per_s", 1, max_rate);
    out->samples = mics_cursor_opt_u32(at, "samples", 0, UINT32_MAX, 0);
    out->spread = mics_cursor_opt_double(at, "spread", 0, 1e9, 0);
}

static void read_links(const struct mics_cursor *root, struct mics_topology *topology)
{
    const struct {
        const char *key;
        bool needed;
        struct mics_link *link;
    } table[] = {{"node", topology->per_node > 1, &topology->node_link},
                 {"net", topology->nodes > 1, &topology->net_link}};

    if (!table[0].needed && !table[1].needed && !mics_cursor_has(root, "links"))
        return;
    const struct mics_cursor links = mics_cursor_get_object(root, "links");
    for (size_t i = 0; i < 2; i++) {
        if (!table[i].needed && !mics_cursor_has(&links, table[i].key))
            continue;
        const struct mics_cursor at = mics_cursor_get_object(&links, table[i].key);
        read_link(&at, table[i].link);
    }
}

static void read_dtype(const struct mics_cursor *at, struct mics_topology *topology)
{
    const char *dtype = mics_cursor_get_string(at, "flops_dtype");

    if (mics_topology_dtype_is_known(dtype))
        strcpy(topology->flops_dtype, dtype);
    else
        mics_cursor_reject(at, "flops_dtype", "'%.16s': expected f32, bf16 or f16", dtype);
}

static void read_rates(const struct mics_cursor *device, struct mics_gpu_rates *rates)
{
    if (!mics_cursor_has(device, "gpu_rates"))
        return;
    const struct mics_cursor at = mics_cursor_get_object(device, "gpu_rates");
    rates->sms = mics_cursor_get_u32(&at, "sms", 1, 1 << 16);
    rates->f32 = mics_cursor_get_double(&at, "f32_flops_per_s", 1, max_rate);
    rates->tf32 = mics_cursor_get_double(&at, "tf32_flops_per_s", 0, max_rate);
    rates->bf16 = mics_cursor_get_double(&at, "bf16_flops_per_s", 1, max_rate);
    rates->f16 = mics_cursor_get_double(&at, "f16_flops_per_s", 1, max_rate);
    rates->product_overhead_s = mics_cursor_get_double(&at, "product_overhead_s", 0, 1);
    rates->attention_factor = mics_cursor_get_double(&at, "attention_factor", 1e-6, 1e6);
    read_name(&at, "attention", rates->attention, sizeof rates->attention);
    if (!mics_gpu_attention_is_known(rates->attention))
        mics_cursor_reject(&at, "attention", "'%s': expected A100 or H100", rates->attention);
    rates->pytorch_efficiency = mics_cursor_opt_double(&at, "pytorch_efficiency", 0, 1, 0);
}

static void read_profile(const struct mics_cursor *root, struct mics_topology *topology)
{
    const char *name = mics_cursor_opt_string(root, "profile", profile_name(topology->profile));

    for (int i = 0; i < MICS_PROFILE_COUNT; i++)
        if (strcmp(name, profile_name((enum mics_profile)i)) == 0) {
            topology->profile = (enum mics_profile)i;
            return;
        }
    mics_cursor_reject(root, "profile", "'%.16s': expected mics or pytorch", name);
}

/* Bytes/s; 0: not measured. */
static double measured_copy_rate(const struct mics_topology *topology, bool to_host)
{
    const json_t *device = json_object_get(topology->doc, "device");

    return json_number_value(
        json_object_get(device, to_host ? "to_host_bytes_per_s" : "from_host_bytes_per_s"));
}

double mics_topology_host_copy_rate(const struct mics_topology *topology, bool to_host)
{
    const json_t *device = json_object_get(topology->doc, "device");
    const double measured = measured_copy_rate(topology, to_host);
    const double known =
        json_number_value(json_object_get(json_object_get(device, "host_link"), "bytes_per_s"));

    if (mics_topology_is_host(topology))
        return topology->memory_bandwidth / 2;
    return measured > 0 ? measured : known > 0 ? known : MICS_HOST_COPY_RATE;
}

const char *mics_topology_host_copy_source(const struct mics_topology *topology, bool to_host)
{
    const json_t *device = json_object_get(topology->doc, "device");
    const json_t *link = json_object_get(device, "host_link");

    if (mics_topology_is_host(topology))
        return "host memory";
    if (measured_copy_rate(topology, to_host) > 0)
        return "measured";
    return link ? json_string_value(json_object_get(link, "name")) : "PCIe 4.0 x16, assumed";
}

bool mics_topology_host_copies_share_links(const struct mics_topology *topology)
{
    const double pcie_rate = 63e9;

    return !mics_topology_is_host(topology) && topology->node_link.bandwidth_bytes > 0 &&
           topology->node_link.bandwidth_bytes <= pcie_rate;
}

/* The document keeps it: mics_topology_host_copy_rate(). */
static void check_host_link(const struct mics_cursor *device)
{
    if (!mics_cursor_has(device, "host_link"))
        return;
    const struct mics_cursor at = mics_cursor_get_object(device, "host_link");
    (void)mics_cursor_get_string(&at, "name");
    (void)mics_cursor_get_double(&at, "bytes_per_s", 1, max_rate);
}

/* The document keeps it (plan/host_update.h). */
static void check_machine(const struct mics_cursor *root)
{
    if (!mics_cursor_has(root, "machine"))
        return;
    const struct mics_cursor at = mics_cursor_get_object(root, "machine");
    (void)mics_cursor_opt_double(&at, "memory_bandwidth_bytes_per_s", 1, max_rate, 0);
}

static void read_device(const struct mics_cursor *root, struct mics_topology *topology)
{
    const struct mics_cursor at = mics_cursor_get_object(root, "device");

    read_name(&at, "name", topology->device, sizeof topology->device);
    topology->flops = mics_cursor_get_double(&at, "flops_per_s", 1, max_rate);
    read_dtype(&at, topology);
    topology->memory_bandwidth =
        mics_cursor_get_double(&at, "memory_bandwidth_bytes_per_s", 1, max_rate);
    topology->memory_bytes = mics_cursor_get_u64(&at, "memory_bytes", 1, (uint64_t)1 << 60);
    topology->cores = mics_cursor_opt_u32(&at, "cores", 0, 1 << 20, 0);
    topology->process_bytes = mics_cursor_opt_u64(&at, "process_bytes", 0, (uint64_t)1 << 40, 0);
    topology->onednn = mics_cursor_opt_bool(&at, "onednn", true);
    topology->tf32 = mics_cursor_opt_bool(&at, "tf32", false);
    topology->integrated = mics_cursor_opt_bool(&at, "integrated", false);
    read_rates(&at, &topology->rates);
    check_host_link(&at);
    topology->drift = mics_cursor_opt_double(&at, "drift", 0, 1e6, 0);
    mics_kernel_rates_read(&at, &topology->kernel_rates, &topology->kernel_rate_count);
}

static enum mics_collective read_collective(const struct mics_cursor *at)
{
    const char *name = mics_cursor_get_string(at, "collective");

    for (int i = 0; i < MICS_COLLECTIVE_COUNT; i++)
        if (strcmp(name, mics_collective_name((enum mics_collective)i)) == 0)
            return (enum mics_collective)i;
    mics_cursor_reject(at, "collective",
                       "'%.32s': expected all_gather, reduce_scatter, all_reduce or all_to_all",
                       name);
    return MICS_ALL_GATHER;
}

/* Item `index`, an array of `count` numbers, such as "[bytes, seconds]". */
static struct mics_cursor get_point(const struct mics_cursor *points, size_t index, size_t count,
                                    const char *expected)
{
    const struct mics_cursor at = mics_cursor_item_any(points, index);

    if (json_array_size(at.value) != count)
        mics_cursor_reject(&at, NULL, "expected %s", expected);
    return at;
}

/* One number of a point of at least `least`; members of an array have no name. */
static double get_number(const struct mics_cursor *point, size_t index, double least, double most)
{
    const struct mics_cursor at = mics_cursor_item_any(point, index);
    const double value = json_number_value(at.value);

    if (json_is_number(at.value) && value >= least && value <= most)
        return value;
    if (least > DBL_MIN || least == 0)
        mics_cursor_reject(&at, NULL, "expected a number from %g to %g", least, most);
    else
        mics_cursor_reject(&at, NULL, "expected a number above 0");
    return least;
}

static uint32_t read_overlap(const struct mics_cursor *at, struct mics_overlap_point *list)
{
    if (!mics_cursor_has(at, "beside_compute"))
        return 0;
    const struct mics_cursor points =
        mics_cursor_get_array(at, "beside_compute", 1, MICS_OVERLAP_POINTS);
    const uint32_t count = (uint32_t)mics_cursor_count(&points);

    for (size_t i = 0; i < count; i++) {
        const struct mics_cursor point =
            get_point(&points, i, 4, "[bytes, seconds, seconds, part lost]");

        list[i].bytes = get_number(&point, 0, 1, 1e18);
        list[i].alone_s = get_number(&point, 1, 1e-9, max_seconds);
        list[i].overlap_s = get_number(&point, 2, 1e-9, max_seconds);
        list[i].slowdown = get_number(&point, 3, 0, 1);
        if (i > 0 && list[i].bytes <= list[i - 1].bytes)
            mics_cursor_reject(&point, NULL, "sizes must increase from point to point");
    }
    return count;
}

static uint32_t read_stragglers(const struct mics_cursor *root, struct mics_straggler_point *list)
{
    if (!mics_cursor_has(root, "stragglers"))
        return 0;
    const struct mics_cursor points =
        mics_cursor_get_array(root, "stragglers", 1, MICS_STRAGGLER_POINTS);
    const uint32_t count = (uint32_t)mics_cursor_count(&points);

    for (uint32_t i = 0; i < count; i++) {
        const struct mics_cursor point = get_point(&points, i, 2, "[seconds, seconds]");

        list[i].computing_s = get_number(&point, 0, 1e-9, max_seconds);
        list[i].behind_s = get_number(&point, 1, 0, max_seconds);
        if (i > 0 && list[i].computing_s <= list[i - 1].computing_s)
            mics_cursor_reject(&point, NULL, "times must increase from point to point");
    }
    return count;
}

/* The member "points" of a collective. */
static void read_cost_points(const struct mics_cursor *at, struct mics_collective_cost *out)
{
    if (!mics_cursor_has(at, "points"))
        return;
    const struct mics_cursor points =
        mics_cursor_get_array(at, "points", 0, MICS_COLLECTIVE_POINTS);

    out->point_count = (uint32_t)mics_cursor_count(&points);
    for (uint32_t i = 0; i < out->point_count; i++) {
        const struct mics_cursor point = get_point(&points, i, 2, "[bytes, seconds]");

        out->points[i].bytes = get_number(&point, 0, DBL_MIN, 1e18);
        out->points[i].seconds = get_number(&point, 1, DBL_MIN, 1e18);
        if (i > 0 && out->points[i].bytes <= out->points[i - 1].bytes)
            mics_cursor_reject(&point, NULL, "sizes must increase from point to point");
    }
}

static void read_costs(const struct mics_cursor *root, struct mics_topology *topology)
{
    if (!mics_cursor_has(root, "collectives"))
        return;
    const struct mics_cursor array = mics_cursor_get_array(root, "collectives", 0, MAX_COSTS);

    topology->costs = mics_cursor_calloc(&array, sizeof *topology->costs);
    if (!topology->costs)
        return;
    topology->cost_count = (uint32_t)mics_cursor_count(&array);
    for (uint32_t i = 0; i < topology->cost_count && mics_cursor_ok(root); i++) {
        const struct mics_cursor at = mics_cursor_get_item(&array, i);
        struct mics_collective_cost *cost = &topology->costs[i];

        cost->collective = read_collective(&at);
        cost->nodes = mics_cursor_get_u32(&at, "nodes", 1, topology->nodes);
        cost->per_node = mics_cursor_get_u32(&at, "per_node", 1, topology->per_node);
        read_link(&at, &cost->cost);
        read_cost_points(&at, cost);
        cost->overlap_count = read_overlap(&at, cost->overlap);
    }
}

/* Two costs of one collective on groups of one shape contradict each other. */
static void check_costs(const struct mics_cursor *root, const struct mics_topology *topology)
{
    for (uint32_t i = 0; i < topology->cost_count && mics_cursor_ok(root); i++)
        for (uint32_t j = 0; j < i; j++) {
            const struct mics_collective_cost *a = &topology->costs[i], *b = &topology->costs[j];

            if (a->collective == b->collective && a->nodes == b->nodes &&
                a->per_node == b->per_node)
                mics_cursor_reject(root, "collectives",
                                   "items %u and %u are both %s of %u x %u ranks", j, i,
                                   mics_collective_name(a->collective), a->nodes, a->per_node);
        }
}

enum { MAX_ALGORITHM_TIMINGS = 1024 };

static void read_algorithm_timing(const struct mics_cursor *at,
                                  const struct mics_topology *topology,
                                  struct mics_algorithm_timing *timing)
{
    const char *name = mics_cursor_get_string(at, "collective");

    timing->collective =
        strcmp(name, "reduce_scatter") == 0 ? MICS_REDUCE_SCATTER : MICS_ALL_GATHER;
    if (strcmp(name, mics_collective_name(timing->collective)) != 0)
        mics_cursor_reject(at, "collective", "'%.32s': expected all_gather or reduce_scatter",
                           name);
    timing->nodes = mics_cursor_get_u32(at, "nodes", 1, topology->nodes);
    timing->per_node = mics_cursor_get_u32(at, "per_node", 1, topology->per_node);
    timing->segments = mics_cursor_get_u32(at, "segments", 1, 1 << 16);
    const struct mics_cursor points = mics_cursor_get_array(at, "points", 1, MICS_ALGORITHM_POINTS);
    timing->count = (uint32_t)mics_cursor_count(&points);
    for (size_t i = 0; i < timing->count; i++) {
        const struct mics_cursor point = get_point(&points, i, 3, "[bytes, seconds, seconds]");

        timing->points[i].bytes = get_number(&point, 0, DBL_MIN, 1e18);
        timing->points[i].flat_s = get_number(&point, 1, DBL_MIN, 1e18);
        timing->points[i].hierarchical_s = get_number(&point, 2, DBL_MIN, 1e18);
        if (i > 0 && timing->points[i].bytes <= timing->points[i - 1].bytes)
            mics_cursor_reject(&point, NULL, "sizes must increase from point to point");
    }
}

static void read_algorithm_timings(const struct mics_cursor *root, struct mics_topology *topology)
{
    if (!mics_cursor_has(root, "exchanges"))
        return;
    const struct mics_cursor array =
        mics_cursor_get_array(root, "exchanges", 0, MAX_ALGORITHM_TIMINGS);

    topology->algorithm_timings = mics_cursor_calloc(&array, sizeof *topology->algorithm_timings);
    if (!topology->algorithm_timings)
        return;
    topology->algorithm_timing_count = (uint32_t)mics_cursor_count(&array);
    for (size_t i = 0; i < topology->algorithm_timing_count && mics_cursor_ok(root); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&array, i);

        read_algorithm_timing(&item, topology, &topology->algorithm_timings[i]);
    }
}

enum mics_status mics_topology_from_doc(json_t *doc, struct mics_topology **out,
                                        struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    struct mics_topology *topology;
    enum mics_status status = mics_doc_expect(doc, MICS_TOPOLOGY_KIND, MICS_TOPOLOGY_VERSION, err);

    if (status != MICS_OK)
        return status;
    topology = calloc(1, sizeof *topology);
    if (!topology)
        return mics_err_nomem(err);
    topology->doc = json_incref(doc);
    read_name(&root, "name", topology->name, sizeof topology->name);
    read_name(&root, "source", topology->source, sizeof topology->source);
    topology->nodes = mics_cursor_get_u32(&root, "nodes", 1, MICS_MAX_NODES);
    topology->per_node = mics_cursor_get_u32(&root, "per_node", 1, MICS_MAX_PER_NODE);
    read_device(&root, topology);
    check_machine(&root);
    read_links(&root, topology);
    read_costs(&root, topology);
    topology->straggler_count = read_stragglers(&root, topology->stragglers);
    read_profile(&root, topology);
    read_algorithm_timings(&root, topology);
    check_costs(&root, topology);
    mics_topology_check_nodes(&root, topology);
    if (reading.status != MICS_OK) {
        mics_topology_free(topology);
        return reading.status;
    }
    *out = topology;
    return MICS_OK;
}

void mics_topology_free(struct mics_topology *topology)
{
    if (!topology)
        return;
    json_decref(topology->doc);
    free(topology->kernel_rates);
    free(topology->costs);
    free(topology->algorithm_timings);
    free(topology);
}

/* Sets several members of one object and records failures. */
struct writer {
    json_t *object;
    bool failed;
};

static void put(struct writer *writer, const char *key, json_t *value)
{
    if (json_object_set_new(writer->object, key, value) != 0)
        writer->failed = true;
}

/* The object `key` of `parent`, added if there is none. Borrowed; NULL: out of memory. */
static json_t *object_member(json_t *parent, const char *key)
{
    json_t *member = json_object_get(parent, key);

    if (json_is_object(member))
        return member;
    member = json_object();
    return json_object_set_new(parent, key, member) == 0 ? member : NULL;
}

static bool put_link(json_t *object, const struct mics_link *link)
{
    struct writer writer = {.object = object};

    put(&writer, "latency_s", json_real(link->latency_s));
    put(&writer, "bandwidth_bytes_per_s", json_real(link->bandwidth_bytes));
    put(&writer, "samples", json_integer(link->samples));
    put(&writer, "spread", json_real(link->spread));
    return !writer.failed;
}

static bool put_links(json_t *doc, const struct mics_topology *topology)
{
    json_t *links = object_member(doc, "links");

    if (!links)
        return false;
    if (topology->node_link.bandwidth_bytes > 0 &&
        !put_link(object_member(links, "node"), &topology->node_link))
        return false;
    if (topology->net_link.bandwidth_bytes > 0 &&
        !put_link(object_member(links, "net"), &topology->net_link))
        return false;
    return true;
}

static bool put_rates(json_t *device, const struct mics_gpu_rates *rates)
{
    struct writer writer = {.object = object_member(device, "gpu_rates")};

    put(&writer, "sms", json_integer(rates->sms));
    put(&writer, "f32_flops_per_s", json_real(rates->f32));
    put(&writer, "tf32_flops_per_s", json_real(rates->tf32));
    put(&writer, "bf16_flops_per_s", json_real(rates->bf16));
    put(&writer, "f16_flops_per_s", json_real(rates->f16));
    put(&writer, "product_overhead_s", json_real(rates->product_overhead_s));
    put(&writer, "attention", json_string(rates->attention));
    put(&writer, "attention_factor", json_real(rates->attention_factor));
    if (rates->pytorch_efficiency > 0)
        put(&writer, "pytorch_efficiency", json_real(rates->pytorch_efficiency));
    return !writer.failed;
}

static bool put_device(json_t *doc, const struct mics_topology *topology)
{
    struct writer writer = {.object = object_member(doc, "device")};

    put(&writer, "name", json_string(topology->device));
    put(&writer, "flops_per_s", json_real(topology->flops));
    put(&writer, "flops_dtype", json_string(topology->flops_dtype));
    put(&writer, "memory_bandwidth_bytes_per_s", json_real(topology->memory_bandwidth));
    put(&writer, "memory_bytes", json_integer((json_int_t)topology->memory_bytes));
    put(&writer, "cores", json_integer(topology->cores));
    if (topology->process_bytes > 0)
        put(&writer, "process_bytes", json_integer((json_int_t)topology->process_bytes));
    if (strcmp(topology->device, "host") == 0 && strcmp(topology->flops_dtype, "bf16") == 0)
        put(&writer, "onednn", json_boolean(topology->onednn));
    if (!topology->doc && topology->kernel_rate_count > 0) {
        json_t *rates = NULL;

        writer.failed |=
            mics_kernel_rates_to_doc(topology->kernel_rates, topology->kernel_rate_count, &rates,
                                     NULL) != MICS_OK;
        put(&writer, "kernel_rates", rates);
        put(&writer, "drift", json_real(topology->drift));
    }
    if (topology->integrated || json_object_get(writer.object, "integrated"))
        put(&writer, "integrated", json_boolean(topology->integrated));
    if (topology->tf32 || json_object_get(writer.object, "tf32"))
        put(&writer, "tf32", json_boolean(topology->tf32));
    return !writer.failed &&
           (topology->rates.sms == 0 || put_rates(writer.object, &topology->rates));
}

/* NULL: out of memory. */
static json_t *overlap_to_doc(const struct mics_collective_cost *cost)
{
    json_t *points = json_array();

    for (uint32_t i = 0; i < cost->overlap_count; i++) {
        const struct mics_overlap_point *point = &cost->overlap[i];

        if (json_array_append_new(points, json_pack("[I, f, f, f]", (json_int_t)point->bytes,
                                                    point->alone_s, point->overlap_s,
                                                    point->slowdown)) != 0) {
            json_decref(points);
            return NULL;
        }
    }
    return points;
}

static bool put_cost(json_t *object, const struct mics_collective_cost *cost)
{
    struct writer writer = {.object = object};

    put(&writer, "collective", json_string(mics_collective_name(cost->collective)));
    put(&writer, "nodes", json_integer(cost->nodes));
    put(&writer, "per_node", json_integer(cost->per_node));
    if (cost->point_count > 0) {
        json_t *points = json_array();

        for (uint32_t i = 0; i < cost->point_count; i++)
            writer.failed |=
                json_array_append_new(points, json_pack("[I, f]", (json_int_t)cost->points[i].bytes,
                                                        cost->points[i].seconds)) != 0;
        put(&writer, "points", points);
    }
    if (cost->overlap_count > 0)
        put(&writer, "beside_compute", overlap_to_doc(cost));
    return !writer.failed && put_link(object, &cost->cost);
}

/* If the document has as many entries as the topology, they are its own, in the same order, and are
 * updated in place. Any other array is replaced. */
static bool put_costs(json_t *doc, const struct mics_topology *topology)
{
    json_t *array = json_object_get(doc, "collectives");

    if (topology->cost_count == 0 && !array)
        return true;
    if (json_array_size(array) != topology->cost_count || !array) {
        array = json_array();
        if (json_object_set_new(doc, "collectives", array) != 0)
            return false;
        for (uint32_t i = 0; i < topology->cost_count; i++)
            if (json_array_append_new(array, json_object()) != 0)
                return false;
    }
    for (uint32_t i = 0; i < topology->cost_count; i++)
        if (!put_cost(json_array_get(array, i), &topology->costs[i]))
            return false;
    return true;
}

enum mics_status mics_topology_to_doc(const struct mics_topology *topology, json_t **out,
                                      struct mics_err *err)
{
    json_t *doc = topology->doc ? json_deep_copy(topology->doc)
                                : mics_doc_new(MICS_TOPOLOGY_KIND, MICS_TOPOLOGY_VERSION);
    struct writer writer = {.object = doc};

    put(&writer, "name", json_string(topology->name));
    put(&writer, "source", json_string(topology->source));
    put(&writer, "nodes", json_integer(topology->nodes));
    put(&writer, "per_node", json_integer(topology->per_node));
    if (topology->profile != MICS_PROFILE_MICS || json_object_get(doc, "profile"))
        put(&writer, "profile", json_string(profile_name(topology->profile)));
    if (writer.failed || !put_device(doc, topology) || !put_links(doc, topology) ||
        !put_costs(doc, topology)) {
        json_decref(doc);
        return mics_err_nomem(err);
    }
    *out = doc;
    return MICS_OK;
}

enum mics_status mics_topology_set_costs(json_t *doc, const struct mics_collective_cost *costs,
                                         uint32_t count, struct mics_err *err)
{
    json_t *array = json_array();
    bool failed = !array;

    for (uint32_t i = 0; i < count; i++)
        failed |= json_array_append_new(array, json_object()) != 0 ||
                  !put_cost(json_array_get(array, i), &costs[i]);
    if (failed) {
        json_decref(array);
        return mics_err_nomem(err);
    }
    return json_object_set_new(doc, "collectives", array) == 0 ? MICS_OK : mics_err_nomem(err);
}

enum mics_status mics_topology_set_stragglers(json_t *doc,
                                              const struct mics_straggler_point *points,
                                              uint32_t count, struct mics_err *err)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++)
        if (json_array_append_new(
                array, json_pack("[f, f]", points[i].computing_s, points[i].behind_s)) != 0) {
            json_decref(array);
            return mics_err_nomem(err);
        }
    return json_object_set_new(doc, "stragglers", array) == 0 ? MICS_OK : mics_err_nomem(err);
}

/* NULL: out of memory. */
static json_t *algorithm_timing_to_doc(const struct mics_algorithm_timing *timing)
{
    const struct mics_hierarchical_window window = mics_algorithm_timing_window(timing);
    json_t *points = json_array();
    bool failed = !points;

    for (uint32_t i = 0; i < timing->count; i++) {
        const struct mics_algorithm_point *point = &timing->points[i];

        failed |=
            json_array_append_new(points, json_pack("[I, f, f]", (json_int_t)point->bytes,
                                                    point->flat_s, point->hierarchical_s)) != 0;
    }
    if (failed) {
        json_decref(points);
        return NULL;
    }
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:o, s:o, s:o}", "collective",
        mics_collective_name(timing->collective), "nodes", (int)timing->nodes, "per_node",
        (int)timing->per_node, "segments", (int)timing->segments, "hierarchical_from_bytes",
        window.from > 0 ? json_integer((json_int_t)window.from) : json_null(),
        "hierarchical_to_bytes", window.to > 0 ? json_integer((json_int_t)window.to) : json_null(),
        "points", points);
}

enum mics_status mics_algorithm_timings_to_doc(const struct mics_algorithm_timing *timings,
                                               uint32_t count, json_t **out, struct mics_err *err)
{
    json_t *array = json_array();
    bool failed = !array;

    for (uint32_t i = 0; i < count; i++)
        failed |= json_array_append_new(array, algorithm_timing_to_doc(&timings[i])) != 0;
    if (failed) {
        json_decref(array);
        return mics_err_nomem(err);
    }
    *out = array;
    return MICS_OK;
}
