/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.c - walk all pairs of divisors and keep those that somebody uses. */
#include "bench/shapes.h"

#include <stdlib.h>

static bool is_used(uint32_t nodes, uint32_t per_node, uint32_t q, uint32_t d)
{
    if (nodes % q != 0 || per_node % d != 0 || q * d == 1)
        return false;
    return q == 1 || d == per_node || d == 1 || q == nodes;
}

static int compare(const void *a, const void *b)
{
    const struct mics_group_shape *x = a, *y = b;
    const uint64_t left = (uint64_t)x->nodes * x->per_node;
    const uint64_t right = (uint64_t)y->nodes * y->per_node;

    if (left != right)
        return left < right ? -1 : 1;
    return (x->nodes > y->nodes) - (x->nodes < y->nodes);
}

enum mics_status mics_shapes_list(uint32_t nodes, uint32_t per_node, struct mics_group_shape **out,
                                  uint32_t *count, struct mics_err *err)
{
    /* No number up to 65536 has more than 128 divisors, none up to 1024 more than 32. */
    struct mics_group_shape *list = calloc(128 * 32, sizeof *list);
    uint32_t used = 0;

    if (!list)
        return mics_err_nomem(err);
    for (uint32_t q = 1; q <= nodes; q++)
        for (uint32_t d = 1; nodes % q == 0 && d <= per_node; d++)
            if (is_used(nodes, per_node, q, d))
                list[used++] = (struct mics_group_shape){q, d};
    qsort(list, used, sizeof *list, compare);
    *out = list;
    *count = used;
    return MICS_OK;
}
