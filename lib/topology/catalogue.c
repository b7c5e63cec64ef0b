/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue.c - read catalogues, find a machine in them, make a topology of it.
 *
 * All catalogues become one: an entry of a later file replaces the one of the same name. Entries of
 * files are checked when the file is read, so that an error names the file and the path in it.
 *
 * A topology has sustained rates; the vendors' figures are added to its document, as
 * device.peak_flops_per_s, links.net.cards and links.net.card_bytes_per_s. So is the link to the
 * host, with its sustained rate, as device.host_link.
 */
#include "topology/catalogue.h"

#include "base/file.h"
#include "base/suggest.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "topology/catalogue_entries.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_FILE_BYTES = 4 << 20, MAX_GPUS = 1000, MAX_INSTANCES = 10000 };

/* The bytes of share/mics/instances.json, without a terminating NUL; the Makefile generates the
 * included file. */
static const unsigned char catalogue_data[] = {
#include "instances.inc"
};

/* The members of the catalogue itself; "about" is for people. */
static const char *const sections[] = {"about",    "gpus",    "instances", "link_latency",
                                       "networks", "reached", NULL};

struct mics_catalogue {
    json_t *json;             /* sections of all files, merged */
    json_t *instances, *gpus; /* arrays in json; an entry of a file has the member "file" */
};

void mics_catalogue_close(struct mics_catalogue *catalogue)
{
    if (!catalogue)
        return;
    json_decref(catalogue->json);
    free(catalogue);
}

size_t mics_catalogue_count(const struct mics_catalogue *catalogue)
{
    return json_array_size(catalogue->instances);
}

size_t mics_catalogue_gpu_count(const struct mics_catalogue *catalogue)
{
    return json_array_size(catalogue->gpus);
}

/* The index of the entry whose member `key` is `name`, ignoring case; the array's size: none. */
static size_t find_entry(const json_t *entries, const char *key, const char *name)
{
    size_t i = 0;

    for (; i < json_array_size(entries); i++) {
        const char *found = json_string_value(json_object_get(json_array_get(entries, i), key));

        if (found && strcasecmp(found, name) == 0)
            break;
    }
    return i;
}

enum mics_status mics_catalogue_get_gpu(const struct mics_catalogue *catalogue, size_t index,
                                        struct mics_instance *out, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(catalogue->json, &reading);
    const struct mics_cursor gpus = mics_cursor_get_array(&root, "gpus", 1, MAX_INSTANCES);
    const struct mics_cursor gpu = mics_cursor_get_item(&gpus, index);

    *out = (struct mics_instance){0};
    mics_entry_read_gpu(&gpu, out);
    mics_entry_read_reached(&root, out);
    mics_entry_read_link_latency(&root, out);
    return reading.status;
}

enum mics_status mics_catalogue_get(const struct mics_catalogue *catalogue, size_t index,
                                    struct mics_instance *out, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(catalogue->json, &reading);
    const struct mics_cursor list = mics_cursor_get_array(&root, "instances", 1, MAX_INSTANCES);
    const struct mics_cursor at = mics_cursor_get_item(&list, index);
    struct mics_instance instance = {0};

    mics_entry_read_instance(&at, &instance);
    index = find_entry(catalogue->gpus, "id", instance.gpu_id);
    if (index == mics_catalogue_gpu_count(catalogue))
        mics_cursor_reject(&at, "gpu", "'%.64s': no GPU has this id", instance.gpu_id);
    const struct mics_cursor gpus = mics_cursor_get_array(&root, "gpus", 1, MAX_INSTANCES);
    const struct mics_cursor gpu = mics_cursor_get_item(&gpus, index);
    mics_entry_read_gpu(&gpu, &instance);
    mics_entry_read_host_link(&at, &instance.source,
                              &instance); /* the machine's replaces the GPU's */
    mics_entry_read_reached(&root, &instance);
    mics_entry_read_link_latency(&root, &instance);
    if (reading.status == MICS_OK)
        *out = instance;
    return reading.status;
}

