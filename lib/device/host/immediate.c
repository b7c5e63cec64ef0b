/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/immediate.h"

#include "host/decode.h"
#include "host/kernels.h"

/* A product of few rows, with its epilogue as an operation of its own. */
static void run_skinny(struct mics_pool *pool, const struct mics_args_matmul *args)
{
    struct mics_args_matmul product = *args;

    if (args->pre_gelu)
        product.out = args->pre_gelu;
    product.pre_gelu = NULL;
    mics_host_skinny_matmul(pool, &product);
    if (args->pre_gelu)
        mics_host_gelu(pool, &(struct mics_args_gelu){.out = args->out,
                                                      .in = args->pre_gelu,
                                                      .count = (uint64_t)args->m * args->n});
}

static void launch(struct mics_stream *stream, enum mics_kernel kernel, const void *args,
                   size_t size)
{
    const struct mics_immediate *immediate = (const struct mics_immediate *)stream;
    const struct mics_args_matmul *product = kernel == MICS_K_MATMUL ? args : NULL;

    (void)size;
    if (product && product->m <= MICS_SKINNY_ROWS && product->dtype == MICS_F32 && product->trans_b)
        run_skinny(immediate->pool, product);
    else
        mics_host_run(immediate->pool, kernel, args);
}

void mics_immediate_init(struct mics_immediate *immediate, struct mics_pool *pool)
{
    static const struct mics_device_ops ops = {.launch = launch};

    *immediate = (struct mics_immediate){
        .stream = {.device = &immediate->device},
        .device = {.ops = &ops, .name = "host", .on_host = true},
        .pool = pool,
    };
}
