/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_info.c - the GPUs of this machine: NVML has the GPU and its links, hwloc has what connects it
 * to the network cards.
 */
#include "topology/gpu_info.h"

#include "doc/tree_print.h"
#include "topology/nvml_api.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* NVML's functions, in the order of the table below. */
struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int code);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, nvml_device *device);
    int (*name)(nvml_device device, char *text, unsigned size);
    int (*uuid)(nvml_device device, char *text, unsigned size);
    int (*memory)(nvml_device device, struct nvml_memory *memory);
    int (*pci)(nvml_device device, struct nvml_pci *pci);
    int (*capability)(nvml_device device, int *major, int *minor);
    int (*max_generation)(nvml_device device, unsigned *value);
    int (*max_width)(nvml_device device, unsigned *value);
    int (*generation)(nvml_device device, unsigned *value);
    int (*width)(nvml_device device, unsigned *value);
    int (*link_state)(nvml_device device, unsigned link, unsigned *active);
    int (*link_remote)(nvml_device device, unsigned link, unsigned *type);
    int (*fields)(nvml_device device, int count, struct nvml_field *fields);
    int (*driver)(char *text, unsigned size);
    int (*ecc_mode)(nvml_device device, unsigned *now, unsigned *pending);
    int (*ecc_errors)(nvml_device device, int type, int counter, unsigned long long *count);
    int (*remapped)(nvml_device device, unsigned *corrected, unsigned *uncorrected,
                    unsigned *pending, unsigned *failed);
    int (*throttle)(nvml_device device, unsigned long long *reasons);
    int (*temperature)(nvml_device device, int sensor, unsigned *celsius);
    int (*temperature_limit)(nvml_device device, int threshold, unsigned *celsius);
    int (*power_limit)(nvml_device device, unsigned *milliwatts);
    int (*default_power_limit)(nvml_device device, unsigned *milliwatts);
    int (*persistence)(nvml_device device, unsigned *on);
    int (*mig)(nvml_device device, unsigned *now, unsigned *pending);
    int (*processes)(nvml_device device, unsigned *count, void *list);
    int (*link_errors)(nvml_device device, unsigned link, int counter, unsigned long long *count);
    int (*p2p_status)(nvml_device device, nvml_device other, int capability, int *state);
};

static const struct {
    const char *name;
    size_t offset;
    bool optional; /* only in newer drivers */
} functions[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init), false},
    {"nvmlShutdown", offsetof(struct nvml, shutdown), false},
    {"nvmlErrorString", offsetof(struct nvml, error_string), false},
    {"nvmlDeviceGetCount_v2", offsetof(struct nvml, count), false},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, by_index), false},
    {"nvmlDeviceGetName", offsetof(struct nvml, name), false},
    {"nvmlDeviceGetUUID", offsetof(struct nvml, uuid), false},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory), false},
    {"nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci), false},
    {"nvmlDeviceGetCudaComputeCapability", offsetof(struct nvml, capability), false},
    {"nvmlDeviceGetMaxPcieLinkGeneration", offsetof(struct nvml, max_generation), false},
    {"nvmlDeviceGetMaxPcieLinkWidth", offsetof(struct nvml, max_width), false},
    {"nvmlDeviceGetCurrPcieLinkGeneration", offsetof(struct nvml, generation), false},
    {"nvmlDeviceGetCurrPcieLinkWidth", offsetof(struct nvml, width), false},
    {"nvmlDeviceGetNvLinkState", offsetof(struct nvml, link_state), false},
    {"nvmlDeviceGetNvLinkRemoteDeviceType", offsetof(struct nvml, link_remote), true},
    {"nvmlDeviceGetFieldValues", offsetof(struct nvml, fields), true},
    {"nvmlSystemGetDriverVersion", offsetof(struct nvml, driver), true},
    {"nvmlDeviceGetEccMode", offsetof(struct nvml, ecc_mode), true},
    {"nvmlDeviceGetTotalEccErrors", offsetof(struct nvml, ecc_errors), true},
    {"nvmlDeviceGetRemappedRows", offsetof(struct nvml, remapped), true},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(struct nvml, throttle), true},
    {"nvmlDeviceGetTemperature", offsetof(struct nvml, temperature), true},
    {"nvmlDeviceGetTemperatureThreshold", offsetof(struct nvml, temperature_limit), true},
    {"nvmlDeviceGetEnforcedPowerLimit", offsetof(struct nvml, power_limit), true},
    {"nvmlDeviceGetPowerManagementDefaultLimit", offsetof(struct nvml, default_power_limit), true},
    {"nvmlDeviceGetPersistenceMode", offsetof(struct nvml, persistence), true},
    {"nvmlDeviceGetMigMode", offsetof(struct nvml, mig), true},
    {"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct nvml, processes), true},
    {"nvmlDeviceGetNvLinkErrorCounter", offsetof(struct nvml, link_errors), true},
    {"nvmlDeviceGetP2PStatus", offsetof(struct nvml, p2p_status), true},
};

