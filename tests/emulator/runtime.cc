/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.cc - properties of the emulated device, and errors: see runtime.h. */
#include "queue.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static thread_local int current_device;

long long emu_setting(const char *name, long long otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoll(text, nullptr, 10) : otherwise;
}

void emu_log(const char *call)
{
    const char *path = getenv("MICS_EMULATED_CALLS");
    FILE *out = path ? fopen(path, "ae") : nullptr;

    if (!out)
        return;
    fprintf(out, "%s\n", call); /* one write, at the end of the file */
    fclose(out);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = (int)std::min(emu_setting("MICS_EMULATED_GPUS", 8), (long long)EMU_DEVICES);
    if (emu_setting("MICS_EMULATED_DRIVER", CUDART_VERSION) < CUDART_VERSION)
        return emu_note(cudaErrorInsufficientDriver);
    return emu_note(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

int emu_current_device(void)
{
    return current_device;
}

static cudaError_t check_device(int device)
{
    int count;
    const cudaError_t error = cudaGetDeviceCount(&count);

    if (error != cudaSuccess)
        return error;
    return emu_note(device >= 0 && device < count ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaSetDevice(int device)
{
    const cudaError_t error = check_device(device);

    if (error == cudaSuccess)
        current_device = device;
    return error;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return emu_note(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    const cudaError_t error = check_device(device);

    if (error != cudaSuccess)
        return error;
    if (snprintf(text, (size_t)size, "0000:%02x:00.0", (unsigned)device & 0xff) >= size)
        return emu_note(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return emu_note(cudaSuccess);
}

/* Limits of compute capability 9.0; few multiprocessors, so that loops over a grid run more than
 * once. */
static const struct cudaDeviceProp properties = {
    .name = "emulated",
    .uuid = {"mics emulated"},
    .totalGlobalMem = (size_t)8 << 30,
    .sharedMemPerBlock = 48 << 10,
    .sharedMemPerBlockOptin = 227 << 10,
    .sharedMemPerMultiprocessor = 228 << 10,
    .regsPerBlock = 65536,
    .regsPerMultiprocessor = 65536,
    .warpSize = 32,
    .maxThreadsPerBlock = 1024,
    .maxThreadsPerMultiProcessor = 2048,
    .multiProcessorCount = 3,
    .major = 9,
    .minor = 0,
    .l2CacheSize = 1 << 20,
    .pciBusID = 0,
    .pciDeviceID = 0,
    .pciDomainID = 0,
};

/* Its compute capability, 90 for 9.0. */
static int emulated_arch(void)
{
    return (int)emu_setting("MICS_EMULATED_ARCH", properties.major * 10 + properties.minor);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    const int arch = emulated_arch();
    const cudaError_t error = check_device(device);

    if (error != cudaSuccess)
        return error;
    *out = properties;
    (void)emu_memory_left(&out->totalGlobalMem);
    if (const char *name = getenv("MICS_EMULATED_NAME"))
        snprintf(out->name, sizeof(out->name), "%s", name);
    out->major = arch / 10;
    out->minor = arch % 10;
    out->uuid.bytes[15] = (char)device;
    out->pciBusID = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int device)
{
    const struct {
        enum cudaDeviceAttr attribute;
        size_t value;
    } known[] = {
        {cudaDevAttrMaxThreadsPerBlock, (size_t)properties.maxThreadsPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlock, properties.sharedMemPerBlock},
        {cudaDevAttrWarpSize, (size_t)properties.warpSize},
        {cudaDevAttrMultiProcessorCount, (size_t)properties.multiProcessorCount},
        {cudaDevAttrComputeCapabilityMajor, (size_t)emulated_arch() / 10},
        {cudaDevAttrComputeCapabilityMinor, (size_t)emulated_arch() % 10},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, properties.sharedMemPerMultiprocessor},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, properties.sharedMemPerBlockOptin},
    };

    if (check_device(device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    for (const auto &one : known)
        if (one.attribute == attribute) {
            *out = (int)one.value;
            return emu_note(cudaSuccess);
        }
    return emu_note(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)emu_setting("MICS_EMULATED_DRIVER", CUDART_VERSION);
    return emu_note(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return emu_note(cudaSuccess);
}

/* --- errors */

static thread_local cudaError_t last_error = cudaSuccess;

cudaError_t emu_note(cudaError_t error)
{
    if (emu_in_call() && error == cudaSuccess) {
        fprintf(stderr, "emulator: a function of cudaLaunchHostFunc() calls CUDA\n");
        error = cudaErrorNotPermitted;
    }
    if (emu_is_broken())
        error = cudaErrorLaunchFailure;
    if (error != cudaSuccess) /* "not ready" is remembered, too, as CUDA does */
        last_error = error;
    return error;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;

    if (!emu_is_broken())
        last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

cudaError_t cudaDeviceReset(void)
{
    emu_repair();
    last_error = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    emu_log("cudaDeviceSynchronize");
    emu_wait_for_device();
    return emu_note(cudaSuccess);
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "the driver is too old"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel for this device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not ready"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "a kernel failed"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &one : errors)
        if (one.error == error)
            return one.name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &one : errors)
        if (one.error == error)
            return one.text;
    return "unknown error";
}
