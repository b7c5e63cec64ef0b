/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/catalogue_entries.h"

#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

/* "file" is added when a user's file is read. */
static const char *const instance_members[] = {
    "name",   "aliases", "gpu",         "gpus",  "cards", "card_gbit", "host_link",
    "source", "date",    "net_latency", "price", "file",  NULL,
};

void mics_entry_check_members(const struct mics_cursor *at, const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)at->value, key, value)
    {
        struct mics_suggestions similar;
        char list[256];
        size_t i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (known[i])
            continue;
        mics_suggest_init(&similar, key);
        for (i = 0; known[i]; i++)
            mics_suggest_offer(&similar, known[i]);
        mics_cursor_reject(at, key, "unknown member%s%s", similar.count ? "; similar: " : "",
                           mics_suggest_list(&similar, list, sizeof list));
        return;
    }
}

/* What the map does not state stays: a map inside a file's entry is of the same file. */
static void read_source(const struct mics_cursor *at, struct mics_source *out)
{
    out->text = mics_cursor_opt_string(at, "source", NULL);
    out->date = mics_cursor_opt_string(at, "date", NULL);
    out->file = mics_cursor_opt_string(at, "file", out->file);
}

/* A number of the catalogue. */
static double get_figure(const struct mics_cursor *at, const char *key)
{
    return mics_cursor_get_double(at, key, 1e-6, 1e9);
}

/* The same for a number that may have a source of its own, as {value, source, date}. *source: that
 * of the map before, and of the number after. */
static double get_sourced(const struct mics_cursor *at, const char *key, struct mics_source *source)
{
    if (!json_is_object(json_object_get(at->value, key)))
        return get_figure(at, key);
    const struct mics_cursor map = mics_cursor_get_object(at, key);
    read_source(&map, source);
    return get_figure(&map, "value");
}

/* What kernels reach: the peak of each type is sustained in the same part. */
static void read_kernels(const struct mics_cursor *gpu, double sustained, struct mics_instance *out)
{
    struct mics_gpu_rates *rates = &out->rates;
    struct mics_source *source = &out->kernels_source;
    const double scale = sustained * 1e12;
    const char *attention;

    if (!mics_cursor_has(gpu, "kernels"))
        return;
    const struct mics_cursor at = mics_cursor_get_object(gpu, "kernels");
    *source = out->gpu_source;
    read_source(&at, source);
    out->f32_source = out->bf16_source = out->overhead_source = out->attention_source = *source;
    rates->sms = mics_cursor_get_u32(&at, "sms", 1, 1 << 16);
    rates->f32 = get_sourced(&at, "f32_tflops", &out->f32_source) * scale;
    rates->bf16 = get_sourced(&at, "bf16_tflops", &out->bf16_source) * scale;
    rates->f16 = get_figure(&at, "f16_tflops") * scale;
    rates->product_overhead_s =
        get_sourced(&at, "product_overhead_us", &out->overhead_source) * 1e-6;
    rates->attention_factor = get_sourced(&at, "attention_factor", &out->attention_source);
    if (mics_cursor_has(&at, "tf32_tflops"))
        rates->tf32 = get_figure(&at, "tf32_tflops") * scale;
    if (mics_cursor_has(&at, "pytorch_efficiency")) {
        out->pytorch_source = *source;
        rates->pytorch_efficiency = get_sourced(&at, "pytorch_efficiency", &out->pytorch_source);
    }
    attention = mics_cursor_get_string(&at, "attention");
    if (!mics_gpu_attention_is_known(attention))
        mics_cursor_reject(&at, "attention", "'%.32s': expected A100 or H100", attention);
    snprintf(rates->attention, sizeof rates->attention, "%s", attention);
}

void mics_entry_read_host_link(const struct mics_cursor *of, const struct mics_source *source,
                               struct mics_instance *out)
{
    if (!mics_cursor_has(of, "host_link"))
        return;
    const struct mics_cursor at = mics_cursor_get_object(of, "host_link");
    out->host_source = *source;
    read_source(&at, &out->host_source);
    out->host_link = mics_cursor_get_string(&at, "name");
    out->host_rate = get_figure(&at, "gb_per_s") * 1e9;
    out->host_factor = mics_cursor_get_double(&at, "reached", 1e-6, 1);
    out->host_link_gpus = mics_cursor_opt_u32(&at, "gpus", 1, MICS_MAX_PER_NODE, 1);
}

