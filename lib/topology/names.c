/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - the words that a topology's document uses. */
#include "topology/topology.h"

#include <string.h>

const char *mics_collective_name(enum mics_collective collective)
{
    static const char *const names[MICS_COLLECTIVE_COUNT] = {
        [MICS_ALL_GATHER] = "all_gather",
        [MICS_REDUCE_SCATTER] = "reduce_scatter",
        [MICS_ALL_REDUCE] = "all_reduce",
    };

    return names[collective];
}

bool mics_topology_dtype_is_known(const char *dtype)
{
    static const char *const known[] = {"f32", "bf16", "f16"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(dtype, known[i]) == 0)
            return true;
    return false;
}
