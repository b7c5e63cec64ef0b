/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cublasLt_product.cc - the arithmetic of the emulated cuBLASLt: sums in double, rounded once at
 * the end; or in parts, as algorithms do that split k, each of them rounded.
 *
 * A is copied as [k][rows] in double, then a column of D at a time is made of A's columns: the
 * inner loop runs along memory.
 */
#include "cublasLt_internal.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

#include <math.h>
#include <stdlib.h>

static float load(const void *from, cudaDataType_t type, size_t at)
{
    if (type == CUDA_R_16BF)
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(from)[at]);
    if (type == CUDA_R_16F)
        return __half2float(static_cast<const __half *>(from)[at]);
    return static_cast<const float *>(from)[at];
}

static void store(void *to, cudaDataType_t type, size_t at, float value)
{
    if (type == CUDA_R_16BF)
        static_cast<__nv_bfloat16 *>(to)[at] = __float2bfloat16_rn(value);
    else if (type == CUDA_R_16F)
        static_cast<__half *>(to)[at] = __float2half_rn(value);
    else
        static_cast<float *>(to)[at] = value;
}

static double logistic_of_gelu(double x)
{
    return 1 / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double held = fmax(-16, fmin(16, x)), s = logistic_of_gelu(held);

    return isnan(x)
               ? x
               : s + held * s * (1 - s) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * held * held);
}

/* One element's epilogue. */
static float finish(const struct emu_lt_desc *desc, cudaDataType_t type, double x, uint64_t row,
                    uint64_t column)
{
    const size_t aux = column * (size_t)desc->aux_ld + row;

    switch (desc->epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return (float)(x + load(desc->bias, type, row));
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        x += load(desc->bias, type, row);
        [[fallthrough]];
    case CUBLASLT_EPILOGUE_GELU_AUX:
        store(desc->aux, type, aux, (float)x);
        return (float)(x * logistic_of_gelu(x));
    case CUBLASLT_EPILOGUE_DGELU:
        return (float)(x * gelu_slope(load(desc->aux, type, aux)));
    default:
        return (float)x;
    }
}

/* op(A) as [k][rows]. */
static double *gather(const struct emu_lt_layout *layout, const void *from, bool trans, uint64_t k,
                      uint64_t rows)
{
    double *to = static_cast<double *>(malloc(k * rows * sizeof(double)));

    for (uint64_t i = 0; to && i < k; i++)
        for (uint64_t row = 0; row < rows; row++)
            to[i * rows + row] =
                load(from, layout->type,
                     trans ? row * (size_t)layout->ld + i : i * (size_t)layout->ld + row);
    return to;
}

/* Element i of k of a column of op(B). */
static double load_b(const struct emu_lt_desc *desc, const struct emu_lt_layout *b,
                     const void *from, uint64_t i, uint64_t column)
{
    const size_t ld = (size_t)b->ld;

    return load(from, b->type, desc->trans_b ? i * ld + column : column * ld + i);
}

/* sums[rows] = part [begin, end) of k of one column of D. */
static void sum_part(const struct emu_lt_desc *desc, const struct emu_lt_layout *b,
                     const void *from, const double *a, uint64_t column, uint64_t begin,
                     uint64_t end, uint64_t rows, double *sums)
{
    enum { AT_ONCE = 4 };
    uint64_t i = begin;

    memset(sums, 0, rows * sizeof *sums);
    for (; i + AT_ONCE <= end; i += AT_ONCE) {
        const double *rows_of = a + i * rows;
        double x[AT_ONCE];

        for (uint64_t j = 0; j < AT_ONCE; j++)
            x[j] = load_b(desc, b, from, i + j, column);
        for (uint64_t row = 0; row < rows; row++) {
            double sum = sums[row];

            for (uint64_t j = 0; j < AT_ONCE; j++)
                sum += rows_of[j * rows + row] * x[j];
            sums[row] = sum;
        }
    }
    for (; i < end; i++) {
        const double x = load_b(desc, b, from, i, column);

        for (uint64_t row = 0; row < rows; row++)
            sums[row] += a[i * rows + row] * x;
    }
}

cublasStatus_t emu_lt_multiply(const struct emu_lt_desc *desc,
                               const struct emu_lt_layout *const layouts[4],
                               const void *const operands[4], float alpha, float beta,
                               uint64_t parts)
{
    const struct emu_lt_layout *b = layouts[1], *c = layouts[2], *d = layouts[3];
    const uint64_t rows = d->rows, k = desc->trans_b ? b->columns : b->rows;
    const uint64_t each = (k + parts - 1) / parts;
    double *a = gather(layouts[0], operands[0], desc->trans_a, k, rows);
    double *sums = static_cast<double *>(malloc(2 * rows * sizeof(double))), *part = sums + rows;
    void *to = const_cast<void *>(operands[3]);

    for (uint64_t column = 0; a && sums && column < d->columns; column++) {
        sum_part(desc, b, operands[1], a, column, 0, each, rows, sums);
        for (uint64_t begin = each; begin < k; begin += each) {
            sum_part(desc, b, operands[1], a, column, begin, begin + each < k ? begin + each : k,
                     rows, part);
            for (uint64_t row = 0; row < rows; row++)
                sums[row] = (double)((float)sums[row] + (float)part[row]);
        }
        for (uint64_t row = 0; row < rows; row++) {
            double x = (double)alpha * sums[row];

            if (beta != 0)
                x += (double)beta * load(operands[2], c->type, column * (size_t)c->ld + row);
            store(to, d->type, column * (size_t)d->ld + row, finish(desc, d->type, x, row, column));
        }
    }
    free(a);
    free(sums);
    return a && sums ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
