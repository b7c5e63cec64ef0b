/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saver.h - saves checkpoints in the background while training continues.
 *
 * mics_saver_begin() copies this rank's part of the state into a snapshot, which is allocated once,
 * and starts a thread that writes it. Ranks train on until no rank's thread is busy, and then enter
 * the next stage together:
 *
 *     begin    -> every rank's thread writes its file, fsyncs it and reads it back
 *     advance  -> rank 0's thread writes the manifest, renames, removes old checkpoints
 *     advance  -> done
 *
 * All functions but mics_saver_busy(), mics_saver_written() and mics_saver_bytes() are collective
 * over the checkpoint's communicator, which the threads do not use. An error is the same on all
 * ranks and is returned by the call that ends its stage. Then the temporary folder has been removed
 * and earlier checkpoints are unchanged.
 *
 * Each optimizer shard is written once: the first `parts` ranks that hold it write a part each
 * (ckpt_table.h), so that many disks work in parallel.
 */
#ifndef MICS_CKPT_SAVER_H
#define MICS_CKPT_SAVER_H

#include "ckpt/checkpoint.h"
#include "ckpt/tokenizer_files.h"

#include <stdbool.h>

struct mics_saver;

/* What is known of a finished save. */
struct mics_saved {
    char path[MICS_PATH_MAX];
    uint64_t step, bytes;
    double seconds; /* from the beginning until the checkpoint was complete */
    double pause_s; /* until training could continue */
    double copy_s;  /* of these, copying the snapshot */
};

/* `checkpoint`'s and `out`'s storage must outlive the saver. Allocates the snapshot. Not
 * collective. */
enum mics_status mics_saver_new(const struct mics_checkpoint *checkpoint, const char *out,
                                const struct mics_keep *keep, struct mics_saver **out_saver,
                                struct mics_err *err);
/* Have rank 0 write these files into each checkpoint. They must outlive the saver. */
void mics_saver_add_tokenizer(struct mics_saver *saver, const struct mics_tokenizer_files *files);
/* Waits for this rank's thread. NULL is fine. */
void mics_saver_free(struct mics_saver *saver);

/* Size of this rank's snapshot, bytes; 0 on ranks that write no file. */
uint64_t mics_saver_bytes(const struct mics_saver *saver);

/* Bytes that this rank's thread has written and read so far, in all saves. Any thread. */
uint64_t mics_saver_written(const struct mics_saver *saver);

/* Start saving as OUT/step-N. No save may be in progress. The caller sets the manifest's step (on
 * all ranks) and its samples, base, plan, training, tokenizer and history (on rank 0). The saver
 * takes over the references in it and clears *manifest. */
enum mics_status mics_saver_begin(struct mics_saver *saver, struct mics_manifest *manifest,
                                  struct mics_err *err);

/* Is a save in progress? The same on all ranks. */
bool mics_saver_active(const struct mics_saver *saver);
/* Is this rank's thread running? */
bool mics_saver_busy(const struct mics_saver *saver);

/* End the present stage; waits for this rank's thread. *done: the checkpoint is complete and *saved
 * describes it. */
enum mics_status mics_saver_advance(struct mics_saver *saver, bool *done, struct mics_saved *saved,
                                    struct mics_err *err);

#endif