/* Put a copy of the entry, which comes from `path`, in the place of the one of the same name. It
 * keeps that one's aliases if it states none. */
static void merge_entry(json_t *entries, const char *key, const struct mics_cursor *entry,
                        const char *path)
{
    json_t *aliases, *copy;
    size_t index;
    int failed;

    if (!mics_cursor_ok(entry))
        return;
    index = find_entry(entries, key, json_string_value(json_object_get(entry->value, key)));
    aliases = json_object_get(json_array_get(entries, index), "aliases");
    copy = json_deep_copy(entry->value);
    failed = json_object_set_new(copy, "file", json_string(path));
    if (aliases && !json_object_get(copy, "aliases"))
        failed |= json_object_set(copy, "aliases", aliases);
    failed |= index < json_array_size(entries) ? json_array_set_new(entries, index, copy)
                                               : json_array_append_new(entries, copy);
    if (failed)
        mics_cursor_nomem(entry);
}

static void merge_gpus(struct mics_catalogue *catalogue, const struct mics_cursor *root,
                       const char *path)
{
    struct mics_instance unused = {0};

    if (!mics_cursor_has(root, "gpus"))
        return;
    const struct mics_cursor gpus = mics_cursor_get_array(root, "gpus", 0, MAX_GPUS);
    for (size_t i = 0; i < mics_cursor_count(&gpus); i++) {
        const struct mics_cursor gpu = mics_cursor_get_item(&gpus, i);

        mics_entry_read_gpu(&gpu, &unused);
        merge_entry(catalogue->gpus, "id", &gpu, path);
    }
}

static const char *gpu_id(const struct mics_catalogue *catalogue, size_t index)
{
    return json_string_value(json_object_get(json_array_get(catalogue->gpus, index), "id"));
}

static void check_gpu_id(const struct mics_catalogue *catalogue, const struct mics_cursor *at,
                         const char *id)
{
    struct mics_suggestions similar;
    char list[256];

    if (!mics_cursor_ok(at) ||
        find_entry(catalogue->gpus, "id", id) < mics_catalogue_gpu_count(catalogue))
        return;
    mics_suggest_init(&similar, id);
    for (size_t i = 0; i < mics_catalogue_gpu_count(catalogue); i++)
        mics_suggest_offer(&similar, gpu_id(catalogue, i));
    mics_cursor_reject(at, "gpu", "'%.64s': no GPU has this id%s%s", id,
                       similar.count ? "; similar: " : "",
                       mics_suggest_list(&similar, list, sizeof list));
}

static void merge_instances(struct mics_catalogue *catalogue, const struct mics_cursor *root,
                            const char *path)
{
    if (!mics_cursor_has(root, "instances"))
        return;
    const struct mics_cursor list = mics_cursor_get_array(root, "instances", 0, MAX_INSTANCES);
    for (size_t i = 0; i < mics_cursor_count(&list); i++) {
        const struct mics_cursor at = mics_cursor_get_item(&list, i);
        struct mics_instance instance = {0};

        mics_entry_read_instance(&at, &instance);
        check_gpu_id(catalogue, &at, instance.gpu_id);
        merge_entry(catalogue->instances, "name", &at, path);
    }
}

/* "reached", "link_latency" and "networks" are replaced as a whole. */
static void merge_section(struct mics_catalogue *catalogue, const struct mics_cursor *root,
                          const char *key,
                          void (*read)(const struct mics_cursor *root, struct mics_instance *out))
{
    struct mics_instance unused = {0};

    if (!mics_cursor_has(root, key))
        return;
    read(root, &unused);
    if (mics_cursor_ok(root) &&
        json_object_set(catalogue->json, key, json_object_get(root->value, key)) != 0)
        mics_cursor_nomem(root);
}

