/* SPDX-License-Identifier: Apache-2.0 */
/* node_sets.c - sets of alike nodes as topologies of their own. */
#include "topology/node_sets.h"

#include "base/units.h"
#include "doc/cursor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CLASSES = 32, MAX_PARTS = 64 };

static size_t count_of(const struct mics_topology *topology, const char *key)
{
    return json_array_size(json_object_get(topology->doc, key));
}

static const char *host_of(const struct mics_topology *topology, size_t node)
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
        const char *name = host_of(topology, i);

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

        if (!name || !*name || strlen(name) >= MICS_HOST_NAME || strpbrk(name, " \t\r\n"))
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

/* A class, and which nodes are in it. */
struct node_class {
    const char *device;
    uint64_t memory_bytes;
    double flops, memory_bandwidth;
    const json_t *nodes;
};

static enum mics_status read_class(const struct mics_cursor *at, uint32_t nodes, bool *seen,
                                   struct node_class *out, struct mics_err *err)
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

static enum mics_status read_classes(const struct mics_topology *topology,
                                     struct node_class classes[MAX_CLASSES], uint32_t *count,
                                     struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(topology->doc);
    struct mics_cursor array, item;
    enum mics_status status;
    bool *seen;
    uint32_t left = topology->nodes;

    *count = 0;
    if (!mics_cursor_has(&root, "node_classes"))
        return MICS_OK;
    status = mics_cursor_array(&root, "node_classes", 1, MAX_CLASSES, &array, err);
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

static enum mics_status open_part(const struct mics_cursor *array, size_t index,
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
    status = mics_cursor_array(root, "other_parts", 0, MAX_PARTS, &array, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&array); i++) {
        struct mics_topology *part = NULL;

        status = open_part(&array, i, &part, err);
        mics_topology_free(part);
    }
    return status;
}

enum mics_status mics_node_sets_check(const struct mics_topology *topology, struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(topology->doc);
    struct node_class classes[MAX_CLASSES];
    uint32_t count;
    enum mics_status status = check_hosts(&root, topology, err);

    if (status == MICS_OK)
        status = check_bad_nodes(&root, topology->nodes, err);
    if (status == MICS_OK)
        status = check_outliers(&root, err);
    if (status == MICS_OK)
        status = read_classes(topology, classes, &count, err);
    return status == MICS_OK ? check_parts(&root, err) : status;
}

/* Sets under construction: of one part with its classes at a time. */
struct builder {
    const struct mics_topology *part;
    struct node_class classes[MAX_CLASSES];
    uint32_t class_count;
    uint8_t *class_of; /* [part->nodes] */
    bool *bad;         /* [part->nodes] */
    struct mics_node_set *sets;
    uint32_t count;
};

void mics_node_sets_free(struct mics_node_set *sets, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        mics_topology_free(sets[i].topology);
        json_decref(sets[i].left_out);
    }
    free(sets);
}

/* Why a bad node is left out: its worst outlier, if the document names it. */
static void explain_bad(const struct mics_topology *part, size_t node, char *text, size_t size)
{
    const json_t *outliers = json_object_get(part->doc, "outliers"), *outlier;
    const char *host = host_of(part, node);
    double worst = 0;
    size_t i;

    snprintf(text, size, "it is one of the topology's bad_nodes");
    json_array_foreach(outliers, i, outlier)
    {
        const char *hosts = json_string_value(json_object_get(outlier, "host"));
        const double times = json_number_value(json_object_get(outlier, "times_slower"));
        const char *found = host && hosts ? strstr(hosts, host) : NULL;

        if (!found || times <= worst || strcspn(found, " ") != strlen(host))
            continue;
        worst = times;
        snprintf(text, size, "%s of %s is %.1f times slower than the median",
                 json_string_value(json_object_get(outlier, "what")),
                 json_string_value(json_object_get(outlier, "where")), times);
    }
}

static bool add_left_out(json_t *list, const struct mics_topology *part, size_t node,
                         const char *why)
{
    json_t *entry = json_pack("{s:I, s:s}", "node", (json_int_t)node, "why", why);
    const char *host = host_of(part, node);

    if (host && json_object_set_new(entry, "host", json_string(host)) != 0) {
        json_decref(entry);
        return false;
    }
    return json_array_append_new(list, entry) == 0;
}

