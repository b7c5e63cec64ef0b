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
    };

    return names[collective];
}

const char *mics_profile_name(enum mics_profile profile)
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

static enum mics_status read_name(const struct mics_cursor *at, const char *key, char *out,
                                  size_t size, struct mics_err *err)
{
    const char *text;
    const enum mics_status status = mics_cursor_string(at, key, &text, err);

    if (status != MICS_OK)
        return status;
    if (strlen(text) >= size)
        return mics_cursor_fail(at, key, err, "longer than %zu bytes", size - 1);
    strcpy(out, text);
    return MICS_OK;
}

static enum mics_status read_link(const struct mics_cursor *at, struct mics_link *out,
                                  struct mics_err *err)
{
    struct mics_link link = {0};
    enum mics_status status =
        mics_cursor_double(at, "latency_s", 0, max_seconds, &link.latency_s, err);

    if (status == MICS_OK)
        status = mics_cursor_double(at, "bandwidth_bytes_per_s", 1, max_rate, &link.bandwidth_bytes,
                                    err);
    if (status == MICS_OK && mics_cursor_has(at, "samples"))
        status = mics_cursor_u32(at, "samples", 0, UINT32_MAX, &link.samples, err);
    if (status == MICS_OK && mics_cursor_has(at, "spread"))
        status = mics_cursor_double(at, "spread", 0, 1e9, &link.spread, err);
    if (status == MICS_OK)
        *out = link;
    return status;
}

static enum mics_status read_links(const struct mics_cursor *root, struct mics_topology *topology,
                                   struct mics_err *err)
{
    const struct {
        const char *key;
        bool needed;
        struct mics_link *link;
    } table[] = {{"node", topology->per_node > 1, &topology->node_link},
                 {"net", topology->nodes > 1, &topology->net_link}};
    const bool needed = table[0].needed || table[1].needed;
    struct mics_cursor links, at;
    enum mics_status status;

    if (!needed && !mics_cursor_has(root, "links"))
        return MICS_OK;
    status = mics_cursor_object(root, "links", &links, err);
    for (size_t i = 0; i < 2 && status == MICS_OK; i++) {
        if (!table[i].needed && !mics_cursor_has(&links, table[i].key))
            continue;
        status = mics_cursor_object(&links, table[i].key, &at, err);
        if (status == MICS_OK)
            status = read_link(&at, table[i].link, err);
    }
    return status;
}

static enum mics_status read_dtype(const struct mics_cursor *at, struct mics_topology *topology,
                                   struct mics_err *err)
{
    const char *dtype;
    const enum mics_status status = mics_cursor_string(at, "flops_dtype", &dtype, err);

    if (status != MICS_OK)
        return status;
    if (!mics_topology_dtype_is_known(dtype))
        return mics_cursor_fail(at, "flops_dtype", err, "'%.16s': expected f32, bf16 or f16",
                                dtype);
    strcpy(topology->flops_dtype, dtype);
    return MICS_OK;
}

static enum mics_status read_rates(const struct mics_cursor *device, struct mics_gpu_rates *rates,
                                   struct mics_err *err)
{
    const struct {
        const char *key;
        double min, max, *out;
    } numbers[] = {{"f32_flops_per_s", 1, max_rate, &rates->f32},
                   {"tf32_flops_per_s", 0, max_rate, &rates->tf32},
                   {"bf16_flops_per_s", 1, max_rate, &rates->bf16},
                   {"f16_flops_per_s", 1, max_rate, &rates->f16},
                   {"product_overhead_s", 0, 1, &rates->product_overhead_s},
                   {"attention_factor", 1e-6, 1e6, &rates->attention_factor}};
    struct mics_cursor at;
    enum mics_status status;

    if (!mics_cursor_has(device, "gpu_rates"))
        return MICS_OK;
    status = mics_cursor_object(device, "gpu_rates", &at, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(&at, "sms", 1, 1 << 16, &rates->sms, err);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && status == MICS_OK; i++)
        status = mics_cursor_double(&at, numbers[i].key, numbers[i].min, numbers[i].max,
                                    numbers[i].out, err);
    if (status == MICS_OK)
        status = read_name(&at, "attention", rates->attention, sizeof rates->attention, err);
    if (status == MICS_OK && !mics_gpu_attention_is_known(rates->attention))
        return mics_cursor_fail(&at, "attention", err, "'%s': expected A100 or H100",
                                rates->attention);
    if (status == MICS_OK && mics_cursor_has(&at, "pytorch_efficiency"))
        status =
            mics_cursor_double(&at, "pytorch_efficiency", 0, 1, &rates->pytorch_efficiency, err);
    return status;
}