static enum mics_status merge(struct mics_catalogue *catalogue, const json_t *json,
                              const char *path, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(json, &reading);

    if (!json_is_object(json))
        mics_cursor_reject(&root, NULL, "expected a map with gpus or instances");
    if (json_object_get(json, "kind"))
        mics_cursor_reject(&root, NULL, "expected a catalogue, found a document of the programs");
    mics_entry_check_members(&root, sections);
    if (json_object_size(json) == 0)
        mics_cursor_reject(&root, NULL, "has neither gpus nor instances");
    merge_gpus(catalogue, &root, path);
    merge_instances(catalogue, &root, path);
    merge_section(catalogue, &root, "reached", mics_entry_read_reached);
    merge_section(catalogue, &root, "link_latency", mics_entry_read_link_latency);
    merge_section(catalogue, &root, "networks", mics_entry_read_networks);
    return reading.status;
}

enum mics_status mics_catalogue_add(struct mics_catalogue *catalogue, const char *path,
                                    struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    json_error_t why;
    enum mics_status status = mics_file_read(path, MAX_FILE_BYTES, &data, &size, err);

    if (status != MICS_OK)
        return status;
    json_t *json = json_loadb(data, size, JSON_REJECT_DUPLICATES, &why);
    status = json ? merge(catalogue, json, path, err)
                  : mics_err_set(err, MICS_ERR_FORMAT, "line %d, column %d: %s", why.line,
                                 why.column, why.text);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    json_decref(json);
    free(data);
    return status;
}

enum mics_status mics_catalogue_open(struct mics_catalogue **out, struct mics_err *err)
{
    struct mics_catalogue *catalogue = calloc(1, sizeof *catalogue);
    json_error_t why;

    if (!catalogue)
        return mics_err_nomem(err);
    catalogue->json = json_loadb((const char *)catalogue_data, sizeof catalogue_data,
                                 JSON_REJECT_DUPLICATES, &why);
    catalogue->instances = json_object_get(catalogue->json, "instances");
    catalogue->gpus = json_object_get(catalogue->json, "gpus");
    if (!json_is_array(catalogue->instances) || !json_is_array(catalogue->gpus)) {
        mics_catalogue_close(catalogue);
        return mics_err_set(err, MICS_ERR_FORMAT, "the catalogue of instances is malformed");
    }
    *out = catalogue;
    return MICS_OK;
}

static int is_catalogue_file(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);

    return entry->d_name[0] != '.' && length > 5 &&
           strcmp(entry->d_name + length - 5, ".json") == 0;
}

/* A relative XDG_CONFIG_HOME is ignored, as its specification asks. */
static enum mics_status config_folder(char folder[MICS_PATH_MAX], struct mics_err *err)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    folder[0] = '\0';
    if (config && config[0] == '/')
        return mics_path_format(folder, err, "%s/mics", config);
    return home && home[0] == '/' ? mics_path_format(folder, err, "%s/.config/mics", home)
                                  : MICS_OK;
}

static enum mics_status add_folder(struct mics_catalogue *catalogue, const char *folder,
                                   struct mics_err *err)
{
    struct dirent **names = NULL;
    const int count = folder[0] ? scandir(folder, &names, is_catalogue_file, alphasort) : 0;
    enum mics_status status = MICS_OK;

    if (count < 0)
        return errno == ENOENT || errno == ENOTDIR ? MICS_OK
                                                   : mics_err_set_errno(err, "%s", folder);
    for (int i = 0; i < count; i++) {
        char path[MICS_PATH_MAX];

        status = mics_path_format(path, err, "%s/%s", folder, names[i]->d_name);
        if (status != MICS_OK)
            break;
        status = mics_catalogue_add(catalogue, path, err);
        if (status != MICS_OK)
            break;
    }
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return status;
}

enum mics_status mics_catalogue_open_user(const char *path, struct mics_catalogue **out,
                                          struct mics_err *err)
{
    struct mics_catalogue *catalogue = NULL;
    char folder[MICS_PATH_MAX];
    enum mics_status status = mics_catalogue_open(&catalogue, err);

