/* SPDX-License-Identifier: Apache-2.0 */
/*
 * immediate.h - a stream that runs each operation at once, in the caller's thread and a pool's, and
 * has no device behind it: for code that launches operations and needs no other.
 *
 * Products of few rows are those of decode.h, which read the matrix once.
 */
#ifndef MICS_DEVICE_HOST_IMMEDIATE_H
#define MICS_DEVICE_HOST_IMMEDIATE_H

#include "device/device.h"
#include "host/pool.h"

/* Must not be moved. */
struct mics_immediate {
    struct mics_stream stream; /* the first member */
    struct mics_device device;
    struct mics_pool *pool;
};

void mics_immediate_init(struct mics_immediate *immediate, struct mics_pool *pool);

#endif
