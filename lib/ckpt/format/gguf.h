/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.h - encodes what precedes the data of a GGUF file (version 3, little endian), the format of
 * llama.cpp: keys with values, and where each tensor is.
 *
 * A failure to allocate is remembered, and reported by mics_gguf_finish().
 */
#ifndef MICS_CKPT_FORMAT_GGUF_H
#define MICS_CKPT_FORMAT_GGUF_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The data, and each tensor in it, begin at multiples of this many bytes: the format's default. */
enum { MICS_GGUF_ALIGN = 32 };

/* Numbers of a block of Q8_0, and its bytes: an fp16 scale and 8-bit integers. */
enum { MICS_Q8_0_NUMBERS = 32, MICS_Q8_0_BYTES = 34 };

/* Types of tensors and of values, by their numbers in the format. */
enum mics_gguf_type {
    MICS_GGUF_F32 = 0,
    MICS_GGUF_F16 = 1,
    MICS_GGUF_Q8_0 = 8,
    MICS_GGUF_BF16 = 30
};
enum mics_gguf_value { MICS_GGUF_I32 = 5, MICS_GGUF_FLOAT32 = 6, MICS_GGUF_STRING = 8 };

struct mics_gguf;

struct mics_gguf *mics_gguf_new(void);       /* NULL: out of memory */
void mics_gguf_free(struct mics_gguf *gguf); /* NULL is fine */

/* Add a key, which must be new. */
void mics_gguf_add_u32(struct mics_gguf *gguf, const char *key, uint32_t value);
void mics_gguf_add_f32(struct mics_gguf *gguf, const char *key, float value);
void mics_gguf_add_bool(struct mics_gguf *gguf, const char *key, bool value);
void mics_gguf_add_string(struct mics_gguf *gguf, const char *key, const void *text, size_t size);
/* Add a key whose value is an array; then the caller puts its `count` values, all of `type`. */
void mics_gguf_add_array(struct mics_gguf *gguf, const char *key, enum mics_gguf_value type,
                         uint64_t count);
void mics_gguf_put_i32(struct mics_gguf *gguf, int32_t value);
void mics_gguf_put_f32(struct mics_gguf *gguf, float value);
void mics_gguf_put_string(struct mics_gguf *gguf, const void *text, size_t size);

/* Add a tensor of `bytes` bytes. Its shape is the usual one, with the dimension that varies fastest
 * at the end. Returns where it begins, in bytes in the data. */
uint64_t mics_gguf_add_tensor(struct mics_gguf *gguf, const char *name, enum mics_gguf_type type,
                              const uint64_t *shape, uint32_t rank, uint64_t bytes);

/* Bytes of the data, up to the end of the last tensor, padded. */
uint64_t mics_gguf_data_bytes(const struct mics_gguf *gguf);

/* *data[*size], the caller's: what the file begins with; the data follows it at once. */
enum mics_status mics_gguf_finish(const struct mics_gguf *gguf, char **data, size_t *size,
                                  struct mics_err *err);

#endif
