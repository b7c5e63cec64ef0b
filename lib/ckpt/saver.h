/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saver.h - checkpoints written while training goes on.
 *
 * mics_saver_begin() copies this rank's part of the state into a snapshot, which is allocated once, and
 * leaves the writing to a thread. Ranks then work each for itself until none is busy, and go on to the next
 * stage together:
 *
 *     begin ---> every rank writes its file ---> advance ---> rank 0 writes the manifest, ---> advance
 *               syncs it and reads it back                   renames, removes old ones         (done)
 *
 * All calls but mics_saver_busy() and mics_saver_bytes() are collective over the checkpoint's communicator; the
 * threads use none. A failure is the same on all ranks, and comes from the call that ends its stage; then
 * the temporary folder is gone, and what was there before is untouched.
 */
#ifndef MICS_CKPT_SAVER_H
#define MICS_CKPT_SAVER_H

#include "ckpt/checkpoint.h"

#include <stdbool.h>

struct mics_saver;

/* What `checkpoint` and `out` point to outlives the saver. Allocates the snapshot. Not collective. */
enum mics_status mics_saver_new(const struct mics_checkpoint *checkpoint, const char *out,
                                const struct mics_keep *keep, struct mics_saver **out_saver,
                                struct mics_err *err);
/* Waits for this rank's thread. NULL is fine. */
void mics_saver_free(struct mics_saver *saver);

/* Bytes of this rank's snapshot; 0 on ranks whose shard others write. */
uint64_t mics_saver_bytes(const struct mics_saver *saver);

/* Begin to save as OUT/step-N; none may be under way. The manifest's step, samples, plan, training and history
 * are given (on rank 0 at least; step on all), and its references are taken over. */
enum mics_status mics_saver_begin(struct mics_saver *saver, struct mics_manifest *manifest,
                                  struct mics_err *err);

/* Is a save under way? The same on all ranks. */
bool mics_saver_active(const struct mics_saver *saver);
/* Does this rank's thread still work? */
bool mics_saver_busy(const struct mics_saver *saver);

/* End a stage, when no rank is busy (waits if one is). *done: the checkpoint is whole, and *saved tells of it. */
enum mics_status mics_saver_advance(struct mics_saver *saver, bool *done, struct mics_saved *saved,
                                    struct mics_err *err);

/* Advance until it is whole. */
enum mics_status mics_saver_wait(struct mics_saver *saver, struct mics_saved *saved,
                                 struct mics_err *err);

#endif
