/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c - colour the edges of a ring so that no two of a colour meet: two colours, three if odd. */
#include "bench/links.h"

uint32_t mics_ring_edges(uint32_t count)
{
    return count == 2 ? 1 : count;
}

uint32_t mics_ring_phases(uint32_t count)
{
    if (count == 2)
        return 1;
    return count % 2 ? 3 : 2;
}

uint32_t mics_ring_phase(uint32_t count, uint32_t edge)
{
    return count % 2 && edge == count - 1 ? 2 : edge % 2;
}
