/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/shard_file.h"

#include "base/num.h"
#include "ckpt/ckpt_table.h"
#include "ckpt/format/checksum.h"
#include "ckpt/store.h"
#include "plan/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* A piece of a shard, which begins at element `from` of its unit and `to` of the shard. */
struct piece {
    uint32_t unit, state;
    uint64_t from, to, count;
};

static enum mics_status read_piece(const struct piece *piece, mics_shard_read_range *read,
                                   void *context, const struct mics_ckpt_source *source,
                                   float *buffer, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint64_t done = 0; status == MICS_OK && done < piece->count; done += MICS_STORE_CHUNK) {
        const uint64_t count = mics_min_u64(piece->count - done, MICS_STORE_CHUNK);

        status = read(context, piece->unit, piece->state, piece->from + done, count, buffer, err);
        if (status == MICS_OK)
            status = source->put(source->context, piece->unit, piece->state, piece->to + done,
                                 count, buffer, err);
    }
    return status;
}

enum mics_status mics_shard_read(const struct mics_ckpt_layout *form, uint32_t rank,
                                 uint32_t states, mics_shard_read_range *read, void *context,
                                 const struct mics_ckpt_source *source, struct mics_err *err)
{
    const uint32_t index = mics_shape_index(mics_ckpt_layout_shape(form), rank).optim;
    float *buffer = malloc(MICS_STORE_CHUNK * sizeof *buffer);
    enum mics_status status = buffer ? MICS_OK : mics_err_nomem(err);

    for (uint32_t unit = 0; unit < form->model->unit_count; unit++) {
        const struct mics_layout *layout = &form->layouts[unit];
        const uint64_t count = layout->optim_piece;

        for (uint32_t state = 0; state < states; state++)
            for (uint32_t i = 0; status == MICS_OK && i < layout->segments; i++)
                status = read_piece(
                    &(struct piece){unit, state, mics_layout_piece_offset(layout, i, count, index),
                                    i * count, count},
                    read, context, source, buffer, err);
    }
    free(buffer);
    return status;
}

enum mics_status mics_shard_spec_new(const struct mics_ckpt_layout *form, uint32_t part,
                                     struct mics_shard_spec *spec, struct mics_err *err)
{
    const uint32_t count = form->model->unit_count * form->states;

    *spec = (struct mics_shard_spec){.count = count};
    spec->tensors = calloc(count, sizeof *spec->tensors);
    spec->names = calloc(count, sizeof *spec->names);
    if (!spec->tensors || !spec->names) {
        mics_shard_spec_free(spec);
        return mics_err_nomem(err);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t unit = i / form->states;
        uint64_t shard = mics_layout_optim_shard(&form->layouts[unit]);

        snprintf(spec->names[i], sizeof spec->names[i], "%s.%s", form->model->units[unit].name,
                 mics_ckpt_state_name(i % form->states));
        spec->tensors[i] = (struct mics_safetensor_spec){
            .name = spec->names[i],
            .dtype = "F32",
            .rank = 1,
            .shape = {mics_ckpt_part_begin(shard, form->parts, part + 1) -
                      mics_ckpt_part_begin(shard, form->parts, part)}};
    }
    return MICS_OK;
}

void mics_shard_spec_free(struct mics_shard_spec *spec)
{
    free(spec->tensors);
    free(spec->names);
    *spec = (struct mics_shard_spec){0};
}

uint32_t mics_ckpt_parts(const struct mics_ckpt_layout *form)
{
    return mics_choice_checkpoint_parts(form->model, form->choice);
}

uint64_t mics_shard_file_bytes(const struct mics_ckpt_layout *form)
{
    const uint64_t tensors = (uint64_t)form->model->unit_count * form->states;
    uint64_t elements = 0;

    for (uint32_t i = 0; i < form->model->unit_count; i++)
        elements += mics_ceil_div(mics_layout_optim_shard(&form->layouts[i]), form->parts);
    return elements * form->states * sizeof(float) + 4096 + tensors * 160;
}

uint64_t mics_shard_part_count(const struct mics_ckpt_layout *form, uint32_t part)
{
    uint64_t elements = 0;

    for (uint32_t i = 0; i < form->model->unit_count; i++) {
        const uint64_t count = mics_layout_optim_shard(&form->layouts[i]);

        elements += mics_ckpt_part_begin(count, form->parts, part + 1) -
                    mics_ckpt_part_begin(count, form->parts, part);
    }
    return elements * form->states;
}

enum mics_status mics_shard_part_take(const struct mics_ckpt_layout *form, uint32_t part,
                                      const struct mics_ckpt_source *source, float *dst,
                                      struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t unit = 0; unit < form->model->unit_count; unit++) {
        const uint64_t shard = mics_layout_optim_shard(&form->layouts[unit]);
        const uint64_t first = mics_ckpt_part_begin(shard, form->parts, part);
        const uint64_t count = mics_ckpt_part_begin(shard, form->parts, part + 1) - first;

        for (uint32_t state = 0; status == MICS_OK && state < form->states; state++) {
            status = source->take(source->context, unit, state, first, count, dst, err);
            dst += count;
        }
    }
    return status;
}

static bool all_finite(const float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

static enum mics_status write_tensors(struct mics_hashed_file *file,
                                      const struct mics_shard_spec *spec, const float *values,
                                      struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; status == MICS_OK && i < spec->count; i++) {
        const uint64_t count = spec->tensors[i].shape[0];

        if (!all_finite(values, count))
            return mics_err_set(err, MICS_ERR_DEVICE, "%s holds numbers that are not finite",
                                spec->names[i]);
        status = mics_hashed_file_write(file, values, count * sizeof *values, err);
        values += count;
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

enum mics_status mics_shard_part_write(const char *path, const struct mics_ckpt_layout *form,
                                       uint32_t part, const float *values,
                                       struct mics_file_sum *sum, struct mics_progress *progress,
                                       struct mics_err *err)
{
    struct mics_hashed_file *file = NULL;
    struct mics_shard_spec spec = {0};
    enum mics_status status = mics_shard_spec_new(form, part, &spec, err);

    if (status != MICS_OK)
        return status;
    status = mics_hashed_file_create(path, progress, &file, err);
    if (status == MICS_OK)
        status = write_header(file, &spec, err);
    if (status == MICS_OK)
        status = write_tensors(file, &spec, values, err);
    if (status == MICS_OK)
        status = mics_hashed_file_finish(file, sum, err);
    else
        mics_hashed_file_drop(file);
    if (status == MICS_OK && mics_file_read_back(path, sum, progress, err) != MICS_OK)
        status = MICS_ERR_IO;
    mics_shard_spec_free(&spec);
    return status;
}
