/* SPDX-License-Identifier: Apache-2.0 */
#include "host/kernels.h"

#include <string.h>

enum { GRAIN = 256 * 1024 }; /* bytes: below this, waking a thread costs more than it saves */

static void copy_piece(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_copy *args = context;

    memcpy((char *)args->dst + begin, (const char *)args->src + begin, end - begin);
}

void mics_host_copy(struct mics_pool *pool, const struct mics_op_copy *args)
{
    struct mics_op_copy own = *args;

    if (own.dst != own.src)
        mics_pool_run(pool, own.bytes, GRAIN, copy_piece, &own);
}
