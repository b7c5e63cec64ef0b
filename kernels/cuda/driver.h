/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - functions of the CUDA driver, looked up at run time: no program links the driver. */
#ifndef MICS_KERNELS_CUDA_DRIVER_H
#define MICS_KERNELS_CUDA_DRIVER_H

#include <cuda_runtime.h>
#include <stddef.h>

/* The address of a driver function, as of CUDA 12.0; NULL if the driver does not have it. Clears
 * the runtime's last error. */
static inline void *mics_driver_function(const char *symbol)
{
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
    cudaError_t error;

    /* CUDA 12.5 added the form with a version, and 13.0 removed the one without. */
#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion(symbol, &function, 12000, cudaEnableDefault, &result);
#else
    error = cudaGetDriverEntryPoint(symbol, &function, cudaEnableDefault, &result);
#endif
    (void)cudaGetLastError();
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? function : NULL;
}

#endif
