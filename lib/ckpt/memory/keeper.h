/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper.h - keeps the training state in the memory of nodes while training continues.
 *
 * As saver.h, but into kept.h's files, and with copies to other nodes (plan/copies.h):
 *
 *     begin    -> every rank has copied its shard to shared memory; its thread sums it up, sends it
 *                 and receives the shards of others, and compares their sums
 *     advance  -> done: one rank of each node has written the manifest
 *
 * Copies are sent on a communicator of their own, behind all other traffic. All functions but
 * mics_keeper_begin(), mics_keeper_busy() and mics_keeper_free() are collective over the
 * checkpoint's communicator, which the thread does not use. A failure of the thread is returned by
 * mics_keeper_advance() on all ranks; the generation before is then unchanged.
 */
#ifndef MICS_CKPT_MEMORY_KEEPER_H
#define MICS_CKPT_MEMORY_KEEPER_H

#include "ckpt/checkpoint.h"
#include "ckpt/memory/kept.h"

struct mics_keeper;

struct mics_keeper_options {
    const char *folder;  /* of this node (mics_kept_folder()), which is open */
    bool lead;           /* this rank writes the manifests of its node */
    uint32_t copies;     /* of each shard, on so many nodes */
    uint64_t stamp;      /* of this start */
    uint32_t generation; /* 0 or 1: where to begin; the other may have the state to continue */
};

struct mics_kept {
    uint64_t step;
    uint64_t sent_bytes; /* by this rank, to other nodes */
    double seconds;      /* from the beginning until it was complete */
    double copy_s;       /* until this rank had copied its shard */
    double pause_s;      /* until training could continue; set by the caller of begin */
};

/* The form of the kept state: as a checkpoint with one file for each shard. */
struct mics_ckpt_form mics_keeper_form(const struct mics_ckpt_form *form);

/* Bytes of a shard. */
uint64_t mics_keeper_shard_bytes(const struct mics_ckpt_form *form);

/* Takes all memory that keeping needs. The storage of `checkpoint` and of the folder's name must
 * outlive the keeper. MICS_ERR_IO: a node has too little shared memory. */
enum mics_status mics_keeper_new(const struct mics_checkpoint *checkpoint,
                                 const struct mics_keeper_options *options,
                                 struct mics_keeper **out, struct mics_err *err);
/* Waits for this rank's thread. NULL is fine. */
void mics_keeper_free(struct mics_keeper *keeper);

/* Keep the present state. Nothing may be under way. The keeper takes over the references of
 * *manifest, of which all ranks have all members but the files, and clears it. Copies give way to
 * the traffic of steps as far as they can be sent within `within_s` seconds. */
void mics_keeper_begin(struct mics_keeper *keeper, struct mics_manifest *manifest, double within_s);

/* Is the state being kept? The same on all ranks. */
bool mics_keeper_active(const struct mics_keeper *keeper);
/* Is this rank's thread running? */
bool mics_keeper_busy(const struct mics_keeper *keeper);

/* Wait for the threads, and complete the generation. After a failure only kept->step is set. */
enum mics_status mics_keeper_advance(struct mics_keeper *keeper, struct mics_kept *kept,
                                     struct mics_err *err);

#endif