/* "NVIDIA A100 with 39.5 GiB and 271 T FLOP/s" */
static void describe_class(const struct node_class *class, char *text, size_t size)
{
    char memory[32], flops[32];

    mics_format_bytes(class->memory_bytes, memory, sizeof memory);
    mics_format_count(class->flops, flops, sizeof flops);
    snprintf(text, size, "%.40s with %s and %s FLOP/s", class->device, memory, flops);
}

/* Keep the items of "hosts" and of measured collectives that belong to `nodes` nodes. */
static enum mics_status shrink_doc(const struct builder *builder, uint32_t mask, json_t *doc,
                                   uint32_t nodes, json_t *left_out, struct mics_err *err)
{
    static const char *const measured[] = {"collectives", "exchanges"};
    json_t *hosts = json_array();
    char why[200], own[128];
    bool failed = false;

    for (uint32_t i = 0; i < builder->part->nodes; i++) {
        const bool in_class = (mask >> builder->class_of[i] & 1) != 0;

        if (in_class && !builder->bad[i]) {
            if (host_of(builder->part, i))
                failed |= json_array_append_new(hosts, json_string(host_of(builder->part, i))) != 0;
            continue;
        }
        if (builder->bad[i]) {
            explain_bad(builder->part, i, why, sizeof why);
        } else {
            describe_class(&builder->classes[builder->class_of[i]], own, sizeof own);
            snprintf(why, sizeof why, "a plan without its class is faster: %s per rank", own);
        }
        failed |= !add_left_out(left_out, builder->part, i, why);
    }
    for (size_t k = 0; k < 2; k++) {
        json_t *array = json_object_get(doc, measured[k]);

        for (size_t i = json_array_size(array); i-- > 0;)
            if (json_integer_value(json_object_get(json_array_get(array, i), "nodes")) > nodes)
                failed |= json_array_remove(array, i) != 0;
    }
    json_object_del(doc, "bad_nodes");
    json_object_del(doc, "outliers");
    json_object_del(doc, "node_classes");
    if (json_array_size(hosts) > 0)
        failed |= json_object_set(doc, "hosts", hosts) != 0;
    json_decref(hosts);
    return failed ? mics_err_nomem(err) : MICS_OK;
}

/* The least of the classes in `mask`. */
static void set_device(const struct builder *builder, uint32_t mask, json_t *doc)
{
    json_t *device = json_object_get(doc, "device");
    const struct node_class *least = NULL;

    for (uint32_t i = 0; i < builder->class_count; i++) {
        const struct node_class *class = &builder->classes[i];

        if (!(mask >> i & 1))
            continue;
        if (!least) {
            json_object_set_new(device, "memory_bytes",
                                json_integer((json_int_t) class->memory_bytes));
            json_object_set_new(device, "memory_bandwidth_bytes_per_s",
                                json_real(class->memory_bandwidth));
        }
        if (!least || class->flops < least->flops)
            least = class;
        if ((json_int_t) class->memory_bytes <
            json_integer_value(json_object_get(device, "memory_bytes")))
            json_object_set_new(device, "memory_bytes",
                                json_integer((json_int_t) class->memory_bytes));
        if (class->memory_bandwidth <
            json_number_value(json_object_get(device, "memory_bandwidth_bytes_per_s")))
            json_object_set_new(device, "memory_bandwidth_bytes_per_s",
                                json_real(class->memory_bandwidth));
    }
    if (least) {
        json_object_set_new(device, "name", json_string(least->device));
        json_object_set_new(device, "flops_per_s", json_real(least->flops));
    }
}

static enum mics_status add_set(struct builder *builder, uint32_t mask, struct mics_err *err)
{
    struct mics_node_set *set = &builder->sets[builder->count];
    json_t *doc = NULL;
    uint32_t nodes = 0;
    enum mics_status status;

