/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped.c - products of experts with their rows, as products of one expert after another.
 */
#include "host/kernels.h"

#include <string.h>

static void *at(const void *base, uint64_t element, enum mics_dtype dtype)
{
    return (char *)base + element * mics_dtype_bytes(dtype);
}

void mics_host_grouped_matmul(struct mics_pool *pool, const struct mics_args_grouped_matmul *args)
{
    for (uint32_t e = 0; e < args->E; e++) {
        const uint64_t first = args->offsets[e];
        const uint32_t rows = args->offsets[e + 1] - args->offsets[e];

        if (rows > 0)
            mics_host_matmul(pool, &(struct mics_args_matmul){
                                       .out = at(args->out, first * args->n, args->dtype),
                                       .a = at(args->a, first * args->k, args->dtype),
                                       .b = at(args->b, e * args->stride, args->dtype),
                                       .m = rows,
                                       .n = args->n,
                                       .k = args->k,
                                       .lda = args->k,
                                       .ldb = args->trans_b ? args->k : args->n,
                                       .ldout = args->n,
                                       .trans_b = args->trans_b,
                                       .dtype = args->dtype,
                                       .out_dtype = args->dtype,
                                   });
    }
}

void mics_host_grouped_matmul_grad(struct mics_pool *pool,
                                   const struct mics_args_grouped_matmul_grad *args)
{
    for (uint32_t e = 0; e < args->E; e++) {
        const uint64_t first = args->offsets[e];
        const uint32_t rows = args->offsets[e + 1] - args->offsets[e];
        void *const out = at(args->out, e * args->stride, args->grad_dtype);

        if (rows > 0)
            mics_host_matmul(pool, &(struct mics_args_matmul){
                                       .out = out,
                                       .a = at(args->a, first * args->m, args->dtype),
                                       .b = at(args->b, first * args->n, args->dtype),
                                       .add = args->add ? out : NULL,
                                       .m = args->m,
                                       .n = args->n,
                                       .k = rows,
                                       .lda = args->m,
                                       .ldb = args->n,
                                       .ldout = args->n,
                                       .trans_a = true,
                                       .dtype = args->dtype,
                                       .out_dtype = args->grad_dtype,
                                   });
        else if (!args->add)
            mics_host_zero(
                pool, &(struct mics_args_zero){
                          .dst = out,
                          .bytes = (uint64_t)args->m * args->n * mics_dtype_bytes(args->grad_dtype),
                      });
    }
}
