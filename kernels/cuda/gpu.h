/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - features of CUDA that the emulator of the tests implements differently.
 *
 * The same sources are compiled by nvcc for a GPU and, with MICS_EMULATED, by a C++ compiler of the
 * host against the headers in tests/emulator. So a kernel is launched through MICS_LAUNCH only,
 * shared memory is declared by MICS_SHARED and MICS_DYNAMIC_SHARED, and PTX is confined to small
 * wrappers (tensor.cuh), which have emulated counterparts.
 */
#ifndef MICS_KERNELS_CUDA_GPU_H
#define MICS_KERNELS_CUDA_GPU_H

#include <cuda_runtime.h>

#ifdef MICS_EMULATED

#include "emulator.h"

#else

/* cudaError_t MICS_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...): launch, and
 * return the error of the launch. A template with several arguments is put in parentheses:
 * (kernel<float, 4>). */
#define MICS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    (kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__), cudaGetLastError())

/* An array in shared memory: MICS_SHARED(float, sums, [32]); undefined until written, aligned to 16
 * bytes. */
#define MICS_SHARED(type, name, ...) __shared__ __align__(16) type name __VA_ARGS__

/* `type *name`: the block's dynamic shared memory, aligned to 1024 bytes. */
#define MICS_DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(1024) unsigned char mics_dynamic_shared[];                         \
    type *name = reinterpret_cast<type *>(mics_dynamic_shared)

#endif

#endif
