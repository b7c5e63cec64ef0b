/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue_print.c - one row for each instance. */
#include "topology/catalogue_print.h"
#include "topology/catalogue.h"
#include "doc/table.h"

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
