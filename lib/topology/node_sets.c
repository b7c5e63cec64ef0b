/* SPDX-License-Identifier: Apache-2.0 */
/* node_sets.c - sets of alike nodes as topologies of their own. */
#include "topology/node_sets.h"

#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sets under construction: of one part with its classes at a time. */
struct builder {
    const struct mics_topology *part;
    struct mics_node_class classes[MICS_MAX_NODE_CLASSES];
    uint32_t class_count;
    uint8_t *class_of;    /* [part->nodes] */
    bool *bad;            /* [part->nodes] */
    const json_t **worst; /* [part->nodes]: outlier of each, or NULL */
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

struct named_node {
    const char *name;
    size_t length;
    uint32_t node;
};

static int by_name(const void *left, const void *right)
{
    const struct named_node *a = left, *b = right;
    const size_t both = a->length < b->length ? a->length : b->length;
    const int order = memcmp(a->name, b->name, both);

    return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* For each word of an outlier's "host", which are one or two hosts: is it the worst of its node? */
static void compare_outlier(struct builder *builder, const struct named_node *names, uint32_t count,
                            const json_t *outlier)
{
    const double times = json_number_value(json_object_get(outlier, "times_slower"));
    const char *word = json_string_value(json_object_get(outlier, "host"));

    for (; word && *word; word += strspn(word, " ")) {
        const struct named_node key = {.name = word, .length = strcspn(word, " ")};
        const struct named_node *found = bsearch(&key, names, count, sizeof *names, by_name);
        const json_t **worst = found ? &builder->worst[found->node] : NULL;

        if (worst &&
            (!*worst || times > json_number_value(json_object_get(*worst, "times_slower"))))
            *worst = outlier;
        word += key.length;
    }
}

/* The worst outlier of each node that has a name. */
static enum mics_status find_worst(struct builder *builder, struct mics_err *err)
{
    const struct mics_topology *part = builder->part;
    const json_t *outliers = json_object_get(part->doc, "outliers"), *outlier;
    struct named_node *names = calloc(part->nodes, sizeof *names);
    uint32_t count = 0;
    size_t i;

    builder->worst = calloc(part->nodes, sizeof(const json_t *));
    if (!names || !builder->worst) {
        free(names);
        return mics_err_nomem(err);
    }
    for (uint32_t node = 0; node < part->nodes; node++) {
        const char *name = mics_topology_host(part, node);

        if (name)
            names[count++] = (struct named_node){name, strlen(name), node};
    }
    qsort(names, count, sizeof *names, by_name);
    json_array_foreach(outliers, i, outlier)
    {
        compare_outlier(builder, names, count, outlier);
    }
    free(names);
    return MICS_OK;
}

/* Why a bad node is left out: its worst outlier, if the document names it. */
static void explain_bad(const struct builder *builder, size_t node, char *text, size_t size)
{
    const json_t *worst = builder->worst[node];

    if (!worst)
        snprintf(text, size, "the topology lists it as slow (bad_nodes)");
    else
        snprintf(text, size, "%s of %s is %.1f times slower than the median",
                 json_string_value(json_object_get(worst, "what")),
                 json_string_value(json_object_get(worst, "where")),
                 json_number_value(json_object_get(worst, "times_slower")));
}

static bool add_left_out(json_t *list, const struct mics_topology *part, size_t node,
                         const char *why)
{
    json_t *entry = json_pack("{s:I, s:s}", "node", (json_int_t)node, "why", why);
    const char *host = mics_topology_host(part, node);

    if (host && json_object_set_new(entry, "host", json_string(host)) != 0) {
        json_decref(entry);
        return false;
    }
    return json_array_append_new(list, entry) == 0;
}

/* "NVIDIA A100 with 39.5 GiB and 271 T FLOP/s" */
static void describe_class(const struct mics_node_class *class, char *text, size_t size)
{
    char memory[32], flops[32];

    mics_format_bytes(class->memory_bytes, memory, sizeof memory);
    mics_format_count(class->flops, flops, sizeof flops);
    snprintf(text, size, "%.40s with %s and %s FLOP/s", class->device, memory, flops);
}

/* Remove what was measured of groups of more than `nodes` nodes, and what is said of single nodes.
 * False: out of memory. */
static bool remove_members(json_t *doc, uint32_t nodes)
{
    static const char *const measured[] = {"collectives", "exchanges"};
    bool failed = false;

    for (size_t k = 0; k < 2; k++) {
        json_t *array = json_object_get(doc, measured[k]);

        for (size_t i = json_array_size(array); i-- > 0;)
            if (json_integer_value(json_object_get(json_array_get(array, i), "nodes")) > nodes)
                failed |= json_array_remove(array, i) != 0;
    }
    json_object_del(doc, "bad_nodes");
    json_object_del(doc, "outliers");
    json_object_del(doc, "node_classes");
    return !failed;
}

enum mics_status mics_topology_resize(const struct mics_topology *topology, uint32_t nodes,
                                      struct mics_topology **out, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = mics_topology_to_doc(topology, &doc, err);

    if (status != MICS_OK)
        return status;
    json_object_del(doc, "hosts");
    json_object_del(doc, "left_out");
    json_object_del(doc, "switch_use");
    json_object_del(doc, "other_parts");
    if (remove_members(doc, nodes) && json_object_set_new(doc, "nodes", json_integer(nodes)) == 0)
        status = mics_topology_from_doc(doc, out, err);
    else
        status = mics_err_nomem(err);
    json_decref(doc);
    return status;
}

/* Keep the items of "hosts" and of measured collectives that belong to `nodes` nodes. */
static enum mics_status shrink_doc(const struct builder *builder, uint32_t mask, json_t *doc,
                                   uint32_t nodes, json_t *left_out, struct mics_err *err)
{
    json_t *hosts = json_array();
    char why[200], own[128];
    bool failed = false;

    for (uint32_t i = 0; i < builder->part->nodes; i++) {
        const bool in_class = (mask >> builder->class_of[i] & 1) != 0;

        if (in_class && !builder->bad[i]) {
            if (mics_topology_host(builder->part, i))
                failed |= json_array_append_new(
                              hosts, json_string(mics_topology_host(builder->part, i))) != 0;
            continue;
        }
        if (builder->bad[i]) {
            explain_bad(builder, i, why, sizeof why);
        } else {
            describe_class(&builder->classes[builder->class_of[i]], own, sizeof own);
            snprintf(why, sizeof why, "a plan without its class is faster: %s per rank", own);
        }
        failed |= !add_left_out(left_out, builder->part, i, why);
    }
    failed |= !remove_members(doc, nodes);
    if (json_array_size(hosts) > 0)
        failed |= json_object_set(doc, "hosts", hosts) != 0;
    json_decref(hosts);
    return failed ? mics_err_nomem(err) : MICS_OK;
}

/* A device whose products run at `ratio` times the speed: the rates by type, and the measured
 * points. */
static void scale_products(json_t *device, double ratio)
{
    json_t *rates = json_object_get(device, "gpu_rates"), *rate, *kernel, *point;
    const char *key;
    size_t i, j;

    json_object_foreach(rates, key, rate)
    {
        if (strstr(key, "_flops_per_s") && json_is_number(rate))
            json_object_set_new(rates, key, json_real(json_number_value(rate) * ratio));
    }
    json_array_foreach(json_object_get(device, "kernel_rates"), i, kernel)
    {
        json_array_foreach(json_object_get(kernel, "points"), j, point)
        {
            const size_t last = json_array_size(point) - 1;

            json_array_set_new(point, last,
                               json_real(json_number_value(json_array_get(point, last)) / ratio));
        }
    }
}

/* The least of the classes in `mask`. */
static void set_device(const struct builder *builder, uint32_t mask, json_t *doc)
{
    json_t *device = json_object_get(doc, "device");
    const struct mics_node_class *least = NULL;

    for (uint32_t i = 0; i < builder->class_count; i++) {
        const struct mics_node_class *class = &builder->classes[i];

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
        scale_products(device, least->flops / builder->part->flops);
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
    if (status != MICS_OK)
        goto out;
    status = shrink_doc(builder, mask, doc, nodes, set->left_out, err);
    if (status != MICS_OK)
        goto out;
    json_object_set_new(doc, "nodes", json_integer(nodes));
    json_object_del(doc, "other_parts");
    set_device(builder, mask, doc);
    status = mics_topology_from_doc(doc, &set->topology, err);
out:
    json_decref(doc);
    builder->count++;
    return status;
}

/* Masks of classes: all, each, and those with at least the memory or the speed of each. */
static uint32_t list_masks(const struct builder *builder,
                           uint32_t masks[3 * MICS_MAX_NODE_CLASSES + 1])
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
    uint32_t masks[3 * MICS_MAX_NODE_CLASSES + 1], mask_count;
    void *sets;
    enum mics_status status =
        mics_node_classes_read(part, builder->classes, &builder->class_count, err);

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
    if (status == MICS_OK)
        status = find_worst(builder, err);
    for (uint32_t m = 0; m < mask_count && status == MICS_OK; m++)
        status = add_set(builder, masks[m], err);
    free(builder->class_of);
    free(builder->bad);
    free(builder->worst);
    builder->class_of = NULL;
    builder->bad = NULL;
    builder->worst = NULL;
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
        status = mics_err_set(err, MICS_ERR_INFEASIBLE,
                              "every node is slow (bad_nodes); --all-nodes leaves out none");
    return status;
}

/* Replace a set's topology by one whose products run at the speed of `flops`. */
static enum mics_status slow_down(struct mics_node_set *set, double flops, struct mics_err *err)
{
    struct mics_topology *slow = NULL;
    json_t *doc = NULL;
    enum mics_status status = mics_topology_to_doc(set->topology, &doc, err);

    if (status == MICS_OK) {
        json_t *device = json_object_get(doc, "device");

        scale_products(device, flops / set->topology->flops);
        json_object_set_new(device, "flops_per_s", json_real(flops));
        status = mics_topology_from_doc(doc, &slow, err);
    }
    json_decref(doc);
    if (status == MICS_OK) {
        mics_topology_free(set->topology);
        set->topology = slow;
    }
    return status;
}

/* One set: the lowest rates of all outliers and classes. */
static enum mics_status add_all_nodes(struct builder *builder, struct mics_err *err)
{
    const json_t *outliers = json_object_get(builder->part->doc, "outliers"), *outlier;
    struct mics_topology *all;
    enum mics_status status;
    double flops;
    size_t i;

    builder->sets = calloc(1, sizeof *builder->sets);
    builder->class_of = calloc(builder->part->nodes, 1);
    builder->bad = calloc(builder->part->nodes, sizeof *builder->bad);
    status =
        builder->sets && builder->class_of && builder->bad
            ? mics_node_classes_read(builder->part, builder->classes, &builder->class_count, err)
            : mics_err_nomem(err);
    if (status == MICS_OK)
        status = add_set(builder, UINT32_MAX, err);
    if (status != MICS_OK)
        return status;
    all = builder->sets[0].topology;
    flops = all->flops;
    json_array_foreach(outliers, i, outlier)
    {
        const char *what = json_string_value(json_object_get(outlier, "what"));
        const double value = json_number_value(json_object_get(outlier, "value"));
        const double times = json_number_value(json_object_get(outlier, "times_slower"));

        if (strcmp(what, "flops") == 0)
            flops = fmin(flops, value);
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
    return flops < all->flops ? slow_down(&builder->sets[0], flops, err) : MICS_OK;
}

enum mics_status mics_node_sets_new(const struct mics_topology *topology, bool all_nodes,
                                    struct mics_node_set **out, uint32_t *count,
                                    struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(topology->doc, &reading);
    struct mics_topology *parts[1 + MICS_MAX_PARTS] = {(struct mics_topology *)(uintptr_t)topology};
    struct builder builder = {.part = topology};
    uint32_t part_count = 1;
    enum mics_status status;

    if (mics_cursor_has(&root, "other_parts")) {
        const struct mics_cursor array =
            mics_cursor_get_array(&root, "other_parts", 0, MICS_MAX_PARTS);

        for (size_t i = 0; i < mics_cursor_count(&array) && mics_cursor_ok(&root); i++)
            parts[part_count++] = mics_topology_open_part(&array, i);
    }
    if (reading.status != MICS_OK)
        status = reading.status;
    else if (!all_nodes)
        status = add_sets(&builder, parts, part_count, err);
    else if (part_count == 1)
        status = add_all_nodes(&builder, err);
    else
        status = mics_err_set(err, MICS_ERR_INFEASIBLE,
                              "a plan for all nodes needs the same number of ranks on each");
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
