/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c - token and position embeddings: 12 bytes (6 in bf16) per element. */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

#define ROWS_GRAIN 32

MICS_TYPED void embed_row(const struct mics_op_embedding *args, uint64_t row,
                          const enum mics_dtype type)
{
    const uint64_t token = (uint64_t)args->tokens[row] * args->C,
                   position = row % args->T * args->C;

    for (uint32_t c = 0; c < args->C; c++) {
        float value = mics_load_as(args->wte, token + c, type);

        if (args->wpe)
            value += mics_load_as(args->wpe, position + c, type);
        mics_store_as(args->out, row * args->C + c, value, type);
    }
}

static void embed_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_embedding *args = context;

    for (uint64_t row = begin; row < end; row++) {
        if (args->dtype == MICS_BF16)
            embed_row(args, row, MICS_BF16);
        else
            embed_row(args, row, MICS_F32);
    }
}

void mics_host_embedding(struct mics_pool *pool, const struct mics_op_embedding *args)
{
    uint64_t rows = (uint64_t)args->B * args->T;

    if (rows > 0)
        mics_pool_run(pool, rows, ROWS_GRAIN, embed_rows, (void *)args);
}
