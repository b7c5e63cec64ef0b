/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_info.c - NVML knows the GPU and its links, hwloc what stands between it and the network cards. */
#include "topology/gpu_info.h"
#include "topology/nvml.h"

#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* From near to far. */
enum distance { AT_SWITCH, AT_HOST_BRIDGE, AT_NUMA_NODE, AT_MACHINE, NOWHERE };

static const char *const distance_names[] = {"switch", "host bridge", "numa node", "machine"};

static hwloc_obj_t pci_parent(hwloc_obj_t object)
{
    while (object && object->type != HWLOC_OBJ_PCI_DEVICE)
        object = object->parent;
    return object;
}

static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
    for (; a; a = a->parent)
        for (hwloc_obj_t up = b; up; up = up->parent)
            if (up == a)
                return a;
    return NULL;
}

static enum distance distance_of(hwloc_obj_t gpu, hwloc_obj_t card)
{
    const hwloc_obj_t at = common_ancestor(gpu, card);

    if (!at)
        return NOWHERE;
    if (at->type == HWLOC_OBJ_PCI_DEVICE)
        return AT_SWITCH;
    if (at->type == HWLOC_OBJ_BRIDGE)
        return at->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST ? AT_HOST_BRIDGE : AT_SWITCH;
    return at->nodeset && hwloc_bitmap_weight(at->nodeset) == 1 ? AT_NUMA_NODE : AT_MACHINE;
}

static bool is_card(hwloc_obj_t device)
{
    return (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ||
            device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK) &&
           pci_parent(device);
}

/* One name for each card: that of its InfiniBand or RoCE device, if it has one. */
static bool is_second_name(hwloc_topology_t machine, hwloc_obj_t device)
{
    hwloc_obj_t other = NULL;

    if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
        return false;
    while ((other = hwloc_get_next_osdev(machine, other)))
        if (other->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS &&
            pci_parent(other) == pci_parent(device))
            return true;
    return false;
}

static enum distance nearest(hwloc_topology_t machine, hwloc_obj_t gpu)
{
    enum distance best = NOWHERE;
    hwloc_obj_t device = NULL;

    while ((device = hwloc_get_next_osdev(machine, device)))
        if (is_card(device) && distance_of(gpu, pci_parent(device)) < best)
            best = distance_of(gpu, pci_parent(device));
    return best;
}

/* NULL: none is known. */
static json_t *network_of(hwloc_topology_t machine, const char *pci_id)
{
    const hwloc_obj_t gpu = hwloc_get_pcidev_by_busidstring(machine, pci_id);
    const enum distance best = gpu ? nearest(machine, gpu) : NOWHERE;
    hwloc_obj_t device = NULL;

    if (best == NOWHERE)
        return NULL;
    json_t *names = json_array();
    while ((device = hwloc_get_next_osdev(machine, device)))
        if (is_card(device) && !is_second_name(machine, device) &&
            distance_of(gpu, pci_parent(device)) == best)
            json_array_append_new(names, json_string(device->name));
    return json_pack("{s:s, s:o}", "distance", distance_names[best], "names", names);
}

static json_t *describe(const struct mics_nvml_gpu *gpu, hwloc_topology_t machine)
{
    char capability[24];

    snprintf(capability, sizeof capability, "%d.%d", gpu->major, gpu->minor);
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:{s:i, s:i, s:i, s:i}, s:i, s:i}", "name", gpu->name,
                  "uuid", gpu->uuid, "pci_id", gpu->pci_id, "memory_bytes",
                  (json_int_t)gpu->memory_bytes, "capability", capability, "pcie", "generation",
                  (int)gpu->pcie_generation, "width", (int)gpu->pcie_width, "generation_now",
                  (int)gpu->pcie_generation_now, "width_now", (int)gpu->pcie_width_now, "nvlinks",
                  (int)gpu->nvlinks, "nvlinks_to_switches", (int)gpu->nvlinks_to_switches);
    json_t *network = machine ? network_of(machine, gpu->pci_id) : NULL;

    if (out && gpu->nvlink_rate > 0)
        json_object_set_new(out, "nvlink_bytes_per_s", json_real(gpu->nvlink_rate));
    if (out && network)
        json_object_set(out, "network", network);
    json_decref(network);
    return out;
}

/* With PCI and what hangs on it; NULL: hwloc cannot say. */
static hwloc_topology_t load_machine(void)
{
    hwloc_topology_t machine;

    if (hwloc_topology_init(&machine) != 0)
        return NULL;
    hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(machine) == 0)
        return machine;
    hwloc_topology_destroy(machine);
    return NULL;
}

static enum mics_status add_list(json_t *machine, const struct mics_nvml_gpu *gpus, uint32_t count,
                                 struct mics_err *err)
{
    hwloc_topology_t parts = load_machine();
    json_t *list = json_array();
    bool failed = !list;

    for (uint32_t i = 0; i < count && !failed; i++)
        failed = json_array_append_new(list, describe(&gpus[i], parts)) != 0;
    if (parts)
        hwloc_topology_destroy(parts);
    if (!failed)
        return json_object_set_new(machine, "gpus", list) == 0 ? MICS_OK : mics_err_nomem(err);
    json_decref(list);
    return mics_err_set(err, MICS_ERR_DEVICE, "NVML: a GPU's name that is no UTF-8, or no memory");
}

enum mics_status mics_gpus_add(json_t *machine, struct mics_err *err)
{
    struct mics_nvml_gpu *gpus = NULL;
    struct mics_err why;
    uint32_t count = 0;
    enum mics_status status = mics_nvml_list(&gpus, &count, &why);

    if (status == MICS_ERR_UNSUPPORTED)
        return MICS_OK;
    if (status != MICS_OK) {
        json_object_set_new(machine, "gpus_error", json_string(why.text));
        return MICS_OK;
    }
    status = add_list(machine, gpus, count, err);
    free(gpus);
    return status;
}
