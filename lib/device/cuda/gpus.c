/* SPDX-License-Identifier: Apache-2.0 */
/* gpus.c - is there a GPU, and can this build use it? Every way in which there is not has its own line. */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

/* "90": compute capability 9.0, as in sm_90. The build says what it has: code for these... */
static const int built_sm[] = {MICS_CUDA_SM};
/* ... and code for this one and later that the driver translates; 0: none. */
static const int built_ptx = MICS_CUDA_PTX;

static enum mics_status no_driver(int driver, struct mics_err *err)
{
    if (driver == 0)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "no GPU driver is installed (libcuda.so.1 is not there)");
    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "the GPU driver is for CUDA %d.%d, this build needs %d.%d: install a newer "
                        "driver",
                        driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                        CUDART_VERSION % 1000 / 10);
}

enum mics_status mics_cuda_gpu_count(unsigned *out, struct mics_err *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0, driver = 0;
    cudaError_t error = cudaDriverGetVersion(&driver);

    if (error == cudaSuccess)
        error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver)
        return no_driver(driver, err);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count < 1))
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "no GPU: the driver sees none%s%s",
                            visible ? "; CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    if (error != cudaSuccess) {
        mics_cuda_error(err, error, "the GPU driver");
        return MICS_ERR_UNSUPPORTED;
    }
    *out = (unsigned)count;
    return MICS_OK;
}

/* Machine code runs on its own capability and on later ones of the same major number. */
static bool is_supported(int sm)
{
    for (size_t i = 0; i < sizeof built_sm / sizeof *built_sm; i++)
        if (sm / 10 == built_sm[i] / 10 && sm >= built_sm[i])
            return true;
    return built_ptx && sm >= built_ptx;
}

enum mics_status mics_cuda_check_gpu(const struct cudaDeviceProp *prop, int gpu,
                                     struct mics_err *err)
{
    char built[128] = "";
    size_t used = 0;

    if (is_supported(prop->major * 10 + prop->minor))
        return MICS_OK;
    for (size_t i = 0; i < sizeof built_sm / sizeof *built_sm && used < sizeof built; i++)
        used += (size_t)snprintf(built + used, sizeof built - used, "%ssm_%d", i ? ", " : "",
                                 built_sm[i]);
    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "GPU %d (%s) is sm_%d%d: this build has code for %s%s; build with "
                        "CUDA_ARCH=%d%d",
                        gpu, prop->name, prop->major, prop->minor, built,
                        built_ptx ? " and what comes later" : "", prop->major, prop->minor);
}
