/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - recordings of operations, which tests/ptx/run executes, and the interface of their
 * cases.
 *
 * A case runs one operation of kernels/cuda on the recording runtime, and the same on the host in
 * fp32. The recording has the initial contents of the device, the enqueued operations, and the
 * results of the host:
 *
 * OUT_DIR/NAME.json
 *   name, chip     "sm_75", "sm_80" or "sm_90"
 *   buffers        every allocation, in the order of addresses, each with
 *     name, address, bytes
 *     offset           where its first contents are in NAME.bin; null: every byte is 0xff
 *     written          whether the operation may write to it
 *     dtype            of its elements: "f32", "bf16", "f16", "f64", "i32", "u8"
 *     expected_offset  where the contents expected afterwards are; null: they are not compared
 *     expected_dtype   of those: "f32" (also of bf16 buffers: they are not rounded), "f64"
 *     atol, rtol       |got - expected| <= atol + rtol |expected|, or both are NaN, or equal
 *     norm             the largest ||got - expected|| / ||expected||; null: no limit
 *   operations     in order
 *     {"kind": "launch", "kernel", "grid": [x, y, z], "block": [x, y, z], "shared": bytes,
 *      "params": hex}
 *     {"kind": "memset", "address", "value", "bytes"}
 *     {"kind": "copy", "to", "from", "bytes"}
 *
 * `params` has the parameters one after the other, each at the next multiple of its alignment.
 * runtime.c defines the layout of tensor maps among them. Buffers are exactly as long as ops.h
 * defines for the operation.
 */
#ifndef MICS_TESTS_PTX_RECORD_H
#define MICS_TESTS_PTX_RECORD_H

#include "runtime.h"

#include "cuda/kernels.h"
#include "host/kernels.h"

#include <stdarg.h>

/* A tensor of the case: on the device, and widened on the host, whose operation works on `values`.
 */
struct tensor {
    enum mics_dtype dtype;
    size_t count;
    void *device;
    float *values;
};

struct suite {
    const struct gpu_chip *chip;
    const char *folder;
    struct mics_cuda_at at;
    struct mics_pool *pool;
    struct recording *recording; /* the case that is being made */
};

/* Compute capability 7.5 has no products of bf16. */
static inline bool tensor_cores_take(const struct suite *suite, enum mics_dtype dtype)
{
    return dtype != MICS_BF16 || suite->chip->capability >= 80;
}

/* Begin a case. `multiprocessors`: for how many the operation makes its grids; 0: as many as the
 * chip has. */
void case_begin(struct suite *suite, int multiprocessors, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
void case_end(struct suite *suite);

/* Tensors live until case_end(). `shift`: elements from an address that is aligned to 256 bytes.
 * Random numbers are in [-scale, scale), a function of the seed, and rounded to the type. An output
 * is NaN before. */
struct tensor case_random(struct suite *suite, const char *name, enum mics_dtype dtype,
                          size_t count, float scale, uint64_t seed, unsigned shift);
struct tensor case_output(struct suite *suite, const char *name, enum mics_dtype dtype,
                          size_t count, unsigned shift);

/* Device memory with these bytes, or with none that are defined (NULL); `shift` in bytes. */
void *case_bytes(struct suite *suite, const char *name, const void *from, size_t bytes,
                 unsigned shift);

/* The operation writes to `device`, but the result is not compared. */
void case_scratch(struct suite *suite, const void *device);

/* Round the values to the tensor's type, for what the operation itself reads after it stored it. */
void case_round(struct tensor *tensor);

/* Round the values and copy them to the device, for what the host computed first. */
void case_send(struct suite *suite, struct tensor *tensor);

/* Check that the operation was enqueued; otherwise end the program with the case's name. */
void case_ran(struct suite *suite, cudaError_t error);
#define CASE_DEVICE(suite, call) case_ran(suite, call)

/* Expect the values on the device afterwards, to `tolerance` of the larger of 1 and the number,
 * and in bf16 to half a unit of the last place more. */
void case_expect(struct suite *suite, const struct tensor *tensor, double tolerance);

/* The values of `of`, rounded; those of `copy` are lost. */
void case_expect_copy(struct suite *suite, struct tensor *copy, const struct tensor *of,
                      double tolerance);

/* The same for sums of products, whose errors do not depend on the number itself: the norm of the
 * error is at most `norm` of the values' norm, and no element's is more than `most` times the
 * values' root mean square. */
void case_expect_norm(struct suite *suite, const struct tensor *tensor, double norm, double most);
void case_expect_double(struct suite *suite, const void *device, double want, double relative);
/* All that are in this buffer. */
void case_expect_doubles(struct suite *suite, const void *device, const double *want, size_t count,
                         double relative);

/* These bytes of case_bytes(), exactly; or `count` numbers of a type. */
void case_expect_bytes(struct suite *suite, const void *device, const void *want, size_t bytes);
void case_expect_numbers(struct suite *suite, const void *device, const void *want, uint64_t count,
                         enum mics_dtype dtype);

/* Groups of cases. */
void record_operation_cases(struct suite *suite);
void record_epilogue_cases(struct suite *suite);
void record_attention_cases(struct suite *suite);
void record_expert_cases(struct suite *suite);

#include "gpu/operation.h"

#endif
