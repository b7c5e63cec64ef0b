/* SPDX-License-Identifier: Apache-2.0 */
/* node_members.c - reads what a topology says about single nodes, and refuses contradictions. */
#include "topology/node_members.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t count_of(const struct mics_topology *topology, const char *key)
{
    return json_array_size(json_object_get(topology->doc, key));
}

const char *mics_topology_host(const struct mics_topology *topology, size_t node)
{
    return json_string_value(json_array_get(json_object_get(topology->doc, "hosts"), node));
}

enum mics_status mics_topology_hosts(const struct mics_topology *topology, bool strip,
                                     struct mics_host_list *list, struct mics_err *err)
{
    const uint32_t count = (uint32_t)count_of(topology, "hosts");

    if (count == 0)
        return MICS_OK;
    list->names = calloc(count, sizeof *list->names);
    if (!list->names)
        return mics_err_nomem(err);
    list->count = list->capacity = count;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = mics_topology_host(topology, i);

        snprintf(list->names[i], MICS_HOST_NAME, "%.*s",
                 (int)(strip ? strcspn(name, "#") : strlen(name)), name);
    }
    return MICS_OK;
}

enum mics_status mics_topology_set_hosts(struct mics_topology *topology,
                                         const struct mics_host_list *list, const uint32_t *order,
                                         struct mics_err *err)
{
    json_t *hosts = json_array();
    enum mics_status status = MICS_OK;

    if (list->count != topology->nodes)
        status = mics_err_set(err, MICS_ERR_ARG, "%u host%s, but the topology has %u node%s",
                              list->count, list->count == 1 ? "" : "s", topology->nodes,
                              topology->nodes == 1 ? "" : "s");
    if (status == MICS_OK && !topology->doc)
        status = mics_topology_to_doc(topology, &topology->doc, err);
    for (uint32_t i = 0; i < list->count && status == MICS_OK; i++)
        if (json_array_append_new(hosts, json_string(list->names[order ? order[i] : i])) != 0)
            status = mics_err_nomem(err);
    if (status == MICS_OK && json_object_set(topology->doc, "hosts", hosts) != 0)
        status = mics_err_nomem(err);
    json_decref(hosts);
    return status;
}

static enum mics_status check_hosts(const struct mics_cursor *root,
                                    const struct mics_topology *topology, struct mics_err *err)
{
    struct mics_host_list list = {0};
    struct mics_cursor hosts;
    enum mics_status status;
    int64_t duplicate = -1;

    if (!mics_cursor_has(root, "hosts"))
        return MICS_OK;
    status = mics_cursor_array(root, "hosts", 0, MICS_MAX_NODES, &hosts, err);
    if (status == MICS_OK && mics_cursor_count(&hosts) != topology->nodes)
        return mics_cursor_fail(root, "hosts", err, "%zu names, but \"nodes\" says %u",
                                mics_cursor_count(&hosts), topology->nodes);
    for (size_t i = 0; status == MICS_OK && i < topology->nodes; i++) {
        const struct mics_cursor at = mics_cursor_item_any(&hosts, i);
        const char *name = json_string_value(at.value);

        if (!name || !*name || strlen(name) >= MICS_HOST_NAME || strchr(name, ' ') ||
            mics_utf8_has_control(name))
            return mics_cursor_fail(&at, NULL, err, "expected the name of a host");
    }
    if (status == MICS_OK)
        status = mics_topology_hosts(topology, false, &list, err);
    if (status == MICS_OK)
        duplicate = mics_host_list_duplicate(&list);
    if (duplicate >= 0)
        status =
            mics_cursor_fail(root, "hosts", err, "'%s' is listed twice", list.names[duplicate]);
    mics_host_list_fini(&list);
    return duplicate == -2 ? mics_err_nomem(err) : status;
}

/* An array of indices of nodes. seen[nodes]: those listed so far, in this or an earlier array. */
static enum mics_status check_indices(const struct mics_cursor *array, uint32_t nodes, bool *seen,
                                      struct mics_err *err)
{
    for (size_t i = 0; i < mics_cursor_count(array); i++) {
        const struct mics_cursor at = mics_cursor_item_any(array, i);
        const json_int_t node = json_integer_value(at.value);

        if (!json_is_integer(at.value) || node < 0 || node >= nodes)
            return mics_cursor_fail(&at, NULL, err, "expected the index of a node, 0 to %u",
                                    nodes - 1);
        if (seen[node])
            return mics_cursor_fail(&at, NULL, err, "node %d is listed twice", (int)node);
        seen[node] = true;
    }
    return MICS_OK;
}

static enum mics_status check_bad_nodes(const struct mics_cursor *root, uint32_t nodes,
                                        struct mics_err *err)
{
    struct mics_cursor array;
    bool *seen;
    enum mics_status status;

    if (!mics_cursor_has(root, "bad_nodes"))
        return MICS_OK;
    status = mics_cursor_array(root, "bad_nodes", 0, MICS_MAX_NODES, &array, err);
    if (status != MICS_OK)
        return status;
    seen = calloc(nodes, sizeof *seen);
    status = seen ? check_indices(&array, nodes, seen, err) : mics_err_nomem(err);
    free(seen);
    return status;
}

static bool is_link(const char *what)
{
    return strcmp(what, "node_link") == 0 || strcmp(what, "net_link") == 0;
}

/* Values of ranks are rates, those of links are seconds of a message. */
static enum mics_status check_outlier(const struct mics_cursor *at, struct mics_err *err)
{
    const char *what;
    double value, median, times, slower;
    enum mics_status status = mics_cursor_string(at, "what", &what, err);

