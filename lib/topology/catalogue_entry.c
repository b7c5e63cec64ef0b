/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue_entry.c - each reader checks what it reads; a figure of 0 or less is refused, since
 * nothing here is free or infinitely slow. */
#include "topology/catalogue_entry.h"

#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* "file" is added when a user's file is read. */
static const char *const instance_members[] = {
    "name",   "aliases", "gpu",         "gpus",  "cards", "card_gbit",
    "source", "date",    "net_latency", "price", "file",  NULL,
};

enum mics_status mics_entry_check_members(const struct mics_cursor *at, const char *const *known,
                                          struct mics_err *err)
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
        return mics_cursor_fail(at, key, err, "unknown member%s%s",
                                similar.count ? "; similar: " : "",
                                mics_suggest_list(&similar, list, sizeof list));
    }
    return MICS_OK;
}

/* Optional text; NULL if absent. */
static enum mics_status read_text(const struct mics_cursor *at, const char *key, const char **out,
                                  struct mics_err *err)
{
    *out = NULL;
    return mics_cursor_has(at, key) ? mics_cursor_string(at, key, out, err) : MICS_OK;
}

/* What the map does not state stays: a map inside a file's entry is of the same file. */
static enum mics_status read_source(const struct mics_cursor *at, struct mics_source *out,
                                    struct mics_err *err)
{
    enum mics_status status = read_text(at, "source", &out->text, err);

    if (status == MICS_OK)
        status = read_text(at, "date", &out->date, err);
    if (status == MICS_OK && mics_cursor_has(at, "file"))
        status = mics_cursor_string(at, "file", &out->file, err);
    return status;
}

/* A number of the catalogue; `scale` converts from the unit that it has there. With `source` it may
 * have one of its own, as {value, source, date}; *source is before that of the map. */
struct figure {
    const char *key;
    double scale;
    double *out;
    struct mics_source *source; /* or NULL */
};

static enum mics_status read_figure(const struct mics_cursor *at, const struct figure *figure,
                                    const struct mics_source *source, struct mics_err *err)
{
    const bool own = figure->source && json_is_object(json_object_get(at->value, figure->key));
    struct mics_cursor map;
    double value;
    enum mics_status status = MICS_OK;

    if (figure->source)
        *figure->source = *source;
    if (own)
        status = mics_cursor_object(at, figure->key, &map, err);
    if (own && status == MICS_OK)
        status = read_source(&map, figure->source, err);
    if (status == MICS_OK)
        status = mics_cursor_double(own ? &map : at, own ? "value" : figure->key, 1e-6, 1e9, &value,
                                    err);
    if (status == MICS_OK)
        *figure->out = value * figure->scale;
    return status;
}

/* `source`: of the map `at`. */
static enum mics_status read_figures(const struct mics_cursor *at, const struct figure *figures,
                                     size_t count, const struct mics_source *source,
                                     struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < count && status == MICS_OK; i++)
        status = read_figure(at, &figures[i], source, err);
    return status;
}

/* What kernels reach: the peak of each type is sustained in the same part. */
static enum mics_status read_kernels(const struct mics_cursor *gpu, double sustained,
                                     struct mics_instance *out, struct mics_err *err)
{
    struct mics_gpu_rates *rates = &out->rates;
    const struct figure figures[] = {
        {"f32_tflops", sustained * 1e12, &rates->f32, &out->f32_source},
        {"bf16_tflops", sustained * 1e12, &rates->bf16, &out->bf16_source},
        {"f16_tflops", sustained * 1e12, &rates->f16, NULL},
        {"product_overhead_us", 1e-6, &rates->product_overhead_s, &out->overhead_source},
        {"attention_factor", 1, &rates->attention_factor, &out->attention_source}};
    const struct figure more[] = {
        {"tf32_tflops", sustained * 1e12, &rates->tf32, NULL},
        {"pytorch_efficiency", 1, &rates->pytorch_efficiency, &out->pytorch_source}};
    struct mics_cursor at;
    const char *attention;
    enum mics_status status;

    if (!mics_cursor_has(gpu, "kernels"))
        return MICS_OK;
    status = mics_cursor_object(gpu, "kernels", &at, err);
    out->kernels_source = out->gpu_source;
    if (status == MICS_OK)
        status = read_source(&at, &out->kernels_source, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(&at, "sms", 1, 1 << 16, &rates->sms, err);
    if (status == MICS_OK)
        status = read_figures(&at, figures, COUNT_OF(figures), &out->kernels_source, err);
    for (size_t i = 0; i < COUNT_OF(more) && status == MICS_OK; i++)
        if (mics_cursor_has(&at, more[i].key))
            status = read_figure(&at, &more[i], &out->kernels_source, err);
    if (status == MICS_OK)
        status = mics_cursor_string(&at, "attention", &attention, err);
    if (status == MICS_OK && !mics_gpu_attention_is_known(attention))
        return mics_cursor_fail(&at, "attention", err, "'%.32s': expected A100 or H100", attention);
    if (status == MICS_OK)
        snprintf(rates->attention, sizeof rates->attention, "%s", attention);
    return status;
}

enum mics_status mics_entry_gpu(const struct mics_cursor *gpu, struct mics_instance *out,
                                struct mics_err *err)
{
    double sustained;
    const struct figure figures[] = {
        {"peak_tflops", 1e12, &out->peak_flops, NULL},
        {"sustained", 1, &sustained, &out->flops_source},
        {"memory_mib", 1 << 20, &out->memory_bytes, &out->memory_source},
        {"memory_gb_per_s", 1e9, &out->memory_rate, NULL},
        {"memory_reached", 1, &out->memory_factor, &out->memory_factor_source},
        {"link_gb_per_s", 1e9, &out->link_rate, NULL}};
    enum mics_status status = mics_cursor_string(gpu, "id", &out->gpu_id, err);

