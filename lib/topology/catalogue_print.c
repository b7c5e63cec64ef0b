/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue_print.c - the catalogue as tables.
 *
 * Sources are longer than a line has room for, and many entries share one: the tables for people
 * have their numbers, and a list at the end has the texts.
 */
#include "doc/table.h"
#include "topology/catalogue.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SOURCES = 256 };

/* Distinct sources, in the order in which they are printed. */
struct references {
    struct mics_source sources[MAX_SOURCES];
    size_t count;
};

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* The number of a source, from 1; 0 if nothing is known of it. */
static size_t number_of(struct references *references, const struct mics_source *source)
{
    size_t i = 0;

    if (!source->text && !source->file)
        return 0;
    for (; i < references->count; i++) {
        const struct mics_source *known = &references->sources[i];

        if (same_text(known->text, source->text) && same_text(known->date, source->date) &&
            same_text(known->file, source->file))
            return i + 1;
    }
    if (i == MAX_SOURCES)
        return 0;
    references->sources[references->count++] = *source;
    return i + 1;
}

/* "1 2 5": the numbers of `count` sources, each once. */
static void put_numbers(struct mics_table *table, struct references *references,
                        const struct mics_source *const *sources, size_t count)
{
    size_t numbers[8], found = 0, used = 0;
    char text[64] = "";

    for (size_t i = 0; i < count; i++) {
        const size_t number = number_of(references, sources[i]);
        size_t k = 0;

        while (k < found && numbers[k] != number)
            k++;
        if (number == 0 || k < found)
            continue;
        numbers[found++] = number;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu", used ? " " : "", number);
    }
    mics_table_cell(table, "%s", text[0] ? text : "-");
}

static const char *first_alias(const struct mics_instance *instance)
{
    const char *first = json_string_value(json_array_get(instance->aliases, 0));

    return first ? first : "-";
}

static void put_price(struct mics_table *table, const struct mics_instance *instance)
{
    if (instance->usd_per_hour > 0)
        mics_table_cell(table, "%.2f", instance->usd_per_hour);
    else
        mics_table_cell(table, "-");
}

static const char *or_dash(const char *text)
{
    return text ? text : "-";
}

static void put_instance_tsv(struct mics_table *table, const struct mics_instance *instance)
{
    mics_table_cell(table, "%s", instance->name);
    mics_table_cell(table, "%s", first_alias(instance));
    mics_table_cell(table, "%u", instance->gpus);
    mics_table_cell(table, "%s", instance->gpu);
    mics_table_cell(table, "%.12g", instance->peak_flops);
    mics_table_cell(table, "%s", instance->flops_dtype);
    mics_table_cell(table, "%.12g", instance->link_rate);
    mics_table_cell(table, "%.12g", instance->card_rate * instance->cards);
    mics_table_cell(table, "%.12g", instance->net_latency_s);
    put_price(table, instance);
    mics_table_cell(table, "%s", or_dash(instance->price_source.date));
    mics_table_cell(table, "%s", or_dash(instance->source.text));
    mics_table_cell(table, "%s", or_dash(instance->source.date));
    mics_table_cell(table, "%s", or_dash(instance->source.file));
}

static void put_instance(struct mics_table *table, const struct mics_instance *instance,
                         struct references *references)
{
    const struct mics_source *const sources[] = {&instance->source, &instance->net_latency_source,
                                                 &instance->price_source};
    const char *alias = first_alias(instance);

    mics_table_cell(table, "%s", instance->name);
    mics_table_cell(table, "%s", strlen(alias) < strlen(instance->name) ? alias : "-");
    mics_table_cell(table, "%u x %s", instance->gpus, instance->gpu_id);
    mics_table_cell(table, "%u x %.0f", instance->cards, instance->card_rate * 8 / 1e9);
    mics_table_cell(table, "%.0f", instance->net_latency_s * 1e6);
    put_price(table, instance);
    put_numbers(table, references, sources, sizeof sources / sizeof *sources);
}

static enum mics_status print_instances(FILE *out, const struct mics_catalogue *catalogue, int tsv,
                                        struct references *references, struct mics_err *err)
{
    struct mics_table *table = mics_table_new(
        tsv ? "name|alias|gpus|gpu|peak_flops_per_s|flops_dtype|link_bytes_per_s|net_bytes_per_s|"
              "net_latency_s|usd_per_hour|price_date|source|date|file"
            : "<instance|<alias|<GPUs|>net Gbit/s|>net us|>USD/hour|<sources");
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < mics_catalogue_count(catalogue) && status == MICS_OK; i++) {
        struct mics_instance instance;

        status = mics_catalogue_get(catalogue, i, &instance, err);
        if (status == MICS_OK && tsv)
            put_instance_tsv(table, &instance);
        else if (status == MICS_OK)
            put_instance(table, &instance, references);
    }
    if (status == MICS_OK)
        status = mics_table_print(table, out, tsv, err);
    mics_table_free(table);
    return status;
}

