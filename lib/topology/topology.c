/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.c - from a checked document to a topology in memory.
 *
 * Every number has a range, so that whatever uses a topology may divide by it. A link that cannot
 * be used, because there is one node or one rank on each, may be absent.
 */
#include "topology/topology.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "topology/algorithm_times.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_COSTS = 4096 };

static const double max_rate = 1e21, max_seconds = 3600;

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
    return status;
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
        status = mics_races_read(doc, topology, err);
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
    free(topology->costs);
    free(topology->races);
    free(topology);
}
