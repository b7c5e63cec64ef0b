/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h - the folder of a run and the checkpoints in it.
 *
 *     OUT/step-000400/manifest.mp, shard-00000.safetensors, ...
 *     OUT/step-000600.tmp.1234/     being written
 *     OUT/latest -> step-000400
 *
 * A checkpoint folder appears by one rename. Only rank 0 changes names here.
 */
#ifndef MICS_CKPT_FOLDER_H
#define MICS_CKPT_FOLDER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MICS_PATH_MAX 1024

/* Format into buf[MICS_PATH_MAX]; MICS_ERR_ARG when it does not fit. */
enum mics_status mics_path_format(char *buf, struct mics_err *err, const char *fmt, ...)
    MICS_PRINTF(3, 4);

/* Make OUT, and lock it until the returned descriptor is closed, so that two runs never share it.
 * Removes what a killed run left half written. */
enum mics_status mics_run_folder_open(const char *out, int *lock, struct mics_err *err);

/* Does OUT hold checkpoints already? */
bool mics_run_folder_has_checkpoints(const char *out);

/* The checkpoint that `path` names: a checkpoint's folder, or a run's, of which the latest is taken. With
 * `automatic`, none there is no error and *found says so. MICS_ERR_FORMAT: there is no checkpoint. */
enum mics_status mics_checkpoint_find(const char *path, bool automatic, char *buf, bool *found,
                                      struct mics_err *err);

/* "OUT/step-000400" and "OUT/step-000400.tmp.PID". */
enum mics_status mics_checkpoint_paths(const char *out, uint64_t step, char *final, char *temporary,
                                       struct mics_err *err);

/* MICS_ERR_IO, naming both amounts, unless the file system of `out` has room for `bytes`. */
enum mics_status mics_check_space(const char *out, uint64_t bytes, struct mics_err *err);

/* Put a whole temporary folder in its place (an older one there is replaced), and point `latest` to it. */
enum mics_status mics_checkpoint_publish(const char *out, const char *temporary, const char *final,
                                         struct mics_err *err);

/* Which checkpoints stay: the last `last` (0: all), and each whose step is a multiple of `every` (0: none for
 * that reason). */
struct mics_keep {
    uint64_t last, every;
};

/* Remove the others of OUT, now that the one of step `saved` is whole; it always stays. Those of later steps are
 * left from another run, and older than any of this one. */
enum mics_status mics_checkpoint_prune(const char *out, const struct mics_keep *keep,
                                       uint64_t saved, struct mics_err *err);

#endif
