/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activation_layout.h - where the activations of a stage lie in an area of memory.
 *
 * One function lays a stage's acts out. With a base of NULL it measures them, with a real one it
 * returns pointers, so that what is planned is what is used.
 */
#ifndef MICS_MODEL_ACTIVATION_LAYOUT_H
#define MICS_MODEL_ACTIVATION_LAYOUT_H

#include "base/num.h"
#include "dtype.h"

#include <stddef.h>
#include <stdint.h>

#define MICS_ACTIVATION_ALIGN 256 /* bytes */

struct mics_activation_cursor {
    char *base; /* aligned to MICS_ACTIVATION_ALIGN; NULL: measure only */
    uint64_t used;
};

/* The next `bytes` bytes. */
static inline void *mics_activation_take(struct mics_activation_cursor *area, uint64_t bytes)
{
    void *taken = area->base ? area->base + area->used : NULL;

    area->used += mics_round_up(bytes, MICS_ACTIVATION_ALIGN);
    return taken;
}

/* The next `count` elements of a type. */
static inline void *mics_activation_take_typed(struct mics_activation_cursor *area, uint64_t count,
                                               enum mics_dtype dtype)
{
    return mics_activation_take(area, count * mics_dtype_bytes(dtype));
}

static inline float *mics_activation_take_floats(struct mics_activation_cursor *area,
                                                 uint64_t count)
{
    return mics_activation_take(area, count * sizeof(float));
}

/* Logits are computed for this many bytes at a time, but never for fewer rows than keep the matrix
 * kernels efficient: the gradient of the embedding is read and written once for each chunk. */
#define MICS_HEAD_CHUNK_BYTES    (8u << 20)
#define MICS_HEAD_CHUNK_ROWS_MIN 256u
/* More in types of two bytes, which are for matrix units: on a GPU reading and writing the fp32
 * gradient of an embedding of 50,257 x 768 takes as long as its product with 740 rows, so with 4096
 * rows a fifth of that product's time if nothing hides it. */
#define MICS_HEAD_CHUNK_ROWS_HALF 4096u

/* Columns of the logits: those of the vocabulary, and up to 63 of padding. Matrix units, and cuBLAS
 * with them, want sizes in multiples of 16 bytes ("Tensor Core Usage" in its manual), best of 128;
 * small vocabularies, where that would be much, get the former. The vocabulary's matrix has as many
 * rows of zeros. So the logits of the padding are 0, the loss ignores them, and their gradients are
 * zero: padding produces no gradient. */
static inline uint32_t mics_padded_vocab(uint32_t vocab_size)
{
    return (uint32_t)mics_round_up(vocab_size, vocab_size < 4096 ? 8 : 64);
}

/* Rows of logits at a time, of `rows` in all: half at most, so that the logits of a whole
 * micro-batch never exist. */
static inline uint32_t mics_head_chunk_rows(uint32_t vocab_size, uint64_t rows,
                                            enum mics_dtype dtype)
{
    const uint64_t row = mics_dtype_bytes(dtype) * mics_padded_vocab(vocab_size);
    const uint64_t fit = MICS_HEAD_CHUNK_BYTES / row;
    const uint64_t least =
        mics_dtype_is_half(dtype) ? MICS_HEAD_CHUNK_ROWS_HALF : MICS_HEAD_CHUNK_ROWS_MIN;

    return (uint32_t)mics_min_u64(mics_ceil_div(rows, 2), mics_max_u64(fit, least));
}

#endif
