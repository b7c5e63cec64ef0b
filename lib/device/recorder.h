/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.h - a stream that runs nothing: it reports each launch to a function.
 *
 * So that the code which launches operations also says what it launches. Only launches may be
 * enqueued on it: it has no memory and no events, and pointers in arguments are not followed.
 */
#ifndef MICS_DEVICE_RECORDER_H
#define MICS_DEVICE_RECORDER_H

#include "device/device.h"

/* The caller's storage; must not move once initialised. Give &recorder.stream to the code that
 * launches. */
struct mics_recorder {
    struct mics_stream stream;
    struct mics_device device;
    /* `args` is the operation's structure, valid during the call. */
    void (*visit)(void *context, enum mics_kernel kernel, const void *args);
    void *context;
};

void mics_recorder_init(struct mics_recorder *recorder,
                        void (*visit)(void *context, enum mics_kernel kernel, const void *args),
                        void *context);

#endif
