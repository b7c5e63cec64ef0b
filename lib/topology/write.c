/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - from a topology in memory to its document.
 *
 * The document that the topology came from is copied and its known members are set anew, so members
 * that this version does not know survive, in every object.
 */
#include "topology/topology.h"
#include "doc/doc.h"

/* Set several members of one object; the first failure is remembered. */
struct writer {
    json_t *object;
    bool failed;
};

static void put(struct writer *writer, const char *key, json_t *value)
{
    if (json_object_set_new(writer->object, key, value) != 0)
        writer->failed = true;
}

/* The object `key` of `parent`, made if there is none. Belongs to the parent; NULL: no memory. */
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

static bool put_device(json_t *doc, const struct mics_topology *topology)
{
    struct writer writer = {.object = object_member(doc, "device")};

    put(&writer, "name", json_string(topology->device));
    put(&writer, "flops_per_s", json_real(topology->flops));
    put(&writer, "flops_dtype", json_string(topology->flops_dtype));
    put(&writer, "memory_bandwidth_bytes_per_s", json_real(topology->memory_bandwidth));
    put(&writer, "memory_bytes", json_integer((json_int_t)topology->memory_bytes));
    put(&writer, "cores", json_integer(topology->cores));
    return !writer.failed;
}

static bool put_cost(json_t *object, const struct mics_collective_cost *cost)
{
    struct writer writer = {.object = object};

    put(&writer, "collective", json_string(mics_collective_name(cost->collective)));
    put(&writer, "nodes", json_integer(cost->nodes));
    put(&writer, "per_node", json_integer(cost->per_node));
    return !writer.failed && put_link(object, &cost->cost);
}

/* Entries of an array as long as the topology's are its own, in the same order: they are updated in
 * place. Any other array is replaced. */
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
