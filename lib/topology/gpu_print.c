/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_print.c - a machine's GPUs as a table. Nothing in the document was checked: what is missing stays empty. */
#include "topology/gpu_info.h"

#include "doc/tree_print.h"

static const json_t *at(const json_t *object, const char *outer, const char *inner)
{
    return json_object_get(json_object_get(object, outer), inner);
}

static void put_memory(struct mics_table *table, const json_t *gpu, int tsv)
{
    const json_t *bytes = json_object_get(gpu, "memory_bytes");

    if (json_is_integer(bytes) && json_integer_value(bytes) > 0)
        mics_table_bytes(table, tsv, (uint64_t)json_integer_value(bytes));
    else
        mics_table_cell(table, "-");
}

static void put_gpu(struct mics_table *table, const json_t *gpu, int tsv)
{
    mics_tree_print_cell(table, json_object_get(gpu, "name"));
    mics_tree_print_cell(table, json_object_get(gpu, "pci_id"));
    put_memory(table, gpu, tsv);
    mics_tree_print_cell(table, at(gpu, "pcie", "generation"));
    mics_tree_print_cell(table, at(gpu, "pcie", "width"));
    mics_tree_print_cell(table, json_object_get(gpu, "nvlinks"));
    mics_tree_print_cell(table, json_object_get(gpu, "nvlinks_to_switches"));
    mics_tree_print_cell(table, json_array_get(at(gpu, "network", "names"), 0));
    mics_tree_print_cell(table, at(gpu, "network", "distance"));
}

enum mics_status mics_gpus_print(FILE *out, const json_t *machine, int tsv, struct mics_err *err)
{
    const json_t *gpus = json_object_get(machine, "gpus");

    if (json_array_size(gpus) == 0)
        return MICS_OK;
    struct mics_table *table = mics_table_new(
        tsv ? "gpu|pci_id|memory_bytes|pcie_generation|pcie_width|nvlinks|"
              "nvlinks_to_switches|network|network_distance"
            : "<GPU|<place|>memory|>PCIe|>lanes|>NVLinks|>to switches|<network|<in one");

    for (size_t i = 0; i < json_array_size(gpus); i++)
        put_gpu(table, json_array_get(gpus, i), tsv);
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}
