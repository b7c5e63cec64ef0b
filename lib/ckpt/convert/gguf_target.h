/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_target.h - a model as one file of GGUF, as llama.cpp reads it.
 *
 * Names, keys and types are those of llama.cpp's architectures: vectors, routers and learned
 * positions are F32 whatever the type. Queries and keys of its "llama" have the rows of their heads
 * in another order; matrices of GPT-2 are transposed; the experts of a layer are one tensor.
 */
#ifndef MICS_CKPT_CONVERT_GGUF_TARGET_H
#define MICS_CKPT_CONVERT_GGUF_TARGET_H

#include "ckpt/convert/target.h"
#include "ckpt/format/gguf.h"
#include "model/model.h"

/* Adds the keys of a tokenizer for a model with so many ids. */
typedef enum mics_status mics_gguf_add_tokenizer(void *context, uint32_t vocab_size,
                                                 struct mics_gguf *gguf, struct mics_err *err);

/* Must not be moved: the target points to the file. */
struct mics_gguf_target {
    struct mics_target target;
    struct mics_target_file file;
    struct mics_section *sections;
    char *header;
    float *rope_factors; /* of the frequencies; NULL: none */
};

/* Matrices as `dtype`, or if `q8_0` as Q8_0, where rows are no multiple of a block as F16.
 * MICS_ERR_FORMAT: llama.cpp cannot
 * compute this model, and why. */
enum mics_status mics_gguf_target_of_model(const struct mics_model *model,
                                           enum mics_storage_dtype dtype, bool q8_0,
                                           mics_gguf_add_tokenizer *add_tokenizer, void *context,
                                           struct mics_gguf_target *out, struct mics_err *err);
void mics_gguf_target_free(struct mics_gguf_target *target); /* all zeros is fine */

#endif
