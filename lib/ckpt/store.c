/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/store.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *dtype, *word;
} dtype_names[] = {{"F32", "f32"}, {"F16", "f16"}, {"BF16", "bf16"}, {"F64", NULL}};

enum mics_storage_dtype mics_storage_dtype_of_name(const char *dtype)
{
    for (unsigned i = 0; i < sizeof dtype_names / sizeof *dtype_names; i++)
        if (strcmp(dtype, dtype_names[i].dtype) == 0)
            return (enum mics_storage_dtype)i;
    return MICS_STORAGE_RAW;
}

const char *mics_storage_dtype_name(enum mics_storage_dtype dtype)
{
    return dtype_names[dtype].dtype;
}

enum mics_status mics_storage_dtype_parse(const char *text, enum mics_storage_dtype *out,
                                          struct mics_err *err)
{
    for (unsigned i = 0; dtype_names[i].word; i++) {
        if (strcmp(text, dtype_names[i].word) == 0) {
            *out = (enum mics_storage_dtype)i;
            return MICS_OK;
        }
    }
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected f32, f16 or bf16", text);
}

void mics_store_close(struct mics_store *store)
{
    for (uint32_t i = 0; i < store->file_count; i++) {
        if (store->files[i].fd >= 0)
            close(store->files[i].fd);
        free(store->files[i].path);
        free(store->files[i].tensor_offsets);
    }
    free(store->files);
    free(store->table);
    free(store->tensor_names);
    *store = (struct mics_store){0};
}

enum mics_status mics_store_file_open(struct mics_store_file *file, struct mics_err *err)
{
    struct stat info;

    file->fd = open(file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait */
    if (file->fd < 0 || fstat(file->fd, &info) != 0) {
        const bool absent = errno == ENOENT;

        mics_err_set_errno(err, "%s", file->path);
        return absent ? MICS_ERR_FORMAT : MICS_ERR_IO;
    }
    if (!S_ISREG(info.st_mode))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: not a regular file", file->path);
    file->bytes = (uint64_t)info.st_size;
    return MICS_OK;
}

enum mics_status mics_store_add_file(struct mics_store *store, const char *path,
                                     struct mics_err *err)
{
    struct mics_store_file *files =
        realloc(store->files, ((size_t)store->file_count + 1) * sizeof *files);

