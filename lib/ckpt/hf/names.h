/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - how Hugging Face's library names the tensors of each family.
 *
 * A model's tensors carry the names of its bare network ("h.0.ln_1.weight", "layers.0.mlp.up_proj.weight").
 * With a head for language the library puts a prefix before all of these, and none before the head.
 */
#ifndef MICS_CKPT_HF_NAMES_H
#define MICS_CKPT_HF_NAMES_H

#include "model/model.h"

#define MICS_HF_HEAD "lm_head.weight"

struct mics_hf_family {
    const char *family;
    const char *prefix;    /* "transformer.", "model." */
    const char *embedding; /* the tensor that a tied head equals */
    bool (*is_buffer)(const char *name);
};

/* Of a model's family; GPT-2's for one that the library does not know. */
const struct mics_hf_family *mics_hf_family_of(const struct mics_model *model);

/* The name of the bare network: a part of `name`. */
const char *mics_hf_bare_name(const struct mics_hf_family *family, const char *name);

/* The name in the library's files, into buf[size]. */
void mics_hf_full_name(const struct mics_hf_family *family, const char *bare, char *buf,
                       size_t size);

#endif