    if (status != MICS_OK)
        return status;
    status = config_folder(folder, err);
    if (status != MICS_OK)
        goto out;
    status = add_folder(catalogue, folder, err);
    if (status != MICS_OK)
        goto out;
    if (path)
        status = mics_catalogue_add(catalogue, path, err);
out:
    if (status == MICS_OK)
        *out = catalogue;
    else
        mics_catalogue_close(catalogue);
    return status;
}

static bool has_name(const json_t *entry, const char *name)
{
    const json_t *aliases = json_object_get(entry, "aliases");
    const char *text = json_string_value(json_object_get(entry, "name"));

    if (text && strcasecmp(text, name) == 0)
        return true;
    for (size_t i = 0; i < json_array_size(aliases); i++) {
        text = json_string_value(json_array_get(aliases, i));
        if (text && strcasecmp(text, name) == 0)
            return true;
    }
    return false;
}

static void offer_aliases(struct mics_suggestions *suggestions,
                          const struct mics_catalogue *catalogue)
{
    for (size_t i = 0; i < mics_catalogue_count(catalogue); i++) {
        const json_t *aliases = json_object_get(json_array_get(catalogue->instances, i), "aliases");

        for (size_t a = 0; a < json_array_size(aliases); a++)
            mics_suggest_offer(suggestions, json_string_value(json_array_get(aliases, a)));
    }
}

static enum mics_status report_unknown(const struct mics_catalogue *catalogue, const char *name,
                                       struct mics_err *err)
{
    struct mics_suggestions suggestions;
    char list[256];

    mics_suggest_init(&suggestions, name);
    for (size_t i = 0; i < mics_catalogue_count(catalogue); i++)
        mics_suggest_offer(&suggestions, json_string_value(json_object_get(
                                             json_array_get(catalogue->instances, i), "name")));
    if (suggestions.count == 0)
        offer_aliases(&suggestions, catalogue);
    if (suggestions.count == 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "'%.100s': unknown instance; 'mics-probe --list' lists them", name);
    return mics_err_set(err, MICS_ERR_ARG,
                        "'%.100s': unknown instance; similar: %s; 'mics-probe --list' lists them",
                        name, mics_suggest_list(&suggestions, list, sizeof list));
}

enum mics_status mics_catalogue_find(const struct mics_catalogue *catalogue, const char *name,
                                     struct mics_instance *out, struct mics_err *err)
{
    /* The last one: an alias of a user's machine may be the name of another. */
    for (size_t i = mics_catalogue_count(catalogue); i-- > 0;)
        if (has_name(json_array_get(catalogue->instances, i), name))
            return mics_catalogue_get(catalogue, i, out, err);
    return report_unknown(catalogue, name, err);
}

static bool gpu_is(const json_t *gpu, const char *name)
{
    const json_t *ids = json_object_get(gpu, "pci_ids");

    if (strcasecmp(json_string_value(json_object_get(gpu, "id")), name) == 0)
        return true;
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (strcasecmp(json_string_value(json_array_get(ids, i)), name) == 0)
            return true;
    return false;
}

/* Does an id begin with a name, as A100-40 does with A100? */
static bool begins_with(const char *id, const char *name)
{
    const size_t length = strlen(name);

    return strncasecmp(id, name, length) == 0 && id[length] == '-';
}

/* The ids that begin with a name, or all ids without: "A100-40, A100-80". */
static void list_gpus(const struct mics_catalogue *catalogue, const char *name, char *list,
                      size_t size)
{
    size_t used = 0;

    list[0] = '\0';
    for (size_t i = 0; i < mics_catalogue_gpu_count(catalogue) && used < size; i++)
        if (!name || begins_with(gpu_id(catalogue, i), name))
            used += (size_t)snprintf(list + used, size - used, "%s%s", used ? ", " : "",
                                     gpu_id(catalogue, i));
}

