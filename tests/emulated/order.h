/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - emu_set_order() for C: 0 runs the threads of blocks in ascending order, another seed
 * in its own. */
#ifndef MICS_TESTS_EMULATED_ORDER_H
#define MICS_TESTS_EMULATED_ORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void emu_order(uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