void mics_entry_read_gpu(const struct mics_cursor *gpu, struct mics_instance *out)
{
    double sustained;

    out->gpu_id = mics_cursor_get_string(gpu, "id");
    out->gpu = mics_cursor_get_string(gpu, "name");
    out->flops_dtype = mics_cursor_get_string(gpu, "flops_dtype");
    if (!mics_topology_dtype_is_known(out->flops_dtype))
        mics_cursor_reject(gpu, "flops_dtype", "'%.32s': expected f32, bf16 or f16",
                           out->flops_dtype);
    read_source(gpu, &out->gpu_source);
    out->flops_source = out->memory_source = out->memory_factor_source = out->gpu_source;
    out->peak_flops = get_figure(gpu, "peak_tflops") * 1e12;
    sustained = get_sourced(gpu, "sustained", &out->flops_source);
    out->memory_bytes = get_sourced(gpu, "memory_mib", &out->memory_source) * (1 << 20);
    out->memory_rate = get_figure(gpu, "memory_gb_per_s") * 1e9;
    out->memory_factor = get_sourced(gpu, "memory_reached", &out->memory_factor_source);
    out->link_rate = get_figure(gpu, "link_gb_per_s") * 1e9;
    out->link_factor_source = out->gpu_source;
    if (mics_cursor_has(gpu, "link_reached"))
        out->link_factor = get_sourced(gpu, "link_reached", &out->link_factor_source);
    if (sustained > 1 || out->memory_factor > 1 || out->link_factor > 1)
        mics_cursor_reject(gpu,
                           sustained > 1            ? "sustained"
                           : out->memory_factor > 1 ? "memory_reached"
                                                    : "link_reached",
                           "expected a part of the peak, at most 1");
    out->flops = sustained * out->peak_flops;
    read_kernels(gpu, sustained, out);
    out->integrated = mics_cursor_opt_bool(gpu, "integrated", false);
    if (out->integrated && mics_cursor_has(gpu, "host_link"))
        mics_cursor_reject(gpu, "host_link", "an integrated GPU has no link to its host");
    mics_entry_read_host_link(gpu, &out->gpu_source, out);
}

static double read_share(const struct mics_cursor *reached, const char *key,
                         struct mics_source *source)
{
    const struct mics_cursor at = mics_cursor_get_object(reached, key);
    const double share = mics_cursor_get_double(&at, "share", 1e-6, 1);

    read_source(&at, source);
    return share;
}

void mics_entry_read_reached(const struct mics_cursor *root, struct mics_instance *out)
{
    const struct mics_cursor reached = mics_cursor_get_object(root, "reached");
    struct mics_source source = {0};
    const double link = read_share(&reached, "link", &source);

    if (out->link_factor == 0) {
        out->link_factor = link;
        out->link_factor_source = source;
    }
    out->net_factor = read_share(&reached, "net", &out->net_factor_source);
}

/* {us, source, date}, in seconds. */
static double read_latency(const struct mics_cursor *root, const char *key,
                           struct mics_source *source)
{
    const struct mics_cursor at = mics_cursor_get_object(root, key);
    const double latency_s = get_figure(&at, "us") * 1e-6;

    read_source(&at, source);
    return latency_s;
}

void mics_entry_read_link_latency(const struct mics_cursor *root, struct mics_instance *out)
{
    out->link_latency_s = read_latency(root, "link_latency", &out->link_latency_source);
}

/* One kind of network of the section "networks": {share, us, SOURCE}. */
void mics_entry_read_network(const struct mics_cursor *at, double *share, double *latency_s)
{
    *share = mics_cursor_get_double(at, "share", 1e-6, 1);
    *latency_s = get_figure(at, "us") * 1e-6;
}

void mics_entry_read_networks(const struct mics_cursor *root, struct mics_instance *unused)
{
    const struct mics_cursor networks = mics_cursor_get_object(root, "networks");
    double share, latency_s;
    const char *key;
    json_t *value;

    (void)unused;
    json_object_foreach((json_t *)(uintptr_t)networks.value, key, value)
    {
        const struct mics_cursor at = mics_cursor_get_object(&networks, key);

        mics_entry_read_network(&at, &share, &latency_s);
    }
}

static void read_aliases(const struct mics_cursor *at, struct mics_instance *out)
{
    if (!mics_cursor_has(at, "aliases"))
        return;
    const struct mics_cursor aliases = mics_cursor_get_array(at, "aliases", 0, 16);
    for (size_t i = 0; i < mics_cursor_count(&aliases); i++) {
        const struct mics_cursor alias = mics_cursor_item_any(&aliases, i);

        if (!json_is_string(alias.value))
            mics_cursor_reject(&alias, NULL, "expected a string");
    }
    out->aliases = aliases.value;
}

static void read_price(const struct mics_cursor *at, struct mics_instance *out)
{
    if (!mics_cursor_has(at, "price"))
        return;
    const struct mics_cursor price = mics_cursor_get_object(at, "price");
    out->usd_per_hour = get_figure(&price, "usd_per_hour");
    out->price_source.file = out->source.file;
    read_source(&price, &out->price_source);
}

void mics_entry_read_instance(const struct mics_cursor *at, struct mics_instance *out)
{
    mics_entry_check_members(at, instance_members);
    out->name = mics_cursor_get_string(at, "name");
    if (!out->name[0] || strpbrk(out->name, ": \t\n"))
        mics_cursor_reject(at, "name", "'%.64s': expected a name without colon or blank",
                           out->name);
    read_source(at, &out->source);
    read_aliases(at, out);
    out->gpu_id = mics_cursor_get_string(at, "gpu");
    out->gpus = mics_cursor_get_u32(at, "gpus", 1, MICS_MAX_PER_NODE);
    out->cards = mics_cursor_get_u32(at, "cards", 1, 1024);
    out->card_rate = get_figure(at, "card_gbit") * (1e9 / 8);
    out->net_latency_source.file = out->source.file;
    out->net_latency_s = read_latency(at, "net_latency", &out->net_latency_source);
    read_price(at, out);
    mics_entry_read_host_link(at, &out->source, out);
}