double mics_nvlink_rate(int capability, unsigned links)
{
    static const struct {
        int capability;
        double rate;
    } rates[] = {{60, 18e9}, {70, 20e9}, {86, 12e9}, {87, 20e9}, {90, 20.6e9}, {100, 40.1e9}};
    double rate = 0;

    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (capability >= rates[i].capability)
            rate = rates[i].rate;
    return rate * links;
}

bool mics_nvml_gpu_is(const struct mics_nvml_gpu *gpu, const char uuid[16])
{
    static const char format[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    char text[sizeof format];
    int at = 0;

    for (size_t i = 0; i < sizeof format; i++) {
        text[i] = format[i];
        if (format[i] == 'x') {
            const unsigned byte = (unsigned char)uuid[at / 2];

            text[i] = "0123456789abcdef"[at % 2 == 0 ? byte >> 4 : byte & 15];
            at++;
        }
    }
    return strcasecmp(gpu->uuid, text) == 0;
}

/* ISO C has no conversion from `void *` to a function pointer; POSIX guarantees that it works. */
static enum mics_status find_functions(struct nvml *nvml, const char *path, struct mics_err *err)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(nvml->library, functions[i].name);

        if (!function && !functions[i].optional)
            return mics_err_set(err, MICS_ERR_UNSUPPORTED, "%s: function %s not found", path,
                                functions[i].name);
        memcpy((char *)nvml + functions[i].offset, &function, sizeof function);
    }
    return MICS_OK;
}

static enum mics_status failure(const struct nvml *nvml, const char *what, int code,
                                struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_DEVICE, "NVML: %s: %s", what, nvml->error_string(code));
}

static enum mics_status open_nvml(struct nvml *nvml, struct mics_err *err)
{
    const char *path = getenv("MICS_NVML_PATH");

    if (!path || !*path)
        path = "libnvidia-ml.so.1";
    *nvml = (struct nvml){.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!nvml->library)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "NVML: %s", dlerror());
    enum mics_status status = find_functions(nvml, path, err);
    const int code = status == MICS_OK ? nvml->init() : 0;

    if (code != NVML_SUCCESS)
        status = failure(nvml, "nvmlInit", code, err);
    if (status != MICS_OK)
        dlclose(nvml->library);
    return status;
}

static void close_nvml(const struct nvml *nvml)
{
    nvml->shutdown();
    dlclose(nvml->library);
}

/* From compute capability 9.0 on the state is a field; the older call is wrong for these GPUs. */
static bool link_is_up(const struct nvml *nvml, nvml_device device, int major, unsigned link)
{
    struct nvml_field field = {.id = NVML_FIELD_NVLINK_STATE, .scope = link};
    unsigned active = 0;

    if (major >= 9 && nvml->fields)
        return nvml->fields(device, 1, &field) == NVML_SUCCESS && field.status == NVML_SUCCESS &&
               field.value.as_unsigned == 1;
    return nvml->link_state(device, link, &active) == NVML_SUCCESS && active == 1;
}