enum mics_status mics_catalogue_find_gpu(const struct mics_catalogue *catalogue, const char *name,
                                         struct mics_instance *out, struct mics_err *err)
{
    const size_t count = mics_catalogue_gpu_count(catalogue);
    size_t similar = 0, last = 0;
    char list[512];

    *out = (struct mics_instance){0};
    for (size_t i = 0; i < count; i++)
        if (gpu_is(json_array_get(catalogue->gpus, i), name))
            return mics_catalogue_get_gpu(catalogue, i, out, err);
    for (size_t i = 0; i < count; i++)
        if (begins_with(gpu_id(catalogue, i), name)) {
            similar++;
            last = i;
        }
    if (similar == 1)
        return mics_catalogue_get_gpu(catalogue, last, out, err);
    list_gpus(catalogue, similar ? name : NULL, list, sizeof list);
    return mics_err_set(err, MICS_ERR_ARG,
                        similar ? "GPU \"%s\" is one of %s"
                                : "GPU \"%s\" is not in the catalogue, which has %s",
                        name, list);
}

bool mics_catalogue_network(const struct mics_catalogue *catalogue, const char *kind, double *share,
                            double *latency_s)
{
    struct mics_err err;
    struct mics_reading reading = {.err = &err};
    const struct mics_cursor root = mics_cursor_begin(catalogue->json, &reading);
    const struct mics_cursor networks = mics_cursor_get_object(&root, "networks");

    if (!mics_cursor_ok(&networks) || !mics_cursor_has(&networks, kind))
        return false;
    const struct mics_cursor at = mics_cursor_get_object(&networks, kind);
    mics_entry_read_network(&at, share, latency_s);
    return reading.status == MICS_OK;
}

/* Does a device's name ("NVIDIA GeForce RTX 4090") have the model ("RTX4090") as words? */
static bool has_model(const char *device, const char *model)
{
    for (const char *begin = device; *begin; begin++) {
        const char *at = begin, *of = model;

        if (begin > device && isalnum((unsigned char)begin[-1]))
            continue;
        for (; *at && *of; at++) {
            if (*at == *of)
                of++;
            else if (*at != ' ' || of == model)
                break;
        }
        if (!*of && !isalnum((unsigned char)*at))
            return true;
    }
    return false;
}

bool mics_catalogue_gpu_rates(const char *device, struct mics_gpu_rates *out)
{
    struct mics_catalogue *catalogue = NULL;
    bool found = false;

    if (mics_catalogue_open(&catalogue, NULL) != MICS_OK)
        return false;
    for (size_t i = 0; i < mics_catalogue_gpu_count(catalogue) && !found; i++) {
        struct mics_instance gpu;
        char model[32];

        if (mics_catalogue_get_gpu(catalogue, i, &gpu, NULL) != MICS_OK)
            continue;
        snprintf(model, sizeof model, "%.*s", (int)strcspn(gpu.gpu_id, "-"), gpu.gpu_id);
        found = gpu.rates.sms > 0 && has_model(device, model);
        if (found)
            *out = gpu.rates;
    }
    mics_catalogue_close(catalogue);
    return found;
}

void mics_instance_set_device(const struct mics_instance *gpu, struct mics_topology *topology)
{
    snprintf(topology->device, sizeof topology->device, "%s", gpu->gpu);
    snprintf(topology->flops_dtype, sizeof topology->flops_dtype, "%s", gpu->flops_dtype);
    topology->integrated = gpu->integrated;
    topology->flops = gpu->flops;
    topology->rates = gpu->rates;
    topology->memory_bandwidth = gpu->memory_rate * gpu->memory_factor;
    topology->memory_bytes = mics_gpu_memory_limit((uint64_t)gpu->memory_bytes);
    topology->node_link = (struct mics_link){.latency_s = gpu->link_latency_s,
                                             .bandwidth_bytes = gpu->link_rate * gpu->link_factor};
}

