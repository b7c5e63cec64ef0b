/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover.h - finds the state that the nodes of a job have in memory, and loads it.
 *
 * Finding: each rank compares the checksums of its share of its node's files; all ranks then know
 * which shards are on which nodes. The newest generation with a manifest and every shard is taken.
 *
 * Loading: the ranks may be of any other shape than those that kept the state. What a rank needs of
 * a shard it reads from its own node where the shard is there; else it receives it from a rank of a
 * node that has it. Both ends derive the same list of ranges, so only data are sent.
 */
#ifndef MICS_CKPT_MEMORY_RECOVER_H
#define MICS_CKPT_MEMORY_RECOVER_H

#include "ckpt/checkpoint.h"
#include "ckpt/memory/memory_ckpt.h"

/* Where this rank is. */
struct mics_memory_node {
    const char *folder; /* memory_ckpt.h; may be missing */
    uint32_t node, node_count;
    uint32_t local_rank, local_size;
};

/* A state that was found. The same on all ranks, except for the folder. */
struct mics_memory_state {
    json_t *doc; /* its manifest; NULL: nothing was found */
    uint64_t step, stamp;
    uint32_t generation; /* memory_ckpt.h */
    char why[256];       /* nothing, or a newer generation that is not usable, and why; or empty */
    struct mics_memory_ckpt_entry *entries; /* of all nodes, of this generation, undamaged */
    uint32_t entry_count;
    uint32_t damaged;        /* files in memory whose checksum is wrong, of any generation */
    uint32_t *nodes;         /* [world size] of each rank */
    uint64_t received_bytes; /* by this rank, over the network; set by loading */
};

void mics_memory_state_fini(struct mics_memory_state *state); /* all zeros is fine */

/* Find the newest valid state (record). Collective over `comm`, the ranks in node order; the same
 * result on all ranks. */
enum mics_status mics_memory_find(struct mics_comm *comm, const struct mics_memory_node *node,
                                  const struct mics_memory_ckpt_record *record,
                                  struct mics_memory_state *state, struct mics_err *err);

/* Check that the state is of the present model and optimizer, and read this rank's part into the
 * source. After an error some of the state may have been overwritten. Collective. */
enum mics_status mics_memory_load(const struct mics_checkpoint *checkpoint,
                                  const struct mics_memory_node *node,
                                  struct mics_memory_state *state, struct mics_err *err);

#endif
