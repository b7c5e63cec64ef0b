/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_runtime.h - an emulated CUDA, found instead of the real one by the order of include folders.
 *
 * In C only the functions of the runtime. In C++ also what kernels are written in; how a grid is
 * run is in emulator.h.
 */
#ifndef MICS_TESTS_EMULATOR_CUDA_RUNTIME_H
#define MICS_TESTS_EMULATOR_CUDA_RUNTIME_H

#ifndef MICS_EMULATED
#error "tests/emulator is only for builds with MICS_EMULATED"
#endif

#include "runtime.h"

#ifdef __cplusplus

#include "emulator.h"

#include "device.h"

template <typename T> static inline cudaError_t cudaMalloc(T **out, size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(out), bytes);
}

template <typename T> static inline cudaError_t cudaMallocHost(T **out, size_t bytes)
{
    return cudaMallocHost(reinterpret_cast<void **>(out), bytes);
}

/* More than 48 KiB of dynamic shared memory must be asked for, as on a GPU. */
template <typename F>
static inline cudaError_t cudaFuncSetAttribute(F *kernel, cudaFuncAttribute attribute, int value)
{
    return emu_func_set_attribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

#endif

#endif
