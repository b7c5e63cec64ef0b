/* SPDX-License-Identifier: Apache-2.0 */
#include "host/kernels.h"

void mics_host_call(struct mics_pool *pool, const struct mics_op_call *args)
{
    (void)pool;
    args->fn(args->context ? args->context : (void *)args->payload);
}
