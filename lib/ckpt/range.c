/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range falls into runs, each in one file (mics_ckpt_locate()), and each run is one pread() to its
 * place. Of a file its header is read once, and remembered as where each tensor begins; descriptors
 * are kept open, but not more than some hundred.
 */
#include "ckpt/range_files.h"

#include "base/num.h"
#include "ckpt/folder.h"
#include "ckpt/format/checksum.h"
#include "ckpt/format/safetensors.h"
#include "doc/doc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_OPEN 128

enum mics_status mics_range_path(const struct mics_ckpt_reader *reader, uint32_t file, char *path,
                                 struct mics_err *err)
{
    char name[64];

    mics_ckpt_file_name(file, name, sizeof name);
    return mics_path_format(path, err, "%s/%s", reader->folder, name);
}

enum mics_status mics_range_read(const char *path, int fd, void *dst, uint64_t size,
                                 uint64_t offset, struct mics_err *err)
{
    for (char *at = dst; size > 0;) {
        const ssize_t got = pread(fd, at, size, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mics_err_set_errno(err, "%s", path);
        if (got == 0)
            return mics_err_set(err, MICS_ERR_FORMAT, "%s: became shorter meanwhile", path);
        at += got;
        offset += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return MICS_OK;
}

uint64_t mics_range_count(const struct mics_ckpt_reader *reader, uint32_t unit, uint32_t file)
{
    const uint32_t parts = reader->table.parts, part = file % parts;
    const uint64_t count = mics_layout_optim_shard(&reader->table.units[unit].layout);

    return mics_ckpt_part_begin(count, parts, part + 1) - mics_ckpt_part_begin(count, parts, part);
}

static enum mics_status find_tensors(const struct mics_ckpt_reader *reader, uint32_t number,
                                     const struct mics_safetensors *file, uint64_t *offsets,
                                     struct mics_err *err)
{
    const uint32_t states = reader->table.states, count = reader->table.unit_count * states;
    char name[48];

    if (file->count != count)
        return mics_err_set(err, MICS_ERR_FORMAT, "has %zu tensors, not %u", file->count, count);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t elements = mics_range_count(reader, i / states, number);
        const struct mics_safetensor *found;

        snprintf(name, sizeof name, "%s.%s", reader->table.units[i / states].name,
                 mics_ckpt_state_name(i % states));
        found = mics_safetensors_find(file, name);
        if (!found)
            return mics_err_set(err, MICS_ERR_FORMAT, "has no tensor '%s'", name);
        if (strcmp(found->dtype, "F32") != 0 || found->rank != 1 || found->shape[0] != elements)
            return mics_err_set(err, MICS_ERR_FORMAT, "tensor '%s' is not F32 of %llu elements",
                                name, (unsigned long long)elements);
        offsets[i] = file->data_offset + found->begin;
    }
    return MICS_OK;
}

static enum mics_status read_header(const char *path, int fd, uint64_t bytes,
                                    struct mics_safetensors *out, struct mics_err *err)
{
    unsigned char length[8] = {0};
    uint64_t size = 0;
    char *data = NULL;
    enum mics_status status =
        mics_range_read(path, fd, length, mics_min_u64(sizeof length, bytes), 0, err);

    for (int i = 7; i >= 0; i--)
        size = size << 8 | length[i];
    size = mics_min_u64(bytes, mics_min_u64(size, MICS_SAFETENSORS_MAX_HEADER) + sizeof length);
    if (status == MICS_OK && !(data = malloc(size + 1)))
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = mics_range_read(path, fd, data, size, 0, err);
    if (status == MICS_OK) {
        status = mics_safetensors_parse(data, size, bytes, out, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", path);
    }
    free(data);
    return status;
}

static enum mics_status learn(struct mics_ckpt_reader *reader, uint32_t number, const char *path,
                              struct mics_err *err)
{
    const size_t count = (size_t)reader->table.unit_count * reader->table.states;
    struct mics_safetensors header = {0};
    uint64_t *offsets = malloc(count * sizeof *offsets);
    enum mics_status status = offsets ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = read_header(path, reader->files[number].fd, reader->manifest.files[number].bytes,
                             &header, err);
    if (status == MICS_OK) {
        status = find_tensors(reader, number, &header, offsets, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", path);
    }
    mics_safetensors_free(&header);
    if (status != MICS_OK) {
        free(offsets);
        return status;
    }
    reader->files[number].offsets = offsets;
    return MICS_OK;
}

static void close_files(struct mics_ckpt_reader *reader)
{
    for (uint32_t i = 0; reader->files && i < reader->manifest.file_count; i++) {
        if (reader->files[i].fd >= 0)
            close(reader->files[i].fd);
        reader->files[i].fd = -1;
    }
    reader->open_count = 0;
}

enum mics_status mics_range_need(struct mics_ckpt_reader *reader, uint32_t number, const char *path,
                                 struct mics_err *err)
{
    struct mics_range_file *file = &reader->files[number];
    enum mics_status status = MICS_OK;

    if (file->fd < 0) {
        if (reader->open_count == MAX_OPEN)
            close_files(reader);
        status = mics_file_open_sized(path, reader->manifest.files[number].bytes, &file->fd, err);
        reader->open_count += status == MICS_OK;
    }
    if (status == MICS_OK && !file->offsets)
        status = learn(reader, number, path, err);
    return status;
}

/* The run of elements from `first` on that lies in one file, at most `count`. */
static enum mics_status read_run(struct mics_ckpt_reader *reader, uint32_t unit, uint32_t state,
                                 uint64_t first, uint64_t *count, float *dst, struct mics_err *err)
{
    const struct mics_ckpt_place place =
        mics_ckpt_locate(&reader->table.units[unit].layout, reader->table.parts, first);
    const struct mics_range_file *file = &reader->files[place.file];
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_range_path(reader, place.file, path, err);

    *count = mics_min_u64(*count, place.run);
    if (status == MICS_OK)
        status = mics_range_need(reader, place.file, path, err);
    if (status != MICS_OK)
        return status;
    return mics_range_read(
        path, file->fd, dst, *count * sizeof *dst,
        file->offsets[unit * reader->table.states + state] + place.offset * sizeof *dst, err);
}

enum mics_status mics_ckpt_reader_read(struct mics_ckpt_reader *reader, uint32_t unit,
                                       uint32_t state, uint64_t first, uint64_t count, float *dst,
                                       struct mics_err *err)
{
    const uint64_t elements = reader->table.units[unit].layout.count;
    const uint64_t end = mics_min_u64(elements, first + count);
    enum mics_status status = MICS_OK;

    for (uint64_t at = first, run; status == MICS_OK && at < end; at += run) {
        run = end - at;
        status = read_run(reader, unit, state, at, &run, dst + (at - first), err);
    }
    if (status == MICS_OK && first + count > end) {
        const uint64_t real = end > first ? end - first : 0;

        memset(dst + real, 0, (count - real) * sizeof *dst);
    }
    return status;
}

enum mics_status mics_ckpt_reader_check(struct mics_ckpt_reader *reader, uint32_t file,
                                        struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_range_path(reader, file, path, err);

    return status == MICS_OK ? mics_file_sum_check(path, &reader->manifest.files[file], false, err)
                             : status;
}

static enum mics_status start(struct mics_ckpt_reader *reader, const json_t *doc,
                              struct mics_err *err)
{
    enum mics_status status =
        mics_manifest_from_doc((json_t *)(uintptr_t)doc, &reader->manifest, err);

    if (status == MICS_OK)
        status = mics_ckpt_table_read(doc, &reader->table, err);
    if (status != MICS_OK)
        return status;
    if (reader->manifest.file_count != (uint64_t)reader->table.shape.p_optim * reader->table.parts)
        return mics_err_set(err, MICS_ERR_FORMAT, "files: %u, but %u shards have %u parts each",
                            reader->manifest.file_count, reader->table.shape.p_optim,
                            reader->table.parts);
    reader->files = calloc(reader->manifest.file_count, sizeof *reader->files);
    if (!reader->files)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < reader->manifest.file_count; i++)
        reader->files[i].fd = -1;
    return MICS_OK;
}

enum mics_status mics_ckpt_reader_open(const char *folder, const json_t *doc,
                                       struct mics_ckpt_reader **out, struct mics_err *err)
{
    struct mics_ckpt_reader *reader = calloc(1, sizeof *reader);
    char path[MICS_PATH_MAX];
    json_t *own = NULL;
    enum mics_status status;

    if (!reader)
        return mics_err_nomem(err);
    status = mics_path_format(reader->folder, err, "%s", folder);
    if (status == MICS_OK)
        status = mics_path_format(path, err, "%s/" MICS_MANIFEST_NAME, folder);
    if (status == MICS_OK && !doc)
        status = mics_doc_read_file(path, &own, err);
    if (status == MICS_OK) {
        status = start(reader, doc ? doc : own, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", path);
    }
    json_decref(own);
    if (status != MICS_OK) {
        mics_ckpt_reader_close(reader);
        return status;
    }
    *out = reader;
    return MICS_OK;
}

void mics_ckpt_reader_close(struct mics_ckpt_reader *reader)
{
    if (!reader)
        return;
    close_files(reader);
    for (uint32_t i = 0; reader->files && i < reader->manifest.file_count; i++)
        free(reader->files[i].offsets);
    free(reader->files);
    mics_ckpt_table_free(&reader->table);
    mics_manifest_free(&reader->manifest);
    free(reader);
}

const struct mics_ckpt_table *mics_ckpt_reader_table(const struct mics_ckpt_reader *reader)
{
    return &reader->table;
}

const struct mics_manifest *mics_ckpt_reader_manifest(const struct mics_ckpt_reader *reader)
{
    return &reader->manifest;
}