static void query_links(const struct nvml *nvml, nvml_device device, struct mics_nvml_gpu *gpu)
{
    for (unsigned link = 0; link < NVML_MAX_LINKS; link++) {
        unsigned remote = NVML_REMOTE_GPU;

        if (!link_is_up(nvml, device, gpu->major, link))
            continue;
        gpu->nvlinks++;
        if (nvml->link_remote && nvml->link_remote(device, link, &remote) == NVML_SUCCESS)
            gpu->nvlinks_to_switches += remote == NVML_REMOTE_SWITCH;
    }
    gpu->nvlink_rate = mics_nvlink_rate(gpu->major * 10 + gpu->minor, gpu->nvlinks);
}

/* What only some GPUs and drivers support; the rest stays 0. */
static void query_optional(const struct nvml *nvml, nvml_device device, struct mics_nvml_gpu *gpu)
{
    struct nvml_memory memory = {0};

    (void)nvml->uuid(device, gpu->uuid, sizeof gpu->uuid);
    (void)nvml->memory(device, &memory); /* not supported where GPU and host share memory */
    gpu->memory_bytes = memory.total;
    gpu->free_bytes = memory.free;
    (void)nvml->capability(device, &gpu->major, &gpu->minor);
    (void)nvml->max_generation(device, &gpu->pcie_generation);
    (void)nvml->max_width(device, &gpu->pcie_width);
    (void)nvml->generation(device, &gpu->pcie_generation_now);
    (void)nvml->width(device, &gpu->pcie_width_now);
    query_links(nvml, device, gpu);
}

/* What a call has found, or -1 if there is no such function or it failed. */
static int64_t found_by(int code, int64_t value)
{
    return code == NVML_SUCCESS ? value : -1;
}

static int64_t count_processes(const struct nvml *nvml, nvml_device device)
{
    unsigned count = 0;
    const int code = nvml->processes ? nvml->processes(device, &count, NULL) : -1;

    return code == NVML_ERROR_INSUFFICIENT_SIZE ? (int64_t)count : found_by(code, 0);
}

static int64_t count_link_recoveries(const struct nvml *nvml, nvml_device device)
{
    int64_t sum = -1;

    for (unsigned link = 0; link < NVML_MAX_LINKS && nvml->link_errors; link++) {
        unsigned long long count = 0;

        if (nvml->link_errors(device, link, NVML_LINK_RECOVERY, &count) == NVML_SUCCESS)
            sum = (sum < 0 ? 0 : sum) + (int64_t)count;
    }
    return sum;
}

static void query_health(const struct nvml *nvml, nvml_device device, struct mics_gpu_health *out)
{
    unsigned now = 0, other = 0, pending = 0, failed = 0;
    unsigned long long wide = 0;
    int code;

    code = nvml->ecc_mode ? nvml->ecc_mode(device, &now, &other) : -1;
    out->ecc = found_by(code, now);
    code = nvml->ecc_errors ? nvml->ecc_errors(device, NVML_UNCORRECTED, NVML_VOLATILE_ECC, &wide)
                            : -1;
    out->ecc_errors = found_by(code, (int64_t)wide);
    code = nvml->remapped ? nvml->remapped(device, &now, &other, &pending, &failed) : -1;
    out->remap_pending = found_by(code, pending);
    out->remap_failed = found_by(code, failed);
    code = nvml->throttle ? nvml->throttle(device, &wide) : -1;
    out->throttle = found_by(code, (int64_t)wide);
    code = nvml->temperature ? nvml->temperature(device, NVML_TEMPERATURE_GPU, &now) : -1;
    out->celsius = found_by(code, now);
    code = nvml->temperature_limit ? nvml->temperature_limit(device, NVML_THRESHOLD_SLOWDOWN, &now)
                                   : -1;
    out->limit_celsius = found_by(code, now);
    code = nvml->power_limit ? nvml->power_limit(device, &now) : -1;
    out->power_limit_mw = found_by(code, now);
    code = nvml->default_power_limit ? nvml->default_power_limit(device, &now) : -1;
    out->default_power_limit_mw = found_by(code, now);
    code = nvml->persistence ? nvml->persistence(device, &now) : -1;
    out->persistence = found_by(code, now);
    code = nvml->mig ? nvml->mig(device, &now, &other) : -1;
    out->mig = found_by(code, now);
    out->processes = count_processes(nvml, device);
    out->link_recoveries = count_link_recoveries(nvml, device);
}

