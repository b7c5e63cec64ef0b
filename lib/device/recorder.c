/* SPDX-License-Identifier: Apache-2.0 */
#include "device/recorder.h"

#include <assert.h>

static void record(struct mics_stream *stream, enum mics_kernel kernel, const void *args,
                   size_t size)
{
    /* The stream is the recorder's first member. */
    const struct mics_recorder *recorder = (const struct mics_recorder *)stream;

    assert(size <= MICS_ARGS_MAX);
    (void)size;
    recorder->visit(recorder->context, kernel, args);
}

void mics_recorder_init(struct mics_recorder *recorder,
                        void (*visit)(void *context, enum mics_kernel kernel, const void *args),
                        void *context)
{
    static const struct mics_device_ops ops = {.launch = record};

    *recorder = (struct mics_recorder){
        .stream = {.device = &recorder->device},
        .device = {.ops = &ops, .name = "recorder"},
        .visit = visit,
        .context = context,
    };
}
