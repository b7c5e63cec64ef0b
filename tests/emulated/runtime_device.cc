/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_device.cc - what the emulated device says of itself, and the names of errors. */
#include "runtime.h"

#include <cstdio>
#include <cstring>

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return emu_note(cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
    return emu_note(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return emu_note(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return emu_note(cudaSuccess);
}

/* Limits of compute capability 9.0; few multiprocessors, so that loops over a grid are walked. */
static const struct cudaDeviceProp properties = {
    .name = "emulated",
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

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    if (device != 0)
        return emu_note(cudaErrorInvalidDevice);
    *out = properties;
    return emu_note(cudaSuccess);
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
        {cudaDevAttrComputeCapabilityMajor, (size_t)properties.major},
        {cudaDevAttrComputeCapabilityMinor, (size_t)properties.minor},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, properties.sharedMemPerMultiprocessor},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, properties.sharedMemPerBlockOptin},
    };

    if (device != 0)
        return emu_note(cudaErrorInvalidDevice);
    for (const auto &one : known)
        if (one.attribute == attribute) {
            *out = (int)one.value;
            return emu_note(cudaSuccess);
        }
    return emu_note(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return emu_note(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
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
