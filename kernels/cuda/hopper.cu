/* SPDX-License-Identifier: Apache-2.0 */
/* hopper.cu - tensor maps by the driver, whose function is looked up at run time. */
#include "hopper.cuh"

#include "cuda/driver.h"

#include <string.h>

typedef CUresult (*encode_fn)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *at,
                              const cuuint64_t *size, const cuuint64_t *stride,
                              const cuuint32_t *box, const cuuint32_t *step,
                              CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

static encode_fn find_encode(void)
{
    void *function = mics_driver_function("cuTensorMapEncodeTiled");
    encode_fn encode;

    memcpy(&encode, &function, sizeof(encode));
    return encode;
}

cudaError_t mics_tensor_map_make(CUtensorMap *map, const struct mics_heads &of, unsigned rows)
{
    static const encode_fn encode = find_encode();
    const cuuint64_t size[4] = {of.D, of.heads, of.T, of.B};
    /* In bytes, from the second dimension on. */
    const cuuint64_t stride[3] = {of.D * 2, of.stride * 2, of.stride * 2 * of.T};
    const cuuint32_t box[4] = {64, 1, rows, 1}, step[4] = {1, 1, 1, 1};

    if (!encode)
        return cudaErrorNotSupported;
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void *>(of.at), size, stride,
                  box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorInvalidValue;
}
