/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLt_internal.h - what the emulated cuBLASLt's descriptors hold. */
#ifndef MICS_TESTS_EMULATOR_CUBLASLT_INTERNAL_H
#define MICS_TESTS_EMULATOR_CUBLASLT_INTERNAL_H

#include "cublasLt.h"

struct emu_lt_desc {
    cublasComputeType_t compute;
    bool trans_a, trans_b;
    uint32_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
};

/* Columns first; `ld` elements from one column to the next. */
struct emu_lt_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
};

/* D = epilogue(alpha op(A) op(B) + beta C) of checked operands: layouts and addresses of A, B, C
 * and D. The sum over k is made in so many `parts`, which are rounded to fp32 each and added in
 * fp32; of one part nothing is rounded. */
cublasStatus_t emu_lt_multiply(const struct emu_lt_desc *desc,
                               const struct emu_lt_layout *const layouts[4],
                               const void *const operands[4], float alpha, float beta,
                               uint64_t parts);

#endif
