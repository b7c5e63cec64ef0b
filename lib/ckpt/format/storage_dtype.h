/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - the element types of safetensors. */
#ifndef MICS_CKPT_FORMAT_STORAGE_DTYPE_H
#define MICS_CKPT_FORMAT_STORAGE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

struct mics_file_dtype {
    const char *name;
    unsigned bits;
};

/* By name, or NULL. */
const struct mics_file_dtype *mics_file_dtype_find(const char *name);

/* *bytes = bytes of a tensor; false when that does not fit, or is not a whole number. */
bool mics_file_dtype_bytes(const struct mics_file_dtype *dtype, const uint64_t *shape,
                           uint32_t rank, uint64_t *bytes);

#endif
