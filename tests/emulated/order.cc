/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include "emulator.h"

void emu_order(uint64_t seed)
{
    emu_set_order(seed);
}