    if (status == MICS_OK)
        status = mics_cursor_string(gpu, "name", &out->gpu, err);
    if (status == MICS_OK)
        status = mics_cursor_string(gpu, "flops_dtype", &out->flops_dtype, err);
    if (status == MICS_OK && !mics_topology_dtype_is_known(out->flops_dtype))
        return mics_cursor_fail(gpu, "flops_dtype", err, "'%.32s': expected f32, bf16 or f16",
                                out->flops_dtype);
    if (status == MICS_OK)
        status = read_source(gpu, &out->gpu_source, err);
    if (status == MICS_OK)
        status = read_figures(gpu, figures, COUNT_OF(figures), &out->gpu_source, err);
    if (status == MICS_OK && (sustained > 1 || out->memory_factor > 1))
        return mics_cursor_fail(gpu, sustained > 1 ? "sustained" : "memory_reached", err,
                                "expected a part of the peak, at most 1");
    if (status != MICS_OK)
        return status;
    out->flops = sustained * out->peak_flops;
    return read_kernels(gpu, sustained, out, err);
}

enum mics_status mics_entry_reached(const struct mics_cursor *root, struct mics_instance *out,
                                    struct mics_err *err)
{
    const struct {
        const char *key;
        double *out;
        struct mics_source *source;
    } shares[] = {{"link", &out->link_factor, &out->link_factor_source},
                  {"net", &out->net_factor, &out->net_factor_source}};
    struct mics_cursor reached, share;
    enum mics_status status = mics_cursor_object(root, "reached", &reached, err);

    for (size_t i = 0; i < COUNT_OF(shares) && status == MICS_OK; i++) {
        status = mics_cursor_object(&reached, shares[i].key, &share, err);
        if (status == MICS_OK)
            status = mics_cursor_double(&share, "share", 1e-6, 1, shares[i].out, err);
        if (status == MICS_OK)
            status = read_source(&share, shares[i].source, err);
    }
    return status;
}

enum mics_status mics_entry_link_latency(const struct mics_cursor *root, struct mics_instance *out,
                                         struct mics_err *err)
{
    const struct figure figure = {"us", 1e-6, &out->link_latency_s, NULL};
    struct mics_cursor latency;
    enum mics_status status = mics_cursor_object(root, "link_latency", &latency, err);

    if (status == MICS_OK)
        status = read_figure(&latency, &figure, NULL, err);
    return status == MICS_OK ? read_source(&latency, &out->link_latency_source, err) : status;
}

static enum mics_status read_aliases(const struct mics_cursor *at, struct mics_instance *out,
                                     struct mics_err *err)
{
    struct mics_cursor aliases;
    enum mics_status status;

    if (!mics_cursor_has(at, "aliases"))
        return MICS_OK;
    status = mics_cursor_array(at, "aliases", 0, 16, &aliases, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&aliases); i++) {
        const struct mics_cursor alias = mics_cursor_item_any(&aliases, i);

        if (!json_is_string(alias.value))
            status = mics_cursor_fail(&alias, NULL, err, "expected a string");
    }
    if (status == MICS_OK)
        out->aliases = aliases.value;
    return status;
}

static enum mics_status read_network(const struct mics_cursor *at, struct mics_instance *out,
                                     struct mics_err *err)
{
    const struct figure rate = {"card_gbit", 1e9 / 8, &out->card_rate, NULL};
    const struct figure latency = {"us", 1e-6, &out->net_latency_s, NULL};
    struct mics_cursor net_latency;
    enum mics_status status = mics_cursor_u32(at, "cards", 1, 1024, &out->cards, err);

    if (status == MICS_OK)
        status = read_figure(at, &rate, NULL, err);
    if (status == MICS_OK)
        status = mics_cursor_object(at, "net_latency", &net_latency, err);
    if (status == MICS_OK)
        status = read_figure(&net_latency, &latency, NULL, err);
    out->net_latency_source.file = out->source.file;
    return status == MICS_OK ? read_source(&net_latency, &out->net_latency_source, err) : status;
}

static enum mics_status read_price(const struct mics_cursor *at, struct mics_instance *out,
                                   struct mics_err *err)
{
    const struct figure figure = {"usd_per_hour", 1, &out->usd_per_hour, NULL};
    struct mics_cursor price;
    enum mics_status status;

    if (!mics_cursor_has(at, "price"))
        return MICS_OK;
    status = mics_cursor_object(at, "price", &price, err);
    if (status == MICS_OK)
        status = read_figure(&price, &figure, NULL, err);
    out->price_source.file = out->source.file;
    return status == MICS_OK ? read_source(&price, &out->price_source, err) : status;
}

enum mics_status mics_entry_instance(const struct mics_cursor *at, struct mics_instance *out,
                                     struct mics_err *err)
{
    enum mics_status status = mics_entry_check_members(at, instance_members, err);

    if (status == MICS_OK)
        status = mics_cursor_string(at, "name", &out->name, err);
    if (status == MICS_OK && (!out->name[0] || strpbrk(out->name, ": \t\n")))
        return mics_cursor_fail(at, "name", err, "'%.64s': expected a name without colon or blank",
                                out->name);
    if (status == MICS_OK)
        status = read_source(at, &out->source, err);
    if (status == MICS_OK)
        status = read_aliases(at, out, err);
    if (status == MICS_OK)
        status = mics_cursor_string(at, "gpu", &out->gpu_id, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(at, "gpus", 1, MICS_MAX_PER_NODE, &out->gpus, err);
    if (status == MICS_OK)
        status = read_network(at, out, err);
    return status == MICS_OK ? read_price(at, out, err) : status;
}
