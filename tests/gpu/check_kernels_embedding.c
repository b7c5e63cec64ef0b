/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's embedding and its gradient against the host's. */
#include "check.h"
#include "operation_tables.h"

static void embeddings_agree_with_and_without_positions(void)
{
    for (size_t i = 0; i < LENGTH(embedding_cases); i++)
        for (size_t d = 0; d < 2 * LENGTH(dtypes); d++)
            embedding_case(&gpu, &embedding_cases[i], dtypes[d / 2], d % 2);
}

static void gradients_agree_however_tokens_repeat(void)
{
    for (size_t i = 0; i < LENGTH(embedding_cases); i++)
        for (size_t d = 0; d < 2 * LENGTH(dtypes); d++)
            embedding_grad_case(&gpu, &embedding_cases[i], dtypes[d / 2],
                                grad_type(dtypes[d / 2], d % 2));
}

/* More rows than are sorted at a time; whole numbers, whose sums are exact. */
static void a_long_batch_is_added_up_in_parts(void)
{
    enum { ROWS = 530000, VOCABULARY = 3 };
    float *numbers = need(ROWS * sizeof(*numbers)), want[VOCABULARY] = {5, 5, 5};
    int32_t *tokens = need(ROWS * sizeof(*tokens)), *device;
    struct tensor from, wte = array_of(MICS_F32, want, VOCABULARY, 0);

    for (uint32_t i = 0; i < ROWS; i++) {
        numbers[i] = (float)(i % 13) - 6;
        tokens[i] = (int32_t)(i / 7 % VOCABULARY);
        want[tokens[i]] += numbers[i];
    }
    from = array_of(MICS_F32, numbers, ROWS, 0);
    must(cudaMalloc((void **)&device, ROWS * sizeof(*tokens)), "cudaMalloc");
    must(cudaMemcpy(device, tokens, ROWS * sizeof(*tokens), cudaMemcpyHostToDevice), "copy");
    const struct mics_args_embedding_grad args = {
        wte.device, NULL, device, from.device, 1, ROWS, 1, VOCABULARY, MICS_F32, MICS_F32};
    CHECK_INT(mics_cuda_embedding_grad(&gpu.at, &args), cudaSuccess);
    must(cudaStreamSynchronize(gpu.at.stream), "embedding_grad");
    must(cudaMemcpy(wte.got, wte.device, array_bytes(&wte), cudaMemcpyDeviceToHost), "copy");
    CHECK_ARRAY(&wte, want, 0);
    must(cudaFree(device), "cudaFree");
    free(numbers);
    free(tokens);
    ARRAYS_FREE(&from, &wte);
}

int main(void)
{
    open_gpu();
    TAP_RUN(embeddings_agree_with_and_without_positions);
    TAP_RUN(gradients_agree_however_tokens_repeat);
    TAP_RUN(a_long_batch_is_added_up_in_parts);
    return close_gpu();
}