static enum mics_status print_gpus(FILE *out, const struct mics_catalogue *catalogue,
                                   struct references *references, struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new("<GPU|<name|>TFLOP/s|>memory|>bandwidth|>link one way|<sources");
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < mics_catalogue_gpu_count(catalogue) && status == MICS_OK; i++) {
        struct mics_instance gpu;
        const struct mics_source *const sources[] = {&gpu.gpu_source};

        status = mics_catalogue_get_gpu(catalogue, i, &gpu, err);
        if (status != MICS_OK)
            break;
        mics_table_cell(table, "%s", gpu.gpu_id);
        mics_table_cell(table, "%s", gpu.gpu);
        mics_table_cell(table, "%.0f %s", gpu.peak_flops / 1e12, gpu.flops_dtype);
        mics_table_bytes(table, 0, (uint64_t)gpu.memory_bytes);
        mics_table_rate(table, 0, gpu.memory_rate);
        mics_table_rate(table, 0, gpu.link_rate);
        put_numbers(table, references, sources, 1);
    }
    fputc('\n', out);
    if (status == MICS_OK)
        status = mics_table_print(table, out, 0, err);
    mics_table_free(table);
    return status;
}

static enum mics_status print_references(FILE *out, const struct references *references,
                                         struct mics_err *err)
{
    struct mics_table *table = mics_table_new(">|<date|<source");

    for (size_t i = 0; i < references->count; i++) {
        const struct mics_source *source = &references->sources[i];

        mics_table_cell(table, "%zu", i + 1);
        mics_table_cell(table, "%s", or_dash(source->date));
        if (source->file)
            mics_table_cell(table, "%s%s%s", source->file, source->text ? ": " : "",
                            source->text ? source->text : "");
        else
            mics_table_cell(table, "%s", source->text);
    }
    fputc('\n', out);
    return mics_table_finish(table, out, 0, err);
}

enum mics_status mics_catalogue_print(FILE *out, const struct mics_catalogue *catalogue, int tsv,
                                      struct mics_err *err)
{
    struct references references = {.count = 0};
    enum mics_status status = print_instances(out, catalogue, tsv, &references, err);

    if (status != MICS_OK)
        return status;
    if (!tsv)
        status = print_gpus(out, catalogue, &references, err);
    if (status != MICS_OK)
        return status;
    if (!tsv)
        return print_references(out, &references, err);
    return MICS_OK;
}

/* One figure of an instance in the words of people and as a number. */
struct detail {
    const char *words, *key;
    enum { NUMBER, BYTES, RATE, TIME, SHARE, FLOPS, PRICE } form;
    double value;
    const struct mics_source *source;
};

static void put_detail(struct mics_table *table, const struct detail *detail, int tsv)
{
    mics_table_cell(table, "%s", tsv ? detail->key : detail->words);
    switch (tsv ? NUMBER : detail->form) {
    case BYTES:
        mics_table_bytes(table, 0, (uint64_t)detail->value);
        break;
    case RATE:
        mics_table_rate(table, 0, detail->value);
        break;
    case TIME:
        mics_table_time(table, 0, detail->value);
        break;
    case SHARE:
        mics_table_share(table, 0, detail->value);
        break;
    case FLOPS:
        mics_table_cell(table, "%.0f TFLOP/s", detail->value / 1e12);
        break;
    case PRICE:
        mics_table_cell(table, "%.2f USD", detail->value);
        break;
    case NUMBER:
        mics_table_cell(table, "%.12g", detail->value);
        break;
    }
    mics_table_cell(table, "%s", or_dash(detail->source->date));
    mics_table_cell(table, "%s%s%s", detail->source->file ? detail->source->file : "",
                    detail->source->file && detail->source->text ? ": " : "",
                    detail->source->text   ? detail->source->text
                    : detail->source->file ? ""
                                           : "-");
}

static void put_name(struct mics_table *table, const char *what, const char *name,
                     const struct mics_source *source)
{
    mics_table_cell(table, "%s", what);
    mics_table_cell(table, "%s", name);
    mics_table_cell(table, "%s", or_dash(source->date));
    mics_table_cell(table, "%s", or_dash(source->text ? source->text : source->file));
}

static void put_details(struct mics_table *table, const struct detail *details, size_t count,
                        int tsv)
{
    for (size_t i = 0; i < count; i++)
        if (details[i].value > 0)
            put_detail(table, &details[i], tsv);
}

