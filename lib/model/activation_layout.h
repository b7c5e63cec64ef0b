/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activation_layout.h - cut an area of memory into pieces, or only measure it.
 *
 * A family writes one function that carves the areas of a stage. With a NULL base it tells the bytes,
 * with a real one the pointers: what is planned is what is used, because it is the same code.
 */
#ifndef MICS_MODEL_ACTIVATION_LAYOUT_H
#define MICS_MODEL_ACTIVATION_LAYOUT_H

#include "base/num.h"
#include "dtype.h"

#include <stddef.h>
#include <stdint.h>

#define MICS_CARVE_ALIGN 256 /* bytes */

struct mics_carver {
    char *base; /* aligned to MICS_CARVE_ALIGN; NULL: measure only */
    uint64_t used;
};

static inline void *mics_carve(struct mics_carver *carver, uint64_t bytes)
{
    void *piece = carver->base ? carver->base + carver->used : NULL;

    carver->used += mics_round_up(bytes, MICS_CARVE_ALIGN);
    return piece;
}

/* The same for `count` elements of a type. */
static inline void *mics_carve_typed(struct mics_carver *carver, uint64_t count,
                                     enum mics_dtype dtype)
{
    return mics_carve(carver, count * mics_dtype_bytes(dtype));
}

/* The same for `count` floats. */
static inline float *mics_carve_floats(struct mics_carver *carver, uint64_t count)
{
    return mics_carve(carver, count * sizeof(float));
}

/* The head's logits are made for this many bytes at a time, but never for fewer rows than are good for
 * the matrix kernels (the gradient of the embedding is read and written once a piece). */
#define MICS_CARVE_HEAD_BYTES    (8u << 20)
#define MICS_CARVE_HEAD_ROWS_MIN 256u
/* In bf16, which is for matrix units, more: on a GPU reading and writing the gradient of an embedding of
 * 50,257 x 768 in fp32 takes as long as multiplying for it with 740 rows: with so many rows a fifth of that
 * product's time, were it not hidden. */
#define MICS_CARVE_HEAD_ROWS_BF16 4096u

/* Columns of the logits: those of the vocabulary, and up to 63 spare ones. Matrix units of GPUs want rows,
 * and cuBLAS wants sizes too, in multiples of 16 bytes ("Tensor Core Usage" in its manual), best of 128;
 * small vocabularies, where that would be much, get the former. The vocabulary's matrix has as many
 * spare rows, which are 0. So spare logits are 0; the loss leaves them alone, and as gradients they are
 * right: nothing comes of them, in the spare rows neither. */
static inline uint32_t mics_carve_head_columns(uint32_t vocab_size)
{
    return (uint32_t)mics_round_up(vocab_size, vocab_size < 4096 ? 8 : 64);
}

/* Spare rows of the vocabulary's matrix. */
static inline uint32_t mics_carve_spare_rows(uint32_t vocab_size)
{
    return mics_carve_head_columns(vocab_size) - vocab_size;
}

/* Rows of logits at once, of `rows` in all: half at most, so that the logits of a whole micro-batch are
 * never there at once. */
static inline uint32_t mics_carve_head_rows(uint32_t vocab_size, uint64_t rows,
                                            enum mics_dtype dtype)
{
    const uint64_t row = mics_dtype_bytes(dtype) * mics_carve_head_columns(vocab_size);
    const uint64_t fit = MICS_CARVE_HEAD_BYTES / row;
    const uint64_t least =
        dtype == MICS_BF16 ? MICS_CARVE_HEAD_ROWS_BF16 : MICS_CARVE_HEAD_ROWS_MIN;

    return (uint32_t)mics_min_u64(mics_ceil_div(rows, 2), mics_max_u64(fit, least));
}

#endif
