/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - the training state of all ranks as a checkpoint, and how it is loaded; saver.h
 * saves it.
 *
 * The checkpoint's folder must be visible to all nodes. It may have been written by a run of any
 * shape. A rank reads the ranges of its own shard, after all files have been read once, each by one
 * rank, and their sums compared. If the checkpoint is cut exactly as the run is, each rank reads
 * the files of its shards once from end to end and compares their sums at the end.
 */
#ifndef MICS_CKPT_CHECKPOINT_H
#define MICS_CKPT_CHECKPOINT_H

#include "ckpt/folder.h"
#include "ckpt/shard_file.h"
#include "comm/comm.h"

struct mics_checkpoint {
    struct mics_comm *comm; /* in node order, as in struct mics_world; not in use by others */
    uint32_t host_ranks;    /* ranks that share the cores of this machine, with this one */
    const struct mics_ckpt_layout *form;
    struct mics_ckpt_source source;
};

/* Read the manifest of the checkpoint in `folder` on rank 0 and send it to all. *doc belongs to the
 * caller. Collective. */
enum mics_status mics_checkpoint_read_manifest(struct mics_comm *comm, const char *folder,
                                               json_t **doc, struct mics_err *err);

/* Check that the checkpoint has the state of the present model and optimizer, and read this rank's
 * part into the source. `doc` is its manifest. After an error some of the state may have been
 * overwritten. Collective. */
enum mics_status mics_checkpoint_load(const struct mics_checkpoint *checkpoint, const char *folder,
                                      json_t *doc, struct mics_err *err);

/* Send a document of rank 0 to all; NULL on rank 0 is an error. *doc: input on rank 0, output on
 * the other ranks. */
enum mics_status mics_broadcast_doc(struct mics_comm *comm, json_t **doc, struct mics_err *err);

#endif
