/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/format/storage_dtype.h"

#include "base/num.h"

#include <string.h>

static const struct mics_file_dtype dtypes[] = {
    {"F32", 32},    {"BF16", 16},   {"F16", 16}, {"F64", 64},    {"I64", 64},
    {"I32", 32},    {"I16", 16},    {"I8", 8},   {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8}, {"C64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

const struct mics_file_dtype *mics_file_dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

bool mics_file_dtype_bytes(const struct mics_file_dtype *dtype, const uint64_t *shape,
                           uint32_t rank, uint64_t *bytes)
{
    uint64_t bits = dtype->bits;

    for (uint32_t i = 0; i < rank; i++)
        if (!mics_mul_u64(bits, shape[i], &bits))
            return false;
    *bytes = bits / 8;
    return bits % 8 == 0;
}