    for (uint32_t i = 0; i < builder->part->nodes; i++)
        nodes += !builder->bad[i] && (mask >> builder->class_of[i] & 1) != 0;
    if (nodes == 0)
        return MICS_OK;
    set->left_out = json_array();
    status = mics_topology_to_doc(builder->part, &doc, err);
    if (status == MICS_OK)
        status = shrink_doc(builder, mask, doc, nodes, set->left_out, err);
    if (status == MICS_OK) {
        json_object_set_new(doc, "nodes", json_integer(nodes));
        json_object_del(doc, "other_parts");
        set_device(builder, mask, doc);
        status = mics_topology_from_doc(doc, &set->topology, err);
    }
    json_decref(doc);
    builder->count++;
    return status;
}

/* Masks of classes: all, each, and those with at least the memory or the speed of each. */
static uint32_t list_masks(const struct builder *builder, uint32_t masks[3 * MAX_CLASSES + 1])
{
    const uint32_t classes = builder->class_count ? builder->class_count : 1;
    uint32_t count = 0;

    masks[count++] = classes == 32 ? UINT32_MAX : (1u << classes) - 1;
    for (uint32_t i = 0; i < builder->class_count; i++) {
        uint32_t found[3] = {1u << i, 0, 0};

        for (uint32_t j = 0; j < builder->class_count; j++) {
            if (builder->classes[j].memory_bytes >= builder->classes[i].memory_bytes)
                found[1] |= 1u << j;
            if (builder->classes[j].flops >= builder->classes[i].flops)
                found[2] |= 1u << j;
        }
        for (int k = 0; k < 3; k++) {
            bool known = false;

            for (uint32_t m = 0; m < count; m++)
                known |= masks[m] == found[k];
            if (!known)
                masks[count++] = found[k];
        }
    }
    return count;
}

static enum mics_status add_sets_of_part(struct builder *builder, struct mics_err *err)
{
    const struct mics_topology *part = builder->part;
    const json_t *bad_nodes = json_object_get(part->doc, "bad_nodes");
    uint32_t masks[3 * MAX_CLASSES + 1], mask_count;
    void *sets;
    enum mics_status status = read_classes(part, builder->classes, &builder->class_count, err);

    if (status != MICS_OK)
        return status;
    builder->class_of = calloc(part->nodes, sizeof *builder->class_of);
    builder->bad = calloc(part->nodes, sizeof *builder->bad);
    mask_count = list_masks(builder, masks);
    sets = realloc(builder->sets, (builder->count + mask_count) * sizeof *builder->sets);
    if (sets) {
        builder->sets = sets;
        memset(builder->sets + builder->count, 0, mask_count * sizeof *builder->sets);
    }
    if (!builder->class_of || !builder->bad || !sets)
        status = mics_err_nomem(err);
    for (uint32_t c = 0; c < builder->class_count && status == MICS_OK; c++)
        for (size_t i = 0; i < json_array_size(builder->classes[c].nodes); i++)
            builder->class_of[json_integer_value(json_array_get(builder->classes[c].nodes, i))] =
                (uint8_t)c;
    for (size_t i = 0; i < json_array_size(bad_nodes) && status == MICS_OK; i++)
        builder->bad[json_integer_value(json_array_get(bad_nodes, i))] = true;
    for (uint32_t m = 0; m < mask_count && status == MICS_OK; m++)
        status = add_set(builder, masks[m], err);
    free(builder->class_of);
    free(builder->bad);
    builder->class_of = NULL;
    builder->bad = NULL;
    return status;
}

/* To the list of every set of one part belong the nodes of the other parts. */
static enum mics_status leave_out_part(struct mics_node_set *set, const struct mics_topology *part,
                                       struct mics_err *err)
{
    char why[100];

    snprintf(why, sizeof why, "it has %u rank%s, the nodes of this plan have %u", part->per_node,
             part->per_node == 1 ? "" : "s", set->topology->per_node);
    for (uint32_t i = 0; i < part->nodes; i++)
        if (!add_left_out(set->left_out, part, i, why))
            return mics_err_nomem(err);
    return MICS_OK;
}

