/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - whole files in: the buffer doubles until the end of the file or the limit. */
#include "base/file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_BUFFER = 16384 };

/* Make room for at least one byte more, but for no more than one byte beyond `limit`. */
static enum mics_status grow(char **data, size_t *room, size_t limit, struct mics_err *err)
{
    size_t next = *room < FIRST_BUFFER ? FIRST_BUFFER : *room * 2;

    if (*room > SIZE_MAX / 4)
        return mics_err_nomem(err);
    if (limit < SIZE_MAX - 1 && next > limit + 2)
        next = limit + 2;
    char *bigger = realloc(*data, next);
    if (!bigger)
        return mics_err_nomem(err);
    *data = bigger;
    *room = next;
    return MICS_OK;
}

/* Read to the end; the last byte of the room stays free for the NUL. */
static enum mics_status slurp(FILE *in, size_t limit, char **data, size_t *size,
                              struct mics_err *err)
{
    size_t room = 0;
    size_t got = 0;

    do {
        *size += got;
        if (*size > limit)
            return mics_err_set(err, MICS_ERR_FORMAT, "more than %zu bytes", limit);
        if (*size + 1 >= room) {
            enum mics_status status = grow(data, &room, limit, err);
            if (status != MICS_OK)
                return status;
        }
        got = fread(*data + *size, 1, room - *size - 1, in);
    } while (got > 0);
    if (ferror(in))
        return mics_err_set_errno(err, "read failed");
    (*data)[*size] = '\0';
    return MICS_OK;
}

enum mics_status mics_file_slurp(FILE *in, size_t limit, char **data, size_t *size,
                                 struct mics_err *err)
{
    char *bytes = NULL;
    size_t count = 0;
    enum mics_status status = slurp(in, limit, &bytes, &count, err);

    if (status != MICS_OK) {
        free(bytes);
        return status;
    }
    *data = bytes;
    *size = count;
    return MICS_OK;
}

enum mics_status mics_file_read(const char *path, size_t limit, char **data, size_t *size,
                                struct mics_err *err)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    FILE *in = is_stdin ? stdin : fopen(path, "rbe");

    if (!in)
        return mics_err_set_errno(err, "%s", path);
    enum mics_status status = mics_file_slurp(in, limit, data, size, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", is_stdin ? "standard input" : path);
    if (!is_stdin)
        fclose(in);
    return status;
}

enum mics_status mics_file_read_at(int fd, void *dst, size_t size, uint64_t offset,
                                   struct mics_err *err)
{
    char *at = dst;

    while (size > 0) {
        const ssize_t got = pread(fd, at, size, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mics_err_set_errno(err, "cannot read");
        if (got == 0)
            return mics_err_set(err, MICS_ERR_FORMAT, "ends early");
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return MICS_OK;
}
