/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map.cc - tensor maps as the driver makes them, and what it refuses. */
#include "tensor_map_emulated.h"

#include <cstring>

static const uint64_t mark = 0x6d61706d61706d61u;

static_assert(sizeof(struct emu_tensor_map) <= sizeof(CUtensorMap) - sizeof(mark), "it fits");

struct emu_tensor_map emu_tensor_map_read(const CUtensorMap *map)
{
    struct emu_tensor_map box = {};

    if (map->opaque[15] == mark)
        memcpy(static_cast<void *>(&box), map->opaque, sizeof(box));
    return box;
}

static bool takes(const void *at, const cuuint64_t *size, const cuuint64_t *stride,
                  const cuuint32_t *box, const cuuint32_t *step)
{
    for (unsigned i = 0; i < 4; i++)
        if (size[i] == 0 || size[i] > (uint64_t)1 << 32 || box[i] == 0 || box[i] > 256 ||
            step[i] != 1)
            return false;
    for (unsigned i = 0; i < 3; i++)
        if (stride[i] % 16 != 0 || stride[i] >= (uint64_t)1 << 40)
            return false;
    return reinterpret_cast<uintptr_t>(at) % 16 == 0 && box[0] * 2 == 128;
}

CUresult emu_tensor_map_encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                               void *at, const cuuint64_t *size, const cuuint64_t *stride,
                               const cuuint32_t *box, const cuuint32_t *step,
                               CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill)
{
    struct emu_tensor_map made = {at, {}, {}, {}};

    if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ||
        rank != 4 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        swizzle != CU_TENSOR_MAP_SWIZZLE_128B || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || !at ||
        !takes(at, size, stride, box, step))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < 4; i++) {
        made.size[i] = size[i];
        made.box[i] = box[i];
        if (i > 0)
            made.stride[i - 1] = stride[i - 1];
    }
    memcpy(map->opaque, static_cast<const void *>(&made), sizeof(made));
    map->opaque[15] = mark;
    return CUDA_SUCCESS;
}
