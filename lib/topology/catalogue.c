/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue.c - read the catalogue, find a machine in it, make a topology of it, print it.
 *
 * A topology has sustained rates; the vendors' figures are added to its document, as
 * device.peak_flops_per_s, links.net.cards and links.net.card_bytes_per_s.
 */
#include "topology/catalogue.h"

#include "base/suggest.h"
#include "doc/cursor.h"
#include "doc/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The bytes of share/mics/instances.json, without a terminating NUL; the Makefile generates the
 * included file. */
static const unsigned char catalogue_data[] = {
#include "instances.inc"
};

struct mics_catalogue {
    json_t *json;
    const json_t *instances, *gpus; /* arrays in json */
};

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

/* A number of the catalogue; `scale` converts from the unit that it has there. */
struct figure {
    const char *key;
    double scale;
    double *out;
};

static enum mics_status read_figures(const struct mics_cursor *at, const struct figure *figures,
                                     size_t count, struct mics_err *err)
{
    for (size_t i = 0; i < count; i++) {
        double value;
        const enum mics_status status = mics_cursor_double(at, figures[i].key, 0, 1e9, &value, err);

        if (status != MICS_OK)
            return status;
        *figures[i].out = value * figures[i].scale;
    }
    return MICS_OK;
}

static enum mics_status find_gpu(const struct mics_cursor *root, const char *id,
                                 struct mics_cursor *gpus, struct mics_cursor *out,
                                 struct mics_err *err)
{
    enum mics_status status = mics_cursor_array(root, "gpus", 1, 1000, gpus, err);

    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(gpus); i++) {
        const char *found;

        status = mics_cursor_item(gpus, i, out, err);
        if (status == MICS_OK)
            status = mics_cursor_string(out, "id", &found, err);
        if (status == MICS_OK && strcmp(found, id) == 0)
            return MICS_OK;
    }
    return status == MICS_OK ? mics_cursor_fail(root, "gpus", err, "no '%s'", id) : status;
}

/* What kernels reach: the peak of each type is sustained in the same part. */
static enum mics_status read_rates(const struct mics_cursor *gpu, double sustained,
                                   struct mics_gpu_rates *out, struct mics_err *err)
{
    const struct figure figures[] = {{"f32_tflops", sustained * 1e12, &out->f32},
                                     {"bf16_tflops", sustained * 1e12, &out->bf16},
                                     {"f16_tflops", sustained * 1e12, &out->f16},
                                     {"product_overhead_us", 1e-6, &out->product_overhead_s},
                                     {"attention_factor", 1, &out->attention_factor}};
    const struct figure more[] = {{"tf32_tflops", sustained * 1e12, &out->tf32},
                                  {"pytorch_efficiency", 1, &out->pytorch_efficiency}};
    const char *attention;
    enum mics_status status;

    if (!mics_cursor_has(gpu, "sms"))
        return MICS_OK;
    status = mics_cursor_u32(gpu, "sms", 1, 1 << 16, &out->sms, err);
    if (status == MICS_OK)
        status = read_figures(gpu, figures, sizeof figures / sizeof *figures, err);
    for (size_t i = 0; i < sizeof more / sizeof *more && status == MICS_OK; i++)
        if (mics_cursor_has(gpu, more[i].key))
            status = read_figures(gpu, &more[i], 1, err);
    if (status == MICS_OK)
        status = mics_cursor_string(gpu, "attention", &attention, err);
    if (status == MICS_OK && !mics_gpu_attention_is_known(attention))
        return mics_cursor_fail(gpu, "attention", err, "'%s': expected A100 or H100", attention);
    if (status == MICS_OK)
        snprintf(out->attention, sizeof out->attention, "%s", attention);
    return status;
}

static enum mics_status read_gpu(const struct mics_cursor *root, const char *id,
                                 struct mics_instance *out, struct mics_err *err)
{
    const struct figure figures[] = {
        {"peak_tflops", 1e12, &out->peak_flops},     {"sustained", 1, &out->flops},
        {"memory_mib", 1 << 20, &out->memory_bytes}, {"memory_gb_per_s", 1e9, &out->memory_rate},
        {"memory_reached", 1, &out->memory_factor},  {"link_gb_per_s", 1e9, &out->link_rate}};
    struct mics_cursor gpus, gpu;
    enum mics_status status = find_gpu(root, id, &gpus, &gpu, err);

    if (status == MICS_OK)
        status = mics_cursor_string(&gpu, "name", &out->gpu, err);
    if (status == MICS_OK)
        status = mics_cursor_string(&gpu, "flops_dtype", &out->flops_dtype, err);
    if (status == MICS_OK)
        status = read_figures(&gpu, figures, sizeof figures / sizeof *figures, err);
    if (status == MICS_OK)
        status = read_rates(&gpu, out->flops, &out->rates, err);
    out->flops *= out->peak_flops;
    return status;
}