static enum mics_status read_profile(const struct mics_cursor *root, struct mics_topology *topology,
                                     struct mics_err *err)
{
    const char *name;
    enum mics_status status;

    if (!mics_cursor_has(root, "profile"))
        return MICS_OK;
    status = mics_cursor_string(root, "profile", &name, err);
    if (status != MICS_OK)
        return status;
    for (int i = 0; i < MICS_PROFILE_COUNT; i++)
        if (strcmp(name, mics_profile_name((enum mics_profile)i)) == 0) {
            topology->profile = (enum mics_profile)i;
            return MICS_OK;
        }
    return mics_cursor_fail(root, "profile", err, "'%.16s': expected mics or pytorch", name);
}

static enum mics_status read_device(const struct mics_cursor *root, struct mics_topology *topology,
                                    struct mics_err *err)
{
    struct mics_cursor at;
    enum mics_status status = mics_cursor_object(root, "device", &at, err);

    if (status == MICS_OK)
        status = read_name(&at, "name", topology->device, sizeof topology->device, err);
    if (status == MICS_OK)
        status = mics_cursor_double(&at, "flops_per_s", 1, max_rate, &topology->flops, err);
    if (status == MICS_OK)
        status = read_dtype(&at, topology, err);
    if (status == MICS_OK)
        status = mics_cursor_double(&at, "memory_bandwidth_bytes_per_s", 1, max_rate,
                                    &topology->memory_bandwidth, err);
    if (status == MICS_OK)
        status = mics_cursor_u64(&at, "memory_bytes", 1, (uint64_t)1 << 60, &topology->memory_bytes,
                                 err);
    if (status == MICS_OK && mics_cursor_has(&at, "cores"))
        status = mics_cursor_u32(&at, "cores", 0, 1 << 20, &topology->cores, err);
    if (status == MICS_OK && mics_cursor_has(&at, "process_bytes"))
        status = mics_cursor_u64(&at, "process_bytes", 0, (uint64_t)1 << 40,
                                 &topology->process_bytes, err);
    topology->onednn = true;
    if (status == MICS_OK && mics_cursor_has(&at, "onednn"))
        status = mics_cursor_bool(&at, "onednn", &topology->onednn, err);
    if (status == MICS_OK && mics_cursor_has(&at, "tf32"))
        status = mics_cursor_bool(&at, "tf32", &topology->tf32, err);
    if (status == MICS_OK)
        status = read_rates(&at, &topology->rates, err);
    if (status == MICS_OK)
        status =
            mics_kernel_rates_read(&at, &topology->kernel_rates, &topology->kernel_rate_count, err);
    return status;
}

static enum mics_status read_collective(const struct mics_cursor *at, enum mics_collective *out,
                                        struct mics_err *err)
{
    const char *name;
    const enum mics_status status = mics_cursor_string(at, "collective", &name, err);

    if (status != MICS_OK)
        return status;
    for (int i = 0; i < MICS_COLLECTIVE_COUNT; i++) {
        if (strcmp(name, mics_collective_name((enum mics_collective)i)) == 0) {
            *out = (enum mics_collective)i;
            return MICS_OK;
        }
    }
    return mics_cursor_fail(at, "collective", err,
                            "'%.32s': expected all_gather, reduce_scatter or all_reduce", name);
}

/* One number of a point of at least `least`; members of an array have no name. */
static enum mics_status read_number(const struct mics_cursor *point, size_t index, double least,
                                    double most, double *out, struct mics_err *err)
{
    const struct mics_cursor at = mics_cursor_item_any(point, index);
    const double value = json_number_value(at.value);

    if (!json_is_number(at.value) || !(value >= least) || value > most)
        return least > DBL_MIN || least == 0
                   ? mics_cursor_fail(&at, NULL, err, "expected a number from %g to %g", least,
                                      most)
                   : mics_cursor_fail(&at, NULL, err, "expected a number above 0");
    *out = value;
    return MICS_OK;
}

