/* SPDX-License-Identifier: Apache-2.0 */
/* convert_part.h - a stretch of one file, made by one thread. Private to the conversion. */
#ifndef MICS_CKPT_CONVERT_PART_H
#define MICS_CKPT_CONVERT_PART_H

#include "ckpt/convert_target.h"

#include <stdatomic.h>

/* From `skip` numbers into section `section` on, `bytes` of sections, at `offset` of the file. The part at the
 * beginning of the data writes the header too. */
struct mics_part {
    uint32_t file;
    size_t section;
    uint64_t skip, bytes, offset;
};

/* What all threads share. */
struct mics_copier {
    const struct mics_store *store;
    struct mics_target *target;
    int *fds; /* [file], open for writing */
    const char *folder;
    _Atomic uint64_t done; /* bytes */
    atomic_bool stop;
};

/* One thread's buffers. */
struct mics_copy_buffers {
    char *out;      /* [MICS_STORE_CHUNK floats] */
    float *scratch; /* [2 * MICS_STORE_CHUNK] */
};

enum mics_status mics_part_make(struct mics_copier *copier, const struct mics_part *part,
                                const struct mics_copy_buffers *buffers, struct mics_err *err);

#endif
