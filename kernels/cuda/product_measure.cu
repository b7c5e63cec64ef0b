/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_measure.cu - which form and which algorithm of a matrix product is fastest, by running
 * them.
 *
 * Each is run on the operation's own operands and timed as stopwatch.cuh says: algorithms in cuBLASLt's order,
 * forms with more of the epilogue in cuBLASLt first.
 */
#include "cuda/choices.cuh"
#include "cuda/products.cuh"
#include "cuda/stopwatch.cuh"

/* Milliseconds of one run; negative where it fails. */
static float time_ms(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                     const struct mics_product *product, const struct mics_product_form *form,
                     int algo, void *out, const struct mics_stopwatch *watch)
{
    return mics_stopwatch_time(watch, at->stream, [&]() {
        return mics_product_run(at, args, product, form, &form->algos[algo], out) ==
               CUBLAS_STATUS_SUCCESS;
    });
}

/* Tell of a choice. */
static void tell(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                 const struct mics_product_form *form, int algo, float took)
{
    mics_choices_tell(
        at->choices, 2, "product [%u, %u] of %u, %s%s, %s to %s: algorithm %d of %d%s%s, %.3g ms",
        args->m, args->n, args->k, args->trans_a ? "t" : "n", args->trans_b ? "t" : "n",
        args->dtype == MICS_BF16 ? "bf16" : "fp32", args->out_dtype == MICS_BF16 ? "bf16" : "fp32",
        algo + 1, form->count, form->bias ? ", with its bias" : "",
        form->gelu ? ", with its GELU" : "", (double)took);
}

/* Try all; *best and the order of its algorithms follow. */
static void try_all(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                    const struct mics_product *product, struct mics_product_form *forms, void *out,
                    const struct mics_stopwatch *watch, int *best)
{
    float least = -1;
    int algo = 0;

    for (int f = 0; f < MICS_PRODUCT_FORMS; f++)
        for (int i = 0; i < forms[f].count; i++) {
            const float took = time_ms(at, args, product, &forms[f], i, out, watch);

            if (!mics_is_faster(took, least))
                continue;
            least = took;
            *best = f;
            algo = i;
        }
    memmove(&forms[*best].algos[0], &forms[*best].algos[algo], sizeof(forms[*best].algos[0]));
    tell(at, args, &forms[*best], algo, least);
}

void mics_product_measure(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                          const struct mics_product *product, struct mics_product_form *forms,
                          int *best)
{
    const size_t count = (size_t)(args->m - 1) * args->ldout + args->n;
    struct mics_stopwatch watch;
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
    if (mics_stopwatch_open(&watch))
        try_all(at, args, product, forms, out, &watch, best);
    mics_stopwatch_close(&watch);
    cudaFree(memory);
}
