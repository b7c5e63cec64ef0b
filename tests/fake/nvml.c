/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.c - replaces libnvidia-ml.so.1 in tests, through $MICS_NVML_PATH.
 *
 * It has the three GPUs of tests/fake/hwloc.xml: an H200 whose links all lead to switches and
 * are not reported by the older call; an A100 with links to GPUs, one of them down; and a GH200
 * without links and without memory of its own. MICS_FAKE_NVML=mismatch: initialisation fails as
 * after an upgrade of the driver without a restart. MICS_FAKE_NVML=emulated: the first two emulated
 * GPUs instead, on which other programs use 8 and 9 of the 16 GiB. MICS_FAKE_NVML=eight: eight good
 * H100, which MICS_FAKE_GPU="INDEX FAULT VALUE" changes in one figure.
 */
#include "topology/nvml_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MISMATCH = 18, GPUS = 3, EMULATED = 2, EIGHT = 8 };

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

static struct nvml_device eight[EIGHT];
static char eight_ids[EIGHT][2][32];

static int is_asked_for(const char *what)
{
    const char *text = getenv("MICS_FAKE_NVML");

    return text && strcmp(text, what) == 0;
}

/* The value of a fault that this GPU has, or `good`. */
static unsigned figure_of(nvml_device device, const char *fault, unsigned good)
{
    const char *text = getenv("MICS_FAKE_GPU");
    char name[32];
    unsigned index, value;

    if (!text || sscanf(text, "%u %31s %u", &index, name, &value) != 3 || index >= EIGHT)
        return good;
    return device == &eight[index] && strcmp(name, fault) == 0 ? value : good;
}

static nvml_device make_eight(unsigned index)
{
    nvml_device gpu = &eight[index];

    snprintf(eight_ids[index][0], 32, "00000000:%02X:00.0", 16 + index);
    snprintf(eight_ids[index][1], 32, "GPU-%02x", 16 + index);
    *gpu = (struct nvml_device){"NVIDIA H100 80GB HBM3",
                                eight_ids[index][0],
                                eight_ids[index][1],
                                9,
                                0,
                                figure_of(gpu, "generation", 5),
                                figure_of(gpu, "width", 16),
                                figure_of(gpu, "links", 18),
                                NVML_REMOTE_SWITCH,
                                85520809984,
                                (unsigned long long)figure_of(gpu, "used_gib", 0) << 30};
    if (figure_of(gpu, "model", 0))
        gpu->name = "NVIDIA H100 PCIe";
    return gpu;
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
int nvmlSystemGetDriverVersion(char *text, unsigned size);
int nvmlDeviceGetEccMode(nvml_device device, unsigned *now, unsigned *pending);
int nvmlDeviceGetTotalEccErrors(nvml_device device, int type, int counter,
                                unsigned long long *count);
int nvmlDeviceGetRemappedRows(nvml_device device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed);
int nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device device, unsigned long long *reasons);
int nvmlDeviceGetTemperature(nvml_device device, int sensor, unsigned *celsius);
int nvmlDeviceGetTemperatureThreshold(nvml_device device, int threshold, unsigned *celsius);
int nvmlDeviceGetEnforcedPowerLimit(nvml_device device, unsigned *milliwatts);
int nvmlDeviceGetPowerManagementDefaultLimit(nvml_device device, unsigned *milliwatts);
int nvmlDeviceGetPersistenceMode(nvml_device device, unsigned *on);
int nvmlDeviceGetMigMode(nvml_device device, unsigned *now, unsigned *pending);
int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count, void *list);
int nvmlDeviceGetNvLinkErrorCounter(nvml_device device, unsigned link, int counter,
                                    unsigned long long *count);
int nvmlDeviceGetP2PStatus(nvml_device device, nvml_device other, int capability, int *state);

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
    const char *text = getenv("MICS_FAKE_GPU");
    unsigned value;

    *count = is_asked_for("emulated") ? EMULATED : is_asked_for("eight") ? EIGHT : GPUS;
    if (text && sscanf(text, "0 count %u", &value) == 1 && value < *count)
        *count = value;
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    if (is_asked_for("eight"))
        *device = make_eight(index);
    else
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

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    const char *version = getenv("MICS_FAKE_DRIVER");

    snprintf(text, size, "%s", version ? version : "550.90.07");
    return NVML_SUCCESS;
}

