/* SPDX-License-Identifier: Apache-2.0 */
/* shard_spec.h - the tensors of the file of one part of a shard, in their order. */
#ifndef MICS_CKPT_SHARD_SPEC_H
#define MICS_CKPT_SHARD_SPEC_H

#include "ckpt/manifest.h"
#include "ckpt/format/safetensors.h"

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
