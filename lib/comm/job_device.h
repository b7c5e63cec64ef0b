/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_device.h - the device that the ranks of a job compute on: the same kind on all of them.
 *
 * On a machine with several GPUs, the ranks use them in the order of their positions on the
 * machine. Ranks that would share a GPU are refused: each would have only part of its memory and
 * speed. MICS_GPU_SHARE=1 in the environment allows sharing, for tests.
 */
#ifndef MICS_COMM_JOB_DEVICE_H
#define MICS_COMM_JOB_DEVICE_H

#include "comm/world.h"
#include "device/plugin.h"

enum mics_device_kind {
    MICS_DEVICE_AUTO, /* GPUs if every rank has one that works, else the host */
    MICS_DEVICE_HOST,
    MICS_DEVICE_CUDA
};

/* "auto", "host", "cuda". MICS_ERR_ARG: another word; *out is unchanged. */
enum mics_status mics_device_kind_parse(const char *text, enum mics_device_kind *out,
                                        struct mics_err *err);

struct mics_job_device {
    struct mics_device *device;
    struct mics_plugin_file *plugin; /* that the device comes from; NULL: the host */
    struct mics_err why_host;        /* why AUTO selected the host; else empty */
};

/* `threads`: compute threads of the host. Collective over the world; all ranks succeed or fail with
 * the same text. MICS_ERR_UNSUPPORTED: CUDA was requested, but some rank has no usable GPU; the
 * text has the reason, and the rank if not all of them failed. */
enum mics_status mics_job_device_open(const struct mics_world *world, enum mics_device_kind kind,
                                      unsigned threads, struct mics_job_device *out,
                                      struct mics_err *err);
/* Not collective. A zeroed structure is fine. */
void mics_job_device_close(struct mics_job_device *job);

#endif