double mics_instance_host_copy_rate(const struct mics_instance *instance)
{
    return instance->host_rate * instance->host_factor / instance->host_link_gpus;
}

/* "PCIe 3.0 x16, shared by 2 GPUs, assumed": as reasons of plans quote it. */
static json_t *host_link_doc(const struct mics_instance *instance)
{
    static const char assumed[] = "assumed";
    const char *source = instance->host_source.text;
    char shared[48] = "";

    if (instance->host_link_gpus > 1)
        snprintf(shared, sizeof shared, ", shared by %u GPUs", instance->host_link_gpus);
    return json_pack(
        "{s:o, s:f}", "name",
        json_sprintf("%s%s%s", instance->host_link, shared,
                     source && strncmp(source, assumed, strlen(assumed)) == 0 ? ", assumed" : ""),
        "bytes_per_s", mics_instance_host_copy_rate(instance));
}

enum mics_status mics_instance_add_figures(const struct mics_instance *gpu, uint32_t cards,
                                           double card_rate, struct mics_topology *topology,
                                           struct mics_err *err)
{
    const enum mics_status status = mics_topology_to_doc(topology, &topology->doc, err);
    if (status != MICS_OK)
        return status;
    json_t *device = json_object_get(topology->doc, "device");
    json_t *net = json_object_get(json_object_get(topology->doc, "links"), "net");
    bool failed = json_object_set_new(device, "peak_flops_per_s", json_real(gpu->peak_flops)) != 0;

    if (gpu->host_link)
        failed |= json_object_set_new(device, "host_link", host_link_doc(gpu)) != 0;
    if (net && card_rate > 0)
        failed |= json_object_set_new(net, "cards", json_integer(cards)) != 0 ||
                  json_object_set_new(net, "card_bytes_per_s", json_real(card_rate)) != 0;
    return failed ? mics_err_nomem(err) : MICS_OK;
}

enum mics_status mics_instance_topology(const struct mics_instance *instance, uint32_t nodes,
                                        struct mics_topology **out, struct mics_err *err)
{
    struct mics_topology *topology = calloc(1, sizeof *topology);
    enum mics_status status;

    if (!topology)
        return mics_err_nomem(err);
    *topology = (struct mics_topology){
        .source = "catalogue",
        .nodes = nodes,
        .per_node = instance->gpus,
        .net_link = {.latency_s = instance->net_latency_s,
                     .bandwidth_bytes =
                         instance->card_rate * instance->cards * instance->net_factor},
    };
    snprintf(topology->name, sizeof topology->name, "%s", instance->name);
    mics_instance_set_device(instance, topology);
    status =
        mics_instance_add_figures(instance, instance->cards, instance->card_rate, topology, err);
    if (status != MICS_OK) {
        mics_topology_free(topology);
        return status;
    }
    *out = topology;
    return MICS_OK;
}

static enum mics_status parse_description(const char *text, struct mics_topology **out,
                                          struct mics_err *err)
{
    struct mics_catalogue *catalogue = NULL;
    enum mics_status status = mics_catalogue_open_user(NULL, &catalogue, err);

    if (status == MICS_OK)
        status = mics_topology_parse_in(catalogue, text, out, err);
    mics_catalogue_close(catalogue);
    return status;
}

enum mics_status mics_topology_open(const char *text, struct mics_topology **out,
                                    struct mics_err *err)
{
    bool is_file = false;
    json_t *doc = NULL;
    enum mics_status status = mics_file_exists(text, &is_file, err);

    if (status == MICS_OK && !is_file && strcmp(text, "-") != 0)
        return parse_description(text, out, err);
    if (status == MICS_OK)
        status = mics_doc_read_file(text, &doc, err);
    if (status == MICS_OK)
        status = mics_topology_from_doc(doc, out, err);
    json_decref(doc);
    return status;
}