static enum mics_status read_beside_point(const struct mics_cursor *points, size_t index,
                                          struct mics_overlap_point *list, struct mics_err *err)
{
    const struct mics_cursor at = mics_cursor_item_any(points, index);
    struct mics_overlap_point *point = &list[index];
    enum mics_status status;

    if (json_array_size(at.value) != 4)
        return mics_cursor_fail(&at, NULL, err, "expected [bytes, seconds, seconds, part lost]");
    status = read_number(&at, 0, 1, 1e18, &point->bytes, err);
    if (status == MICS_OK)
        status = read_number(&at, 1, 1e-9, max_seconds, &point->alone_s, err);
    if (status == MICS_OK)
        status = read_number(&at, 2, 1e-9, max_seconds, &point->beside_s, err);
    if (status == MICS_OK)
        status = read_number(&at, 3, 0, 1, &point->lost, err);
    if (status == MICS_OK && index > 0 && point->bytes <= list[index - 1].bytes)
        return mics_cursor_fail(&at, NULL, err, "sizes must increase from point to point");
    return status;
}

static enum mics_status read_beside(const struct mics_cursor *at, struct mics_collective_cost *out,
                                    struct mics_err *err)
{
    struct mics_cursor points;
    enum mics_status status;

    if (!mics_cursor_has(at, "beside_compute"))
        return MICS_OK;
    status = mics_cursor_array(at, "beside_compute", 1, MICS_BESIDE_POINTS, &points, err);
    if (status != MICS_OK)
        return status;
    out->beside_count = (uint32_t)mics_cursor_count(&points);
    for (size_t i = 0; i < out->beside_count && status == MICS_OK; i++)
        status = read_beside_point(&points, i, out->beside, err);
    return status;
}

static enum mics_status read_stragglers(const struct mics_cursor *root,
                                        struct mics_topology *topology, struct mics_err *err)
{
    struct mics_straggler_point *list = topology->stragglers;
    struct mics_cursor points;
    enum mics_status status;

    if (!mics_cursor_has(root, "stragglers"))
        return MICS_OK;
    status = mics_cursor_array(root, "stragglers", 1, MICS_STRAGGLER_POINTS, &points, err);
    if (status != MICS_OK)
        return status;
    topology->straggler_count = (uint32_t)mics_cursor_count(&points);
    for (uint32_t i = 0; i < topology->straggler_count && status == MICS_OK; i++) {
        const struct mics_cursor point = mics_cursor_item_any(&points, i);

        if (json_array_size(point.value) != 2)
            return mics_cursor_fail(&point, NULL, err, "expected [seconds, seconds]");
        status = read_number(&point, 0, 1e-9, max_seconds, &list[i].computing_s, err);
        if (status == MICS_OK)
            status = read_number(&point, 1, 0, max_seconds, &list[i].behind_s, err);
        if (status == MICS_OK && i > 0 && list[i].computing_s <= list[i - 1].computing_s)
            return mics_cursor_fail(&point, NULL, err, "times must increase from point to point");
    }
    return status;
}

/* The member "points" of a collective: [[bytes, seconds], ...]. */
static enum mics_status read_cost_points(const struct mics_cursor *at,
                                         struct mics_collective_cost *out, struct mics_err *err)
{
    struct mics_cursor points;
    enum mics_status status =
        mics_cursor_array(at, "points", 0, MICS_COLLECTIVE_POINTS, &points, err);

    if (status != MICS_OK)
        return status;
    out->point_count = (uint32_t)mics_cursor_count(&points);
    for (uint32_t i = 0; i < out->point_count && status == MICS_OK; i++) {
        const struct mics_cursor point = mics_cursor_item_any(&points, i);

        if (json_array_size(point.value) != 2)
            return mics_cursor_fail(&point, NULL, err, "expected [bytes, seconds]");
        status = read_number(&point, 0, DBL_MIN, 1e18, &out->points[i].bytes, err);
        if (status == MICS_OK)
            status = read_number(&point, 1, DBL_MIN, 1e18, &out->points[i].seconds, err);
        if (status == MICS_OK && i > 0 && out->points[i].bytes <= out->points[i - 1].bytes)
            return mics_cursor_fail(&point, NULL, err, "sizes must increase from point to point");
    }
    return status;
}

static enum mics_status read_cost(const struct mics_cursor *at,
                                  const struct mics_topology *topology,
                                  struct mics_collective_cost *out, struct mics_err *err)
{
    enum mics_status status = read_collective(at, &out->collective, err);