static void put_gpu_details(struct mics_table *table, const struct mics_instance *i, int tsv)
{
    const struct detail details[] = {
        {"dense peak of a GPU", "peak_flops_per_s", FLOPS, i->peak_flops, &i->gpu_source},
        {"sustained in large products", "flops_per_s", FLOPS, i->flops, &i->flops_source},
        {"memory of a GPU", "memory_bytes", BYTES, i->memory_bytes, &i->memory_source},
        {"its bandwidth", "memory_bytes_per_s", RATE, i->memory_rate, &i->gpu_source},
        {"of it reached", "memory_reached", SHARE, i->memory_factor, &i->memory_factor_source},
        {"multiprocessors", "sms", NUMBER, i->rates.sms, &i->kernels_source},
        {"sustained in fp32", "f32_flops_per_s", FLOPS, i->rates.f32, &i->f32_source},
        {"sustained in TF32", "tf32_flops_per_s", FLOPS, i->rates.tf32, &i->kernels_source},
        {"sustained in bf16", "bf16_flops_per_s", FLOPS, i->rates.bf16, &i->bf16_source},
        {"sustained in fp16", "f16_flops_per_s", FLOPS, i->rates.f16, &i->kernels_source},
        {"overhead of a product", "product_overhead_s", TIME, i->rates.product_overhead_s,
         &i->overhead_source},
        {strcmp(i->rates.attention, "H100") == 0 ? "attention, of an H100's"
                                                 : "attention, of an A100's",
         "attention_factor", SHARE, i->rates.attention_factor, &i->attention_source},
        {"eager PyTorch reaches", "pytorch_efficiency", SHARE, i->rates.pytorch_efficiency,
         &i->pytorch_source},
        {"link of a GPU, one way", "link_bytes_per_s", RATE, i->link_rate, &i->gpu_source},
        {"of it reached", "link_reached", SHARE, i->link_factor, &i->link_factor_source},
        {"latency of the link", "link_latency_s", TIME, i->link_latency_s, &i->link_latency_source},
        {i->host_link, "host_link_bytes_per_s", RATE, i->host_rate, &i->host_source},
        {"of it reached by copies", "host_link_reached", SHARE, i->host_factor, &i->host_source},
        {"GPUs that share it", "host_link_gpus", NUMBER, i->host_link_gpus, &i->host_source},
    };

    put_details(table, details, sizeof details / sizeof *details, tsv);
}

/* The instance's name, machine and network; its GPU between these. */
static void put_instance_details(struct mics_table *table, const struct mics_instance *i, int tsv)
{
    const struct mics_source none = {NULL, NULL, NULL};
    const struct detail machine[] = {{"GPUs", "gpus", NUMBER, i->gpus, &i->source}};
    const struct detail network[] = {
        {"network cards", "cards", NUMBER, i->cards, &i->source},
        {"rate of a card, one way", "card_bytes_per_s", RATE, i->card_rate, &i->source},
        {"of it reached", "net_reached", SHARE, i->net_factor, &i->net_factor_source},
        {"latency between nodes", "net_latency_s", TIME, i->net_latency_s, &i->net_latency_source},
        {"price of an hour", "usd_per_hour", PRICE, i->usd_per_hour, &i->price_source},
    };

    put_name(table, tsv ? "name" : "instance", i->name, &none);
    for (size_t k = 0; k < json_array_size(i->aliases); k++)
        put_name(table, "alias", json_string_value(json_array_get(i->aliases, k)), &none);
    put_name(table, tsv ? "gpu" : "GPU", i->gpu, &i->gpu_source);
    put_details(table, machine, 1, tsv);
    put_gpu_details(table, i, tsv);
    put_details(table, network, sizeof network / sizeof *network, tsv);
}

enum mics_status mics_catalogue_print_instance(FILE *out, const struct mics_catalogue *catalogue,
                                               const char *name, int tsv, struct mics_err *err)
{
    struct mics_instance found;
    const bool is_gpu = mics_catalogue_find_gpu(catalogue, name, &found, NULL) == MICS_OK;
    enum mics_status status = is_gpu ? MICS_OK : mics_catalogue_find(catalogue, name, &found, err);
    struct mics_table *table;

    if (status != MICS_OK)
        return status;
    table = mics_table_new(tsv ? "figure|value|date|source" : "<figure|<value|<date|<source");
    if (is_gpu) {
        put_name(table, tsv ? "gpu" : "GPU", found.gpu, &found.gpu_source);
        put_gpu_details(table, &found, tsv);
    } else {
        put_instance_details(table, &found, tsv);
    }
    return mics_table_finish(table, out, tsv, err);
}
