/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.h - models and training states that other trainers wrote: files of torch.save (one, or
 * several of a folder), PyTorch's distributed checkpoints, and DeepSpeed's ZeRO 1 to 3 and MiCS,
 * also as universal checkpoints.
 *
 * They are opened as Hugging Face's files are (hf.h): a list of tensors by their names, each with
 * where its numbers lie. No pickle is executed. Memory is proportional to the lists, not to the
 * numbers.
 */
#ifndef MICS_CKPT_FOREIGN_FOREIGN_H
#define MICS_CKPT_FOREIGN_FOREIGN_H

#include "ckpt/hf/hf.h"

enum mics_foreign_format {
    MICS_FOREIGN_NONE,
    MICS_FOREIGN_TORCH_SAVE,
    MICS_FOREIGN_DCP,
    MICS_FOREIGN_DCP_SAFETENSORS, /* weights only, in shards of safetensors with their offsets */
    MICS_FOREIGN_DEEPSPEED,
};

/* What is at these paths, by names and first bytes; safetensors files are NONE. */
enum mics_foreign_format mics_foreign_recognize(const char *const *paths, size_t count);

/* Open it. out->states is 3 if it has exp_avg and exp_avg_sq of AdamW, else 1. The caller closes
 * *out with mics_hf_close(), also after an error. MICS_ERR_FORMAT: one line that begins with a
 * path. */
enum mics_status mics_foreign_open(enum mics_foreign_format format, const char *const *paths,
                                   size_t count, struct mics_hf *out, struct mics_err *err);

#endif
