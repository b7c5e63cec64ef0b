/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorboard.h - event files for TensorBoard.
 *
 * An event file is a sequence of records, each a protocol buffer "Event" (tensorflow/core/util/
 * event.proto) with its length and checksums, as in a TFRecord file:
 *
 *     u64 length, u32 masked CRC32C of the length, data, u32 masked CRC32C of the data
 *
 * The first event names the version of the format. The second, a session start, makes readers
 * discard what earlier files of the folder say of its step and of later ones.
 */
#ifndef MICS_TRAIN_REPORT_TENSORBOARD_H
#define MICS_TRAIN_REPORT_TENSORBOARD_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct mics_tensorboard;

/* A value of a step. */
struct mics_tensorboard_scalar {
    char tag[48]; /* "train/loss" */
    double value; /* written as fp32 */
};

enum { MICS_TENSORBOARD_MAX_SCALARS = 48 };

/* Create a file in `folder`, which is made if it is missing. `first_step`: the first step that this
 * run will write. On success the caller calls mics_tensorboard_close(). Errors begin with
 * a path. */
enum mics_status mics_tensorboard_open(const char *folder, uint64_t first_step,
                                       struct mics_tensorboard **out, struct mics_err *err);

/* Write the values of a step as one event. Allocates nothing. What is written reaches the file
 * within a second, or by mics_tensorboard_close(). count <= MICS_TENSORBOARD_MAX_SCALARS. */
enum mics_status mics_tensorboard_write(struct mics_tensorboard *tensorboard, uint64_t step,
                                        const struct mics_tensorboard_scalar *scalars, size_t count,
                                        struct mics_err *err);

/* NULL is fine. */
enum mics_status mics_tensorboard_close(struct mics_tensorboard *tensorboard, struct mics_err *err);

#endif
