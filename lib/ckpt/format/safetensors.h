/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - headers of safetensors files: a strict reader and a writer.
 *
 * A file is a 64-bit little-endian length N, N bytes of JSON, and the data, which the tensors tile
 * without gaps. An offset in a header that the reader accepts never points outside the file.
 * Format: https://github.com/huggingface/safetensors
 */
#ifndef MICS_CKPT_FORMAT_SAFETENSORS_H
#define MICS_CKPT_FORMAT_SAFETENSORS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define MICS_SAFETENSORS_MAX_HEADER 100000000u
#define MICS_SAFETENSORS_MAX_RANK   8

struct mics_safetensor {
    const char *name;  /* belongs to the structure below */
    const char *dtype; /* "F32", ...; static */
    uint32_t rank;     /* 0: scalar */
    uint64_t shape[MICS_SAFETENSORS_MAX_RANK];
    uint64_t begin, end; /* bytes, relative to the data */
};

struct mics_safetensors {
    struct mics_safetensor *tensors; /* sorted by offset */
    uint32_t *by_name;               /* indices of them, sorted by name */
    char *names;
    size_t count;
    uint64_t data_offset; /* of the data in the file, bytes */
};

/* Parse and check the header of a file of `file_bytes` bytes that begins with data[size]. data[]
 * must contain the whole header and may contain more. MICS_ERR_FORMAT names what is wrong and the
 * tensor. */
enum mics_status mics_safetensors_parse(const void *data, size_t size, uint64_t file_bytes,
                                        struct mics_safetensors *out, struct mics_err *err);
/* The same for an open file; reads only the header. Errors do not contain the file's name. */
enum mics_status mics_safetensors_load(int fd, uint64_t file_bytes, struct mics_safetensors *out,
                                       struct mics_err *err);
void mics_safetensors_free(struct mics_safetensors *file); /* of zeros is fine */

/* By name, or NULL. */
const struct mics_safetensor *mics_safetensors_find(const struct mics_safetensors *file,
                                                    const char *name);

/* A tensor to be written. `dtype` must be one of the format's ("F32", "BF16", ...). */
struct mics_safetensor_spec {
    const char *name, *dtype;
    uint32_t rank;
    uint64_t shape[MICS_SAFETENSORS_MAX_RANK];
};

/* Encode what precedes the data: length and header, padded with blanks so that the data begins at a
 * multiple of 4096 bytes. The caller writes the data of specs[0], specs[1], ... after it, in this
 * order, and frees *data. */
enum mics_status mics_safetensors_header(const struct mics_safetensor_spec *specs, size_t count,
                                         char **data, size_t *size, struct mics_err *err);

#endif
