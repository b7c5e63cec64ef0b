/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's embedding and its gradient against the host's. */
#include "check.h"

/* How tokens repeat decides how their gradients are added up: within a window of sorted rows or
 * across many. */
static const struct {
    uint32_t B, T, C, V;
    uint32_t distinct; /* tokens that occur */
    unsigned shift;
} shapes[] = {
    {0, 3, 4, 9, 9, 0},        {1, 1, 1, 1, 1, 0},       {2, 31, 33, 7, 7, 0},
    {1, 33, 32, 50257, 40, 0}, {3, 100, 8, 300, 1, 0},   {4, 257, 16, 2, 2, 0},
    {1, 4097, 4, 70000, 3, 0}, {2, 32, 31, 257, 256, 1}, {1, 64, 4097, 50, 5, 0},
    {2, 700, 2, 1000, 900, 0}, {1, 96, 2052, 9, 1, 0},
};

/* `distinct` tokens below V, far apart, in an order without pattern. */
static int32_t *make_tokens(uint32_t rows, uint32_t V, uint32_t distinct)
{
    int32_t *tokens = need(rows * sizeof(*tokens));

    for (uint32_t i = 0; i < rows; i++)
        tokens[i] = (int32_t)((uint64_t)(i * 2654435761u % 1000003 % distinct) * (V - 1) /
                              (distinct > 1 ? distinct - 1 : 1));
    return tokens;
}

static int32_t *send_tokens(const int32_t *tokens, uint32_t rows)
{
    int32_t *device;

    must(cudaMalloc((void **)&device, rows * sizeof(*tokens)), "cudaMalloc");
    must(cudaMemcpy(device, tokens, rows * sizeof(*tokens), cudaMemcpyHostToDevice), "copy");
    return device;
}

static void embeddings_agree_with_and_without_positions(void)
{
    for (size_t s = 0; s < LENGTH(shapes); s++)
        for (size_t d = 0; d < 2 * LENGTH(dtypes); d++) {
            const uint32_t B = shapes[s].B, T = shapes[s].T, C = shapes[s].C, V = shapes[s].V;
            const enum mics_dtype dtype = dtypes[d / 2];
            const unsigned shift = shapes[s].shift;
            int32_t *tokens = make_tokens(B * T, V, shapes[s].distinct),
                    *device = send_tokens(tokens, B * T);
            struct array wte = array_random(dtype, (size_t)V * C, 1, 1, shift);
            struct array wpe = array_random(dtype, (size_t)T * C, 1, 2, shift);
            struct array out = array_output(dtype, (size_t)B * T * C, shift);
            const struct mics_args_embedding args = {
                out.device, device, wte.device, d % 2 ? wpe.device : NULL, B, T, C, dtype};

            RUN(embedding, &args, &out);
            mics_host_embedding(pool, &(struct mics_args_embedding){out.values, tokens, wte.values,
                                                                    d % 2 ? wpe.values : NULL, B, T,
                                                                    C, MICS_F32});
            CHECK_ARRAY(&out, out.values, 0);
            must(cudaFree(device), "cudaFree");
            free(tokens);
            ARRAYS_FREE(&wte, &wpe, &out);
        }
}

static void gradients_agree_however_tokens_repeat(void)
{
    for (size_t s = 0; s < LENGTH(shapes); s++)
        for (size_t d = 0; d < 4; d++) {
            const uint32_t B = shapes[s].B, T = shapes[s].T, C = shapes[s].C, V = shapes[s].V;
            const enum mics_dtype dtype = dtypes[d / 2], grad_dtype = dtypes[d % 2];
            const bool positions = s % 3 != 0;
            int32_t *tokens = make_tokens(B * T, V, shapes[s].distinct),
                    *device = send_tokens(tokens, B * T);
            struct array from = array_random(dtype, (size_t)B * T * C, 1, 1, shapes[s].shift);
            struct array wte = array_random(grad_dtype, (size_t)V * C, 1, 2, shapes[s].shift);
            struct array wpe = array_random(grad_dtype, (size_t)T * C, 1, 3, 0);
            const struct mics_args_embedding_grad args = {
                wte.device, positions ? wpe.device : NULL, device, from.device, B, T, C, V, dtype,
                grad_dtype};

            RUN(embedding_grad, &args, &wte, &wpe);
            mics_host_embedding_grad(pool, &(struct mics_args_embedding_grad){
                                               wte.values, positions ? wpe.values : NULL, tokens,
                                               from.values, B, T, C, V, MICS_F32, MICS_F32});
            CHECK_ARRAY(&wte, wte.values, 2e-5);
            CHECK_ARRAY(&wpe, wpe.values, 4e-6);
            must(cudaFree(device), "cudaFree");
            free(tokens);
            ARRAYS_FREE(&from, &wte, &wpe);
        }
}

/* More rows than are sorted at a time; whole numbers, whose sums are exact. */
static void a_long_batch_is_added_up_in_parts(void)
{
    enum { ROWS = 530000, VOCABULARY = 3 };
    float *numbers = need(ROWS * sizeof(*numbers)), want[VOCABULARY] = {5, 5, 5};
    int32_t *tokens = need(ROWS * sizeof(*tokens)), *device;
    struct array from, wte = array_of(MICS_F32, want, VOCABULARY, 0);

    for (uint32_t i = 0; i < ROWS; i++) {
        numbers[i] = (float)(i % 13) - 6;
        tokens[i] = (int32_t)(i / 7 % VOCABULARY);
        want[tokens[i]] += numbers[i];
    }
    from = array_of(MICS_F32, numbers, ROWS, 0);
    device = send_tokens(tokens, ROWS);
    const struct mics_args_embedding_grad args = {
        wte.device, NULL, device, from.device, 1, ROWS, 1, VOCABULARY, MICS_F32, MICS_F32};
    CHECK_INT(mics_cuda_embedding_grad(&at, &args), cudaSuccess);
    must(cudaStreamSynchronize(at.stream), "embedding_grad");
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