static enum mics_status query_gpu(const struct nvml *nvml, unsigned index,
                                  struct mics_nvml_gpu *gpu, struct mics_err *err)
{
    struct nvml_pci pci = {.id = ""};
    nvml_device device = NULL;
    int code = nvml->by_index(index, &device);

    if (code == NVML_SUCCESS)
        code = nvml->name(device, gpu->name, sizeof gpu->name);
    if (code == NVML_SUCCESS)
        code = nvml->pci(device, &pci);
    if (code != NVML_SUCCESS) {
        failure(nvml, "name and PCI address", code, err);
        mics_err_prefix(err, "GPU %u", index);
        return MICS_ERR_DEVICE;
    }
    snprintf(gpu->pci_id, sizeof gpu->pci_id, "%.31s", pci.id);
    query_optional(nvml, device, gpu);
    query_health(nvml, device, &gpu->health);
    return MICS_OK;
}

const char *mics_gpu_peer_name(enum mics_gpu_peer peer)
{
    static const char *const names[] = {
        [MICS_GPU_PEER_NVLINK] = "NVLink",
        [MICS_GPU_PEER_PCIE] = "PCIe",
        [MICS_GPU_PEER_NO_CHIPSET] = "chipset not supported",
        [MICS_GPU_PEER_NO_GPU] = "GPU not supported",
        [MICS_GPU_PEER_NO_TOPOLOGY] = "topology not supported",
        [MICS_GPU_PEER_NO_REGKEY] = "disabled by registry key",
        [MICS_GPU_PEER_NO] = "not supported",
    };

    return (size_t)peer < sizeof names / sizeof *names ? names[peer] : NULL;
}

/* Both reading and writing must be possible. */
static enum mics_gpu_peer query_peer(const struct nvml *nvml, nvml_device from, nvml_device to)
{
    static const enum mics_gpu_peer reasons[] = {
        [NVML_P2P_CHIPSET_NOT_SUPPORTED] = MICS_GPU_PEER_NO_CHIPSET,
        [NVML_P2P_GPU_NOT_SUPPORTED] = MICS_GPU_PEER_NO_GPU,
        [NVML_P2P_TOPOLOGY_NOT_SUPPORTED] = MICS_GPU_PEER_NO_TOPOLOGY,
        [NVML_P2P_DISABLED_BY_REGKEY] = MICS_GPU_PEER_NO_REGKEY,
        [NVML_P2P_NOT_SUPPORTED] = MICS_GPU_PEER_NO,
    };
    int state = NVML_P2P_OK;

    for (int capability = NVML_P2P_READ; capability <= NVML_P2P_WRITE; capability++) {
        if (nvml->p2p_status(from, to, capability, &state) != NVML_SUCCESS)
            return MICS_GPU_PEER_UNKNOWN;
        if (state != NVML_P2P_OK)
            return state > 0 && (size_t)state < sizeof reasons / sizeof *reasons
                       ? reasons[state]
                       : MICS_GPU_PEER_UNKNOWN;
    }
    return nvml->p2p_status(from, to, NVML_P2P_NVLINK, &state) == NVML_SUCCESS &&
                   state == NVML_P2P_OK
               ? MICS_GPU_PEER_NVLINK
               : MICS_GPU_PEER_PCIE;
}

static void query_peers(const struct nvml *nvml, struct mics_nvml_gpu *gpus, unsigned count)
{
    nvml_device from, to;

    for (unsigned i = 0; i < count && nvml->p2p_status; i++) {
        if (nvml->by_index(i, &from) != NVML_SUCCESS)
            continue;
        for (unsigned k = 0; k < count && k < MICS_GPU_PEERS; k++)
            if (k != i && nvml->by_index(k, &to) == NVML_SUCCESS)
                gpus[i].peers[k] = (unsigned char)query_peer(nvml, from, to);
    }
}

enum mics_status mics_nvml_driver(char version[96], struct mics_err *err)
{
    struct nvml nvml;
    enum mics_status status = open_nvml(&nvml, err);