static enum mics_status add_sets(struct builder *builder, struct mics_topology *const *parts,
                                 uint32_t part_count, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t p = 0; p < part_count && status == MICS_OK; p++) {
        uint32_t first = builder->count;

        builder->part = parts[p];
        status = add_sets_of_part(builder, err);
        for (; first < builder->count && status == MICS_OK; first++)
            for (uint32_t other = 0; other < part_count && status == MICS_OK; other++)
                if (other != p)
                    status = leave_out_part(&builder->sets[first], parts[other], err);
    }
    if (status == MICS_OK && builder->count == 0)
        status = mics_err_set(err, MICS_ERR_INFEASIBLE, "every node is in bad_nodes");
    return status;
}

/* One set: the lowest rates of all outliers and classes. */
static enum mics_status add_all_nodes(struct builder *builder, struct mics_err *err)
{
    const json_t *outliers = json_object_get(builder->part->doc, "outliers"), *outlier;
    struct mics_topology *all;
    enum mics_status status;
    size_t i;

    builder->sets = calloc(1, sizeof *builder->sets);
    builder->class_of = calloc(builder->part->nodes, 1);
    builder->bad = calloc(builder->part->nodes, sizeof *builder->bad);
    status = builder->sets && builder->class_of && builder->bad
                 ? read_classes(builder->part, builder->classes, &builder->class_count, err)
                 : mics_err_nomem(err);
    if (status == MICS_OK)
        status = add_set(builder, UINT32_MAX, err);
    if (status != MICS_OK)
        return status;
    all = builder->sets[0].topology;
    json_array_foreach(outliers, i, outlier)
    {
        const char *what = json_string_value(json_object_get(outlier, "what"));
        const double value = json_number_value(json_object_get(outlier, "value"));
        const double times = json_number_value(json_object_get(outlier, "times_slower"));

        if (strcmp(what, "flops") == 0)
            all->flops = fmin(all->flops, value);
        else if (strcmp(what, "memory_bandwidth") == 0)
            all->memory_bandwidth = fmin(all->memory_bandwidth, value);
        struct mics_link *link = strcmp(what, "net_link") == 0    ? &all->net_link
                                 : strcmp(what, "node_link") == 0 ? &all->node_link
                                                                  : NULL;
        const struct mics_link *measured =
            link == &all->net_link ? &builder->part->net_link : &builder->part->node_link;
        if (link && link->bandwidth_bytes > 0) {
            link->bandwidth_bytes =
                fmin(link->bandwidth_bytes, fmax(1, measured->bandwidth_bytes / times));
            link->latency_s = fmin(3600, fmax(link->latency_s, measured->latency_s * times));
        }
    }
    return MICS_OK;
}

enum mics_status mics_node_sets_new(const struct mics_topology *topology, bool all_nodes,
                                    struct mics_node_set **out, uint32_t *count,
                                    struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(topology->doc);
    struct mics_topology *parts[1 + MAX_PARTS] = {(struct mics_topology *)(uintptr_t)topology};
    struct builder builder = {.part = topology};
    struct mics_cursor array;
    uint32_t part_count = 1;
    enum mics_status status = MICS_OK;

    if (topology->doc && mics_cursor_has(&root, "other_parts"))
        status = mics_cursor_array(&root, "other_parts", 0, MAX_PARTS, &array, err);
    else
        array = (struct mics_cursor){0};
    while (status == MICS_OK && array.value && part_count <= mics_cursor_count(&array)) {
        status = open_part(&array, part_count - 1, &parts[part_count], err);
        part_count += status == MICS_OK;
    }
    if (status == MICS_OK && all_nodes && part_count > 1)
        status = mics_err_set(err, MICS_ERR_INFEASIBLE,
                              "a plan for all nodes needs the same number of ranks on each");
    else if (status == MICS_OK)
        status =
            all_nodes ? add_all_nodes(&builder, err) : add_sets(&builder, parts, part_count, err);
    for (uint32_t p = 1; p < part_count; p++)
        mics_topology_free(parts[p]);
    free(builder.class_of);
    free(builder.bad);
    if (status == MICS_OK) {
        *out = builder.sets;
        *count = builder.count;
    } else {
        mics_node_sets_free(builder.sets, builder.count);
    }
    return status;
}
