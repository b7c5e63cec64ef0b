/* SPDX-License-Identifier: Apache-2.0 */
/* probe_doc.c - hosts, points, outliers and the machine, put into the document. */
#include "probe/doc.h"
#include "topology/gpu_info.h"
#include "topology/node_info.h"

static json_t *hosts_of(const struct mics_world *world)
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

static json_t *points_of(const struct mics_measured *measured)
{
    json_t *points = json_array();

    for (size_t i = 0; i < measured->count; i++) {
        const struct mics_sample *point = &measured->points[i];
        json_t *pair = json_pack("[I, f]", (json_int_t)point->bytes, point->seconds);

        if (json_array_append_new(points, pair) != 0) {
            json_decref(points);
            return NULL;
        }
    }
    return points;
}

enum mics_status mics_probe_doc_add_points(json_t *doc, const struct mics_measured *measured,
                                           uint32_t count, struct mics_err *err)
{
    json_t *collectives = json_object_get(doc, "collectives");

    for (uint32_t i = 0; i < count; i++)
        if (json_object_set_new(json_array_get(collectives, i), "points",
                                points_of(&measured[i])) != 0)
            return mics_err_nomem(err);
    return MICS_OK;
}

static bool add_members(json_t *doc, const struct mics_probe_parts *parts)
{
    const struct mics_world *world = parts->outliers->world;

    return json_object_set_new(doc, "hosts", hosts_of(world)) == 0 &&
           json_object_set_new(doc, "declared_nodes", json_boolean(world->declared)) == 0 &&
           json_object_set(doc, "outliers", parts->outliers->list) == 0 &&
           mics_probe_doc_add_points(doc, parts->measured, parts->measured_count, NULL) == MICS_OK;
}

enum mics_status mics_probe_doc(const struct mics_probe_parts *parts, json_t **out,
                                struct mics_err *err)
{
    json_t *doc = NULL, *bad_nodes = NULL;
    enum mics_status status = mics_topology_to_doc(parts->topology, &doc, err);

    if (status == MICS_OK)
        status = mics_outliers_bad_nodes(parts->outliers, &bad_nodes, err);
    if (status == MICS_OK &&
        (json_object_set_new(doc, "bad_nodes", bad_nodes) != 0 || !add_members(doc, parts)))
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        *out = doc;
    else
        json_decref(doc);
    return status;
}

enum mics_status mics_probe_doc_add_machine(json_t *doc, struct mics_err *err)
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
