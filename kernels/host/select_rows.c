/* SPDX-License-Identifier: Apache-2.0 */
/* select_rows.c - the rows of a batch that have a target. */
#include "host/kernels.h"

#include <assert.h>
#include <math.h>

/* 4 bytes read twice per row: too little for several threads. */
void mics_host_select_rows(struct mics_pool *pool, const struct mics_args_select_rows *args)
{
    uint32_t next = 0, other = 0;

    (void)pool;
    assert(args->most <= args->rows);
    for (uint32_t r = 0; r < args->rows; r++)
        other += args->targets[r] >= 0;
    if (other > args->most)
        *args->loss_sum = NAN;
    for (uint32_t r = 0; r < args->rows; r++) {
        const uint32_t at = args->targets[r] >= 0 ? next++ : other++;

        if (at >= args->most)
            continue;
        args->order[at] = r;
        args->selected[at] = args->targets[r];
    }
}