static enum mics_status read_common(const struct mics_cursor *root, struct mics_instance *out,
                                    struct mics_err *err)
{
    const struct figure latency = {"link_latency_us", 1e-6, &out->link_latency_s};
    const struct figure figures[] = {{"link", 1, &out->link_factor}, {"net", 1, &out->net_factor}};
    struct mics_cursor reached;
    enum mics_status status = mics_cursor_object(root, "reached", &reached, err);

    if (status == MICS_OK)
        status = read_figures(&reached, figures, sizeof figures / sizeof *figures, err);
    return status == MICS_OK ? read_figures(root, &latency, 1, err) : status;
}

static enum mics_status read_instance(const struct mics_cursor *at, struct mics_instance *out,
                                      const char **gpu, struct mics_err *err)
{
    const double gbit = 1e9 / 8;
    const struct figure figures[] = {{"card_gbit", gbit, &out->card_rate},
                                     {"net_latency_us", 1e-6, &out->net_latency_s}};
    struct mics_cursor aliases;
    enum mics_status status = mics_cursor_string(at, "name", &out->name, err);

    if (status == MICS_OK)
        status = mics_cursor_array(at, "aliases", 0, 16, &aliases, err);
    if (status == MICS_OK)
        status = mics_cursor_string(at, "gpu", gpu, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(at, "gpus", 1, MICS_MAX_PER_NODE, &out->gpus, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(at, "cards", 1, 1024, &out->cards, err);
    if (status == MICS_OK)
        status = read_figures(at, figures, sizeof figures / sizeof *figures, err);
    if (status == MICS_OK)
        out->aliases = aliases.value;
    return status;
}

enum mics_status mics_catalogue_get(const struct mics_catalogue *catalogue, size_t index,
                                    struct mics_instance *out, struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(catalogue->json);
    struct mics_instance instance = {0};
    struct mics_cursor instances, at;
    const char *gpu;
    enum mics_status status = mics_cursor_array(&root, "instances", 1, 10000, &instances, err);

    if (status == MICS_OK)
        status = mics_cursor_item(&instances, index, &at, err);
    if (status == MICS_OK)
        status = read_instance(&at, &instance, &gpu, err);
    if (status == MICS_OK)
        status = read_gpu(&root, gpu, &instance, err);
    if (status == MICS_OK)
        status = read_common(&root, &instance, err);
    if (status == MICS_OK)
        *out = instance;
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
        return mics_err_set(err, MICS_ERR_ARG,
                            "'%.100s': unknown instance; 'mics-probe --list' lists them", name);
    return mics_err_set(err, MICS_ERR_ARG,
                        "'%.100s': unknown instance; similar: %s; 'mics-probe --list' lists them",
                        name, mics_suggest_list(&suggestions, list, sizeof list));
}

enum mics_status mics_catalogue_find(const struct mics_catalogue *catalogue, const char *name,
                                     struct mics_instance *out, struct mics_err *err)
{
    for (size_t i = 0; i < mics_catalogue_count(catalogue); i++)
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

static enum mics_status report_unknown_gpu(const struct mics_catalogue *catalogue, const char *name,
                                           struct mics_err *err)
{
    char list[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < json_array_size(catalogue->gpus) && used < sizeof list; i++)
        used += (size_t)snprintf(
            list + used, sizeof list - used, "%s%s", i ? ", " : "",
            json_string_value(json_object_get(json_array_get(catalogue->gpus, i), "id")));
    return mics_err_set(err, MICS_ERR_ARG, "GPU \"%s\" is not in the catalogue, which has %s", name,
                        list);
}

enum mics_status mics_catalogue_find_gpu(const struct mics_catalogue *catalogue, const char *name,
                                         struct mics_instance *out, struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(catalogue->json);

    *out = (struct mics_instance){0};
    for (size_t i = 0; i < json_array_size(catalogue->gpus); i++) {
        const json_t *gpu = json_array_get(catalogue->gpus, i);

        if (!gpu_is(gpu, name))
            continue;
        const char *id = json_string_value(json_object_get(gpu, "id"));
        enum mics_status status = read_gpu(&root, id, out, err);
        return status == MICS_OK ? read_common(&root, out, err) : status;
    }
    return report_unknown_gpu(catalogue, name, err);
}

bool mics_catalogue_gpu_rates(const char *device, struct mics_gpu_rates *out)
{
    struct mics_catalogue *catalogue = NULL;
    bool found = false;

    if (mics_catalogue_open(&catalogue, NULL) != MICS_OK)
        return false;
    for (size_t i = 0; i < json_array_size(catalogue->gpus) && !found; i++) {
        const json_t *gpu = json_array_get(catalogue->gpus, i);
        const char *id = json_string_value(json_object_get(gpu, "id"));
        struct mics_instance instance;
        char model[32];

        snprintf(model, sizeof model, "%.*s", (int)strcspn(id, "-"), id);
        if (!strstr(device, model))
            continue;
        found = mics_catalogue_find_gpu(catalogue, id, &instance, NULL) == MICS_OK &&
                instance.rates.sms > 0;
        if (found)
            *out = instance.rates;
    }
    mics_catalogue_close(catalogue);
    return found;
}

enum mics_status mics_instance_set_gpu(const struct mics_instance *gpu, uint32_t cards,
                                       double card_rate, struct mics_topology *topology,
                                       struct mics_err *err)
{
    snprintf(topology->device, sizeof topology->device, "%s", gpu->gpu);
    snprintf(topology->flops_dtype, sizeof topology->flops_dtype, "%s", gpu->flops_dtype);
    topology->flops = gpu->flops;
    topology->rates = gpu->rates;
    topology->memory_bandwidth = gpu->memory_rate * gpu->memory_factor;
    topology->memory_bytes = mics_gpu_memory_limit((uint64_t)gpu->memory_bytes);

    const enum mics_status status = mics_topology_to_doc(topology, &topology->doc, err);
    if (status != MICS_OK)
        return status;
    json_t *device = json_object_get(topology->doc, "device");
    json_t *net = json_object_get(json_object_get(topology->doc, "links"), "net");
    bool failed = json_object_set_new(device, "peak_flops_per_s", json_real(gpu->peak_flops)) != 0;

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
        .node_link = {.latency_s = instance->link_latency_s,
                      .bandwidth_bytes = instance->link_rate * instance->link_factor},
        .net_link = {.latency_s = instance->net_latency_s,
                     .bandwidth_bytes =
                         instance->card_rate * instance->cards * instance->net_factor},
    };
    snprintf(topology->name, sizeof topology->name, "%s", instance->name);
    status = mics_instance_set_gpu(instance, instance->cards, instance->card_rate, topology, err);
    if (status != MICS_OK) {
        mics_topology_free(topology);
        return status;
    }
    *out = topology;
    return MICS_OK;
}

static void put_aliases(struct mics_table *table, const struct mics_instance *instance)
{
    const char *first = json_string_value(json_array_get(instance->aliases, 0));

    mics_table_cell(table, "%s", first ? first : "-");
}

static void put_instance(struct mics_table *table, const struct mics_instance *instance, int tsv)
{
    mics_table_cell(table, "%s", instance->name);
    put_aliases(table, instance);
    mics_table_cell(table, "%u", instance->gpus);
    mics_table_cell(table, "%s", instance->gpu);
    if (tsv) {
        mics_table_cell(table, "%.12g", instance->peak_flops);
        mics_table_cell(table, "%s", instance->flops_dtype);
        mics_table_cell(table, "%.12g", instance->link_rate);
        mics_table_cell(table, "%.12g", instance->card_rate * instance->cards);
        mics_table_cell(table, "%.12g", instance->net_latency_s);
    } else {
        mics_table_cell(table, "%.0f %s", instance->peak_flops / 1e12, instance->flops_dtype);
        mics_table_cell(table, "%.0f", instance->link_rate / 1e9);
        mics_table_cell(table, "%u x %.0f", instance->cards, instance->card_rate * 8 / 1e9);
        mics_table_cell(table, "%.0f", instance->net_latency_s * 1e6);
    }
}

enum mics_status mics_catalogue_print(FILE *out, int tsv, struct mics_err *err)
{
    struct mics_catalogue *catalogue = NULL;
    enum mics_status status = mics_catalogue_open(&catalogue, err);

    if (status != MICS_OK)
        return status;
    struct mics_table *table = mics_table_new(
        tsv ? "name|alias|gpus|gpu|peak_flops_per_s|flops_dtype|link_bytes_per_s|net_bytes_per_s|"
              "net_latency_s"
            : "<name|<alias|>GPUs|<GPU|>TFLOP/s|>link GB/s|>net Gbit/s|>net us");
    for (size_t i = 0; i < mics_catalogue_count(catalogue) && status == MICS_OK; i++) {
        struct mics_instance instance;

        status = mics_catalogue_get(catalogue, i, &instance, err);
        if (status == MICS_OK)
            put_instance(table, &instance, tsv);
    }
    if (status == MICS_OK)
        status = mics_table_print(table, out, tsv, err);
    mics_table_free(table);
    mics_catalogue_close(catalogue);
    return status;
}
