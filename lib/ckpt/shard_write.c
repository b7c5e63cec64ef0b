/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/shard_file.h"

#include "ckpt/shard_spec.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

uint64_t mics_shard_file_bytes(const struct mics_ckpt_form *form)
{
    uint64_t elements = 0, tensors = (uint64_t)form->model->unit_count * form->states;

    for (uint32_t i = 0; i < form->model->unit_count; i++)
        elements += mics_layout_optim_shard(&form->layouts[i]) * form->states;
    return elements * sizeof(float) + 4096 + tensors * 160;
}

static bool all_finite(const float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

static enum mics_status write_tensors(struct mics_hashed_file *file,
                                      const struct mics_shard_spec *spec, uint32_t states,
                                      const struct mics_ckpt_source *source, float *buffer,
                                      struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; status == MICS_OK && i < spec->count; i++) {
        uint64_t count = spec->tensors[i].shape[0];

        status = source->take(source->context, i / states, i % states, buffer, err);
        if (status == MICS_OK && !all_finite(buffer, count))
            status = mics_err_set(err, MICS_ERR_DEVICE, "%s holds numbers that are not finite",
                                  spec->names[i]);
        if (status == MICS_OK)
            status = mics_hashed_file_write(file, buffer, count * sizeof *buffer, err);
    }
    return status;
}

static enum mics_status write_header(struct mics_hashed_file *file,
                                     const struct mics_shard_spec *spec, struct mics_err *err)
{
    char *header = NULL;
    size_t size = 0;
    enum mics_status status =
        mics_safetensors_header(spec->tensors, spec->count, &header, &size, err);

    if (status == MICS_OK)
        status = mics_hashed_file_write(file, header, size, err);
    free(header);
    return status;
}

enum mics_status mics_shard_file_write(const char *path, const struct mics_ckpt_form *form,
                                       const struct mics_ckpt_source *source,
                                       struct mics_file_sum *sum, struct mics_err *err)
{
    struct mics_hashed_file *file = NULL;
    struct mics_shard_spec spec = {0};
    float *buffer = NULL;
    enum mics_status status = mics_shard_spec_new(form, &spec, err);

    if (status != MICS_OK)
        return status;
    buffer = malloc(spec.largest * sizeof *buffer);
    status = buffer ? mics_hashed_file_create(path, &file, err) : mics_err_nomem(err);
    if (status == MICS_OK)
        status = write_header(file, &spec, err);
    if (status == MICS_OK)
        status = write_tensors(file, &spec, form->states, source, buffer, err);
    if (status == MICS_OK)
        status = mics_hashed_file_finish(file, sum, err);
    else
        mics_hashed_file_drop(file);
    free(buffer);
    mics_shard_spec_free(&spec);
    return status;
}