    if (status == MICS_OK)
        status = mics_cursor_u32(at, "nodes", 1, topology->nodes, &out->nodes, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(at, "per_node", 1, topology->per_node, &out->per_node, err);
    if (status == MICS_OK)
        status = read_link(at, &out->cost, err);
    if (status == MICS_OK && mics_cursor_has(at, "points"))
        status = read_cost_points(at, out, err);
    if (status == MICS_OK)
        status = read_beside(at, out, err);
    return status;
}

static enum mics_status read_costs(const struct mics_cursor *root, struct mics_topology *topology,
                                   struct mics_err *err)
{
    struct mics_cursor array, item;
    enum mics_status status;

    if (!mics_cursor_has(root, "collectives"))
        return MICS_OK;
    status = mics_cursor_array(root, "collectives", 0, MAX_COSTS, &array, err);
    if (status != MICS_OK || mics_cursor_count(&array) == 0)
        return status;
    topology->costs = calloc(mics_cursor_count(&array), sizeof *topology->costs);
    if (!topology->costs)
        return mics_err_nomem(err);
    for (size_t i = 0; i < mics_cursor_count(&array) && status == MICS_OK; i++) {
        status = mics_cursor_item(&array, i, &item, err);
        if (status == MICS_OK)
            status = read_cost(&item, topology, &topology->costs[i], err);
    }
    topology->cost_count = (uint32_t)mics_cursor_count(&array);
    return status;
}

/* Two costs of one collective on groups of one shape contradict each other. */
static enum mics_status check_costs(const struct mics_cursor *root,
                                    const struct mics_topology *topology, struct mics_err *err)
{
    for (uint32_t i = 0; i < topology->cost_count; i++)
        for (uint32_t j = 0; j < i; j++) {
            const struct mics_collective_cost *a = &topology->costs[i], *b = &topology->costs[j];

            if (a->collective == b->collective && a->nodes == b->nodes &&
                a->per_node == b->per_node)
                return mics_cursor_fail(root, "collectives", err,
                                        "items %u and %u are both %s of %u x %u ranks", j, i,
                                        mics_collective_name(a->collective), a->nodes, a->per_node);
        }
    return MICS_OK;
}

enum { MAX_ALGORITHM_TIMINGS = 1024 };

static enum mics_status read_point(const struct mics_cursor *points, size_t index,
                                   struct mics_algorithm_timing *timing, struct mics_err *err)
{
    const struct mics_cursor at = mics_cursor_item_any(points, index);
    struct mics_algorithm_point *point = &timing->points[index];
    enum mics_status status;

    if (json_array_size(at.value) != 3)
        return mics_cursor_fail(&at, NULL, err, "expected [bytes, seconds, seconds]");
    status = read_number(&at, 0, DBL_MIN, 1e18, &point->bytes, err);
    if (status == MICS_OK)
        status = read_number(&at, 1, DBL_MIN, 1e18, &point->flat_s, err);
    if (status == MICS_OK)
        status = read_number(&at, 2, DBL_MIN, 1e18, &point->hierarchical_s, err);
    if (status == MICS_OK && index > 0 && point->bytes <= timing->points[index - 1].bytes)
        return mics_cursor_fail(&at, NULL, err, "sizes must increase from point to point");
    return status;
}

static enum mics_status read_algorithm_collective(const struct mics_cursor *at,
                                                  enum mics_collective *out, struct mics_err *err)
{
    const char *name;
    const enum mics_status status = mics_cursor_string(at, "collective", &name, err);

    if (status != MICS_OK)
        return status;
    *out = MICS_ALL_GATHER;
    if (strcmp(name, "all_gather") == 0)
        return MICS_OK;
    *out = MICS_REDUCE_SCATTER;
    if (strcmp(name, "reduce_scatter") == 0)
        return MICS_OK;
    return mics_cursor_fail(at, "collective", err, "'%.32s': expected all_gather or reduce_scatter",
                            name);
}

static enum mics_status read_algorithm_timing(const struct mics_cursor *at,
                                              const struct mics_topology *topology,
                                              struct mics_algorithm_timing *timing,
                                              struct mics_err *err)
{
    struct mics_cursor points;
    enum mics_status status = read_algorithm_collective(at, &timing->collective, err);

