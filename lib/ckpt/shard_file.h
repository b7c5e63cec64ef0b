/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_file.h - an optimizer shard, as a rank holds it and as a file of a checkpoint: safetensors
 * of a part of it, with a flat fp32 tensor for each unit and state, in this order.
 */
#ifndef MICS_CKPT_SHARD_FILE_H
#define MICS_CKPT_SHARD_FILE_H

#include "ckpt/format/safetensors.h"
#include "ckpt/manifest.h"

/* Access to this rank's state: elements [first, first + count) of its optimizer shard of a unit,
 * which has mics_layout_optim_shard(&layouts[unit]) elements. */
struct mics_ckpt_source {
    enum mics_status (*take)(void *context, uint32_t unit, uint32_t state, uint64_t first,
                             uint64_t count, float *dst, struct mics_err *err);
    enum mics_status (*put)(void *context, uint32_t unit, uint32_t state, uint64_t first,
                            uint64_t count, const float *src, struct mics_err *err);
    void *context;
};

/* Read elements [first, first + count) of a unit's flat vector; count <= MICS_STORE_CHUNK. */
typedef enum mics_status mics_shard_read_range(void *context, uint32_t unit, uint32_t state,
                                               uint64_t first, uint64_t count, float *dst,
                                               struct mics_err *err);

/* Read the optimizer shard of `rank`, its first `states` states of all units, range by range, and
 * pass it to source->put(). `context` is read()'s. */
enum mics_status mics_shard_read(const struct mics_ckpt_layout *form, uint32_t rank,
                                 uint32_t states, mics_shard_read_range *read, void *context,
                                 const struct mics_ckpt_source *source, struct mics_err *err);

/* Units whose shapes are equal share their files: those that use the groups of one kind
 * (mics_choice_groups()). Shards of all kinds are numbered as in ckpt_table.h.
 *
 * The number of shards of the units that use the groups of `kind`; 0: no unit does. */
uint32_t mics_ckpt_kind_shards(const struct mics_ckpt_layout *form, int kind);
/* The first of them. MICS_UNIT_KIND_COUNT: the number of all shards. */
uint32_t mics_ckpt_first_shard(const struct mics_ckpt_layout *form, int kind);
/* That of a rank. */
uint32_t mics_ckpt_shard_of(const struct mics_ckpt_layout *form, int kind, uint32_t rank);

/* The tensors of such a file. Owns the names. */
struct mics_shard_spec {
    struct mics_safetensor_spec *tensors;
    char (*names)[48];
    uint32_t count;
};

enum mics_status mics_shard_spec_new(const struct mics_ckpt_layout *form, uint32_t file,
                                     struct mics_shard_spec *spec, struct mics_err *err);
void mics_shard_spec_free(struct mics_shard_spec *spec); /* all zeros is fine */

/* How many of the ranks that hold a shard write a part of it: all, or fewer if a part would have
 * less than 1 MiB. Does not use form->parts. */
uint32_t mics_ckpt_parts(const struct mics_ckpt_layout *form);

/* Upper bound of the size of all files, bytes. */
uint64_t mics_shard_files_bytes(const struct mics_ckpt_layout *form);

/* Elements in file `file`, a part of a shard. */
uint64_t mics_shard_part_count(const struct mics_ckpt_layout *form, uint32_t file);

/* dst[mics_shard_part_count()] = the elements of a part, in the order of the file. The rank must
 * hold its shard. */
enum mics_status mics_shard_part_take(const struct mics_ckpt_layout *form, uint32_t file,
                                      const struct mics_ckpt_source *source, float *dst,
                                      struct mics_err *err);

/* Write the elements of file `file` to `path`, fsync, and read the file back. MICS_ERR_DEVICE: an
 * element is not finite, so that the checkpoint would be useless. `progress` counts the bytes
 * written and read; or NULL. */
enum mics_status mics_shard_part_write(const char *path, const struct mics_ckpt_layout *form,
                                       uint32_t file, const float *values,
                                       struct mics_file_sum *sum, struct mics_progress *progress,
                                       struct mics_err *err);

#endif
