/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_load.c - the header of a file on disk. */
#include "ckpt/format/safetensors.h"

#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static enum mics_status read_begin(int fd, unsigned char *data, size_t size, struct mics_err *err)
{
    for (size_t at = 0; at < size;) {
        const ssize_t got = pread(fd, data + at, size - at, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mics_err_set_errno(err, "cannot read");
        if (got == 0)
            return mics_err_set(err, MICS_ERR_FORMAT, "ends early");
        at += (size_t)got;
    }
    return MICS_OK;
}

enum mics_status mics_safetensors_load(int fd, uint64_t file_bytes, struct mics_safetensors *out,
                                       struct mics_err *err)
{
    unsigned char length[8] = {0}, *data = NULL;
    size_t size = (size_t)mics_min_u64(sizeof length, file_bytes);
    uint64_t value = 0;
    enum mics_status status = read_begin(fd, length, size, err);

    if (status != MICS_OK)
        return status;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | length[i];
    if (value <= MICS_SAFETENSORS_MAX_HEADER) /* else the parser tells what is wrong */
        size = (size_t)mics_min_u64(sizeof length + value, file_bytes);
    data = malloc(size + 1);
    if (!data)
        return mics_err_nomem(err);
    status = read_begin(fd, data, size, err);
    if (status == MICS_OK)
        status = mics_safetensors_parse(data, size, file_bytes, out, err);
    free(data);
    return status;
}
