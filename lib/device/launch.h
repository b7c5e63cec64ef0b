/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - typed calls of a device's operations: mics_launch_matmul(stream, &args). */
#ifndef MICS_DEVICE_LAUNCH_H
#define MICS_DEVICE_LAUNCH_H

#include "device/device.h"

#define MICS_LAUNCH_KERNEL(KEY, name, gpu)                                                         \
    static inline void mics_launch_##name(struct mics_stream *stream,                              \
                                          const struct mics_args_##name *args)                     \
    {                                                                                              \
        stream->device->ops->launch(stream, MICS_K_##KEY, args, sizeof *args);                     \
    }
MICS_OPERATIONS(MICS_LAUNCH_KERNEL)
#undef MICS_LAUNCH_KERNEL

#endif
