/* SPDX-License-Identifier: Apache-2.0 */
#include "host/kernels.h"

#include <string.h>

enum { GRAIN = 256 * 1024 }; /* bytes: below this, waking a thread costs more than it saves */

static void zero_piece(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_zero *args = context;

    memset((char *)args->dst + begin, 0, end - begin);
}

void mics_host_zero(struct mics_pool *pool, const struct mics_op_zero *args)
{
    struct mics_op_zero own = *args;

    mics_pool_run(pool, own.bytes, GRAIN, zero_piece, &own);
}