    if (status != MICS_OK)
        return status;
    const int code = nvml.driver ? nvml.driver(version, 96) : NVML_ERROR_NOT_SUPPORTED;
    if (code != NVML_SUCCESS)
        status = failure(&nvml, "nvmlSystemGetDriverVersion", code, err);
    close_nvml(&nvml);
    return status;
}

enum mics_status mics_nvml_list(struct mics_nvml_gpu **out, uint32_t *count, struct mics_err *err)
{
    struct mics_nvml_gpu *gpus = NULL;
    struct nvml nvml;
    unsigned found = 0;
    enum mics_status status = open_nvml(&nvml, err);

    if (status != MICS_OK)
        return status;
    const int code = nvml.count(&found);
    if (code != NVML_SUCCESS)
        status = failure(&nvml, "nvmlDeviceGetCount", code, err);
    gpus = status == MICS_OK ? calloc(found ? found : 1, sizeof *gpus) : NULL;
    if (status == MICS_OK && !gpus)
        status = mics_err_nomem(err);
    for (unsigned i = 0; i < found && status == MICS_OK; i++)
        status = query_gpu(&nvml, i, &gpus[i], err);
    if (status == MICS_OK)
        query_peers(&nvml, gpus, found);
    close_nvml(&nvml);
    if (status != MICS_OK) {
        free(gpus);
        return status;
    }
    *out = gpus;
    *count = found;
    return MICS_OK;
}

/* The nearest common ancestor of a GPU and a network card, by increasing distance. */
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
    const hwloc_obj_t ancestor = common_ancestor(gpu, card);

    if (!ancestor)
        return NOWHERE;
    if (ancestor->type == HWLOC_OBJ_PCI_DEVICE)
        return AT_SWITCH;
    if (ancestor->type == HWLOC_OBJ_BRIDGE)
        return ancestor->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST ? AT_HOST_BRIDGE
                                                                             : AT_SWITCH;
    return ancestor->nodeset && hwloc_bitmap_weight(ancestor->nodeset) == 1 ? AT_NUMA_NODE
                                                                            : AT_MACHINE;
}

static bool is_card(hwloc_obj_t device)
{
    return (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ||
            device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK) &&
           pci_parent(device);
}

/* Each card is listed once: by its InfiniBand or RoCE device, if it has one. */
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

/* NULL: no card is known. */
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

/* The machine with its PCI devices; NULL: hwloc fails. */
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
    return mics_err_set(err, MICS_ERR_DEVICE,
                        "NVML: the name of a GPU is not UTF-8, or out of memory");
}

enum mics_status mics_gpu_info_add(json_t *machine, struct mics_err *err)
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

/* Members of a document's GPU are not checked; what is missing stays empty. */
static const json_t *member_of(const json_t *object, const char *outer, const char *inner)
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
    mics_tree_print_cell(table, member_of(gpu, "pcie", "generation"));
    mics_tree_print_cell(table, member_of(gpu, "pcie", "width"));
    mics_tree_print_cell(table, json_object_get(gpu, "nvlinks"));
    mics_tree_print_cell(table, json_object_get(gpu, "nvlinks_to_switches"));
    mics_tree_print_cell(table, json_array_get(member_of(gpu, "network", "names"), 0));
    mics_tree_print_cell(table, member_of(gpu, "network", "distance"));
}

enum mics_status mics_gpu_info_print(FILE *out, const json_t *machine, int tsv,
                                     struct mics_err *err)
{
    const json_t *gpus = json_object_get(machine, "gpus");

    if (json_array_size(gpus) == 0)
        return MICS_OK;
    struct mics_table *table =
        mics_table_new(tsv ? "gpu|pci_id|memory_bytes|pcie_generation|pcie_width|nvlinks|"
                             "nvlinks_to_switches|network|network_distance"
                           : "<GPU|<PCI address|>memory|>PCIe|>lanes|>NVLinks|>to "
                             "switches|<nearest card|<below one");

    for (size_t i = 0; i < json_array_size(gpus); i++)
        put_gpu(table, json_array_get(gpus, i), tsv);
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}
