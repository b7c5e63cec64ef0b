/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.c - replaces libnvidia-ml.so.1 in tests, through $MICS_NVML_PATH.
 *
 * It has the three GPUs of tests/fake/hwloc.xml: an H200 whose links all lead to switches and
 * are not reported by the older call; an A100 with links to GPUs, one of them down; and a GH200
 * without links and without memory of its own. MICS_FAKE_NVML=mismatch: initialisation fails as
 * after an upgrade of the driver without a restart. MICS_FAKE_NVML=emulated: the first two emulated
 * GPUs instead, on which other programs use 8 and 9 of the 16 GiB.
 */
#include "topology/nvml_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MISMATCH = 18, GPUS = 3, EMULATED = 2 };

struct nvml_device {
    const char *name, *pci_id, *uuid;
    int major, minor;
    unsigned generation, width, links, remote;
    unsigned long long memory, used;
};

static struct nvml_device gpus[GPUS] = {
    {"NVIDIA H200", "00000000:18:00.0", "GPU-18", 9, 0, 5, 16, 18, NVML_REMOTE_SWITCH, 150754820096,
     0},
    {"NVIDIA A100-SXM4-80GB", "00000000:2A:00.0", "GPU-2a", 8, 0, 4, 16, 12, NVML_REMOTE_GPU,
     85899345920, 0},
    {"NVIDIA GH200", "00000000:9A:00.0", "GPU-9a", 9, 0, 5, 8, 0, NVML_REMOTE_GPU, 0, 0},
};

static struct nvml_device emulated[EMULATED] = {
    {"emulated", "00000000:00:00.0", "GPU-6d696373-2065-6d75-6c61-746564000000", 9, 0, 5, 16, 0,
     NVML_REMOTE_GPU, 16ull << 30, 8ull << 30},
    {"emulated", "00000000:01:00.0", "GPU-6d696373-2065-6d75-6c61-746564000001", 9, 0, 5, 16, 0,
     NVML_REMOTE_GPU, 16ull << 30, 9ull << 30},
};

static int is_asked_for(const char *what)
{
    const char *text = getenv("MICS_FAKE_NVML");

    return text && strcmp(text, what) == 0;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device);
int nvmlDeviceGetName(nvml_device device, char *text, unsigned size);
int nvmlDeviceGetUUID(nvml_device device, char *text, unsigned size);
int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory);
int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci *pci);
int nvmlDeviceGetCudaComputeCapability(nvml_device device, int *major, int *minor);
int nvmlDeviceGetMaxPcieLinkGeneration(nvml_device device, unsigned *value);
int nvmlDeviceGetMaxPcieLinkWidth(nvml_device device, unsigned *value);
int nvmlDeviceGetCurrPcieLinkGeneration(nvml_device device, unsigned *value);
int nvmlDeviceGetCurrPcieLinkWidth(nvml_device device, unsigned *value);
int nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, unsigned *active);
int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device device, unsigned link, unsigned *type);
int nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field *fields);

int nvmlInit_v2(void)
{
    return is_asked_for("mismatch") ? MISMATCH : NVML_SUCCESS;
}

int nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

const char *nvmlErrorString(int code)
{
    return code == MISMATCH ? "Driver/library version mismatch" : "Not Supported";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = is_asked_for("emulated") ? EMULATED : GPUS;
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    *device = is_asked_for("emulated") ? &emulated[index] : &gpus[index];
    return NVML_SUCCESS;
}

int nvmlDeviceGetName(nvml_device device, char *text, unsigned size)
{
    snprintf(text, size, "%s", device->name);
    return NVML_SUCCESS;
}

int nvmlDeviceGetUUID(nvml_device device, char *text, unsigned size)
{
    snprintf(text, size, "%s", device->uuid);
    return NVML_SUCCESS;
}

int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory)
{
    if (device->memory == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    memory->total = device->memory;
    memory->used = device->used;
    memory->free = device->memory - device->used;
    return NVML_SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci *pci)
{
    snprintf(pci->id, sizeof pci->id, "%s", device->pci_id);
    return NVML_SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(nvml_device device, int *major, int *minor)
{
    *major = device->major;
    *minor = device->minor;
    return NVML_SUCCESS;
}

int nvmlDeviceGetMaxPcieLinkGeneration(nvml_device device, unsigned *value)
{
    *value = device->generation;
    return NVML_SUCCESS;
}

int nvmlDeviceGetMaxPcieLinkWidth(nvml_device device, unsigned *value)
{
    *value = 16;
    (void)device;
    return NVML_SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkGeneration(nvml_device device, unsigned *value)
{
    *value = device->generation;
    return NVML_SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkWidth(nvml_device device, unsigned *value)
{
    *value = device->width;
    return NVML_SUCCESS;
}

/* Not supported from compute capability 9.0 on. */
int nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, unsigned *active)
{
    if (device->major >= 9 || link >= device->links)
        return NVML_ERROR_NOT_SUPPORTED;
    *active = link != 3;
    return NVML_SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device device, unsigned link, unsigned *type)
{
    *type = device->remote;
    return link < device->links ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field *fields)
{
    for (int i = 0; i < count; i++) {
        const int known =
            fields[i].id == NVML_FIELD_NVLINK_STATE && fields[i].scope < device->links;

        fields[i].status = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        fields[i].value.as_unsigned = known ? 1 : 0;
    }
    return NVML_SUCCESS;
}
