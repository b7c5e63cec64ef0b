/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_measure.cu - which form and which algorithm of a matrix product is fastest, by running
 * them.
 *
 * Each is run on the operation's own operands: once, then REPEAT times between two events. An
 * algorithm is taken instead of one that stands before it in cuBLASLt's order, or a form instead of
 * one with more of the epilogue in cuBLASLt, only where it is faster by a margin, so that noise
 * rarely makes two runs of a program choose differently: another algorithm rounds otherwise.
 */
#include "cuda/products.cuh"

#include <string.h>

#define REPEAT 3
#define MARGIN 0.97f /* of the best time up to now */

struct stopwatch {
    cudaEvent_t start, stop;
};

/* Milliseconds of one run; negative where it fails. */
static float time_ms(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                     const struct mics_product *product, const struct mics_product_form *form,
                     int algo, void *out, const struct stopwatch *watch)
{
    float took = -1;

    for (int i = 0; i < REPEAT + 1; i++) {
        if (i == 1 && cudaEventRecord(watch->start, at->stream) != cudaSuccess)
            return -1;
        if (mics_product_run(at, args, product, form, &form->algos[algo], out) !=
            CUBLAS_STATUS_SUCCESS)
            return -1;
    }
    if (cudaEventRecord(watch->stop, at->stream) != cudaSuccess ||
        cudaEventSynchronize(watch->stop) != cudaSuccess ||
        cudaEventElapsedTime(&took, watch->start, watch->stop) != cudaSuccess)
        return -1;
    return took / REPEAT;
}

/* Try all; *best and the order of its algorithms follow. */
static void try_all(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                    const struct mics_product *product, struct mics_product_form *forms, void *out,
                    const struct stopwatch *watch, int *best)
{
    float least = -1;
    int algo = 0;

    for (int f = 0; f < MICS_PRODUCT_FORMS; f++)
        for (int i = 0; i < forms[f].count; i++) {
            const float took = time_ms(at, args, product, &forms[f], i, out, watch);

            if (took < 0 || (least >= 0 && took >= least * MARGIN))
                continue;
            least = took;
            *best = f;
            algo = i;
        }
    memmove(&forms[*best].algos[0], &forms[*best].algos[algo], sizeof(forms[*best].algos[0]));
}

void mics_product_measure(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                          const struct mics_product *product, struct mics_product_form *forms,
                          int *best)
{
    const size_t count = (size_t)(args->m - 1) * args->ldout + args->n;
    struct stopwatch watch = {NULL, NULL};
    void *out = args->out, *memory = NULL;
    int choices = 0;

    for (int f = 0; f < MICS_PRODUCT_FORMS; f++)
        choices += forms[f].count;
    if (choices < 2)
        return;
    if (args->out == args->add ||
        args->out == args->gelu_of) { /* running it twice would change it */
        if (cudaMalloc(&memory, count * mics_dtype_bytes(args->out_dtype)) != cudaSuccess) {
            (void)cudaGetLastError();
            return;
        }
        out = memory;
    }
    if (cudaEventCreate(&watch.start) == cudaSuccess && cudaEventCreate(&watch.stop) == cudaSuccess)
        try_all(at, args, product, forms, out, &watch, best);
    if (watch.start)
        cudaEventDestroy(watch.start);
    if (watch.stop)
        cudaEventDestroy(watch.stop);
    cudaFree(memory);
}
