/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation.h - an operation on the device and, with the same arguments, on the host in fp32.
 *
 * The cases in operation_*.h are shared by the checks of the GPU (check.h, which runs them) and by
 * the recordings of the PTX (tests/ptx/record.h). Both include this header and define
 *
 *   struct suite, with the launch settings `at` and the host's `pool`
 *   struct tensor, with `device` and `values`, on which the host works
 *   CASE_DEVICE(suite, call), which runs or records an operation
 *   case_begin, case_random, case_output, case_bytes, case_scratch, case_round, case_send,
 *   case_expect, case_expect_copy, case_expect_bytes, case_expect_double, case_end
 */
#ifndef MICS_TESTS_GPU_OPERATION_H
#define MICS_TESTS_GPU_OPERATION_H

#include "host/numbers.h"
#include "kernel_cases.h"

#include <stdlib.h>

/* In the arguments of OPERATION: an address for the device and for the host, a tensor's, a type. */
#define PLACE(on_device, on_host) (device ? (void *)(on_device) : (void *)(on_host))
#define AT(tensor)                PLACE((tensor).device, (tensor).values)
#define TYPE(dtype)               (device ? (dtype) : MICS_F32)

/* Run mics_cuda_NAME and mics_host_NAME with `args`, a function of `device`. */
#define OPERATION_OF(suite, name, args)                                                            \
    do {                                                                                           \
        bool device = true;                                                                        \
        const struct mics_args_##name on_device = args;                                            \
        CASE_DEVICE(suite, mics_cuda_##name(&(suite)->at, &on_device));                            \
        device = false;                                                                            \
        const struct mics_args_##name on_host = args;                                              \
        mics_host_##name((suite)->pool, &on_host);                                                 \
    } while (0)

/* The same; the members of struct mics_args_NAME follow. */
#define OPERATION(suite, name, ...)                                                                \
    OPERATION_OF(suite, name, ((struct mics_args_##name){__VA_ARGS__}))

static inline const char *dtype_name(enum mics_dtype dtype)
{
    return dtype == MICS_F32    ? "f32"
           : dtype == MICS_BF16 ? "bf16"
           : dtype == MICS_F16  ? "f16"
                                : "f64";
}

static inline enum mics_storage_dtype storage_of(enum mics_dtype dtype)
{
    return dtype == MICS_BF16  ? MICS_STORAGE_BF16
           : dtype == MICS_F16 ? MICS_STORAGE_F16
                               : MICS_STORAGE_F32;
}

/* Half a unit of the last place, of the number at most; where the number is subnormal in fp16,
 * half_least. */
static inline double half_unit(enum mics_dtype dtype)
{
    return dtype == MICS_BF16 ? 0x1p-8 : dtype == MICS_F16 ? 0x1p-11 : 0;
}

static inline double half_least(enum mics_dtype dtype)
{
    return dtype == MICS_F16 ? 0x1p-25 : 0;
}

/* Activations in 16 bits are within 2e-5 of the number: activation.cuh. */
static inline double activation_tolerance(enum mics_dtype dtype)
{
    return mics_dtype_is_half(dtype) ? 2e-5 : 4e-6;
}

/* Types of gradients beside activations of one: fp32, and one of 16 bits, theirs if it is, else
 * each. */
static inline enum mics_dtype grad_type(enum mics_dtype dtype, int form)
{
    return form == 0 ? MICS_F32 : dtype == MICS_F16 || form == 2 ? MICS_F16 : MICS_BF16;
}

static inline int grad_types(enum mics_dtype dtype)
{
    return dtype == MICS_F32 ? 3 : 2;
}

/* Memory of `bytes` that is 0; the caller frees it. */
static inline void *new_zeros(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);

    if (!memory)
        abort();
    return memory;
}

#endif