    if (!files)
        return mics_err_nomem(err);
    store->files = files;
    files[store->file_count] = (struct mics_store_file){.path = strdup(path), .fd = -1};
    if (!files[store->file_count].path)
        return mics_err_nomem(err);
    return mics_store_file_open(&files[store->file_count++], err);
}

void mics_raise_open_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int by_place(const void *a, const void *b)
{
    const struct mics_extent *x = a, *y = b;

    if (x->vector != y->vector)
        return x->vector < y->vector ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

void mics_store_sort(struct mics_store *store)
{
    if (store->table_count)
        qsort(store->table, store->table_count, sizeof *store->table, by_place);
}

/* The part of `whole` from `start` on, `count` at most. */
static struct mics_extent clip_extent(const struct mics_extent *whole, uint64_t start,
                                      uint64_t count)
{
    struct mics_extent part = *whole;
    const uint64_t skip = start - whole->start;

    part.start = start;
    part.count = mics_min_u64(count, whole->count - skip);
    part.offset += skip * mics_storage_dtype_bytes(whole->dtype);
    return part;
}

static struct mics_extent locate_extent(const struct mics_store *store, uint32_t vector,
                                        uint64_t start, uint64_t count)
{
    const struct mics_extent key = {.vector = vector, .start = start};
    size_t low = 0, high = store->table_count; /* the first extent that begins after `start` */

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (by_place(&store->table[middle], &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0) {
        const struct mics_extent *at = &store->table[low - 1];

        if (at->vector == vector && start - at->start < at->count)
            return clip_extent(at, start, count);
    }
    if (low < store->table_count && store->table[low].vector == vector)
        count = mics_min_u64(count, store->table[low].start - start);
    return (struct mics_extent){.vector = vector, .start = start, .count = count};
}

static struct mics_extent locate_shard(const struct mics_store *store, uint32_t vector,
                                       uint64_t start, uint64_t count)
{
    const struct mics_ckpt_table *table = store->shards;
    const uint32_t unit = vector / MICS_CKPT_STATES, state = vector % MICS_CKPT_STATES;
    const size_t tensor = (size_t)unit * table->states + state;

    if (start >= table->units[unit].layout.padded || state >= table->states)
        return (struct mics_extent){.vector = vector, .start = start, .count = count};
    const struct mics_ckpt_place place = mics_ckpt_locate(&table->units[unit], table->parts, start);

    return (struct mics_extent){.name = store->tensor_names[tensor],
                                .vector = vector,
                                .file = place.file,
                                .dtype = MICS_STORAGE_F32,
                                .start = start,
                                .count = mics_min_u64(count, place.run),
                                .offset = store->files[place.file].tensor_offsets[tensor] +
                                          place.offset * sizeof(float)};
}

struct mics_extent mics_store_locate(const struct mics_store *store, uint32_t vector,
                                     uint64_t start, uint64_t count)
{
    return store->shards ? locate_shard(store, vector, start, count)
                         : locate_extent(store, vector, start, count);
}

enum mics_status mics_store_read_extent(const struct mics_store *store,
                                        const struct mics_extent *extent, void *dst,
                                        struct mics_err *err)
{
    const struct mics_store_file *file = &store->files[extent->file];
    const enum mics_status status =
        mics_file_read_at(file->fd, dst, extent->count * mics_storage_dtype_bytes(extent->dtype),
                          extent->offset, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file->path);
    return status;
}

static enum mics_status check_finite(const struct mics_store *store,
                                     const struct mics_extent *extent,
                                     enum mics_storage_dtype dtype, const void *dst,
                                     const void *raw, struct mics_err *err)
{
    if (mics_numbers_finite(dtype, dst, extent->count))
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT, "%s: tensor '%.128s' holds numbers that are %s",
                        store->files[extent->file].path, extent->name,
                        mics_numbers_finite(extent->dtype, raw, extent->count)
                            ? "too large for the type asked for"
                            : "not finite");
}

/* A conversion goes through fp32, in the second half of the scratch, whose first half has room for
 * MICS_STORE_CHUNK numbers of 4 bytes. */
static enum mics_status read_converted(const struct mics_store *store,
                                       const struct mics_extent *extent,
                                       enum mics_storage_dtype dtype, void *dst, float *scratch,
                                       struct mics_err *err)
{
    void *raw = extent->dtype == dtype ? dst : scratch;
    float *wide = scratch + MICS_STORE_CHUNK;
    enum mics_status status = mics_store_read_extent(store, extent, raw, err);

    if (status == MICS_OK && raw != dst) {
        mics_numbers_to_f32(extent->dtype, raw, wide, extent->count);
        mics_numbers_from_f32(dtype, wide, dst, extent->count);
    }
    return status == MICS_OK ? check_finite(store, extent, dtype, dst, raw, err) : status;
}

enum mics_status mics_store_read_run(const struct mics_store *store,
                                     const struct mics_extent *extent,
                                     enum mics_storage_dtype dtype, void *dst, float *scratch,
                                     struct mics_err *err)
{
    const size_t width = mics_storage_dtype_bytes(extent->dtype);
    struct mics_extent part = *extent;
    enum mics_status status = MICS_OK;

    for (uint64_t done = 0; status == MICS_OK && done < extent->count; done += part.count) {
        part.offset = extent->offset + done * width;
        part.count =
            mics_min_u64(extent->count - done, width > 4 ? MICS_STORE_CHUNK / 2 : MICS_STORE_CHUNK);
        status = read_converted(store, &part, dtype,
                                (char *)dst + done * mics_storage_dtype_bytes(dtype), scratch, err);
    }
    return status;
}

enum mics_status mics_store_read(const struct mics_store *store, uint32_t vector, uint64_t start,
                                 size_t count, enum mics_storage_dtype dtype, void *dst,
                                 float *scratch, struct mics_err *err)
{
    const size_t size = mics_storage_dtype_bytes(dtype);
    char *at = dst;

    while (count > 0) {
        const struct mics_extent extent = mics_store_locate(store, vector, start, count);
        enum mics_status status = MICS_OK;

        if (extent.name)
            status = mics_store_read_run(store, &extent, dtype, at, scratch, err);
        else
            memset(at, 0, extent.count * size);
        if (status != MICS_OK)
            return status;
        at += extent.count * size;
        start += extent.count;
        count -= extent.count;
    }
    return MICS_OK;
}
