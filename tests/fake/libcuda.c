/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcuda.c - in the place of libcuda.so.1: a driver without a GPU, whose every call fails.
 *
 * With it cuDNN judges graphs for a GPU that is only described (tests/cudnn/check_graphs.cc): it looks for the driver's
 * functions, but calls none that matters before it makes a plan.
 */
#define FAILS(name)                                                                                \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 801; /* CUDA_ERROR_NOT_SUPPORTED */                                                 \
    }

FAILS(cuCtxGetCurrent)
FAILS(cuCtxGetDevice)
FAILS(cuCtxGetLimit)
FAILS(cuCtxPopCurrent)
FAILS(cuCtxPushCurrent)
FAILS(cuDeviceGet)
FAILS(cuDeviceGetAttribute)
FAILS(cuDeviceGetCount)
FAILS(cuDevicePrimaryCtxRelease)
FAILS(cuDevicePrimaryCtxReset)
FAILS(cuDevicePrimaryCtxRetain)
FAILS(cuDriverGetVersion)
FAILS(cuFuncGetAttribute)
FAILS(cuFuncSetAttribute)
FAILS(cuGetErrorName)
FAILS(cuGetErrorString)
FAILS(cuInit)
FAILS(cuKernelGetAttribute)
FAILS(cuKernelSetAttribute)
FAILS(cuLaunchCooperativeKernel)
FAILS(cuLaunchKernel)
FAILS(cuLaunchKernelEx)
FAILS(cuLibraryGetKernel)
FAILS(cuLibraryLoadData)
FAILS(cuLibraryLoadFromFile)
FAILS(cuLibraryUnload)
FAILS(cuLinkAddData)
FAILS(cuLinkAddData_v2)
FAILS(cuLinkAddFile_v2)
FAILS(cuLinkComplete)
FAILS(cuLinkCreate)
FAILS(cuLinkCreate_v2)
FAILS(cuLinkDestroy)
FAILS(cuMemcpyDtoH_v2)
FAILS(cuModuleGetFunction)
FAILS(cuModuleGetGlobal_v2)
FAILS(cuModuleLoadData)
FAILS(cuModuleLoadDataEx)
FAILS(cuModuleLoadFatBinary)
FAILS(cuModuleUnload)
FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
FAILS(cuOccupancyMaxPotentialClusterSize)
FAILS(cuStreamGetCtx)
FAILS(cuStreamSynchronize)
FAILS(cuTensorMapEncodeTiled)
