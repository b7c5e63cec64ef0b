/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.c - open, ask, close. Which way the state of an NVLink is asked for depends on the GPU: see link_is_up(). */
#include "topology/nvml.h"
#include "topology/nvml_api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* In the order of `names`. */
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
};

static const struct {
    const char *name;
    size_t offset;
    bool optional; /* of newer drivers */
} names[] = {
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
};

double mics_nvlink_rate(int capability, unsigned links)
{
    static const struct {
        int capability;
        double rate;
    } known[] = {{60, 18e9}, {70, 20e9}, {80, 20e9}, {90, 20.6e9}, {100, 40.1e9}};
    double rate = 0;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (capability >= known[i].capability)
            rate = known[i].rate;
    return rate * links;
}

bool mics_nvml_gpu_is(const struct mics_nvml_gpu *gpu, const char uuid[16])
{
    static const char form[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    char text[sizeof form];
    int at = 0;

    for (size_t i = 0; i < sizeof form; i++) {
        text[i] = form[i];
        if (form[i] == 'x') {
            const unsigned byte = (unsigned char)uuid[at / 2];

            text[i] = "0123456789abcdef"[at % 2 == 0 ? byte >> 4 : byte & 15];
            at++;
        }
    }
    return strcasecmp(gpu->uuid, text) == 0;
}

/* A function's address is not a `void *` in C, but it is one here. */
static enum mics_status find_functions(struct nvml *nvml, const char *path, struct mics_err *err)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *function = dlsym(nvml->library, names[i].name);

        if (!function && !names[i].optional)
            return mics_err_set(err, MICS_ERR_UNSUPPORTED, "%s: it has no %s", path, names[i].name);
        memcpy((char *)nvml + names[i].offset, &function, sizeof function);
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

/* From compute capability 9.0 on the field tells; before, the older call, which later GPUs answer wrongly. */
static bool link_is_up(const struct nvml *nvml, nvml_device device, int major, unsigned link)
{
    struct nvml_field field = {.id = NVML_FIELD_NVLINK_STATE, .scope = link};
    unsigned active = 0;

    if (major >= 9 && nvml->fields)
        return nvml->fields(device, 1, &field) == NVML_SUCCESS && field.status == NVML_SUCCESS &&
               field.value.as_unsigned == 1;
    return nvml->link_state(device, link, &active) == NVML_SUCCESS && active == 1;
}

static void ask_links(const struct nvml *nvml, nvml_device device, struct mics_nvml_gpu *gpu)
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

/* What only some answer. */
static void ask_rest(const struct nvml *nvml, nvml_device device, struct mics_nvml_gpu *gpu)
{
    struct nvml_memory memory = {0};

    (void)nvml->uuid(device, gpu->uuid, sizeof gpu->uuid);
    (void)nvml->memory(device, &memory); /* one memory with the host's: not supported */
    gpu->memory_bytes = memory.total;
    gpu->free_bytes = memory.free;
    (void)nvml->capability(device, &gpu->major, &gpu->minor);
    (void)nvml->max_generation(device, &gpu->pcie_generation);
    (void)nvml->max_width(device, &gpu->pcie_width);
    (void)nvml->generation(device, &gpu->pcie_generation_now);
    (void)nvml->width(device, &gpu->pcie_width_now);
    ask_links(nvml, device, gpu);
}

static enum mics_status ask(const struct nvml *nvml, unsigned index, struct mics_nvml_gpu *gpu,
                            struct mics_err *err)
{
    struct nvml_pci pci = {.id = ""};
    nvml_device device = NULL;
    int code = nvml->by_index(index, &device);

    if (code == NVML_SUCCESS)
        code = nvml->name(device, gpu->name, sizeof gpu->name);
    if (code == NVML_SUCCESS)
        code = nvml->pci(device, &pci);
    if (code != NVML_SUCCESS) {
        failure(nvml, "a GPU's name and place", code, err);
        mics_err_prefix(err, "GPU %u", index);
        return MICS_ERR_DEVICE;
    }
    snprintf(gpu->pci_id, sizeof gpu->pci_id, "%.31s", pci.id);
    ask_rest(nvml, device, gpu);
    return MICS_OK;
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
        status = ask(&nvml, i, &gpus[i], err);
    close_nvml(&nvml);
    if (status != MICS_OK) {
        free(gpus);
        return status;
    }
    *out = gpus;
    *count = found;
    return MICS_OK;
}
