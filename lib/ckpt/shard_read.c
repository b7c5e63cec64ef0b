/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is mapped, and checked as a whole (size, sum, header) before anything of it is used.
 */
#include "ckpt/shard_file.h"

#include "ckpt/shard_spec.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static enum mics_status missing(struct mics_err *err, const char *text)
{
    mics_err_set_errno(err, "%s", text);
    return MICS_ERR_FORMAT; /* whatever the cause: the checkpoint is not whole */
}

static enum mics_status map_fd(int fd, uint64_t bytes, const void **data, struct mics_err *err)
{
    struct stat info;
    void *mapped;

    if (fstat(fd, &info) != 0)
        return missing(err, "cannot read");
    if ((uint64_t)info.st_size != bytes)
        return mics_err_set(err, MICS_ERR_FORMAT, "has %lld bytes, the manifest says %llu",
                            (long long)info.st_size, (unsigned long long)bytes);
    mapped = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (mapped == MAP_FAILED)
        return missing(err, "cannot map");
    *data = mapped;
    return MICS_OK;
}

static enum mics_status map(const char *path, uint64_t bytes, const void **data,
                            struct mics_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum mics_status status;

    if (fd < 0)
        return missing(err, "cannot open");
    status = map_fd(fd, bytes, data, err);
    close(fd);
    return status;
}

static enum mics_status check_tensors(const struct mics_shard_spec *spec,
                                      const struct mics_safetensors *file, struct mics_err *err)
{
    if (file->count != spec->count)
        return mics_err_set(err, MICS_ERR_FORMAT, "has %zu tensors, not %u", file->count,
                            spec->count);
    for (uint32_t i = 0; i < spec->count; i++) {
        const struct mics_safetensor_spec *want = &spec->tensors[i];
        const struct mics_safetensor *found = mics_safetensors_find(file, want->name);

        if (!found)
            return mics_err_set(err, MICS_ERR_FORMAT, "has no tensor '%s'", want->name);
        if (strcmp(found->dtype, want->dtype) != 0 || found->rank != want->rank ||
            found->shape[0] != want->shape[0])
            return mics_err_set(err, MICS_ERR_FORMAT, "tensor '%s' is not F32 of %llu elements",
                                want->name, (unsigned long long)want->shape[0]);
    }
    return MICS_OK;
}

/* Data of other writers need not be aligned, so every slice goes through a buffer that is. */
static enum mics_status put_tensors(const struct mics_shard_spec *spec, uint32_t states,
                                    const struct mics_safetensors *file, const char *data,
                                    const struct mics_ckpt_source *source, struct mics_err *err)
{
    float *buffer = malloc(spec->largest * sizeof *buffer);
    enum mics_status status = buffer ? MICS_OK : mics_err_nomem(err);

    for (uint32_t i = 0; status == MICS_OK && i < spec->count; i++) {
        const struct mics_safetensor *tensor = mics_safetensors_find(file, spec->names[i]);

        memcpy(buffer, data + file->data_offset + tensor->begin, tensor->end - tensor->begin);
        status = source->put(source->context, i / states, i % states, buffer, err);
    }
    free(buffer);
    return status;
}

static enum mics_status use(const char *data, const struct mics_ckpt_form *form,
                            const struct mics_file_sum *sum, const struct mics_ckpt_source *source,
                            struct mics_err *err)
{
    struct mics_safetensors file = {0};
    struct mics_shard_spec spec = {0};
    enum mics_status status = MICS_OK;

    if (XXH64(data, sum->bytes, 0) != sum->xxh64)
        return mics_err_set(err, MICS_ERR_FORMAT, "is damaged: its sum is not the manifest's");
    status = mics_safetensors_parse(data, sum->bytes, sum->bytes, &file, err);
    if (status == MICS_OK)
        status = mics_shard_spec_new(form, &spec, err);
    if (status == MICS_OK)
        status = check_tensors(&spec, &file, err);
    if (status == MICS_OK)
        status = put_tensors(&spec, form->states, &file, data, source, err);
    mics_shard_spec_free(&spec);
    mics_safetensors_free(&file);
    return status;
}

enum mics_status mics_shard_file_read(const char *path, const struct mics_ckpt_form *form,
                                      const struct mics_file_sum *sum,
                                      const struct mics_ckpt_source *source, struct mics_err *err)
{
    const void *data = NULL;
    enum mics_status status = map(path, sum->bytes, &data, err);

    if (status == MICS_OK) {
        status = use(data, form, sum, source, err);
        munmap((void *)data, sum->bytes);
    }
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
    return status;
}
