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

uint32_t mics_ckpt_kind_shards(const struct mics_ckpt_layout *form, int kind)
{
    return mics_choice_uses_groups(form->model, form->choice, (enum mics_unit_kind)kind)
               ? form->choice->shapes[kind].p_optim
               : 0;
}

uint32_t mics_ckpt_first_shard(const struct mics_ckpt_layout *form, int kind)
{
    uint32_t first = 0;

    for (int before = 0; before < kind; before++)
        first += mics_ckpt_kind_shards(form, before);
    return first;
}

uint32_t mics_ckpt_shard_of(const struct mics_ckpt_layout *form, int kind, uint32_t rank)
{
    return mics_ckpt_first_shard(form, kind) +
           mics_shape_index(&form->choice->shapes[kind], rank).optim;
}

/* The kind whose shards a file is a part of. */
static int kind_of_file(const struct mics_ckpt_layout *form, uint32_t file)
{
    int kind = MICS_UNIT_KIND_COUNT - 1;

    while (kind > 0 && file / form->parts < mics_ckpt_first_shard(form, kind))
        kind--;
    return kind;
}

/* The next unit from `unit` on that uses the groups of `kind`; unit_count: there is none. */
static uint32_t next_unit(const struct mics_ckpt_layout *form, int kind, uint32_t unit)
{
    while (unit < form->model->unit_count &&
           (int)mics_choice_groups(form->choice, form->model->units[unit].kind) != kind)
        unit++;
    return unit;
}

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
    float *buffer = malloc(MICS_STORE_CHUNK * sizeof *buffer);
    enum mics_status status = buffer ? MICS_OK : mics_err_nomem(err);

    for (uint32_t unit = 0; unit < form->model->unit_count; unit++) {
        const struct mics_layout *layout = &form->layouts[unit];
        const uint64_t count = layout->optim_piece;
        const struct mics_shape *shape =
            mics_choice_shape_of(form->choice, &form->model->units[unit]);
        const uint32_t index = mics_shape_index(shape, rank).optim;

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

/* Elements of a unit in a part of its shard. */
static uint64_t part_count(const struct mics_ckpt_layout *form, uint32_t unit, uint32_t part)
{
    const uint64_t shard = mics_layout_optim_shard(&form->layouts[unit]);

    return mics_ckpt_part_begin(shard, form->parts, part + 1) -
           mics_ckpt_part_begin(shard, form->parts, part);
}

enum mics_status mics_shard_spec_new(const struct mics_ckpt_layout *form, uint32_t file,
                                     struct mics_shard_spec *spec, struct mics_err *err)
{
    const size_t most = (size_t)form->model->unit_count * form->states;
    const int kind = kind_of_file(form, file);

    *spec = (struct mics_shard_spec){.tensors = calloc(most, sizeof *spec->tensors),
                                     .names = calloc(most, sizeof *spec->names)};
    if (!spec->tensors || !spec->names) {
        mics_shard_spec_free(spec);
        return mics_err_nomem(err);
    }
    for (uint32_t unit = next_unit(form, kind, 0); unit < form->model->unit_count;
         unit = next_unit(form, kind, unit + 1))
        for (uint32_t state = 0; state < form->states; state++) {
            char *name = spec->names[spec->count];

            snprintf(name, sizeof *spec->names, "%s.%s", form->model->units[unit].name,
                     mics_ckpt_state_name(form->states, state));
            spec->tensors[spec->count++] = (struct mics_safetensor_spec){
                .name = name,
                .dtype = "F32",
                .rank = 1,
                .shape = {part_count(form, unit, file % form->parts)}};
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

uint64_t mics_shard_files_bytes(const struct mics_ckpt_layout *form)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < form->model->unit_count; i++) {
        const struct mics_layout *layout = &form->layouts[i];
        const uint64_t files = layout->segment_count / layout->optim_piece * form->parts;
        const uint64_t elements = mics_ceil_div(mics_layout_optim_shard(layout), form->parts);

        bytes += files * form->states * (elements * sizeof(float) + 160);
    }
    return bytes + (uint64_t)mics_ckpt_first_shard(form, MICS_UNIT_KIND_COUNT) * form->parts * 4096;
}

uint64_t mics_shard_part_count(const struct mics_ckpt_layout *form, uint32_t file)
{
    const int kind = kind_of_file(form, file);
    uint64_t elements = 0;

    for (uint32_t unit = next_unit(form, kind, 0); unit < form->model->unit_count;
         unit = next_unit(form, kind, unit + 1))
        elements += part_count(form, unit, file % form->parts);
    return elements * form->states;
}

enum mics_status mics_shard_part_take(const struct mics_ckpt_layout *form, uint32_t file,
                                      const struct mics_ckpt_source *source, float *dst,
                                      struct mics_err *err)
{
    const int kind = kind_of_file(form, file);
    const uint32_t part = file % form->parts;

    for (uint32_t unit = next_unit(form, kind, 0); unit < form->model->unit_count;
         unit = next_unit(form, kind, unit + 1)) {
        const uint64_t shard = mics_layout_optim_shard(&form->layouts[unit]);
        const uint64_t first = mics_ckpt_part_begin(shard, form->parts, part);
        const uint64_t count = part_count(form, unit, part);

        for (uint32_t state = 0; state < form->states; state++) {
            const enum mics_status status =
                source->take(source->context, unit, state, first, count, dst, err);

            if (status != MICS_OK)
                return status;
            dst += count;
        }
    }
    return MICS_OK;
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
                                       uint32_t file, const float *values,
                                       struct mics_file_sum *sum, struct mics_progress *progress,
                                       struct mics_err *err)
{
    struct mics_hashed_file *hashed = NULL;
    struct mics_shard_spec spec = {0};
    enum mics_status status = mics_shard_spec_new(form, file, &spec, err);

    if (status != MICS_OK)
        return status;
    status = mics_hashed_file_create(path, progress, &hashed, err);
    if (status == MICS_OK)
        status = write_header(hashed, &spec, err);
    if (status == MICS_OK)
        status = write_tensors(hashed, &spec, values, err);
    if (status == MICS_OK)
        status = mics_hashed_file_finish(hashed, sum, err);
    else
        mics_hashed_file_drop(hashed);
    if (status == MICS_OK && mics_file_read_back(path, sum, progress, err) != MICS_OK)
        status = MICS_ERR_IO;
    mics_shard_spec_free(&spec);
    return status;
}
