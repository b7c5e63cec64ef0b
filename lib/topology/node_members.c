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
    enum mics_status status;
    json_t *hosts;
    int failed = 0;

    if (list->count != topology->nodes)
        return mics_err_set(err, MICS_ERR_ARG, "%u host%s, but the topology has %u node%s",
                            list->count, list->count == 1 ? "" : "s", topology->nodes,
                            topology->nodes == 1 ? "" : "s");
    if (!topology->doc) {
        status = mics_topology_to_doc(topology, &topology->doc, err);
        if (status != MICS_OK)
            return status;
    }
    hosts = json_array();
    for (uint32_t i = 0; i < list->count; i++)
        failed |= json_array_append_new(hosts, json_string(list->names[order ? order[i] : i]));
    failed |= json_object_set_new(topology->doc, "hosts", hosts);
    return failed ? mics_err_nomem(err) : MICS_OK;
}

static void check_hosts(const struct mics_cursor *root, const struct mics_topology *topology)
{
    struct mics_reading *reading = root->reading;
    struct mics_host_list list = {0};
    int64_t duplicate;

    if (!mics_cursor_has(root, "hosts"))
        return;
    const struct mics_cursor hosts = mics_cursor_get_array(root, "hosts", 0, MICS_MAX_NODES);
    if (mics_cursor_count(&hosts) != topology->nodes)
        mics_cursor_reject(root, "hosts", "%zu names, but \"nodes\" says %u",
                           mics_cursor_count(&hosts), topology->nodes);
    for (size_t i = 0; i < mics_cursor_count(&hosts); i++) {
        const struct mics_cursor at = mics_cursor_item_any(&hosts, i);
        const char *name = json_string_value(at.value);

        if (!name || !*name || strlen(name) >= MICS_HOST_NAME || strchr(name, ' ') ||
            mics_utf8_has_control(name))
            mics_cursor_reject(&at, NULL, "expected the name of a host");
    }
    if (!mics_cursor_ok(root))
        return;
    reading->status = mics_topology_hosts(topology, false, &list, reading->err);
    if (reading->status == MICS_OK) {
        duplicate = mics_host_list_duplicate(&list);
        if (duplicate >= 0)
            mics_cursor_reject(root, "hosts", "'%s' is listed twice", list.names[duplicate]);
        else if (duplicate == -2)
            mics_cursor_nomem(root);
    }
    mics_host_list_fini(&list);
}

/* An array of indices of nodes. seen[nodes]: those listed so far, in this or an earlier array. */
static void check_indices(const struct mics_cursor *array, uint32_t nodes, bool *seen)
{
    for (size_t i = 0; i < mics_cursor_count(array); i++) {
        const struct mics_cursor at = mics_cursor_item_any(array, i);
        const json_int_t node = json_integer_value(at.value);

        if (!json_is_integer(at.value) || node < 0 || node >= nodes) {
            mics_cursor_reject(&at, NULL, "expected the index of a node, 0 to %u", nodes - 1);
            return;
        }
        if (seen[node])
            mics_cursor_reject(&at, NULL, "node %d is listed twice", (int)node);
        seen[node] = true;
    }
}

/* Flags of all nodes, all false; the caller calls free(). NULL after an error. */
static bool *new_seen(const struct mics_cursor *root, uint32_t nodes)
{
    bool *seen = mics_cursor_ok(root) ? calloc(nodes, sizeof *seen) : NULL;

    if (!seen)
        mics_cursor_nomem(root);
    return seen;
}

static void check_bad_nodes(const struct mics_cursor *root, uint32_t nodes)
{
    if (!mics_cursor_has(root, "bad_nodes"))
        return;
    const struct mics_cursor array = mics_cursor_get_array(root, "bad_nodes", 0, MICS_MAX_NODES);
    bool *seen = new_seen(root, nodes);

    if (seen)
        check_indices(&array, nodes, seen);
    free(seen);
}

static bool is_link(const char *what)
{
    return strcmp(what, "node_link") == 0 || strcmp(what, "net_link") == 0;
}