    if (status == MICS_OK)
        status = mics_cursor_double(at, "value", 1e-12, 1e21, &value, err);
    if (status == MICS_OK)
        status = mics_cursor_double(at, "median", 1e-12, 1e21, &median, err);
    if (status == MICS_OK)
        status = mics_cursor_double(at, "times_slower", 1, 1e12, &times, err);
    if (status != MICS_OK)
        return status;
    if (!is_link(what) && strcmp(what, "flops") != 0 && strcmp(what, "memory_bandwidth") != 0)
        return mics_cursor_fail(at, "what", err,
                                "'%.32s': expected flops, memory_bandwidth, node_link or net_link",
                                what);
    slower = is_link(what) ? value / median : median / value;
    if (fabs(slower / times - 1) > 0.01)
        return mics_cursor_fail(at, "times_slower", err,
                                "says %.4g, but \"value\" and \"median\" make %.4g", times, slower);
    return MICS_OK;
}

static enum mics_status check_outliers(const struct mics_cursor *root, struct mics_err *err)
{
    struct mics_cursor array, item;
    enum mics_status status;

    if (!mics_cursor_has(root, "outliers"))
        return MICS_OK;
    status = mics_cursor_array(root, "outliers", 0, SIZE_MAX, &array, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&array); i++) {
        status = mics_cursor_item(&array, i, &item, err);
        if (status == MICS_OK)
            status = check_outlier(&item, err);
    }
    return status;
}

static enum mics_status read_class(const struct mics_cursor *at, uint32_t nodes, bool *seen,
                                   struct mics_node_class *out, struct mics_err *err)
{
    struct mics_cursor indices;
    enum mics_status status = mics_cursor_array(at, "nodes", 1, nodes, &indices, err);

    if (status == MICS_OK)
        status = check_indices(&indices, nodes, seen, err);
    if (status == MICS_OK)
        status = mics_cursor_string(at, "device", &out->device, err);
    if (status == MICS_OK)
        status = mics_cursor_u64(at, "memory_bytes", 1, (uint64_t)1 << 60, &out->memory_bytes, err);
    if (status == MICS_OK)
        status = mics_cursor_double(at, "flops_per_s", 1, 1e21, &out->flops, err);
    if (status == MICS_OK)
        status = mics_cursor_double(at, "memory_bandwidth_bytes_per_s", 1, 1e21,
                                    &out->memory_bandwidth, err);
    out->nodes = indices.value;
    return status;
}

enum mics_status mics_node_classes_read(const struct mics_topology *topology,
                                        struct mics_node_class classes[MICS_MAX_NODE_CLASSES],
                                        uint32_t *count, struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(topology->doc);
    struct mics_cursor array, item;
    enum mics_status status;
    bool *seen;
    uint32_t left = topology->nodes;

    *count = 0;
    if (!mics_cursor_has(&root, "node_classes"))
        return MICS_OK;
    status = mics_cursor_array(&root, "node_classes", 1, MICS_MAX_NODE_CLASSES, &array, err);
    if (status != MICS_OK)
        return status;
    seen = calloc(topology->nodes, sizeof *seen);
    if (!seen)
        return mics_err_nomem(err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&array); i++) {
        status = mics_cursor_item(&array, i, &item, err);
        if (status == MICS_OK)
            status = read_class(&item, topology->nodes, seen, &classes[i], err);
        if (status == MICS_OK)
            left -= (uint32_t)json_array_size(classes[i].nodes);
    }
    *count = (uint32_t)mics_cursor_count(&array);
    free(seen);
    if (status == MICS_OK && left > 0)
        status = mics_cursor_fail(&root, "node_classes", err, "%u of %u nodes %s in no class", left,
                                  topology->nodes, left == 1 ? "is" : "are");
    return status;
}

enum mics_status mics_topology_open_part(const struct mics_cursor *array, size_t index,
                                         struct mics_topology **out, struct mics_err *err)
{
    char key[40];
    const struct mics_cursor at = mics_cursor_item_any(array, index);
    enum mics_status status;

    if (json_object_get(at.value, "other_parts"))
        return mics_cursor_fail(&at, "other_parts", err, "a part has no parts");
    snprintf(key, sizeof key, "other_parts[%zu]", index);
    status = mics_topology_from_doc((json_t *)(uintptr_t)at.value, out, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", key);
    return status;
}

static enum mics_status check_parts(const struct mics_cursor *root, struct mics_err *err)
{
    struct mics_cursor array;
    enum mics_status status;

    if (!mics_cursor_has(root, "other_parts"))
        return MICS_OK;
    status = mics_cursor_array(root, "other_parts", 0, MICS_MAX_PARTS, &array, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&array); i++) {
        struct mics_topology *part = NULL;

        status = mics_topology_open_part(&array, i, &part, err);
        mics_topology_free(part);
    }
    return status;
}

enum mics_status mics_topology_check_nodes(const struct mics_topology *topology,
                                           struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(topology->doc);
    struct mics_node_class classes[MICS_MAX_NODE_CLASSES];
    uint32_t count;
    enum mics_status status = check_hosts(&root, topology, err);

    if (status == MICS_OK)
        status = check_bad_nodes(&root, topology->nodes, err);
    if (status == MICS_OK)
        status = check_outliers(&root, err);
    if (status == MICS_OK)
        status = mics_node_classes_read(topology, classes, &count, err);
    return status == MICS_OK ? check_parts(&root, err) : status;
}
