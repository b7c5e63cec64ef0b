/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_target.h - a model as a checkpoint of torch.distributed.checkpoint: .metadata, a pickle of
 * what is where, and one file in which each tensor is an archive of torch.save.
 *
 * Keys are those of {"model": ..., "optimizer": ...} of get_state_dict(): "model.NAME" and
 * "optimizer.state.NAME.exp_avg", ".exp_avg_sq" and ".step". Settings of the optimizer
 * (param_groups) are not in it.
 */
#ifndef MICS_CKPT_CONVERT_DCP_TARGET_H
#define MICS_CKPT_CONVERT_DCP_TARGET_H

#include "ckpt/convert/target.h"
#include "model/model.h"

#define MICS_DCP_METADATA_NAME ".metadata"

/* Must not be moved: the target points into it. */
struct mics_dcp_target {
    struct mics_target target;
    struct mics_target_file file;
    struct mics_section *sections;
    struct mics_dcp_item *items; /* tensors of the checkpoint */
    size_t item_count;
    struct mics_dcp_frame *frames; /* of all types and shapes that occur */
    size_t frame_count;
    float step;     /* updates done, as every parameter has it */
    char *metadata; /* of the file MICS_DCP_METADATA_NAME, which the caller writes */
    size_t metadata_bytes;
};

/* Parameters as `dtype`; with `moments` also both moments of AdamW, F32, and the number of updates.
 */
enum mics_status mics_dcp_target_of_model(const struct mics_model *model,
                                          enum mics_storage_dtype dtype, bool moments,
                                          uint64_t step, struct mics_dcp_target *out,
                                          struct mics_err *err);
void mics_dcp_target_free(struct mics_dcp_target *target); /* all zeros is fine */

#endif
