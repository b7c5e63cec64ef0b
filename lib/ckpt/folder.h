/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h - the folder of a run and the checkpoints in it.
 *
 *     OUT/step-000400/manifest.mp, shard-00000.safetensors, ...
 *     OUT/step-000600.tmp.1234/     (being written)
 *     OUT/latest -> step-000400
 *
 * A checkpoint's folder gets its final name by one rename. Only rank 0 renames. One of the same
 * step is exchanged for it, or, on file systems that cannot, renamed to step-000400.old before and
 * removed afterwards; in between, step-000400.old is the checkpoint.
 */
#ifndef MICS_CKPT_FOLDER_H
#define MICS_CKPT_FOLDER_H

#include "base/err.h"
#include "base/file.h"
#include "base/lock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Create OUT if needed, and lock it until mics_unlock(), so that no two runs use it. Removes what a
 * killed run left under temporary names, and puts back the checkpoint that it had moved aside to
 * replace it. */
enum mics_status mics_run_folder_open(const char *out, struct mics_lock *lock,
                                      struct mics_err *err);

/* Correct the path of a checkpoint that mics_checkpoint_find() found aside, if
 * mics_run_folder_open() has put it back since. */
void mics_checkpoint_locate(char *path);

/* A new run begins in OUT, which has checkpoints of another run: until the first one of this run is
 * published, OUT counts as a folder without checkpoints for a run that begins or continues by
 * itself. `latest` is still a checkpoint of the other run, for those who name the folder. */
enum mics_status mics_run_folder_begin(const char *out, struct mics_err *err);

/* Does OUT contain checkpoints? */
enum mics_status mics_run_folder_has_checkpoints(const char *out, bool *has, struct mics_err *err);

/* buf[MICS_PATH_MAX] = the checkpoint that `path` names: a checkpoint's folder, or a run's folder,
 * of which the latest is taken. MICS_ERR_FORMAT: there is no checkpoint. With `automatic` that is
 * no error, and *found tells; the latest of a run that another one began to overwrite is none. */
enum mics_status mics_checkpoint_find(const char *path, bool automatic, char *buf, bool *found,
                                      struct mics_err *err);

/* "OUT/step-000400" and "OUT/step-000400.tmp.PID". */
enum mics_status mics_checkpoint_paths(const char *out, uint64_t step, char *final, char *temporary,
                                       struct mics_err *err);

/* Free bytes of the file system of `path`, or of its closest parent that exists. */
enum mics_status mics_free_space(const char *path, uint64_t *bytes, struct mics_err *err);

/* MICS_ERR_IO, with both sizes, unless there are `bytes` free for `what`. */
enum mics_status mics_check_space(const char *path, uint64_t bytes, const char *what,
                                  struct mics_err *err);

/* Rename a complete temporary folder to `final`, which replaces an older checkpoint of the same
 * step, and point `latest` to it. */
enum mics_status mics_checkpoint_publish(const char *out, const char *temporary, const char *final,
                                         struct mics_err *err);

/* Which checkpoints to keep: the last `last` (0: all), and those whose step is a multiple of
 * `every` (0: none for this reason). Those of later steps than the last save are of another run,
 * and are kept until this run has passed them, unless `discard_later`. */
struct mics_keep {
    uint64_t last, every;
    bool discard_later;
};

/* Remove the other checkpoints of OUT after the one of step `saved` was published; that one is
 * always kept. `before`: the step of this run's save before, or of the checkpoint that it
 * continued; what is between the two steps is of another run. */
enum mics_status mics_checkpoint_prune(const char *out, const struct mics_keep *keep,
                                       uint64_t before, uint64_t saved, struct mics_err *err);

#endif
