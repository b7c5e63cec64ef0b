/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_info.c - a description of the machine by hwloc, and the memory that a job may use on it.
 *
 * A container or a batch system limits memory by control groups. A limit applies to all groups
 * below its own, so the lowest one from this process's group up to the root counts.
 */
#include "topology/node_info.h"

#include "base/cgroup.h"
#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t physical_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static uint64_t cache_bytes(hwloc_topology_t machine, hwloc_obj_type_t type)
{
    const hwloc_obj_t cache = hwloc_get_obj_by_type(machine, type, 0);

    return cache ? cache->attr->cache.size : 0;
}

static const char *processor_name(hwloc_topology_t machine)
{
    hwloc_obj_t object = hwloc_get_obj_by_type(machine, HWLOC_OBJ_PACKAGE, 0);
    const char *name = object ? hwloc_obj_get_info_by_name(object, "CPUModel") : NULL;

    if (!name)
        name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(machine), "CPUModel");
    return name ? name : "unknown";
}

static json_t *describe(hwloc_topology_t machine)
{
    const struct {
        const char *key;
        hwloc_obj_type_t type;
    } counts[] = {{"packages", HWLOC_OBJ_PACKAGE},
                  {"numa_nodes", HWLOC_OBJ_NUMANODE},
                  {"cores", HWLOC_OBJ_CORE},
                  {"threads", HWLOC_OBJ_PU}};
    const hwloc_obj_type_t caches[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE};
    json_t *out = json_object(), *sizes = json_array();
    bool failed = json_object_set_new(out, "processor", json_string(processor_name(machine))) != 0;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const int found = hwloc_get_nbobjs_by_type(machine, counts[i].type);

        failed |= json_object_set_new(out, counts[i].key, json_integer(found)) != 0;
    }
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++)
        failed |= json_array_append_new(
                      sizes, json_integer((json_int_t)cache_bytes(machine, caches[i]))) != 0;
    failed |= json_object_set_new(out, "cache_bytes", sizes) != 0;
    /* Not hwloc's sum over NUMA nodes, which may be outdated in virtual machines. */
    failed |=
        json_object_set_new(out, "memory_bytes", json_integer((json_int_t)physical_bytes())) != 0;
    if (!failed)
        return out;
    json_decref(out);
    return NULL;
}

enum mics_status mics_node_describe(json_t **out, struct mics_err *err)
{
    hwloc_topology_t machine;
    json_t *found;

    if (hwloc_topology_init(&machine) != 0)
        return mics_err_nomem(err);
    if (hwloc_topology_load(machine) != 0) {
        hwloc_topology_destroy(machine);
        return mics_err_set(err, MICS_ERR_DEVICE, "hwloc cannot describe this machine");
    }
    found = describe(machine);
    hwloc_topology_destroy(machine);
    if (!found)
        return mics_err_nomem(err);
    *out = found;
    return MICS_OK;
}

uint64_t mics_node_memory_bytes(void)
{
    const uint64_t bytes = physical_bytes(), limit = mics_cgroup_memory_limit_here();

    return bytes == 0 && limit == UINT64_MAX ? 0 : mics_min_u64(bytes ? bytes : limit, limit);
}

uint64_t mics_process_resident_bytes(void)
{
    unsigned long long total, resident;
    uint64_t bytes = 0;
    size_t size;
    char *text;

    if (mics_file_read("/proc/self/statm", 4096, &text, &size, NULL) != MICS_OK)
        return 0;
    if (sscanf(text, "%llu %llu", &total, &resident) == 2)
        bytes = resident * (uint64_t)sysconf(_SC_PAGESIZE);
    free(text);
    return bytes;
}
