/* SPDX-License-Identifier: Apache-2.0 */
/* match_tensors.h - which tensors of a model a checkpoint lacks, or has in another form. */
#ifndef MICS_CKPT_MATCH_TENSORS_H
#define MICS_CKPT_MATCH_TENSORS_H

#include "ckpt/table.h"
#include "model/model.h"

/* MICS_ERR_FORMAT names all tensors that are missing, left over, of another shape, or elsewhere in their unit;
 * those of layers that differ in the same way share a word: "h.*.ln_1.weight (12)". */
enum mics_status mics_ckpt_match_tensors(const struct mics_ckpt_table *table,
                                         const struct mics_model *model, struct mics_err *err);

#endif
