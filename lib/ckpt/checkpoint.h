/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - all ranks save and load the state of training together.
 *
 * Each optimizer shard is written once: the first `parts` of the ranks that hold it write a part each (table.h), so
 * that many disks work. On load every rank reads the ranges of its own shard, from whatever shape of run wrote
 * them, after all files have been read once and their sums compared; where the checkpoint is cut as the run is, a rank reads the
 * files of its shard once, from end to end, and sums them meanwhile. The folder must be one that all nodes see.
 *
 * A save is in three parts, each of which all ranks finish, or fail at, together: make a temporary folder;
 * write and sync the files; write the manifest and rename. After a failure the temporary
 * folder is gone, and what was there before is untouched.
 */
#ifndef MICS_CKPT_CHECKPOINT_H
#define MICS_CKPT_CHECKPOINT_H

#include "ckpt/folder.h"
#include "ckpt/shard_file.h"
#include "comm/comm.h"

struct mics_checkpoint {
    struct mics_comm *comm; /* in node order, as in struct mics_world; idle otherwise */
    const struct mics_ckpt_form *form;
    struct mics_ckpt_source source;
};

struct mics_saved {
    char path[MICS_PATH_MAX];
    uint64_t step, bytes;
    double seconds; /* until it was whole */
    double pause_s,
        copy_s; /* until training could go on, and the part of it that copied the snapshot */
};

/* Save as OUT/step-N. The manifest's step, samples, plan, training and history are given (on rank 0
 * at least; step on all), and its references are taken over. Collective; returns when all is done: saver.h saves
 * meanwhile. */
enum mics_status mics_checkpoint_save(const struct mics_checkpoint *checkpoint, const char *out,
                                      struct mics_manifest *manifest, struct mics_saved *saved,
                                      struct mics_err *err);

/* Read the manifest of the checkpoint in `folder` on rank 0 and give it to all; *doc belongs to the
 * caller. Collective. */
enum mics_status mics_checkpoint_read_manifest(struct mics_comm *comm, const char *folder,
                                               json_t **doc, struct mics_err *err);

/* Check that the checkpoint is of the present model and optimizer, and read this rank's state. After a failure some of it
 * may have been put. Collective. */
enum mics_status mics_checkpoint_load(const struct mics_checkpoint *checkpoint, const char *folder,
                                      const json_t *doc, struct mics_err *err);

/* Give a document of rank 0 to all (NULL there is an error). *doc: on rank 0 in, elsewhere out. */
enum mics_status mics_broadcast_doc(struct mics_comm *comm, json_t **doc, struct mics_err *err);

#endif