/* Values of ranks are rates, those of links are seconds of a message. */
static void check_outlier(const struct mics_cursor *at)
{
    const char *what = mics_cursor_get_string(at, "what");
    const double value = mics_cursor_get_double(at, "value", 1e-12, 1e21);
    const double median = mics_cursor_get_double(at, "median", 1e-12, 1e21);
    const double times = mics_cursor_get_double(at, "times_slower", 1, 1e12);
    const double slower = is_link(what) ? value / median : median / value;

    if (!is_link(what) && strcmp(what, "flops") != 0 && strcmp(what, "memory_bandwidth") != 0)
        mics_cursor_reject(
            at, "what", "'%.32s': expected flops, memory_bandwidth, node_link or net_link", what);
    if (fabs(slower / times - 1) > 0.01)
        mics_cursor_reject(at, "times_slower", "says %.4g, but \"value\" and \"median\" make %.4g",
                           times, slower);
}

static void check_outliers(const struct mics_cursor *root)
{
    if (!mics_cursor_has(root, "outliers"))
        return;
    const struct mics_cursor array = mics_cursor_get_array(root, "outliers", 0, SIZE_MAX);

    for (size_t i = 0; i < mics_cursor_count(&array) && mics_cursor_ok(root); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&array, i);

        check_outlier(&item);
    }
}

/* Returns the number of classes. */
static uint32_t read_classes(const struct mics_cursor *root, uint32_t nodes,
                             struct mics_node_class classes[MICS_MAX_NODE_CLASSES])
{
    uint32_t left = nodes;

    if (!mics_cursor_has(root, "node_classes"))
        return 0;
    const struct mics_cursor array =
        mics_cursor_get_array(root, "node_classes", 1, MICS_MAX_NODE_CLASSES);
    bool *seen = new_seen(root, nodes);
    const uint32_t count = seen ? (uint32_t)mics_cursor_count(&array) : 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct mics_cursor at = mics_cursor_get_item(&array, i);
        const struct mics_cursor indices = mics_cursor_get_array(&at, "nodes", 1, nodes);

        check_indices(&indices, nodes, seen);
        classes[i].device = mics_cursor_get_string(&at, "device");
        classes[i].memory_bytes = mics_cursor_get_u64(&at, "memory_bytes", 1, (uint64_t)1 << 60);
        classes[i].flops = mics_cursor_get_double(&at, "flops_per_s", 1, 1e21);
        classes[i].memory_bandwidth =
            mics_cursor_get_double(&at, "memory_bandwidth_bytes_per_s", 1, 1e21);
        classes[i].nodes = indices.value;
        left -= (uint32_t)mics_cursor_count(&indices);
    }
    free(seen);
    if (left > 0)
        mics_cursor_reject(root, "node_classes", "%u of %u nodes %s in no class", left, nodes,
                           left == 1 ? "is" : "are");
    return count;
}

enum mics_status mics_node_classes_read(const struct mics_topology *topology,
                                        struct mics_node_class classes[MICS_MAX_NODE_CLASSES],
                                        uint32_t *count, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(topology->doc, &reading);

    *count = read_classes(&root, topology->nodes, classes);
    return reading.status;
}

struct mics_topology *mics_topology_open_part(const struct mics_cursor *array, size_t index)
{
    struct mics_reading *reading = array->reading;
    const struct mics_cursor at = mics_cursor_item_any(array, index);
    struct mics_topology *part = NULL;

    if (json_object_get(at.value, "other_parts"))
        mics_cursor_reject(&at, "other_parts", "a part has no parts");
    if (!mics_cursor_ok(array))
        return NULL;
    reading->status = mics_topology_from_doc((json_t *)(uintptr_t)at.value, &part, reading->err);
    if (reading->status != MICS_OK)
        mics_err_prefix(reading->err, "other_parts[%zu]", index);
    return part;
}

void mics_topology_check_nodes(const struct mics_cursor *root, const struct mics_topology *topology)
{
    struct mics_node_class classes[MICS_MAX_NODE_CLASSES];

    check_hosts(root, topology);
    check_bad_nodes(root, topology->nodes);
    check_outliers(root);
    read_classes(root, topology->nodes, classes);
    if (!mics_cursor_has(root, "other_parts"))
        return;
    const struct mics_cursor array = mics_cursor_get_array(root, "other_parts", 0, MICS_MAX_PARTS);

    for (size_t i = 0; i < mics_cursor_count(&array); i++)
        mics_topology_free(mics_topology_open_part(&array, i));
}
