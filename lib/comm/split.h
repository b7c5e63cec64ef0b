/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.h - who is in the new communicator of a split. For backends only.
 */
#ifndef MICS_COMM_SPLIT_H
#define MICS_COMM_SPLIT_H

#include "comm/backend.h"

/* The members of the new communicator in their new order; arrays are the caller's, by
 * mics_comm_split_fini(). size 0: this rank is in none. */
struct comm_split {
    int size, rank;
    int *parents;          /* [size] rank in the old communicator */
    int *blocks;           /* [size] */
    uint64_t greatest_tag; /* of all ranks of the old communicator, in the new one or not */
};

/* Collective over `comm`. MICS_ERR_ARG: the blocks of a color are no permutation. */
enum mics_status mics_comm_split_init(struct mics_comm *comm, int color, int key, int block,
                                      uint64_t tag, struct comm_split *out, struct mics_err *err);
void mics_comm_split_fini(struct comm_split *split);

#endif
