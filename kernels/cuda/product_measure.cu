/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_measure.cu - which form and which algorithm of a matrix product is fastest, by running
 * them.
 *
 * Each is run on the operation's own operands, in two heats (stopwatch.cuh). In the first all are timed
 * in one run; in the second those that came near the best, in turns, so that a clock that changes is
 * everyone's. Algorithms stand in cuBLASLt's order, forms with more of the epilogue in cuBLASLt first.
 */
#include "cuda/choices.cuh"
#include "cuda/products.cuh"
#include "cuda/stopwatch.cuh"

#define FINALISTS 4
#define NEAR      1.2f /* times the best of the first heat: no others can win */
#define ROUNDS    2    /* of the second heat; the best counts */
#define WARM_MS   30   /* by then a GPU that was idle has its clock up */

struct candidate {
    int form, algo;
    float took; /* milliseconds of one run; negative where it fails */
};

/* What is measured: once for a product. */
struct trial {
    const struct mics_cuda_at *at;
    const struct mics_op_matmul *args;
    const struct mics_product *product;
    struct mics_product_form *forms;
    void *out;
    struct mics_stopwatch watch;
    struct candidate candidates[MICS_PRODUCT_FORMS * MICS_PRODUCT_ALGOS];
    int count;
};

static void list_candidates(struct trial *trial)
{
    for (int f = 0; f < MICS_PRODUCT_FORMS; f++)
        for (int i = 0; i < trial->forms[f].count; i++)
            trial->candidates[trial->count++] = {f, i, -1};
}

static float time_ms(const struct trial *trial, const struct candidate *candidate, int repeat)
{
    const struct mics_product_form *form = &trial->forms[candidate->form];

    return mics_stopwatch_time(
        &trial->watch, trial->at->stream,
        [&]() {
            return mics_product_run(trial->at, trial->args, trial->product, form,
                                    &form->algos[candidate->algo],
                                    trial->out) == CUBLAS_STATUS_SUCCESS;
        },
        repeat);
}

/* Before the first measurement of all. */
static void warm_up(const struct trial *trial)
{
    float total = 0, took = 1;

    for (int i = 0; i < 1000 && total < WARM_MS && took > 0; i++) {
        took = time_ms(trial, &trial->candidates[0], 1);
        total += 2 * took;
    }
    trial->at->products->warm = true;
}

/* The most that one may have taken in the first heat to be in the second; negative: all failed. */
static float limit_of(const struct trial *trial)
{
    float limit = -1, first = -1;

    for (int n = 0; n < FINALISTS; n++) {
        float next = -1;

        for (int i = 0; i < trial->count; i++) {
            const float took = trial->candidates[i].took;

            if (took > limit && (next < 0 || took < next))
                next = took;
        }
        if (n == 0)
            first = next;
        if (next < 0 || next > first * NEAR)
            break;
        limit = next;
    }
    return limit;
}

/* Only those up to `limit` stay, with their times of the second heat. */
static void run_finals(struct trial *trial, float limit)
{
    int left = 0;

    for (int i = 0; i < trial->count; i++)
        if (trial->candidates[i].took >= 0 && trial->candidates[i].took <= limit)
            trial->candidates[left++] = trial->candidates[i];
    trial->count = left;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < left; i++) {
            const float took = time_ms(trial, &trial->candidates[i], MICS_MEASURE_REPEAT);
            float *const best = &trial->candidates[i].took;

            *best = round == 0 || took < *best ? took : *best;
        }
}

/* Tell of a choice. */
static void tell(const struct trial *trial, const struct candidate *chosen)
{
    const struct mics_op_matmul *args = trial->args;
    const struct mics_product_form *form = &trial->forms[chosen->form];

    mics_choices_tell(trial->at->choices, 2,
                      "product [%u, %u] of %u, %s%s, %s to %s: algorithm %d of %d%s%s, %.3g ms",
                      args->m, args->n, args->k, args->trans_a ? "t" : "n",
                      args->trans_b ? "t" : "n", args->dtype == MICS_BF16 ? "bf16" : "fp32",
                      args->out_dtype == MICS_BF16 ? "bf16" : "fp32", chosen->algo + 1, form->count,
                      form->bias ? ", with its bias" : "", form->gelu ? ", with its GELU" : "",
                      (double)chosen->took);
}

/* Try all; *best and the order of its algorithms follow. */
static void try_all(struct trial *trial, int *best)
{
    struct candidate chosen = {*best, 0, -1};

    if (!trial->at->products->warm)
        warm_up(trial);
    for (int i = 0; i < trial->count; i++)
        trial->candidates[i].took = time_ms(trial, &trial->candidates[i], 1);
    run_finals(trial, limit_of(trial));
    for (int i = 0; i < trial->count; i++)
        if (mics_is_faster(trial->candidates[i].took, chosen.took))
            chosen = trial->candidates[i];
    tell(trial, &chosen);
    struct mics_product_form *form = &trial->forms[chosen.form];
    memmove(&form->algos[0], &form->algos[chosen.algo], sizeof(form->algos[0]));
    *best = chosen.form;
}

/* Memory for the result, where running it twice would change it; false: there is none. */
static bool lend_out(struct trial *trial, void **memory)
{
    const struct mics_op_matmul *args = trial->args;
    const size_t count = (size_t)(args->m - 1) * args->ldout + args->n;

    trial->out = args->out;
    *memory = NULL;
    if (args->out != args->add && args->out != args->gelu_of)
        return true;
    if (cudaMalloc(memory, count * mics_dtype_bytes(args->out_dtype)) != cudaSuccess) {
        (void)cudaGetLastError();
        mics_choices_tell(
            trial->at->choices, 1,
            "product [%u, %u] of %u: no memory to measure with: cuBLASLt's first proposal", args->m,
            args->n, args->k);
        return false;
    }
    trial->out = *memory;
    return true;
}

void mics_product_measure(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                          const struct mics_product *product, struct mics_product_form *forms,
                          int *best)
{
    struct trial trial = {};
    void *memory;

    trial.at = at;
    trial.args = args;
    trial.product = product;
    trial.forms = forms;
    list_candidates(&trial);
    if (trial.count < 2 || !lend_out(&trial, &memory))
        return;
    if (mics_stopwatch_open(&trial.watch))
        try_all(&trial, best);
    mics_stopwatch_close(&trial.watch);
    cudaFree(memory);
}
