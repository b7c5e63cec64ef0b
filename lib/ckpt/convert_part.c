/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers are collected in a buffer that stays in the cache, summed there if need be, and written when it
 * is full. When they go to the disk is left to the kernel: to urge it on made the sync at the end no shorter.
 */
#include "ckpt/convert_part.h"

#include "base/num.h"

#include <errno.h>
#include <unistd.h>
#include <xxhash.h>

#define BUFFER_BYTES (MICS_STORE_CHUNK * sizeof(float))

/* A file under way. */
struct stream {
    struct mics_copier *copier;
    const struct mics_target_file *file;
    int fd;
    uint64_t offset;
    XXH64_state_t *hash; /* or NULL */
};

static enum mics_status put(struct stream *stream, const char *data, size_t size,
                            struct mics_err *err)
{
    if (stream->hash)
        XXH64_update(stream->hash, data, size);
    while (size > 0) {
        const ssize_t done = pwrite(stream->fd, data, size, (off_t)stream->offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return mics_err_set_errno(err, "%s/%s", stream->copier->folder, stream->file->name);
        data += done;
        size -= (size_t)done;
        stream->offset += (uint64_t)done;
        atomic_fetch_add(&stream->copier->done, (uint64_t)done);
    }
    return MICS_OK;
}

/* What is collected, before the buffer could overflow or hold a number that is not aligned. */
static enum mics_status flush_unless(bool go_on, struct stream *stream,
                                     const struct mics_copy_buffers *buffers, size_t *filled,
                                     struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (go_on || *filled == 0)
        return MICS_OK;
    status = put(stream, buffers->out, *filled, err);
    *filled = 0;
    return status;
}

/* Numbers of one section from `skip` on, *left bytes at most. */
static enum mics_status put_section(struct stream *stream, const struct mics_section *section,
                                    uint64_t skip, uint64_t *left,
                                    const struct mics_copy_buffers *buffers, size_t *filled,
                                    struct mics_err *err)
{
    const size_t size = mics_number_bytes(section->number);
    const uint64_t start = section->start + stream->file->index * section->count;
    enum mics_status status = flush_unless(*filled % size == 0, stream, buffers, filled, err);

    while (status == MICS_OK && *left > 0 && skip < section->count) {
        const uint64_t fit = mics_min_u64((BUFFER_BYTES - *filled) / size, MICS_STORE_CHUNK);
        const uint64_t count = mics_min_u64(section->count - skip, mics_min_u64(fit, *left / size));

        status = mics_store_read(stream->copier->store, section->space, start + skip, count,
                                 section->number, buffers->out + *filled, buffers->scratch, err);
        skip += count;
        *filled += count * size;
        *left -= count * size;
        if (status == MICS_OK)
            status = flush_unless(BUFFER_BYTES - *filled >= size, stream, buffers, filled, err);
        if (atomic_load(&stream->copier->stop))
            *left = 0;
    }
    return status;
}

static enum mics_status put_sections(struct stream *stream, const struct mics_part *part,
                                     const struct mics_copy_buffers *buffers, struct mics_err *err)
{
    uint64_t left = part->bytes, skip = part->skip;
    size_t filled = 0;
    enum mics_status status = MICS_OK;

    for (size_t i = part->section; status == MICS_OK && left > 0; i++, skip = 0)
        status =
            put_section(stream, &stream->file->sections[i], skip, &left, buffers, &filled, err);
    return status == MICS_OK ? flush_unless(false, stream, buffers, &filled, err) : status;
}

enum mics_status mics_part_make(struct mics_copier *copier, const struct mics_part *part,
                                const struct mics_copy_buffers *buffers, struct mics_err *err)
{
    struct mics_target_file *file = &copier->target->files[part->file];
    const bool first = part->offset == file->header_bytes;
    struct stream stream = {.copier = copier,
                            .file = file,
                            .fd = copier->fds[part->file],
                            .offset = first ? 0 : part->offset};
    enum mics_status status = MICS_OK;

    if (copier->target->hashed) {
        stream.hash = XXH64_createState();
        if (!stream.hash)
            return mics_err_nomem(err);
        XXH64_reset(stream.hash, 0);
    }
    if (first)
        status = put(&stream, file->header, file->header_bytes, err);
    if (status == MICS_OK)
        status = put_sections(&stream, part, buffers, err);
    if (stream.hash) {
        file->sum =
            (struct mics_file_sum){.bytes = stream.offset, .xxh64 = XXH64_digest(stream.hash)};
        XXH64_freeState(stream.hash);
    }
    return status;
}
