/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map_emulated.h - what an emulated tensor map holds. */
#ifndef MICS_TESTS_EMULATED_TENSOR_MAP_EMULATED_H
#define MICS_TESTS_EMULATED_TENSOR_MAP_EMULATED_H

#include "cuda.h"

#include <array>

struct emu_tensor_map {
    const void *at;                 /* NULL: it is none */
    std::array<uint64_t, 4> size;   /* elements of bf16, the innermost first */
    std::array<uint64_t, 3> stride; /* bytes, from the second on */
    std::array<uint32_t, 4> box;
};

struct emu_tensor_map emu_tensor_map_read(const CUtensorMap *map);

/* The driver's cuTensorMapEncodeTiled for what mics asks of it: four dimensions of bf16, 128-byte swizzle, steps of 1. */
CUresult emu_tensor_map_encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                               void *at, const cuuint64_t *size, const cuuint64_t *stride,
                               const cuuint32_t *box, const cuuint32_t *step,
                               CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                               CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

#endif