/* Only the eight tell their state. */
static int tell(nvml_device device, const char *fault, unsigned good, unsigned *value)
{
    if (!is_asked_for("eight"))
        return NVML_ERROR_NOT_SUPPORTED;
    *value = figure_of(device, fault, good);
    return NVML_SUCCESS;
}

int nvmlDeviceGetEccMode(nvml_device device, unsigned *now, unsigned *pending)
{
    *pending = 1;
    return tell(device, "ecc", 1, now);
}

int nvmlDeviceGetTotalEccErrors(nvml_device device, int type, int counter,
                                unsigned long long *count)
{
    unsigned value = 0;
    const int code = tell(device, "ecc_errors", 0, &value);

    *count = type == NVML_UNCORRECTED && counter == NVML_VOLATILE_ECC ? value : 1000;
    return code;
}

int nvmlDeviceGetRemappedRows(nvml_device device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    *corrected = *uncorrected = 1; /* rows that were replaced work as all others */
    tell(device, "remap_pending", 0, pending);
    return tell(device, "remap_failed", 0, failed);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device device, unsigned long long *reasons)
{
    unsigned value = 0;
    const int code = tell(device, "throttle", 1, &value); /* 1: it is idle */

    *reasons = value;
    return code;
}

int nvmlDeviceGetTemperature(nvml_device device, int sensor, unsigned *celsius)
{
    return sensor == NVML_TEMPERATURE_GPU ? tell(device, "celsius", 40, celsius)
                                          : NVML_ERROR_NOT_SUPPORTED;
}

int nvmlDeviceGetTemperatureThreshold(nvml_device device, int threshold, unsigned *celsius)
{
    return threshold == NVML_THRESHOLD_SLOWDOWN ? tell(device, "limit", 87, celsius)
                                                : NVML_ERROR_NOT_SUPPORTED;
}

int nvmlDeviceGetEnforcedPowerLimit(nvml_device device, unsigned *milliwatts)
{
    return tell(device, "power_mw", 700000, milliwatts);
}

int nvmlDeviceGetPowerManagementDefaultLimit(nvml_device device, unsigned *milliwatts)
{
    return tell(device, "default_power_mw", 700000, milliwatts);
}

int nvmlDeviceGetPersistenceMode(nvml_device device, unsigned *on)
{
    return tell(device, "persistence", 1, on);
}

int nvmlDeviceGetMigMode(nvml_device device, unsigned *now, unsigned *pending)
{
    *pending = 0;
    return tell(device, "mig", 0, now);
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count, void *list)
{
    const int code = tell(device, "processes", 0, count);

    (void)list;
    return code == NVML_SUCCESS && *count > 0 ? NVML_ERROR_INSUFFICIENT_SIZE : code;
}

int nvmlDeviceGetNvLinkErrorCounter(nvml_device device, unsigned link, int counter,
                                    unsigned long long *count)
{
    unsigned value = 0;
    const int code = tell(device, "recoveries", 0, &value);

    *count = link == 0 && counter == NVML_LINK_RECOVERY ? value : 0;
    return code;
}

/* Between the GPU with the fault and its successor, both ways; or of all GPUs, "peers". */
int nvmlDeviceGetP2PStatus(nvml_device device, nvml_device other, int capability, int *state)
{
    unsigned value = NVML_P2P_OK;
    int code = tell(device, "peer", NVML_P2P_OK, &value);

    if (other != device + 1)
        value = NVML_P2P_OK;
    if (device == other + 1)
        tell(other, "peer", NVML_P2P_OK, &value);
    if (capability != NVML_P2P_NVLINK && code == NVML_SUCCESS && value == NVML_P2P_OK)
        tell(&eight[0], "peers", NVML_P2P_OK, &value);
    if (capability == NVML_P2P_NVLINK && code == NVML_SUCCESS && value == NVML_P2P_OK) {
        value = device->links > 0 && other->links > 0 ? NVML_P2P_OK : NVML_P2P_NOT_SUPPORTED;
        if (figure_of(&eight[0], "no_nvlink", 0))
            value = NVML_P2P_NOT_SUPPORTED;
    }
    *state = (int)value;
    return code;
}
