/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's operations where elements lie more than 2^32 elements apart: an index that is computed
 * in 32 bits overflows there. Only a few rows of the memory are touched.
 */
#include "check.h"

#ifdef MICS_EMULATED
#include <sys/mman.h>
#endif

#define FAR_ROWS   3u
#define FAR_STRIDE ((1u << 31) + 8) /* from row to row, in elements: the last lies beyond 2^32 */
#define FAR_COUNT  ((size_t)2 * FAR_STRIDE + (1 << 24))

static uint16_t *far_memory;

static void far_open(void)
{
#ifdef MICS_EMULATED /* whose cudaMalloc writes to all of it */
    far_memory = mmap(NULL, FAR_COUNT * 2, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (far_memory == MAP_FAILED)
        abort();
#else
    must(cudaMalloc((void **)&far_memory, FAR_COUNT * 2), "cudaMalloc");
#endif
}

static void far_close(void)
{
#ifdef MICS_EMULATED
    munmap(far_memory, FAR_COUNT * 2);
#else
    must(cudaFree(far_memory), "cudaFree");
#endif
}

/* Rows of C elements of a bf16 array to their far places, or back to where results are kept. The
 * direction is by the address, which the emulator takes for the host's. */
static void far_put(const struct tensor *rows, uint32_t C, size_t stride)
{
    for (size_t row = 0; row * C < rows->count; row++)
        must(cudaMemcpy(far_memory + row * stride, rows->begin + row * C * 2, C * (size_t)2,
                        cudaMemcpyDefault),
             "copy");
}

static void far_get(struct tensor *rows, uint32_t C, size_t stride)
{
    must(cudaStreamSynchronize(gpu.at.stream), "a kernel");
    for (size_t row = 0; row * C < rows->count; row++)
        must(cudaMemcpy(rows->got + row * C * 2, far_memory + row * stride, C * (size_t)2,
                        cudaMemcpyDefault),
             "copy");
}

/* Numbers in device memory. */
static void *sent(const void *numbers, size_t bytes)
{
    void *device;

    must(cudaMalloc(&device, bytes), "cudaMalloc");
    must(cudaMemcpy(device, numbers, bytes, cudaMemcpyHostToDevice), "copy");
    return device;
}

static void logits_of_far_rows(void)
{
    enum { V = 45 };
    const int32_t targets[FAR_ROWS] = {3, 44, 17};
    double loss = 0, want = 0;
    struct tensor rows = array_random(MICS_BF16, (size_t)FAR_ROWS * V, 4, 1, 0);
    const struct mics_args_cross_entropy args = {far_memory,
                                                 sent(targets, sizeof(targets)),
                                                 sent(&loss, sizeof(loss)),
                                                 FAR_ROWS,
                                                 V,
                                                 FAR_STRIDE,
                                                 true,
                                                 MICS_BF16,
                                                 NULL,
                                                 NULL};

    far_put(&rows, V, FAR_STRIDE);
    CHECK_INT(mics_cuda_cross_entropy(&gpu.at, &args), cudaSuccess);
    far_get(&rows, V, FAR_STRIDE);
    must(cudaMemcpy(&loss, args.loss_sum, sizeof(loss), cudaMemcpyDeviceToHost), "copy");
    mics_host_cross_entropy(gpu.pool,
                            &(struct mics_args_cross_entropy){rows.values, targets, &want, FAR_ROWS,
                                                              V, 0, true, MICS_F32, NULL, NULL});
    CHECK_NEAR(loss / want, 1, 1e-6);
    CHECK_ARRAY(&rows, rows.values, 2e-6);
    must(cudaFree((void *)args.targets), "cudaFree");
    must(cudaFree(args.loss_sum), "cudaFree");
    array_free(&rows);
}

static void positions_of_far_rows(void)
{
    enum { D = 64 };
    struct tensor rows = array_random(MICS_BF16, (size_t)FAR_ROWS * D, 2, 1, 0);
    struct mics_args_rope args = {.data = far_memory,
                                  .B = 1,
                                  .T = FAR_ROWS,
                                  .heads = 1,
                                  .D = D,
                                  .stride = FAR_STRIDE,
                                  .base = 10000,
                                  .dtype = MICS_BF16};

    far_put(&rows, D, FAR_STRIDE);
    CHECK_INT(mics_cuda_rope(&gpu.at, &args), cudaSuccess);
    far_get(&rows, D, FAR_STRIDE);
    args.data = rows.values;
    args.stride = D;
    args.dtype = MICS_F32;
    mics_host_rope(gpu.pool, &args);
    CHECK_ARRAY(&rows, rows.values, 4e-6);
    array_free(&rows);
}

/* Tokens 0 and 2^20 of a table of rows of 4,096 + 8. */
static void far_tokens(void)
{
    enum { C = 4104, TOKEN = 1 << 20 };
    const size_t stride = (size_t)TOKEN * C;
    _Static_assert((size_t)TOKEN * C + C <= FAR_COUNT, "both rows lie in far_memory");
    const int32_t tokens[3] = {TOKEN, 0, TOKEN}, near[3] = {1, 0, 1};
    struct tensor table = array_random(MICS_BF16, 2 * C, 1, 1, 0);
    struct tensor out = array_random(MICS_BF16, 3 * C, 1, 2, 0);
    int32_t *device = sent(tokens, sizeof(tokens));

    far_put(&table, C, stride);
    CHECK_INT(
        mics_cuda_embedding_grad(
            &gpu.at, &(struct mics_args_embedding_grad){far_memory, NULL, device, out.device, 1, 3,
                                                        C, TOKEN + 1, MICS_BF16, MICS_BF16}),
        cudaSuccess);
    far_get(&table, C, stride);
    mics_host_embedding_grad(gpu.pool, &(struct mics_args_embedding_grad){table.values, NULL, near,
                                                                          out.values, 1, 3, C, 2,
                                                                          MICS_F32, MICS_F32});
    CHECK_ARRAY(&table, table.values, 4e-6);
    CHECK_INT(
        mics_cuda_embedding(&gpu.at, &(struct mics_args_embedding){out.device, device, far_memory,
                                                                   NULL, 1, 3, C, MICS_BF16, NULL}),
        cudaSuccess);
    must(cudaStreamSynchronize(gpu.at.stream), "a kernel");
    must(cudaMemcpy(out.got, out.device, array_bytes(&out), cudaMemcpyDeviceToHost), "copy");
    for (size_t row = 0; row < 3; row++)
        CHECK(memcmp(out.got + row * C * 2, table.got + (size_t)near[row] * C * 2, C * 2) == 0);
    must(cudaFree(device), "cudaFree");
    ARRAYS_FREE(&table, &out);
}

int main(void)
{
    open_gpu();
    far_open();
    TAP_RUN(logits_of_far_rows);
    TAP_RUN(positions_of_far_rows);
    TAP_RUN(far_tokens);
    far_close();
    return close_gpu();
}
