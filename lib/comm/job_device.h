/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_device.h - which device the ranks of a job compute on: the same kind on all of them.
 *
 * On a machine with several GPUs, the ranks take them in the order of their places on the machine. Ranks that would
 * share one are refused, as each would find only a part of its memory and none of its own pace;
 * MICS_GPU_SHARE=1 in the environment allows it, for tests.
 */
#ifndef MICS_COMM_JOB_DEVICE_H
#define MICS_COMM_JOB_DEVICE_H

#include "device/plugin.h"
#include "comm/world.h"

enum mics_device_kind {
    MICS_DEVICE_AUTO, /* GPUs where every rank has one that works, else the host */
    MICS_DEVICE_HOST,
    MICS_DEVICE_CUDA
};

/* "auto", "host", "cuda". False: *out is left as it is. */
bool mics_device_kind_parse(const char *text, enum mics_device_kind *out);

struct mics_chosen {
    struct mics_device *device;
    struct mics_plugin_file *plugin; /* that the device is from; NULL: the host */
    struct mics_err why_host;        /* with AUTO and the host: why no GPU; else empty */
};

/* `threads` are the host's compute threads. Collective over the world; all ranks succeed or fail alike, with one
 * text. MICS_ERR_UNSUPPORTED: CUDA is asked for and some rank cannot have it (why, and which rank if not all). */
enum mics_status mics_device_choose(const struct mics_world *world, enum mics_device_kind kind,
                                    unsigned threads, struct mics_chosen *out,
                                    struct mics_err *err);
/* Not collective. What was not opened is passed over. */
void mics_chosen_close(struct mics_chosen *chosen);

#endif
