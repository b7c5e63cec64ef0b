/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - what the streams of every device begin with. For devices only.
 */
#ifndef MICS_DEVICE_STREAM_H
#define MICS_DEVICE_STREAM_H

#include "device/device.h"

/* The first member of a device's own stream structure. */
struct mics_stream {
    struct mics_device *device;
};

#endif
