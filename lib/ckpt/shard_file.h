/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_file.h - a part of an optimizer shard as a safetensors file: for each unit and state a flat fp32 slice.
 */
#ifndef MICS_CKPT_SHARD_FILE_H
#define MICS_CKPT_SHARD_FILE_H

#include "ckpt/format/safetensors.h"
#include "ckpt/manifest.h"

/* Where the numbers come from and go to: elements [first, first + count) of the rank's optimizer shard, which
 * has mics_layout_optim_shard(&layouts[unit]). */
struct mics_ckpt_source {
    enum mics_status (*take)(void *context, uint32_t unit, uint32_t state, uint64_t first,
                             uint64_t count, float *dst, struct mics_err *err);
    enum mics_status (*put)(void *context, uint32_t unit, uint32_t state, uint64_t first,
                            uint64_t count, const float *src, struct mics_err *err);
    void *context;
};

/* How many of the ranks that hold a shard write a part of it: all of them, unless it is so small that a part would
 * have less than 1 MiB. Reads everything of the form but `parts`. */
uint32_t mics_ckpt_parts(const struct mics_ckpt_form *form);

/* Upper bound of the bytes of one such file. */
uint64_t mics_shard_file_bytes(const struct mics_ckpt_form *form);

/* Floats in the file of part `part` of a shard. */
uint64_t mics_shard_part_count(const struct mics_ckpt_form *form, uint32_t part);

/* Copy them out of the source, in the order of the file. */
enum mics_status mics_shard_part_take(const struct mics_ckpt_form *form, uint32_t part,
                                      const struct mics_ckpt_source *source, float *dst,
                                      struct mics_err *err);

/* Write them, sync, and read them back. A parameter or state that is not finite is MICS_ERR_DEVICE: such a
 * checkpoint is worthless. */
enum mics_status mics_shard_part_write(const char *path, const struct mics_ckpt_form *form,
                                       uint32_t part, const float *values,
                                       struct mics_file_sum *sum, struct mics_err *err);

/* shard_spec.h - the tensors of the file of one part of a shard, in their order. */
/* Owns the names. Tensor i is of unit i / states, state i % states. */
struct mics_shard_spec {
    struct mics_safetensor_spec *tensors;
    char (*names)[48];
    uint32_t count;
};

enum mics_status mics_shard_spec_new(const struct mics_ckpt_form *form, uint32_t part,
                                     struct mics_shard_spec *spec, struct mics_err *err);
void mics_shard_spec_free(struct mics_shard_spec *spec); /* of zeros is fine */

#endif
