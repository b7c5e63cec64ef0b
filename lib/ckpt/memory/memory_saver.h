/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_saver.h - keeps the training state in the memory of nodes while training continues.
 *
 * As saver.h, but into memory_ckpt.h's files, and with copies to other nodes (plan/copies.h):
 *
 *     begin    -> every rank has copied its shard (of each kind of unit) to shared memory; its
 *                 thread sums it up, sends it and receives the shards of others, and compares their
 *                 sums
 *     advance  -> done: one rank of each node has written the manifest
 *
 * Copies are sent on a communicator of their own, behind all other traffic. All functions but
 * mics_memory_saver_begin(), mics_memory_saver_busy() and mics_memory_saver_free() are collective
 * over the checkpoint's communicator, which the thread does not use. A failure of the thread is
 * returned by mics_memory_saver_advance() on all ranks; the generation before is then unchanged.
 */
#ifndef MICS_CKPT_MEMORY_MEMORY_SAVER_H
#define MICS_CKPT_MEMORY_MEMORY_SAVER_H

#include "ckpt/checkpoint.h"
#include "ckpt/memory/memory_ckpt.h"

struct mics_memory_saver;

struct mics_memory_saver_options {
    const char *folder;  /* of this node (mics_memory_ckpt_folder()), which is open */
    bool lead;           /* this rank writes the manifests of its node */
    uint32_t copies;     /* of each shard, on so many nodes */
    uint64_t stamp;      /* of this start */
    uint32_t generation; /* 0 or 1: where to begin; the other may have the state to continue */
};

struct mics_memory_ckpt {
    uint64_t step;
    uint64_t sent_bytes; /* by this rank, to other nodes */
    double seconds;      /* from the beginning until it was complete */
    double copy_s;       /* until this rank had copied its shard */
    double pause_s;      /* until training could continue; set by the caller of begin */
};

/* Takes all memory that keeping needs. The storage of `checkpoint` and of the folder's name must
 * outlive the saver. MICS_ERR_IO: a node has too little shared memory. */
enum mics_status mics_memory_saver_new(const struct mics_checkpoint *checkpoint,
                                       const struct mics_memory_saver_options *options,
                                       struct mics_memory_saver **out, struct mics_err *err);
/* Waits for this rank's thread. NULL is fine. */
void mics_memory_saver_free(struct mics_memory_saver *saver);

/* Keep the present state. Nothing may be under way. The saver takes over the references of
 * *manifest, of which all ranks have all members but the files, and clears it. Copies give way to
 * the traffic of steps as far as they can be sent within `within_s` seconds. */
void mics_memory_saver_begin(struct mics_memory_saver *saver, struct mics_manifest *manifest,
                             double within_s);

/* Is the state being kept? The same on all ranks. */
bool mics_memory_saver_active(const struct mics_memory_saver *saver);
/* Is this rank's thread running? */
bool mics_memory_saver_busy(const struct mics_memory_saver *saver);

/* Wait for the threads, and complete the generation. After a failure only ckpt->step is set. */
enum mics_status mics_memory_saver_advance(struct mics_memory_saver *saver,
                                           struct mics_memory_ckpt *ckpt, struct mics_err *err);

#endif
