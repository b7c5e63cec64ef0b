/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_frame.h - what stands around the numbers of one tensor in a file of torch.save.
 *
 * The archive is head, numbers, tail. Its sums (CRC-32) are 0, as torch.save writes them after
 * torch.serialization.set_crc32_options(False): torch.load does not compare them. Any size: offsets
 * and sizes are those of large archives (ZIP64).
 */
#ifndef MICS_CKPT_FORMAT_TORCH_FRAME_H
#define MICS_CKPT_FORMAT_TORCH_FRAME_H

#include "base/err.h"
#include "host/numbers.h"

#include <stddef.h>
#include <stdint.h>

/* The numbers begin at a multiple of this; torch.save does the same. */
enum { MICS_TORCH_ALIGN = 64 };

struct mics_torch_frame {
    char *head, *tail;
    size_t head_bytes, tail_bytes; /* head_bytes is a multiple of MICS_TORCH_ALIGN */
};

/* `dtype` is F32, F16 or BF16; rank 0 to 2. The caller frees *out, also after an error. */
enum mics_status mics_torch_frame_make(enum mics_storage_dtype dtype, const uint64_t *shape,
                                       uint32_t rank, struct mics_torch_frame *out,
                                       struct mics_err *err);
void mics_torch_frame_free(struct mics_torch_frame *frame); /* all zeros is fine */

#endif
