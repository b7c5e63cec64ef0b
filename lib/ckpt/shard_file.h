/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_file.h - one optimizer shard as a safetensors file: for each unit and state a flat fp32 slice.
 */
#ifndef MICS_CKPT_SHARD_FILE_H
#define MICS_CKPT_SHARD_FILE_H

#include "ckpt/manifest.h"

/* Where the numbers come from and go to: count = mics_layout_optim_shard(&layouts[unit]) floats. */
struct mics_ckpt_source {
    enum mics_status (*take)(void *context, uint32_t unit, uint32_t state, float *dst,
                             struct mics_err *err);
    enum mics_status (*put)(void *context, uint32_t unit, uint32_t state, const float *src,
                            struct mics_err *err);
    void *context;
};

/* Bytes of one such file. */
uint64_t mics_shard_file_bytes(const struct mics_ckpt_form *form);

/* Write it. A parameter or state that is not finite is MICS_ERR_DEVICE: such a checkpoint is worthless. */
enum mics_status mics_shard_file_write(const char *path, const struct mics_ckpt_form *form,
                                       const struct mics_ckpt_source *source,
                                       struct mics_file_sum *sum, struct mics_err *err);

/* Read it after checking size, sum, and every tensor's name, type and shape: MICS_ERR_FORMAT, before
 * the first number is put. Errors begin with the path. */
enum mics_status mics_shard_file_read(const char *path, const struct mics_ckpt_form *form,
                                      const struct mics_file_sum *sum,
                                      const struct mics_ckpt_source *source, struct mics_err *err);

#endif