    if (status == MICS_OK)
        status = mics_cursor_u32(at, "nodes", 1, topology->nodes, &timing->nodes, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(at, "per_node", 1, topology->per_node, &timing->per_node, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(at, "segments", 1, 1 << 16, &timing->segments, err);
    if (status == MICS_OK)
        status = mics_cursor_array(at, "points", 1, MICS_ALGORITHM_POINTS, &points, err);
    if (status != MICS_OK)
        return status;
    timing->count = (uint32_t)mics_cursor_count(&points);
    for (size_t i = 0; i < timing->count && status == MICS_OK; i++)
        status = read_point(&points, i, timing, err);
    return status;
}

static enum mics_status read_algorithm_timings(const json_t *doc, struct mics_topology *topology,
                                               struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_cursor array, item;
    enum mics_status status;

    if (!mics_cursor_has(&root, "exchanges"))
        return MICS_OK;
    status = mics_cursor_array(&root, "exchanges", 0, MAX_ALGORITHM_TIMINGS, &array, err);
    if (status != MICS_OK || mics_cursor_count(&array) == 0)
        return status;
    topology->algorithm_timing_count = (uint32_t)mics_cursor_count(&array);
    topology->algorithm_timings =
        calloc(topology->algorithm_timing_count, sizeof *topology->algorithm_timings);
    if (!topology->algorithm_timings)
        return mics_err_nomem(err);
    for (size_t i = 0; i < topology->algorithm_timing_count && status == MICS_OK; i++) {
        status = mics_cursor_item(&array, i, &item, err);
        if (status == MICS_OK)
            status = read_algorithm_timing(&item, topology, &topology->algorithm_timings[i], err);
    }
    return status;
}

static enum mics_status read_all(const struct mics_cursor *root, struct mics_topology *topology,
                                 struct mics_err *err)
{
    enum mics_status status = read_name(root, "name", topology->name, sizeof topology->name, err);

    if (status == MICS_OK)
        status = read_name(root, "source", topology->source, sizeof topology->source, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(root, "nodes", 1, MICS_MAX_NODES, &topology->nodes, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(root, "per_node", 1, MICS_MAX_PER_NODE, &topology->per_node, err);
    if (status == MICS_OK)
        status = read_device(root, topology, err);
    if (status == MICS_OK)
        status = read_links(root, topology, err);
    if (status == MICS_OK)
        status = read_costs(root, topology, err);
    if (status == MICS_OK)
        status = read_stragglers(root, topology, err);
    return status == MICS_OK ? read_profile(root, topology, err) : status;
}

enum mics_status mics_topology_from_doc(json_t *doc, struct mics_topology **out,
                                        struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_topology *topology;
    enum mics_status status = mics_doc_expect(doc, MICS_TOPOLOGY_KIND, MICS_TOPOLOGY_VERSION, err);

    if (status != MICS_OK)
        return status;
    topology = calloc(1, sizeof *topology);
    if (!topology)
        return mics_err_nomem(err);
    topology->doc = json_incref(doc);
    status = read_all(&root, topology, err);
    if (status == MICS_OK)
        status = read_algorithm_timings(doc, topology, err);
    if (status == MICS_OK)
        status = check_costs(&root, topology, err);
    if (status == MICS_OK)
        status = mics_topology_check_nodes(topology, err);
    if (status != MICS_OK) {
        mics_topology_free(topology);
        return status;
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
    }
    if (topology->tf32 || json_object_get(writer.object, "tf32"))
        put(&writer, "tf32", json_boolean(topology->tf32));
    return !writer.failed &&
           (topology->rates.sms == 0 || put_rates(writer.object, &topology->rates));
}

/* NULL: out of memory. */
static json_t *beside_to_doc(const struct mics_collective_cost *cost)
{
    json_t *points = json_array();

    for (uint32_t i = 0; i < cost->beside_count; i++) {
        const struct mics_overlap_point *point = &cost->beside[i];

        if (json_array_append_new(points,
                                  json_pack("[I, f, f, f]", (json_int_t)point->bytes,
                                            point->alone_s, point->beside_s, point->lost)) != 0) {
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
    if (cost->beside_count > 0)
        put(&writer, "beside_compute", beside_to_doc(cost));
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
        put(&writer, "profile", json_string(mics_profile_name(topology->profile)));
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
