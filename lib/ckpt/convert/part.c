/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file is a row of bytes, header and numbers, of which any piece can be made by itself; only its sum runs from
 * end to end, so that threads take turns there.
 */
#include "ckpt/convert/part.h"

#include "base/num.h"

#include <string.h>

bool mics_copier_stops(const struct mics_copier *copier)
{
    return atomic_load(&copier->stop) || (copier->cancel && atomic_load(copier->cancel));
}

void mics_copier_stop(struct mics_copier *copier)
{
    pthread_mutex_lock(&copier->lock);
    atomic_store(&copier->stop, true);
    pthread_cond_broadcast(&copier->turn);
    pthread_mutex_unlock(&copier->lock);
}

/* Bytes [at, at + size) of a section. Numbers go straight to their place where they are whole and aligned there;
 * behind a tensor of single bytes they may not be. */
static enum mics_status fill_section(const struct mics_copier *copier,
                                     const struct mics_section *section, uint64_t start,
                                     uint64_t at, char *dst, size_t size, float *scratch,
                                     struct mics_err *err)
{
    const size_t width = mics_number_bytes(section->number);
    char *const aside = (char *)(scratch + 2 * MICS_STORE_CHUNK);

    while (size > 0) {
        const size_t skip = at % width;
        const bool straight = skip == 0 && size >= width && (uintptr_t)dst % width == 0;
        const size_t some =
            (size_t)mics_min_u64(straight ? size / width * width : size, MICS_STORE_CHUNK);
        const enum mics_status status = mics_store_read(
            copier->store, section->space, start + at / width, (skip + some + width - 1) / width,
            section->number, straight ? dst : aside, scratch, err);

        if (status != MICS_OK)
            return status;
        if (!straight)
            memcpy(dst, aside + skip, some);
        at += some;
        dst += some;
        size -= some;
    }
    return MICS_OK;
}

/* The section that holds byte `at` of a file's data. */
static size_t find_section(const struct mics_target_file *file, uint64_t at)
{
    size_t low = 0, high = file->section_count; /* the first that begins after it */

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (file->sections[middle].offset <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static enum mics_status fill_data(const struct mics_copier *copier,
                                  const struct mics_target_file *file, uint64_t at, char *dst,
                                  size_t size, float *scratch, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = find_section(file, at); status == MICS_OK && size > 0; i++) {
        const struct mics_section *section = &file->sections[i];
        const uint64_t bytes = section->count * mics_number_bytes(section->number);
        const uint64_t skip = at - section->offset;
        const size_t some = (size_t)mics_min_u64(size, bytes - skip);

        status = fill_section(copier, section, section->start + file->index * section->count, skip,
                              dst, some, scratch, err);
        at += some;
        dst += some;
        size -= some;
    }
    return status;
}

static enum mics_status fill(const struct mics_copier *copier, const struct mics_target_file *file,
                             uint64_t begin, size_t size, const struct mics_copy_buffers *buffers,
                             struct mics_err *err)
{
    size_t head = 0;

    if (begin < file->header_bytes) {
        head = (size_t)mics_min_u64(size, file->header_bytes - begin);
        memcpy(buffers->out, file->header + begin, head);
    }
    if (head == size)
        return MICS_OK;
    return fill_data(copier, file, begin + head - file->header_bytes, buffers->out + head,
                     size - head, buffers->scratch, err);
}

/* False: all is to stop. */
static bool sum_in_turn(struct mics_copier *copier, struct mics_making *making, uint64_t begin,
                        const char *data, size_t size)
{
    bool mine;

    pthread_mutex_lock(&copier->lock);
    while (making->hashed != begin && !mics_copier_stops(copier))
        pthread_cond_wait(&copier->turn, &copier->lock);
    mine = making->hashed == begin;
    if (!mine) /* so whoever waits for this piece waits in vain */
        pthread_cond_broadcast(&copier->turn);
    pthread_mutex_unlock(&copier->lock);
    if (!mine)
        return false;
    XXH64_update(making->hash, data, size);
    pthread_mutex_lock(&copier->lock);
    making->hashed += size;
    pthread_cond_broadcast(&copier->turn);
    pthread_mutex_unlock(&copier->lock);
    return true;
}

enum mics_status mics_piece_make(struct mics_copier *copier, const struct mics_piece *piece,
                                 const struct mics_copy_buffers *buffers, struct mics_err *err)
{
    const struct mics_target_file *file = &copier->target->files[piece->file];
    struct mics_making *making = &copier->files[piece->file];
    const size_t size = (size_t)mics_min_u64(MICS_PIECE_BYTES, file->bytes - piece->begin);
    enum mics_status status = fill(copier, file, piece->begin, size, buffers, err);

    if (status == MICS_OK && making->hash &&
        !sum_in_turn(copier, making, piece->begin, buffers->out, size))
        return MICS_OK;
    if (status == MICS_OK)
        status = mics_piece_file_write(&making->out, buffers->out, size, piece->begin, err);
    if (status == MICS_OK)
        atomic_fetch_add(&copier->done, size);
    return status;
}
