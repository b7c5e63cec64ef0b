/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embedding.c - token and position embeddings, and their gradients.
 *
 * The gradients run over strips of channels: a thread walks all tokens, in order, for its strip, so
 * that equal tokens meet in one thread and in one order.
 */
#include "host/flat.h"
#include "host/kernels.h"

#define STRIP      64
#define ROWS_GRAIN 32

static void embed_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_embedding *args = context;

    for (uint64_t row = begin; row < end; row++) {
        const float *token = (const float *)args->wte + (size_t)args->tokens[row] * args->C;
        const float *position = args->wpe;
        float *out = (float *)args->out + row * args->C;

        if (position)
            position += (row % args->T) * args->C;
        for (uint32_t c = 0; c < args->C; c++)
            out[c] = position ? token[c] + position[c] : token[c];
    }
}

static void embedding_grad_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_embedding_grad *args = context;
    uint64_t rows = (uint64_t)args->B * args->T;
    uint64_t first = begin * STRIP, stop = mics_min_u64(end * STRIP, args->C);

    for (uint64_t row = 0; row < rows; row++) {
        const float *grad = (const float *)args->grad_out + row * args->C;
        float *token = (float *)args->grad_wte + (size_t)args->tokens[row] * args->C;
        float *position = args->grad_wpe;

        for (uint64_t c = first; c < stop; c++)
            token[c] += grad[c];
        if (!position)
            continue;
        position += (row % args->T) * args->C;
        for (uint64_t c = first; c < stop; c++)
            position[c] += grad[c];
    }
}

void mics_host_embedding(struct mics_pool *pool, const struct mics_op_embedding *args)
{
    uint64_t rows = (uint64_t)args->B * args->T;

    if (rows > 0)
        mics_pool_run(pool, rows, ROWS_GRAIN, embed_rows, (void *)args);
}

void mics_host_embedding_grad(struct mics_pool *pool, const struct mics_op_embedding_grad *args)
{
    if (args->C > 0)
        mics_pool_run(pool, mics_ceil_div(args->C, STRIP), 1, embedding_grad_strips, (void *)args);
}
