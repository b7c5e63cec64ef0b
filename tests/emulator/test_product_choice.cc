/* SPDX-License-Identifier: Apache-2.0 */
/* Of cuBLASLt's proposals for a product that is fast and runs is taken, and told. */
#include "cuda/choices.cuh"
#include "cuda/kernels.h"
#include "tap.h"

#include <stdlib.h>

#define N 16

struct bench {
    struct mics_cuda_at at;
    float *a, *out;
};

static struct bench open_bench(void)
{
    struct bench x = {};

    x.at.multiprocessors = 1;
    CHECK_INT(mics_cuda_products_open(&x.at.products), cudaSuccess);
    CHECK_INT(mics_cuda_choices_open(&x.at.choices), cudaSuccess);
    CHECK_INT(cudaStreamCreate(&x.at.stream), cudaSuccess);
    CHECK_INT(cudaMalloc(&x.at.workspace, MICS_CUDA_WORKSPACE_BYTES), cudaSuccess);
    CHECK_INT(cudaMalloc((void **)&x.a, N * N * sizeof(float)), cudaSuccess);
    CHECK_INT(cudaMalloc((void **)&x.out, N * N * sizeof(float)), cudaSuccess);
    CHECK_INT(cudaMemset(x.a, 0, N * N * sizeof(float)), cudaSuccess);
    CHECK_INT(cudaMemset(x.out, 0, N * N * sizeof(float)), cudaSuccess);
    return x;
}

static void close_bench(struct bench *x)
{
    mics_cuda_products_close(x->at.products);
    mics_cuda_choices_close(x->at.choices);
    CHECK_INT(cudaStreamDestroy(x->at.stream), cudaSuccess);
    cudaFree(x->at.workspace);
    cudaFree(x->a);
    cudaFree(x->out);
}

/* out (+)= a a'. */
static void multiply(struct bench *x, bool accumulate)
{
    struct mics_op_matmul args = {};

    args.out = x->out;
    args.a = args.b = x->a;
    args.add = accumulate ? x->out : NULL;
    args.m = args.n = args.k = args.lda = args.ldb = args.ldout = N;
    args.trans_b = true;
    CHECK_INT(mics_cuda_matmul(&x->at, &args), cudaSuccess);
    CHECK_INT(cudaStreamSynchronize(x->at.stream), cudaSuccess);
}

/* Which one was told to be taken, from 1; 0: nothing was told. */
static int told(struct bench *x)
{
    char text[MICS_CUDA_NOTE_BYTES];
    int level = -1, taken = 0;

    if (!mics_cuda_choices_next_note(x->at.choices, &level, text))
        return 0;
    CHECK_INT(level, 2);
    CHECK(strstr(text, "product [16, 16] of 16, nt, fp32 to fp32: algorithm ") == text);
    sscanf(strstr(text, "algorithm"), "algorithm %d of 3", &taken);
    return taken;
}

static void the_slow_proposal_is_not_taken(void)
{
    static const char *const slow[] = {"0", "1"};

    for (int i = 0; i < 2; i++) {
        struct bench x = open_bench();

        setenv("MICS_EMULATED_SLOW_PROPOSAL", slow[i], 1);
        multiply(&x, false);
        CHECK_INT(told(&x), 2 - i);
        multiply(&x, false); /* measured once */
        CHECK_INT(told(&x), 0);
        unsetenv("MICS_EMULATED_SLOW_PROPOSAL");
        close_bench(&x);
    }
}

static void measuring_adds_nothing_to_a_sum(void)
{
    struct bench x = open_bench();
    float one = 1, sum = 0;

    CHECK_INT(cudaMemcpy(x.a, &one, sizeof(one), cudaMemcpyHostToDevice), cudaSuccess);
    multiply(&x, true);
    multiply(&x, true);
    CHECK_INT(cudaMemcpy(&sum, x.out, sizeof(sum), cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK(sum == 2);
    close_bench(&x);
}

static void nothing_is_measured_where_that_is_asked_for(void)
{
    setenv("MICS_CUDA_MEASURE", "0", 1);
    struct bench x = open_bench();

    multiply(&x, false);
    CHECK_INT(told(&x), 0);
    close_bench(&x);
    unsetenv("MICS_CUDA_MEASURE");
}

int main()
{
    TAP_RUN(the_slow_proposal_is_not_taken);
    TAP_RUN(measuring_adds_nothing_to_a_sum);
    TAP_RUN(nothing_is_measured_where_that_is_asked_for);
    return tap_done();
}
